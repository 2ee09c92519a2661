"""The line search of Moré and Thuente, which L-BFGS-B uses.

Moré and Thuente, Line search algorithms with guaranteed sufficient decrease, ACM Transactions on Mathematical
Software 20 (1994). Numbers that the paper leaves open are MINPACK-2's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isfinite

from pdnn.optim.line_search import Point, cubic_minimum

DECREASE, CURVATURE = 1e-3, 0.9
"""μ and η of the strong Wolfe conditions, eq. 1.1 and 1.2, as L-BFGS-B has them."""

NARROW = 0.1
"""An interval that is narrower, relative to its upper end, is not divided further."""


def more_thuente(
    look: Callable[[float], Point], start: Point, step: float, *, longest: float, looks: int
) -> Point | None:
    """A point that meets the strong Wolfe conditions, or the best one if the interval has become narrow.

    Parameters
    ----------
    look : callable
        The point at a step.
    start : Point
        At step 0, with a negative slope.
    step : float
        The first to look at, above 0.
    longest : float
        The last one allowed.
    looks : int
        Calls of `look` at most.

    Returns
    -------
    Point or None
        None if there is none after so many looks.
    """
    wanted = DECREASE * start.slope
    best = other = start  # the ends of the interval, once there is one
    low, high, bracketed = 0.0, 5 * step, False
    width, width_before, below = longest, 2 * longest, False
    for _ in range(looks):
        here = look(step)
        enough = start.loss + step * wanted
        if here.loss <= enough:
            if abs(here.slope) <= -CURVATURE * start.slope or (step == longest and here.slope <= wanted):
                return here
            below = below or here.slope >= 0

        # Section 4: until a point has decreased enough, the search is for a minimum of ψ, eq. 2.1.
        tilt = wanted if not below and enough < here.loss <= best.loss else 0.0
        ends = _tilted(best, tilt), _tilted(other, tilt)
        middle = _tilted(here, tilt)
        following, closes = _next_step(*ends, middle, bracketed, low, high)
        bracketed = bracketed or closes
        if not (middle.loss <= ends[0].loss and isfinite(here.slope)):
            other = here
        else:
            if middle.slope * ends[0].slope < 0:
                other = best
            best = here

        if bracketed:
            if abs(other.step - best.step) >= 0.66 * width_before:
                following = (best.step + other.step) / 2
            width, width_before = abs(other.step - best.step), width
            low, high = sorted((best.step, other.step))
            if not low < following < high or high - low <= NARROW * high:
                return best
        else:
            low, high = (following + times * (following - best.step) for times in (1.1, 4))
        step = min(following, longest)
    return None


def _tilted(point: Point, slope: float) -> Point:
    """The point of the function less a line."""
    return replace(point, loss=point.loss - slope * point.step, slope=point.slope - slope) if slope else point


def _next_step(
    best: Point, other: Point, here: Point, bracketed: bool, low: float, high: float
) -> tuple[float, bool]:
    """The trial value of section 4, and whether a minimum lies between `best` and `here`."""
    if not (isfinite(here.loss) and isfinite(here.slope)):
        return (best.step + here.step) / 2, True
    cubic, limit = cubic_minimum(best, here), high if here.step > best.step else low
    if here.loss > best.loss:  # case 1
        drop = (best.loss - here.loss) / (here.step - best.step)
        parabola = best.step + best.slope / (drop + best.slope) / 2 * (here.step - best.step)
        if not isfinite(cubic):  # its squares are too large
            return parabola, True
        return cubic if abs(cubic - best.step) < abs(parabola - best.step) else (cubic + parabola) / 2, True
    if here.slope * best.slope < 0:  # case 2
        return max(_secant(best, here), cubic, key=lambda step: abs(step - here.step)), True
    if abs(here.slope) < abs(best.slope):  # case 3
        if not (cubic - here.step) * (here.step - best.step) > 0:
            cubic = limit
        choose = min if bracketed else max
        step = choose(cubic, _secant(best, here), key=lambda step: abs(step - here.step))
        if not bracketed:
            return min(max(step, low), high), False
        furthest = here.step + 0.66 * (other.step - here.step)
        return (min if here.step > best.step else max)(step, furthest), False
    if not bracketed:  # case 4
        return limit, False
    cubic = cubic_minimum(other, here)
    return cubic if isfinite(cubic) else (other.step + here.step) / 2, False


def _secant(a: Point, b: Point) -> float:
    """Where the line through two slopes is 0."""
    return b.step + b.slope / (b.slope - a.slope) * (a.step - b.step)
