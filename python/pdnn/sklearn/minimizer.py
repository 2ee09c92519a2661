"""L-BFGS as scikit-learn's estimators have it: SciPy's L-BFGS-B without bounds, in vectors of the core."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite

import numpy as np

from pdnn.optim.inverse_hessian import InverseHessian, dot
from pdnn.optim.line_search import Point
from pdnn.optim.more_thuente import more_thuente
from pdnn.store import Array

KEPT = 10
"""Differences of gradients that are kept."""

LEAST_DECREASE = 1e7 * float(np.finfo(np.float64).eps)
"""Of the loss, relative to it (or to 1 if it is less): less is the end."""

LONGEST, LOOKS = 1e10, 20
"""The longest step, and how many a line search tries at most."""


@dataclass(frozen=True)
class Minimum:
    """Where the minimization ended.

    Attributes
    ----------
    x : ndarray of float64, shape (n,)
    iterations : int
    reached : bool
        Whether it is a minimum, as far as the tolerances can tell.
    reason : str
        Why it ended.
    """

    x: Array
    iterations: int
    reached: bool
    reason: str


def minimize(
    function: Callable[[Array], tuple[float, Array]],
    x: Array,
    *,
    max_iter: int,
    max_fun: int,
    tolerance: float,
    after: Callable[[float, Array], object],
) -> Minimum:
    """Minimizes a function of n numbers by SciPy's steps (Zhu, Byrd, Lu and Nocedal, ACM TOMS 23, 1997).

    Parameters
    ----------
    function : callable
        The value and the gradient, shape (n,), at a point.
    x : ndarray of float64, shape (n,)
        Where to begin.
    max_iter, max_fun : int
        Iterations and evaluations at most; the latter are counted after an iteration.
    tolerance : float
        It ends where no element of the gradient is larger.
    after : callable
        Called with the value and the point after each iteration.

    Raises
    ------
    FloatingPointError
        If the value or the gradient is not finite where it begins.
    """
    known, evaluations, iterations = InverseHessian.empty(KEPT, x), 1, 0
    loss, gradient = function(x)
    if not (isfinite(loss) and np.isfinite(gradient).all()):
        raise FloatingPointError(f"the value is {loss:g}, and it or its gradient is not finite")

    def ended(reached: bool, reason: str) -> Minimum:
        return Minimum(x, iterations, reached, reason)

    if np.abs(gradient).max(initial=0) <= tolerance:
        return ended(True, "the gradient is within the tolerance")
    while True:
        direction = known.direction(gradient)
        slope = dot(gradient, direction)

        def look(step: float, x: Array = x, direction: Array = direction) -> Point:
            nonlocal evaluations
            evaluations += 1
            loss, gradient = function(x + step * direction)
            return Point(step, loss, dot(gradient, direction), gradient)

        first = 1.0 if iterations else min(1 / dot(direction, direction) ** 0.5, LONGEST)
        start = Point(0.0, loss, slope, gradient)
        found = more_thuente(look, start, first, longest=LONGEST, looks=LOOKS) if slope < 0 else None
        if found is None:
            if known.forget():  # steepest descent may still find a way down
                continue
            return ended(False, "no step along the gradient makes the loss less")
        before, change = loss, found.gradient - gradient
        x, loss, gradient = x + found.step * direction, found.loss, found.gradient
        iterations += 1
        after(loss, x)
        if iterations >= max_iter:
            return ended(False, f"max_iter={max_iter} iterations are over")
        if evaluations > max_fun:
            return ended(False, f"max_fun={max_fun} evaluations are over")
        if np.abs(gradient).max() <= tolerance:
            return ended(True, "the gradient is within the tolerance")
        if before - loss <= LEAST_DECREASE * max(abs(before), abs(loss), 1):
            return ended(True, "the loss decreases no more")
        curvature = (found.slope - slope) * found.step
        known.learn(found.step * direction, change, curvature, slope * found.step)
