"""Which rows go into which batch."""

from __future__ import annotations

from pdnn import _core
from pdnn.checks import integer
from pdnn.data.checks import Indices


def epoch_order(n: int, seed: int, epoch: int) -> Indices:
    """A shuffle of 0..n-1 that depends on (seed, epoch, n) only: the one that a `Trainer` takes."""
    order: Indices = _core.epoch_order(seed % 2**64, epoch, n)
    return order


def minibatches(n: int, batch_size: int, *, seed: int = 0, epoch: int = 0) -> list[Indices]:
    """Every row once, in a fresh shuffle each epoch; the last batch may be smaller.

    Parameters
    ----------
    n : int
        Rows of the data set; any number.
    batch_size : int
        Rows of each batch but the last.
    seed, epoch : int
        The key of the shuffle; the epoch is not negative.

    Returns
    -------
    list of ndarray, shape (batch_size or fewer,), int64
        Row numbers.
    """
    n, epoch = (integer("minibatches", name, given, 0) for name, given in (("n", n), ("epoch", epoch)))
    seed = integer("minibatches", "seed", seed)  # any one, as of a Trainer
    return cut(epoch_order(n, seed, epoch), integer("minibatches", "batch_size", batch_size, 1))


def cut(order: Indices, batch_size: int) -> list[Indices]:
    """Views of `order`, `batch_size` entries each, the last perhaps fewer."""
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}, expected at least 1")
    return [order[begin : begin + batch_size] for begin in range(0, len(order), batch_size)]
