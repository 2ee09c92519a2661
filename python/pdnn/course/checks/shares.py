"""What sheets have in common: rows dealt out in shares."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from pdnn.course.compare import all_rows
from pdnn.course.submission import Wrong


def check_shares(name: str, function: Callable[[int, int], Iterable[tuple[int, int]]]) -> str:
    """Checks a function that cuts n rows into k pairs (begin, end): the first n % k have one row more.

    Raises
    ------
    Wrong
        If rows are lost, twice there, or shared out in other sizes.
    """
    for n, k in [(11, 3), (12, 3), (5, 4)]:
        what = f"{name}({n}, {k})"
        shares = function(n, k)
        if shares is None:
            raise Wrong(f"{what} is None: is a `return` missing?")
        shares = list(shares)
        if len(shares) != k:
            raise Wrong(f"{what} has {len(shares)} pairs, not {k}")
        all_rows(what, np.concatenate([np.arange(begin, end) for begin, end in shares]), n, of="")
        sizes = [int(end - begin) for begin, end in shares]
        expected = [n // k + (number < n % k) for number in range(k)]
        if sizes != expected:
            raise Wrong(f"{what} have {sizes} rows, not {expected}")
        if [int(begin) for begin, _ in shares] != [sum(expected[:number]) for number in range(k)]:
            raise Wrong(f"{what} are not in the order of rows")
    return "also where the rows can't be divided equally"
