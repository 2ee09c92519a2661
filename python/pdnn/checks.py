"""What every room checks of the numbers and shapes that it is given.

Messages begin with the owner, which is a name or an object of the class to be named.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from math import inf, isfinite, isnan
from numbers import Integral, Real
from operator import index
from typing import Any

import numpy as np

_DEPTH = 8  # of lists in lists


def number(
    owner: object,
    name: str,
    value: float,
    expected: str = "a number",
    valid: Callable[[float], bool] = lambda found: not isnan(found),
) -> float:
    """The value as an int or a float; TypeError if it is no number, or a bool, ValueError if not `valid`.

    `expected` describes what is. An integer that no float64 can hold is never valid.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{_named(owner)}: {name} is {value!r}, expected {expected}")
    try:
        fits = valid(float(value))
    except OverflowError:  # an integer of too many digits
        fits = False
    if not fits:
        raise ValueError(f"{_named(owner)}: {name} = {value}; expected {expected}")
    return int(value) if isinstance(value, Integral) else float(value)


def finite(owner: object, name: str, value: float) -> float:
    """The value; TypeError if it is no number, ValueError if it is none that a float64 can have."""
    return number(owner, name, value, "a finite number", isfinite)


def positive(owner: object, name: str, value: float) -> float:
    """The value; TypeError if it is no number, ValueError unless it is finite and above 0."""
    return number(owner, name, value, "a number above 0", lambda found: 0 < found < inf)


def positive_attribute(name: str, doc: str) -> Any:
    """A property that takes what is `positive`, and may be changed."""

    def check(self: object, value: float) -> None:
        vars(self)[name] = float(positive(self, name, value))

    return property(lambda self: vars(self)[name], check, doc=doc)


def integer(owner: object, name: str, value: Any, least: int | None = None, bits: int = 64) -> int:
    """The value as an int; TypeError if it is no integer, or a bool, ValueError if it is below least.

    What has a least value is a signed number of so many bits in the core; ValueError if it is none.
    """
    expected = "an integer" if least is None else f"an integer from {least}"
    try:
        found = None if isinstance(value, bool) else index(value)
    except TypeError:
        found = None
    if found is None:
        raise TypeError(f"{_named(owner)}: {name} is {value!r}, expected {expected}")
    if least is not None and found < least:
        raise ValueError(f"{_named(owner)}: {name} = {value}; expected {expected}")
    if least is not None and found >= 2 ** (bits - 1):
        raise ValueError(f"{_named(owner)}: {name} = {value}; expected {expected} to 2**{bits - 1} - 1")
    return found


def flag(owner: object, name: str, value: Any) -> bool:
    """The value as a bool; TypeError if it is none, as a word, which would mean True whatever it says."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{_named(owner)}: {name} is {value!r}, expected True or False")
    return bool(value)


def several(owner: object, name: str, values: Any, expected: str) -> list[Any]:
    """The values in a list; TypeError if they are one thing, or a word."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise TypeError(f"{_named(owner)}: {name} is of type {kind_of(values)}, expected {expected}")
    return list(values)


def shape_of_sample(owner: object, value: Any) -> tuple[int, ...]:
    """The shape of a sample; TypeError if it is no sequence of integers, ValueError if one is below 0."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(
            f"{_named(owner)}: input_shape is {value!r}, expected the shape of one sample, such as (784,) or "
            "(3, 32, 32)"
        )
    return tuple(integer(owner, "a size in input_shape", size, 0) for size in value)


def plain(owner: object, settings: Any) -> Any:
    """The settings as a file gives them back; TypeError if JSON cannot hold them."""
    import json

    try:
        return json.loads(json.dumps(settings))
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{_named(owner)}: checkpoints cannot hold the settings {settings} ({error}); expected numbers, "
            "words, and lists or dicts of such"
        ) from None


def same_settings(had: Any, has: Any) -> bool:
    """Whether settings of a file are these, as JSON has them: tuples are lists, 1 is 1.0, NaN is NaN."""
    import json

    now = plain("checkpoint", has)
    return bool(had == now or json.dumps(had, sort_keys=True) == json.dumps(now, sort_keys=True))


def _named(owner: object) -> str:
    return owner if isinstance(owner, str) else type(owner).__name__


def kind_of(given: object) -> str:
    """The name of its class, with its module where that is of torch, which has pdnn's names."""
    kind = type(given)
    if kind.__module__.startswith("torch"):
        return f"{kind.__module__}.{kind.__name__}"
    return kind.__name__


def masked(given: Any) -> bool:
    """Whether it is a masked array with masked entries, whose values mean nothing, or holds such arrays."""
    if isinstance(given, np.ma.MaskedArray):
        return bool(np.ma.getmaskarray(given).any())
    dtype = getattr(given, "dtype", None)
    if isinstance(dtype, np.dtype) and dtype == np.object_:
        given = np.asarray(given).tolist()
    level = [given] if isinstance(given, (list, tuple)) else []
    for _ in range(_DEPTH):
        kinds = set(map(type, chain.from_iterable(level)))  # few, of numbers that may be many
        if not any(issubclass(kind, (list, tuple, np.ma.MaskedArray)) for kind in kinds):
            return False
        inside = list(chain.from_iterable(level))
        if any(masked(each) for each in inside if isinstance(each, np.ma.MaskedArray)):
            return True
        level = [each for each in inside if isinstance(each, (list, tuple))]
    return False


def undated(where: str, name: str, given: object) -> None:
    """Raises TypeError if it is a table of polars or pyarrow with dates, of which NumPy may make numbers."""
    schema = getattr(given, "schema", None)
    arrow = sys.modules.get("pyarrow")
    if arrow is not None and isinstance(schema, arrow.Schema):
        columns = [(field.name, field.type, arrow.types.is_temporal(field.type)) for field in schema]
    else:
        types = schema.items() if isinstance(schema, Mapping) else ()
        columns = [(column, dtype, getattr(dtype, "is_temporal", bool)()) for column, dtype in types]
    for column, dtype, is_temporal in columns:
        if is_temporal:
            raise TypeError(
                f"{where}: {name} has dtype {dtype} in column {column}, expected numbers or booleans; "
                "make numbers of it, such as years or days"
            )


def unmasked(where: str, name: str, given: object) -> None:
    """Raises ValueError if it is `masked`."""
    if masked(given):
        raise ValueError(f"{where}: {name} has masked entries; fill them, or leave their rows out")
