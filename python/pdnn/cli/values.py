"""What options take: numbers in range, refused with exit code 2 and a sentence otherwise."""

from __future__ import annotations

import argparse
import math


def positive_int(text: str) -> int:
    """A whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def positive_float(text: str) -> float:
    """A finite number above 0."""
    number = _finite(text)
    if number <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def non_negative_float(text: str) -> float:
    """A finite number of at least 0."""
    number = _finite(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 0")
    return number


def share(text: str, expected: str) -> float:
    """A number between 0 and 1; `expected` ends the sentence about others."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is {expected}")
    return number


def _finite(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number")
    return number
