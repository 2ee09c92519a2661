"""Holding out a part of a data set for testing."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from pdnn.checks import integer, number
from pdnn.data.dataset import Dataset, Subset, check_dataset


def train_test_split(dataset: Dataset | Subset, test: float = 0.25, seed: int = 0) -> tuple[Subset, Subset]:
    """Split at random, without copying a row.

    The rows are those of scikit-learn's ``train_test_split(..., test_size=test, random_state=seed)``: with p
    the permutation that ``RandomState(seed)`` draws, the test rows are the first ceil(test n) of p and the
    training rows the rest, both in the order of p.

    Parameters
    ----------
    dataset : Dataset or Subset
    test : float in [0, 1]
        Share of the rows held out.
    seed : int from 0 to 2**32 - 1

    Returns
    -------
    train, test : Subset

    Raises
    ------
    TypeError, ValueError
        If `dataset` is none, `test` is no share, or the seed no such integer.
    """
    check_draw("train_test_split", test, seed)
    check_dataset("train_test_split", dataset)
    order, held_out = drawn(len(dataset), test, seed)
    return Subset(dataset, order[held_out:]), Subset(dataset, order[:held_out])


def check_draw(where: str, test: float, seed: int, expected: str = "a share in [0, 1]") -> None:
    """Raises TypeError or ValueError if `test` is no share or `seed` not as in `train_test_split`."""
    number(where, "test", test, expected, lambda found: 0 <= found <= 1)
    integer(where, "seed", seed, 0, bits=33)


def drawn(rows: int, test: float, seed: int) -> tuple[npt.NDArray[Any], int]:
    """The permutation of the rows that `train_test_split` draws, and how many of its first it holds out."""
    return np.random.RandomState(seed).permutation(rows), ceil(test * rows)
