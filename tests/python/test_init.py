"""Initializers: torch's widths, and values that depend on seed, layer and element alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pdnn import nn
from pdnn.nn import init

# Of both libraries: an initializer, its options, and pdnn's name of it.
PEERS: list[tuple[str, dict[str, Any], init.Initializer]] = [
    ("kaiming_uniform_", {}, init.kaiming_uniform()),
    ("kaiming_uniform_", {"a": 5**0.5}, init.fan_in_uniform()),
    ("kaiming_uniform_", {"a": 0.2, "mode": "fan_out"}, init.kaiming_uniform(0.2, "fan_out")),
    ("kaiming_normal_", {"mode": "fan_out"}, init.kaiming_normal(mode="fan_out")),
    ("kaiming_normal_", {}, init.kaiming_normal()),
    ("kaiming_normal_", {"a": 3.0}, init.kaiming_normal(3.0)),
    ("xavier_uniform_", {"gain": 2.0}, init.xavier_uniform(2.0)),
    ("xavier_normal_", {}, init.xavier_normal()),
    ("normal_", {"std": 0.3}, init.normal(0.3)),
    ("uniform_", {"a": -0.2, "b": 0.2}, init.uniform(0.2)),
    ("ones_", {}, init.ones()),
    ("zeros_", {}, init.zeros()),
    ("constant_", {"val": 0.7}, init.constant(0.7)),
]


def weight(initializer: init.Initializer, seed: int = 1) -> np.ndarray:
    layer = nn.Linear(300, 500, bias=False, weight_init=initializer)
    return next(nn.Sequential(layer, seed=seed).parameters()).data


@pytest.mark.parametrize(("name", "options", "ours"), PEERS)
def test_widths_are_torchs(name: str, options: dict[str, Any], ours: init.Initializer) -> None:
    torch = pytest.importorskip("torch")
    theirs = torch.empty(500, 300)  # torch's weights are (outputs, inputs)
    torch.manual_seed(0)
    getattr(torch.nn.init, name)(theirs, **options)
    values, want = weight(ours), theirs.numpy()
    assert values.std() == pytest.approx(want.std(), rel=0.01)
    assert values.mean() == pytest.approx(want.mean(), abs=0.01 * max(float(want.std()), 1e-9))
    if ours.distribution != "normal":
        assert np.abs(values).max() == pytest.approx(np.abs(want).max(), rel=1e-3)


def test_values_depend_on_seed_layer_and_element_alone() -> None:
    np.testing.assert_array_equal(weight(init.normal()), weight(init.normal()))
    assert (weight(init.normal(), seed=2) != weight(init.normal())).mean() > 0.99
    first, second = (
        nn.Sequential(nn.Linear(300, width, bias=False), nn.Linear(width, 4, bias=False), seed=1)
        for width in (7, 9)
    )
    one, other = (next(model.parameters()).data.ravel() for model in (first, second))
    np.testing.assert_array_equal(one, other[: one.size])  # a wider layer draws more of the same sequence


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (
            lambda: init.constant(float("nan")),
            ValueError,
            "Linear: the value of weight_init = nan; expected a fin",
        ),
        (lambda: init.normal(float("inf")), ValueError, "Linear: the value of weight_init = inf"),
        (
            lambda: init.uniform("1"),
            TypeError,
            "Linear: the value of weight_init is '1', expected a finite num",
        ),
        (
            lambda: init.Initializer("gamma", 1.0),
            ValueError,
            "distribution 'gamma'; expected one of .'uniform'",
        ),
        (
            lambda: init.Initializer("normal", 1.0, "all"),
            ValueError,
            "fan 'all'; expected one of .'none', 'in'",
        ),
        (lambda: init.kaiming_normal(float("nan")), ValueError, "init: a = nan; expected a finite number"),
        (lambda: init.xavier_uniform(None), TypeError, "init: gain is None, expected a finite number"),
    ],
)
def test_what_cannot_be_drawn_is_refused(make: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        nn.Linear(2, 3, weight_init=make())


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ValueError, match='mode "fan_sum"'):
        init.kaiming_normal(mode="fan_sum")  # type: ignore[arg-type]
