"""Arrays of a student against the right ones: what is wrong with them in words."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pdnn.course.submission import Wrong

Array = NDArray[Any]
Result = TypeVar("Result")


def same(
    what: str, got: object, right: Array | float, wrong: Mapping[str, Array | float] | None = None
) -> str:
    """Compares a result with the right one.

    Parameters
    ----------
    what : str
        What it is, as the subject of a sentence.
    got : object
        What the student's code returned.
    right : array or float
    wrong : mapping, optional
        Results of known mistakes, by the words for them.

    Returns
    -------
    str
        That it is right, and how closely.

    Raises
    ------
    Wrong
        With the words of the known mistake; or by which factor it is off; or where it differs.
    """
    right = np.asarray(right, np.float64)
    values = _array(what, got, right.shape)
    size = float(np.abs(right).max(initial=0)) or 1.0

    def near(other: Array | float) -> bool:
        return bool(np.abs(values - other).max(initial=0) <= 1e-7 * size)

    if near(right):
        error = np.abs(values - right).max(initial=0) / size
        return f"{what} is right to {error:.0e}" if error else f"{what} is right to the last bit"
    for words, other in (wrong or {}).items():
        if near(other):
            raise Wrong(f"{what}: {words}")
    ratio = float(np.vdot(values, right) / (np.vdot(right, right) or 1))
    if right.size > 1 and abs(ratio) > 1e-6 and near(ratio * right):
        raise Wrong(f"{what} is {_factor(ratio)} what it should be, in every element")
    if right.ndim == 0:
        raise Wrong(f"{what} {_is_not(float(values), float(right))}")
    off = np.abs(values - right) > 1e-7 * size
    first = tuple(int(index[0]) for index in np.nonzero(off))
    place = f"[{', '.join(map(str, first))}] {_is_not(values[first], right[first])}"
    raise Wrong(f"{what}: {off.sum()} of {off.size} elements are wrong; the first, {place}")


def _is_not(got: float, right: float) -> str:
    """``"is 1, not 2"``: two different numbers, with as many digits as tell them apart."""
    digits = next(each for each in (6, 9, 12, 17) if f"{got:.{each}g}" != f"{right:.{each}g}")
    return f"is {got:.{digits}g}, not {right:.{digits}g}"


def returned(what: str, got: Result | None) -> Result:
    """What the student's code returned; raises `Wrong` if that is None."""
    if got is None:
        raise Wrong(f"{what} returned None: is a `return` missing?")
    return got


def _array(what: str, got: Any, shape: tuple[int, ...] | None = None) -> Array:
    """The values, if they are numbers, and of this shape if one is given."""
    if got is None:
        raise Wrong(f"{what} is None: is a `return` missing?")
    try:
        if np.asarray(got).dtype.kind in "USc":  # text, or complex: they would become numbers
            raise TypeError
        values = np.asarray(got, np.float64)
    except (TypeError, ValueError):
        raise Wrong(f"{what} is of type {type(got).__name__}, not an array of numbers") from None
    if shape is not None and values.shape != shape:
        raise Wrong(f"{what} has the shape {values.shape}, not {shape}")
    if not np.isfinite(values).all():
        raise Wrong(f"{what} has values that are not finite ({values[~np.isfinite(values)].flat[0]})")
    return values


def _factor(ratio: float) -> str:
    """``"2 ×"``, ``"1/3 ×"``."""
    near = Fraction(ratio).limit_denominator(1000)
    return f"{near if abs(near - ratio) < 1e-6 * abs(ratio) else f'{ratio:.4g}'} ×"


def read_only(array: Array) -> Array:
    """The array, into which nobody can write any more: the check needs its values afterwards."""
    array.flags.writeable = False
    return array


def all_rows(what: str, rows: object, n: int, of: str = " of each epoch") -> Array:
    """Checks that row numbers are each of 0..n-1 once, in any order; returns them. `of` says of what.

    Raises
    ------
    Wrong
        With the rows that are missing, or twice there.
    """
    values = _array(what, rows)
    if values.ndim != 1 or (values != np.floor(values)).any():
        raise Wrong(f"{what} are no row numbers: shape {values.shape}")
    numbers = values.astype(np.int64)
    if ((numbers < 0) | (numbers >= n)).any():
        beyond = numbers[(numbers < 0) | (numbers >= n)][0]
        raise Wrong(f"{what} have row {beyond}, but there are only rows 0 to {n - 1}")
    counts = np.bincount(numbers, minlength=n)
    missing, twice = np.flatnonzero(counts == 0), np.flatnonzero(counts > 1)
    if len(missing) and missing[0] == n - len(missing):
        last = f"the last row{of} is" if len(missing) == 1 else f"the last {len(missing)} rows{of} are"
        raise Wrong(f"{what}: {last} dropped ({rows_in_words(missing)}){_also(twice)}")
    if len(missing):
        raise Wrong(f"{what}: missing {rows_in_words(missing)} of {n}{_also(twice)}")
    if len(twice):
        raise Wrong(f"{what}: more than once {rows_in_words(twice)}")
    return numbers


def _also(twice: Array) -> str:
    return f"; more than once {rows_in_words(twice)}" if len(twice) else ""


def rows_in_words(rows: Array) -> str:
    """``"row 3"``, ``"rows 0 to 24"``, ``"rows 3, 7, 11"``: of row numbers that rise."""
    if len(rows) == 1:
        return f"row {rows[0]}"
    if (np.diff(rows) == 1).all():
        return f"rows {rows[0]} to {rows[-1]}"
    return f"rows {', '.join(map(str, rows[:5]))}" + (" …" if len(rows) > 5 else "")
