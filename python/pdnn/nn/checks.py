"""What layers and losses check of their arguments."""

from __future__ import annotations

from numbers import Real


def number(owner: object, name: str, value: float, expected: str = "a number") -> float:
    """The value; raises TypeError if it is no number."""
    if not isinstance(value, Real):
        raise TypeError(f"{type(owner).__name__}: {name} is {value!r}, expected {expected}")
    return value
