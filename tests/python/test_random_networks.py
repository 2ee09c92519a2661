"""Random nested networks: the static form equals its layers called one by one in Python."""

from __future__ import annotations

from typing import Any

import numpy as np

import pdnn
from pdnn import nn
from random_networks import Part, draw_parts, draw_shape
from random_rounds import random_rounds


class Whole(nn.Module):
    def __init__(self, part: nn.Module) -> None:
        super().__init__(dtype="float64", seed=1)
        self.part = part

    def forward(self, x: Any) -> Any:
        return self.part(x)


def assert_close(got: Any, want: Any) -> None:
    largest = np.abs(want).max(initial=1)
    np.testing.assert_allclose(got, want, rtol=1e-8, atol=1e-8 * largest)


def check(rng: np.random.Generator) -> None:
    shape = draw_shape(rng)
    parts, out = draw_parts(rng, shape, int(rng.integers(7)), 2, {})
    print(shape, *parts)
    static = nn.Sequential(*(part.static() for part in parts), dtype="float64", seed=1)
    by_hand = Whole(Part("Sequential", parts).by_hand())
    for parameter, other in zip(static.parameters(), by_hand.parameters(), strict=True):
        assert parameter.shape == other.shape
        other.data = parameter.data
    rows = int(rng.integers(1, 6))
    x = rng.standard_normal((rows, *shape))
    static.eval(), by_hand.eval()
    with pdnn.no_grad():
        want = by_hand(x).numpy()
    assert want.shape == (rows, *out)
    assert_close(static.predict(x), want)
    with pdnn.no_grad():
        assert_close(static(x).numpy(), want)
    if len(out) > 1 or not list(static.parameters()):
        return
    static.train(), by_hand.train()
    targets, loss = rng.standard_normal((rows, *out)), nn.MSELoss()
    value, gradient = static.gradient(x, targets, loss)
    outcome = loss(by_hand(x), targets)
    outcome.backward()
    assert_close(value, outcome.item())
    gradients = [parameter.grad.ravel() for parameter in by_hand.parameters()]
    assert_close(gradient, np.concatenate([*gradients, []]))


def test_static_networks_are_their_layers_one_by_one() -> None:
    random_rounds(400, check)
