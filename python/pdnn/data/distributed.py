"""Which rows are whose: a sampler for one of several ranks, and a partition into shares."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import accumulate, pairwise
from operator import index

import numpy as np

from pdnn.checks import flag, integer, number
from pdnn.data.batches import epoch_order
from pdnn.data.checks import Indices, rows_of
from pdnn.data.dataset import Dataset, Subset

MODES = ("pad", "drop", "exact")


class DistributedSampler:
    """The rows of one of several ranks (torch.utils.data.DistributedSampler).

    It takes the places `rank`, `rank` + `num_replicas`, … of an order that all ranks share. If the number
    of ranks does not divide the rows, `mode` decides about the rest:

    ``"pad"``
        The first rows are repeated, until all ranks have the same number.
    ``"drop"``
        The rest is left out: other rows in each epoch if shuffled, otherwise the same ones.
    ``"exact"``
        Every row is used once; some ranks have one more. A `BatchSampler` of this sampler gives all ranks
        the same number of batches, with sizes that differ by at most one row.

    Parameters
    ----------
    dataset : sized
    num_replicas, rank : int, optional
        Of `pdnn.world()` unless given.
    shuffle : bool
        The order is a function of (seed, epoch), otherwise that of the rows.
    seed : int, not negative
        The same on all ranks.
    drop_last : bool
        Another way to say ``mode="drop"``.
    mode : "pad", "drop" or "exact", optional
        "pad" unless given.

    Attributes
    ----------
    epoch : int
        Of the next iterations. Call `set_epoch` on all ranks to change it; otherwise every epoch has the
        same order.
    num_samples, min_samples : int
        Rows of the ranks with most and with fewest.
    total_size : int
        Rows of all ranks together.

    Raises
    ------
    TypeError
        If a number is no integer, or `shuffle` or `drop_last` no bool.
    ValueError
        If the rank is none of the replicas, `seed` is negative, or `mode` is none of these or contradicts
        `drop_last`.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        mode: str | None = None,
    ) -> None:
        if num_replicas is None or rank is None:
            from pdnn.comm import world

            num_replicas = world().size if num_replicas is None else num_replicas
            rank = world().rank if rank is None else rank
        num_replicas = integer(self, "num_replicas", num_replicas, 1)
        if integer(self, "rank", rank, 0) >= num_replicas:
            raise ValueError(f"DistributedSampler: rank is {rank}, expected 0 to {num_replicas - 1}")
        drop_last = flag(self, "drop_last", drop_last)
        if mode is None:
            mode = "drop" if drop_last else "pad"
        if mode not in MODES or (drop_last and mode != "drop"):
            fits = '"drop", which drop_last=True says' if drop_last else '"pad", "drop" or "exact"'
            raise ValueError(f'DistributedSampler: mode is "{mode}", expected {fits}')
        self.dataset = dataset
        self.num_replicas = num_replicas
        self.rank = rank
        self.shuffle = flag(self, "shuffle", shuffle)
        self.seed = integer(self, "seed", seed, 0)
        self.drop_last = mode == "drop"
        self.mode = mode
        self.epoch = 0
        rows = rows_of(self, dataset)
        fewest, most = rows // num_replicas, -(-rows // num_replicas)
        self.num_samples = fewest if mode == "drop" else most
        self.min_samples = most if mode == "pad" else fewest
        self.total_size = rows if mode == "exact" else self.num_samples * num_replicas

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iterations, on every rank the same."""
        self.epoch = integer(self, "epoch", epoch, 0)

    def __len__(self) -> int:
        """Rows of this rank."""
        return len(range(self.rank, self.total_size, self.num_replicas))

    def __iter__(self) -> Iterator[int]:
        rows = len(self.dataset)
        order = epoch_order(rows, self.seed, self.epoch) if self.shuffle else np.arange(rows, dtype=np.int64)
        mine: Indices = np.resize(order, self.total_size)[self.rank :: self.num_replicas]
        return iter(mine.tolist())


class DataPartitioner:
    """A data set divided at random into shares without common rows.

    Parameters
    ----------
    data : Dataset or Subset
    sizes : sequence of float
        Shares of the rows, such as ``[1 / 3] * 3``; their sum is at most 1. Cuts are rounded to whole rows,
        so equal shares differ by at most one row and shares that sum to 1 leave no row out.
    seed : int, not negative

    Raises
    ------
    TypeError, ValueError
        If a share is no number, or negative, or their sum is above 1.

    Examples
    --------
    >>> mine = DataPartitioner(train, [1 / comm.size] * comm.size).use(comm.rank)
    """

    def __init__(
        self, data: Dataset | Subset, sizes: Sequence[float] = (0.7, 0.2, 0.1), seed: int = 1234
    ) -> None:
        if not isinstance(sizes, Iterable):
            raise TypeError(f"DataPartitioner: sizes is {sizes!r}, expected a share for each part")
        sizes = [number(self, "a share in sizes", size) for size in sizes]
        if min(sizes, default=0.0) < 0 or sum(sizes) > 1 + 1e-9:
            raise ValueError(
                f"DataPartitioner: sizes are {sizes}, expected shares from 0, which sum to at most 1"
            )
        order = epoch_order(len(data), integer(self, "seed", seed, 0), 0)
        cuts = [round(len(data) * share) for share in accumulate(sizes, initial=0.0)]
        self.data = data
        self.partitions = [order[begin:end] for begin, end in pairwise(cuts)]

    def use(self, partition: int) -> Subset:
        """The share of this number, from 0; of one below 0, from the end."""
        parts = len(self.partitions)
        if not -parts <= index(partition) < parts:
            raise IndexError(f"DataPartitioner: there is no part {partition}; it has {parts}, from 0 on")
        return Subset(self.data, self.partitions[partition])
