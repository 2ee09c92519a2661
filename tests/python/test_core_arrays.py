"""What the core says of arrays as Python hands them over, whoever has looked at them before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pdnn.core import core_for

CORE = core_for("float64")
LABELS = np.zeros(3, "int32")
COLUMNS, STARTS = np.array([0, 2, 1], "int32"), np.array([0, 1, 2, 3])


def dense(x: np.ndarray) -> Any:
    return CORE.Source(x, LABELS)


def sparse(columns: np.ndarray = COLUMNS, starts: np.ndarray = STARTS) -> Any:
    return CORE.Source(np.ones(3), columns, starts, 4, LABELS)


def packed() -> np.ndarray:
    """Rows of two numbers and a byte."""
    return np.zeros(3, [("x", "float64", 2), ("more", "uint8")])["x"]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dense(np.zeros((3, 4)).T.reshape(4, 3)[:3, ::2]), "the samples of x are not C-contiguous"),
        (lambda: dense(np.zeros((3, 2, 2)).transpose(0, 2, 1)), "the samples of x are not C-contiguous"),
        (lambda: dense(packed()), "the rows of x do not start on whole elements"),
        (lambda: dense(np.zeros(3)), r"x has shape \(3,\), expected one row a sample"),
        (lambda: sparse(columns=COLUMNS[:2]), "got 3 values and 2 columns"),
        (lambda: sparse(columns=COLUMNS + 2), "column 4 of 4"),
        (lambda: sparse(columns=COLUMNS - 1), "column -1 of 4"),
        (lambda: sparse(starts=STARTS + 1), "the starts of rows do not rise from 0 to 3"),
        (lambda: sparse(starts=STARTS[::-1].copy()), "the starts of rows do not rise from 0 to 3"),
        (lambda: dense(np.zeros((3, 4))).gather(np.array([0, 3])), "row 3 of 3"),
        (lambda: dense(np.zeros((3, 4))).gather(np.array([0, -1])), "row -1 of 3"),
        (lambda: dense(np.zeros((3, 4))).gather(np.arange(6)[::2]), "array is not C-contiguous"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()
