"""The minimizer of solver="lbfgs", beside SciPy's, and its line search."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pdnn.optim.line_search import Point
from pdnn.optim.more_thuente import more_thuente

optimize = pytest.importorskip("scipy.optimize")
pytest.importorskip("sklearn")
from pdnn.sklearn.minimizer import minimize  # noqa: E402

RNG = np.random.default_rng(0)
X, SIGN = RNG.normal(size=(200, 12)), np.sign(RNG.normal(size=200))

Function = Callable[[Any], tuple[float, Any]]


def logistic(w: Any) -> tuple[float, Any]:
    z = SIGN * (X @ w)
    gradient = -(X * (SIGN / (1 + np.exp(z)))[:, None]).mean(axis=0) + 2e-3 * w
    return float(np.logaddexp(0, -z).mean() + 1e-3 * w @ w), gradient


FUNCTIONS: dict[str, tuple[Function, Any]] = {
    "valley": (lambda w: (optimize.rosen(w), optimize.rosen_der(w)), np.full(10, -1.2)),
    "logistic": (logistic, np.zeros(12)),
    "flat": (lambda w: (1e-6 * float(w @ w) ** 2, 4e-6 * w * (w @ w)), np.full(3, 100.0)),
    "waves": (lambda w: (float(np.sin(3 * w).sum() + 0.1 * w @ w), 3 * np.cos(3 * w) + 0.2 * w), X[0] * 4),
    "kinks": (lambda w: (float(np.abs(w).sum() + 0.01 * w @ w), np.sign(w) + 0.02 * w), X[1, :5]),
    "steep": (lambda w: (float(np.exp(w).sum() - w.sum()), np.exp(w) - 1), np.array([30.0, -20, 3])),
    "large": (lambda w: (1e6 * float(w @ w), 2e6 * w), np.ones(3)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_evaluations_are_scipys(name: str) -> None:
    function, begin = FUNCTIONS[name]
    points: tuple[list[Any], list[Any]] = [], []

    def noting(notes: list[Any]) -> Function:
        def noted(w: Any) -> tuple[float, Any]:
            notes.append(w.copy())
            return function(w)

        return noted

    options = {"maxiter": 200, "maxfun": 300, "gtol": 1e-8}
    expected = optimize.minimize(noting(points[0]), begin, jac=True, method="L-BFGS-B", options=options)
    values: list[float] = []

    def after(value: float, point: Any) -> None:
        assert function(point)[0] == value
        values.append(value)

    found = minimize(noting(points[1]), begin, max_iter=200, max_fun=300, tolerance=1e-8, after=after)
    assert found.iterations == expected.nit == len(values)
    assert found.reached == expected.success
    assert len(points[1]) <= len(points[0]) <= len(points[1]) + 1  # SciPy may look twice at the last
    for theirs, own in zip(*points, strict=False):
        np.testing.assert_allclose(own, theirs, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(found.x, expected.x, rtol=1e-5, atol=1e-7)
    assert values[-1] == function(found.x)[0]


def test_it_ends_as_it_was_told() -> None:
    function, begin = FUNCTIONS["valley"]
    few = {"tolerance": 0.0, "after": lambda *_: None}
    by_iterations = minimize(function, begin, max_iter=4, max_fun=100, **few)
    assert (by_iterations.iterations, by_iterations.reached) == (4, False)
    assert "max_iter=4" in by_iterations.reason
    by_evaluations = minimize(function, begin, max_iter=100, max_fun=4, **few)
    assert not by_evaluations.reached and "max_fun=4" in by_evaluations.reason
    at_once = minimize(function, np.ones(10), max_iter=4, max_fun=9, tolerance=1e-9, after=lambda *_: None)
    assert (at_once.iterations, at_once.reached) == (0, True)


def test_a_gradient_that_lies_is_no_minimum() -> None:
    found = minimize(
        lambda w: (float(w @ w), -2 * w),
        np.ones(3),
        max_iter=9,
        max_fun=90,
        tolerance=1e-9,
        after=lambda *_: None,
    )
    assert not found.reached and "no step" in found.reason
    np.testing.assert_array_equal(found.x, np.ones(3))


def test_it_comes_back_from_where_nothing_is_finite() -> None:
    def bowl(w: Any) -> tuple[float, Any]:
        with np.errstate(invalid="ignore", divide="ignore"):
            return float(w @ w - np.log(1 - w @ w)), 2 * w + 2 * w / (1 - w @ w)

    begin = np.array([0.9, 0.3])  # whose first step is long
    found = minimize(bowl, begin, max_iter=50, max_fun=200, tolerance=1e-9, after=lambda *_: None)
    assert found.reached
    np.testing.assert_allclose(found.x, 0, atol=1e-8)


@pytest.mark.parametrize("first", [1e-3, 0.1, 10.0, 1e3])
@pytest.mark.parametrize(("beta", "minimum"), [(2.0, 2**0.5), (0.004, 1.6)])
def test_a_search_ends_well_from_any_first_step(first: float, beta: float, minimum: float) -> None:
    looks: list[float] = []

    def look(step: float) -> Point:
        looks.append(step)
        if beta == 2.0:  # function 5.1 of the paper
            loss, slope = -step / (step**2 + beta), (step**2 - beta) / (step**2 + beta) ** 2
        else:  # 5.2
            loss = (step + beta) ** 5 - 2 * (step + beta) ** 4
            slope = 5 * (step + beta) ** 4 - 8 * (step + beta) ** 3
        return Point(step, loss, slope, np.zeros(1))

    start = look(0.0)
    found = more_thuente(look, start, first, longest=1e10, looks=20)
    assert found is not None and found.step > 0
    assert found.loss <= start.loss + 1e-3 * found.step * start.slope
    met = abs(found.slope) <= 0.9 * abs(start.slope)
    assert met or abs(found.step - minimum) <= 0.1 * minimum  # where the interval has become narrow
    assert len(looks) <= 12


def test_a_search_down_an_endless_slope_takes_the_longest_step() -> None:
    steps = []

    def look(step: float) -> Point:
        steps.append(step)
        return Point(step, -step, -1.0, np.zeros(1))

    found = more_thuente(look, Point(0.0, 0.0, -1.0, np.zeros(1)), 1.0, longest=10.0, looks=20)
    assert found is not None and found.step == max(steps) == 10
