"""Holding out a part of a data set for testing."""

from __future__ import annotations

from math import ceil

import numpy as np

from pdnn.checks import integer, number
from pdnn.data.dataset import Dataset, Subset


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
    seed : int, not negative

    Returns
    -------
    train, test : Subset

    Raises
    ------
    TypeError, ValueError
        If `test` is not a share, or the seed no such integer.
    """
    number("train_test_split", "test", test, "a share in [0, 1]", lambda found: 0 <= found <= 1)
    order = np.random.RandomState(integer("train_test_split", "seed", seed, 0)).permutation(len(dataset))
    held_out = ceil(test * len(dataset))
    return Subset(dataset, order[held_out:]), Subset(dataset, order[:held_out])
