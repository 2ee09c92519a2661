"""Which rows go into which batch: the general rule, and one that only fits the exercise it comes from."""

from __future__ import annotations

import numpy as np

from pdnn import _core
from pdnn.data.checks import Indices


def epoch_order(n: int, seed: int, epoch: int) -> Indices:
    """A shuffle of 0..n-1 that depends on (seed, epoch, n) only: the one that a `Trainer` takes."""
    order: Indices = _core.epoch_order(seed % 2**64, epoch, n)
    return order


def minibatches(n: int, batch_size: int, *, seed: int = 0, epoch: int = 0) -> list[Indices]:
    """The general rule: every row once, in a fresh shuffle each epoch; the last batch may be smaller.

    Parameters
    ----------
    n : int
        Rows of the data set; any number.
    batch_size : int
        Rows of each batch but the last.
    seed, epoch : int, not negative
        The key of the shuffle.

    Returns
    -------
    list of ndarray, shape (batch_size or fewer,), int64
        Row numbers.
    """
    return cut(epoch_order(n, seed, epoch), batch_size)


def cut(order: Indices, batch_size: int) -> list[Indices]:
    """Views of `order`, `batch_size` entries each, the last perhaps fewer."""
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, expected at least 1")
    return [order[begin : begin + batch_size] for begin in range(0, len(order), batch_size)]


def legacy_batches(n: int, batch: int = 105, count: int = 104, seed: int = 42) -> list[Indices]:
    """The batching of the thread-pool exercise (workload W0), kept so that its figures can be compared.

    The number of batches starts at `count` and falls until it divides `n`; the rows are shuffled with a seed
    that is set again every epoch, so every epoch has the same batches; row i of the shuffle goes to batch
    i // `batch`. With n = 10,500 that is 100 batches of 105. The size is written down beside the count and
    does not follow from it, so the rule breaks for most other n: use `minibatches` there.

    Returns
    -------
    list of ndarray, shape (batch,), int64

    Raises
    ------
    ValueError
        If the number of batches times `batch` is not `n`.
    """
    while n % count:
        count -= 1
    if count * batch != n:
        raise ValueError(
            f"legacy_batches: {n} rows make {count} batches, which do not hold {batch} rows each; "
            "use minibatches"
        )
    return cut(np.random.RandomState(seed).permutation(n).astype(np.int64), batch)
