"""Line search for a step length that meets the strong Wolfe conditions.

Nocedal and Wright, Numerical Optimization, 2nd edition (2006): algorithms 3.5 and 3.6, eq. 3.7 and 3.59.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import copysign, inf, isfinite, nan, sqrt

from pdnn.store import Array

DECREASE, CURVATURE = 1e-4, 0.9
"""c₁ and c₂ of eq. 3.7, as the book has them for quasi-Newton directions."""


@dataclass
class Point:
    """A point of the line.

    Attributes
    ----------
    step : float
        How far from its beginning, in lengths of the direction.
    loss, slope : float
        The loss there and its derivative along the line; inf and nan where it is not finite.
    gradient : ndarray
        The gradient there.
    """

    step: float
    loss: float
    slope: float
    gradient: Array


def strong_wolfe(
    look: Callable[[float], Point],
    start: Point,
    step: float,
    *,
    least: float,
    looks: int,
    most: int,
    noise: float,
) -> Point:
    """A point that meets the strong Wolfe conditions, or the best one known when the search must end.

    Parameters
    ----------
    look : callable
        The point at a step.
    start : Point
        At step 0, with a negative slope.
    step : float
        The first to look at, above 0.
    least : float
        An interval of steps shorter than this is not divided further.
    looks : int
        Calls of `look` at most, at least 1, once a better point than `start` is known.
    most : int
        Calls at most until then.
    noise : float
        Losses that differ by less are equal but for rounding.

    Returns
    -------
    Point
        `start` itself if no better one was found.
    """

    def too_long(here: Point, lowest: Point) -> bool:
        enough = start.loss + DECREASE * here.step * start.slope + noise
        return not (here.loss <= enough and here.loss <= lowest.loss + noise)

    def flat(here: Point) -> bool:
        return abs(here.slope) <= -CURVATURE * start.slope

    low, made = start, 0
    while True:  # algorithm 3.5: until an interval has a point that meets the conditions
        here = look(step)
        made += 1
        if too_long(here, low):
            high = here
            break
        if flat(here):
            return here
        if here.slope >= 0:
            low, high = here, low
            break
        if made >= looks:
            return here
        step = _limited(cubic_minimum(low, here), 2 * here.step, 10 * here.step)
        low = here

    before = inf
    while made < (most if low is start else looks):  # algorithm 3.6, "zoom"
        if (width := abs(high.step - low.step)) <= least:
            break
        middle = (low.step + high.step) / 2
        step = middle
        if width <= before * 2 / 3:  # else interpolation is slow here
            margin = 0.1 * width
            ends = sorted((low.step, high.step))
            step = _limited(cubic_minimum(low, high), ends[0] + margin, ends[1] - margin, otherwise=middle)
        before = width
        here = look(step)
        made += 1
        if too_long(here, low):
            high = here
            continue
        if flat(here):
            return here
        if here.slope * (high.step - low.step) >= 0:
            high = low
        low = here
    return low


def cubic_minimum(a: Point, b: Point) -> float:
    """Where the cubic through two losses and slopes has its minimum, eq. 3.59; nan if it has none."""
    if not (isfinite(a.loss) and isfinite(b.loss)):
        return nan
    first = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.step - b.step)
    square = first * first - a.slope * b.slope
    if not square >= 0:
        return nan
    second = copysign(sqrt(square), b.step - a.step)
    below = b.slope - a.slope + 2 * second
    return b.step - (b.step - a.step) * (b.slope + second - first) / below if below else nan


def _limited(step: float, low: float, high: float, otherwise: float | None = None) -> float:
    """The step, moved into an interval; if there is none, its upper end or another."""
    if not isfinite(step):
        return high if otherwise is None else otherwise
    return min(max(step, low), high)
