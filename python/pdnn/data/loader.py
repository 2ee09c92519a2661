"""Batches as NumPy arrays, for training loops written by hand (torch.utils.data.DataLoader)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pdnn.checks import flag, integer
from pdnn.data.batches import cut
from pdnn.data.blocks import Ahead, BlockStream, blocks_of
from pdnn.data.checks import Indices, check_dtype, row_numbers
from pdnn.data.dataset import Dataset, Subset, check_dataset, parts_of
from pdnn.data.images import PadCropFlip, check_augment
from pdnn.data.samplers import BatchSampler, Sampler, tell_epoch
from pdnn.tensor import Values


class Batches(Protocol):
    """Row numbers of one batch after another; iterating it is one epoch."""

    def __iter__(self) -> Iterator[Sequence[int]]: ...
    def __len__(self) -> int: ...


class DataLoader:
    """Iterates a data set in batches ``(x, y)``, arrays that answer ``numpy()``; each iteration is one epoch.

    Batches of a data set with weights are ``(x, y, weight)``.

    Parameters
    ----------
    dataset : Dataset, Subset or BlockStream
    batch_size : int
        Rows of each batch but the last.
    shuffle : bool
        A new order every epoch, from (seed, epoch) only.
    drop_last : bool
        Leave out a last batch that is smaller. Without `shuffle` those rows are then never seen.
    dtype : float32 or float64
        Of the samples, which are scaled; labels keep their dtype.
    seed : int, not negative
    sampler : sized iterable of int, optional
        Gives the rows of an epoch, instead of `shuffle`.
    batch_sampler : sized iterable of lists of int, optional
        Gives the rows of each batch, instead of `batch_size`, `shuffle`, `drop_last` and `sampler`.
    augment : PadCropFlip, optional
        What happens to each image, a function of (seed, epoch, its number in the data set).

    Attributes
    ----------
    epoch : int
        Of the next iteration; counts up by itself.

    Raises
    ------
    TypeError
        If `dataset` or `augment` is none of these, a sampler cannot be iterated, or only once as a generator,
        or a number is no integer.
    ValueError
        If `batch_size` is below 1, `seed` is negative, `dtype` is another, a sampler is given beside what it
        replaces, or samples to augment are no images.
    """

    def __init__(
        self,
        dataset: Dataset | Subset | BlockStream,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        dtype: npt.DTypeLike = "float32",
        seed: int = 0,
        sampler: Sampler | None = None,
        batch_sampler: Batches | None = None,
        augment: PadCropFlip | None = None,
    ) -> None:
        if not isinstance(dataset, BlockStream):
            check_dataset("DataLoader", dataset, blocks_of(dataset))
        batch_size = integer(self, "batch_size", batch_size, 1)
        for name, given in (("sampler", sampler), ("batch_sampler", batch_sampler)):
            if isinstance(given, Iterator) or not (given is None or isinstance(given, Iterable)):
                raise TypeError(
                    f"DataLoader: {name} is of type {type(given).__name__}, expected what can be iterated in "
                    "every epoch, such as a list or a pdnn.data.BatchSampler"
                )
        if sampler is not None and shuffle:
            raise ValueError("DataLoader: shuffle and sampler both order the rows; pass one of them")
        if batch_sampler is not None and (batch_size != 1 or shuffle or drop_last or sampler is not None):
            raise ValueError(
                "DataLoader: a batch_sampler says all that batch_size, shuffle, drop_last and sampler say; "
                "pass it alone"
            )
        if sampler is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        check_augment("DataLoader", augment)
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = flag(self, "shuffle", shuffle)
        self.drop_last = flag(self, "drop_last", drop_last)
        self.dtype = check_dtype("DataLoader", dtype)
        self.seed = integer(self, "seed", seed, 0)
        self.batch_sampler = batch_sampler
        self.augment = augment
        self.epoch = 0
        if not isinstance(dataset, BlockStream):
            self._gatherer(dataset)  # refuses samples to augment that are no images
        elif batch_sampler is not None or augment is not None:
            raise ValueError(
                "DataLoader: a BlockStream's function orders its rows and changes its images; pass neither "
                "sampler, batch_sampler nor augment"
            )

    def __repr__(self) -> str:
        return f"DataLoader({self.dataset!r}, batch_size={self.batch_size}, shuffle={self.shuffle})"

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iteration, as when training is resumed; also that of a sampler."""
        self.epoch = integer(self, "epoch", epoch, 0)
        if self.batch_sampler is not None:
            tell_epoch(self.batch_sampler, epoch)

    def __len__(self) -> int:
        """Batches of an epoch."""
        if self.batch_sampler is not None:
            return len(self.batch_sampler)
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[tuple[Values, ...]]:
        dataset, epoch = self.dataset, self.epoch
        self.epoch += 1
        if isinstance(dataset, BlockStream):
            return islice(self._in_parts(dataset, epoch), len(self))
        batches, gather = self._batches(dataset, epoch), self._gatherer(dataset, epoch)
        return (gather(rows) for rows in batches)

    def _in_parts(self, stream: BlockStream, epoch: int) -> Iterator[tuple[Values, ...]]:
        """All batches of an epoch; the next blocks are made while these are in use."""
        parts = Ahead(stream.parts(epoch, self.seed, 0, self.batch_size, self.shuffle))
        try:
            end = 0
            while end < len(stream):
                part = parts.take()
                gather, end = self._gatherer(part.data), part.end
                yield from map(gather, cut(part.order, self.batch_size))
        finally:
            parts.close()

    def _gatherer(self, dataset: Dataset | Subset, epoch: int = 0) -> Callable[[Indices], tuple[Values, ...]]:
        """What makes arrays of rows in an epoch."""
        whole, numbers = parts_of(dataset)
        source = whole.core_source(self.dtype)
        if self.augment is not None:
            self.augment.tell(source, self.seed, epoch)

        def gather(rows: Indices) -> tuple[Values, ...]:
            chosen = numbers[rows]
            batch = source.gather(chosen).view(Values), whole.y[chosen].view(Values)
            return batch if whole.weight is None else (*batch, whole.weight[chosen].view(Values))

        return gather

    def _batches(self, dataset: Dataset | Subset, epoch: int) -> Iterable[Indices]:
        n = len(dataset)
        if self.batch_sampler is not None:
            return (row_numbers("DataLoader", rows, n) for rows in self.batch_sampler)
        order: Indices = np.arange(n, dtype=np.int64)
        if self.shuffle:
            order = parts_of(dataset)[0].epoch_order(n, self.seed, epoch)
        return cut(order, self.batch_size)[: len(self)]
