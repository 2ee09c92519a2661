"""What the fields of a table mean: numbers, names, or what is missing."""

from __future__ import annotations

import re
from collections import Counter
from itertools import zip_longest
from math import isfinite
from reprlib import Repr

from pdnn._core import numbers

_LONGEST = 60  # letters of a word in a message

_FEW = Repr()
_FEW.maxlist = 40
_FEW.maxstring = _LONGEST
few = _FEW.repr
"""A list of words for a message, which a table of thousands of columns must not fill."""

MISSING = ("", "?", "-", "na", "n/a", "#n/a", "<na>", "nan", "nat", "null", "none")
"""What stands for a number or a name that is not there, in small letters; among names "none" is one."""

WRITTEN_OTHERWISE = re.compile(
    r"[+\u2212-]?[$€£¥]?(?=[.,]?\d)\d*([.,'\u2019 \u00a0\u202f]\d{3})*([.,]\d+)?([eE][+-]?\d+)?"
    r"[ \u00a0\u202f]?[%$€£¥]?"
)
"""A number with a decimal comma, something between thousands, a long minus, or its % or currency."""


def are_names(words: list[str]) -> bool:
    """Whether more of these are names than numbers."""
    counted = Counter(words)  # names come often
    kinds = numbers = 0
    for word, count in counted.items():
        if word.lower() not in MISSING:
            kinds += count
            numbers += count * (is_number(word) or WRITTEN_OTHERWISE.fullmatch(word) is not None)
    return 2 * numbers < kinds


def is_alone(words: list[str]) -> bool:
    """Whether these are names, the first comes once, and each of the others more often."""
    counted = Counter(words)
    once = [word for word, count in counted.items() if count == 1]
    return len(counted) > 1 and once == words[:1] and are_names(words)


def is_number(word: str) -> bool:
    """Whether it is a number; 1_0 is none, although `float` reads it."""
    try:
        numbers([word])
    except ValueError:
        return False
    return True


def first_difference(names: list[str], expected: list[str]) -> int:
    """The place of the first name that is another one, or missing, of lists that are not the same."""
    pairs = enumerate(zip_longest(names, expected))
    return next(place for place, (name, wanted) in pairs if name != wanted)


def quoted(word: str) -> str:
    """A word for a message: not all of a long one, and escapes for letters that cannot be seen."""
    short = word if len(word) <= _LONGEST else f"{word[: _LONGEST - 1]}…"
    return f'"{short}"' if short.isprintable() else ascii(short)


def unnamed(path: str, place: int) -> ValueError:
    """What is to be said of a column without a name."""
    return ValueError(
        f"{path}: column {place} has no name, as an index that pandas or R has written, or what follows a "
        "delimiter at the ends of lines; write the table without it (to_csv(…, index=False), "
        "row.names=FALSE), or name it if it is an input"
    )


def no_number(path: str, line: int, column: str, word: str) -> ValueError:
    """What is to be said of a field that is no number, or among names is one."""
    said = quoted(word)
    if word.strip().lower() in MISSING:
        told = f"is missing{word and f' ({word})'}; fill it, or leave the line out"
    elif is_number(word) and isfinite(float(word)):
        told = f'is {said}, a number among names; write it as a name, as in "no. {word}"'
    elif is_number(word):
        told = f"is {said}, expected a number that is finite"
    elif WRITTEN_OTHERWISE.fullmatch(word.strip()):
        told = f"is {said}, expected a number with a decimal point, nothing between thousands, and no unit"
    else:
        told = f"is {said}, expected a number; encode words as numbers, such as 0 and 1"
    names = "; if this line has the names of columns, say header=True (--header yes)" if line == 1 else ""
    return ValueError(f"{path}, line {line}: column {quoted(column)} {told}{names}")
