"""A data set divided among ranks: each rank gets its part of every batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized

import numpy as np
import numpy.typing as npt

from pdnn.checks import integer
from pdnn.comm import world
from pdnn.comm.settings import compare
from pdnn.data import DataLoader, Dataset, PadCropFlip, Subset
from pdnn.data.batches import cut, epoch_order
from pdnn.models import check_device


class SharedBatches:
    """One rank's rows of each batch: place p of the shuffled rows is rank p mod size's.

    So batches are those of one process, all ranks have the same number of batches, and each rank's part of
    a batch, and of all rows, is at most one row larger than another's. In a batch smaller than the number
    of ranks, some ranks have no row.

    Parameters
    ----------
    dataset : sized
    batch_size : int
        Rows of a batch over all ranks.
    rank, size : int
    seed : int
        Of the shuffle.
    """

    def __init__(self, dataset: Sized, batch_size: int, rank: int, size: int, seed: int) -> None:
        self.dataset, self.batch_size, self.rank, self.size, self.seed = dataset, batch_size, rank, size, seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iterations, on every rank the same."""
        self.epoch = epoch

    def __len__(self) -> int:
        return -(-len(self.dataset) // self.batch_size)

    def __iter__(self) -> Iterator[Sequence[int]]:
        order = epoch_order(len(self.dataset), self.seed, self.epoch)
        places = np.arange(len(order))
        for rows, place in zip(cut(order, self.batch_size), cut(places, self.batch_size), strict=True):
            yield rows[place % self.size == self.rank].tolist()


def partition_dataset(
    dataset: Dataset | Subset,
    batch_size: int,
    device: str = "cpu",
    dtype: npt.DTypeLike = "float32",
    *,
    seed: int = 1234,
    augment: PadCropFlip | None = None,
    verbose: bool | None = None,
) -> tuple[DataLoader, int]:
    """This rank's part of a data set, in batches; collective.

    No row is left out or repeated. The parts are the same in every epoch, as in the published
    exercise; ``train_set.set_epoch(epoch)``, on every rank, shuffles all rows anew.

    Parameters
    ----------
    dataset : Dataset or Subset
        The same on every rank.
    batch_size : int
        Rows of one update, over all ranks.
    device : "cpu"
        There is no other.
    dtype : float32 or float64
        Of the samples, which are scaled; labels keep their dtype.
    seed : int, not negative
        Of the shuffle and the augmentation.
    augment : PadCropFlip, optional
        Changes each image at random, differently in every epoch; the same for any number of ranks.
    verbose : bool, optional
        Whether to print how many rows there are and how many are this rank's; on rank 0 unless given.

    Returns
    -------
    train_set : DataLoader
        Iterating it gives arrays (x, y). Every rank has the same number of batches; together they are those
        of one process, and their sizes differ by at most one row between ranks. If the last batch has fewer
        rows than there are ranks, some ranks get one without rows, which layers and losses accept.
    bsz : int
        This rank's share of `batch_size`, as of the first batch.

    Raises
    ------
    TypeError
        If the batch size or the seed is no integer.
    ValueError
        If the device is another, the batch size is below 1, or the seed is negative; on every rank, if ranks
        differ in the number of rows or in arguments.
    """
    check_device("partition_dataset", device)
    batch_size = integer("partition_dataset", "batch_size", batch_size, 1)
    seed = integer("partition_dataset", "seed", seed, 0)
    comm = world()
    own = {
        "rows": len(dataset),
        "batch_size": batch_size,
        "dtype": str(np.dtype(dtype)),
        "seed": seed,
        "augment": repr(augment),
    }
    compare(comm, "partition_dataset", own, "every rank must share out the same data in the same way")
    batches = SharedBatches(dataset, batch_size, comm.rank, comm.size, seed)
    train_set = DataLoader(dataset, batch_sampler=batches, dtype=dtype, seed=seed, augment=augment)
    if verbose or (verbose is None and comm.rank == 0):
        print(f"original dataset length: {len(dataset)}")
        print(f"partitioned dataset length: {len(range(comm.rank, len(dataset), comm.size))}", flush=True)
    return train_set, len(range(comm.rank, batch_size, comm.size))
