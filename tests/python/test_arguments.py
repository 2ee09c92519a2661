"""What does not fit is refused where it is passed, by its name, and changes nothing."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pdnn import nn, optim


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4), seed=1)


def without(state: dict[str, Any], name: str) -> dict[str, Any]:
    return {other: value for other, value in state.items() if other != name}


def group_with(state: dict[str, Any], **numbers: Any) -> dict[str, Any]:
    return {**state, "param_groups": [{**state["param_groups"][0], **numbers}]}


def group_without(state: dict[str, Any], name: str) -> dict[str, Any]:
    return {**state, "param_groups": [without(state["param_groups"][0], name)]}


OPTIMIZER_STATES: list[tuple[Callable[[dict[str, Any]], dict[str, Any]], type[Exception], str]] = [
    *(
        (lambda s, n=n: without(s, n), ValueError, f"missing .'{n}'")
        for n in ("steps", "param_groups", "state")
    ),
    (lambda s: {**s, "steps": "3"}, TypeError, "steps is '3', expected an integer"),
    (lambda s: {**s, "steps": -1}, ValueError, "steps = -1"),
    (
        lambda s: group_without(s, "weight_decay"),
        ValueError,
        "group 0 has .'lr'., expected .'lr', 'weight_decay'",
    ),
    (lambda s: group_with(s, momentum=0.9), ValueError, "group 0 has .'lr', 'momentum', 'weight_decay'"),
    (lambda s: group_with(s, lr="a"), TypeError, "lr is 'a'"),
    (lambda s: {**s, "state": {"velocity": np.full(108, "x")}}, ValueError, "velocity has dtype <U1"),
]


@pytest.mark.parametrize(("change", "error", "words"), OPTIMIZER_STATES)
def test_an_optimizer_takes_a_whole_state_or_nothing(
    change: Callable[[dict[str, Any]], dict[str, Any]], error: type[Exception], words: str
) -> None:
    model = network()
    one, other = (optim.SGD(model.parameters(), lr, momentum=0.9) for lr in (0.1, 0.5))
    model.flat_gradients[...] = 1
    one.step()
    before = copy.deepcopy(other.state_dict())
    with pytest.raises(error, match=words):
        other.load_state_dict(change(one.state_dict()))
    np.testing.assert_equal(other.state_dict(), before)


def test_a_state_of_a_schedule_goes_to_an_optimizer_without_one() -> None:
    model = network()
    one, other = (optim.SGD(model.parameters(), lr) for lr in (0.1, 0.5))
    optim.StepLR(one, 1).step()
    other.load_state_dict(one.state_dict())
    assert other.param_groups[0]["lr"] == pytest.approx(0.01)


def test_a_model_takes_a_whole_state_or_nothing() -> None:
    model = network()
    before = model.fingerprint()
    state = {name: np.zeros_like(array) for name, array in model.state_dict().items()}
    with pytest.raises(ValueError, match=r"load_state_dict: 2.bias has dtype <U1, expected numbers"):
        model.load_state_dict(state | {"2.bias": np.full(4, "x")})
    assert model.fingerprint() == before
