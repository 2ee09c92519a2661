"""Which rows come next: samplers with torch's names and arguments, orders that are pdnn's own."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from itertools import islice
from typing import Any, Protocol

from pdnn import _core
from pdnn.checks import flag, integer
from pdnn.data.batches import epoch_order
from pdnn.data.checks import Indices, rows_of


class Sampler(Protocol):
    """Row numbers in an order of its own; iterating it is one epoch."""

    def __iter__(self) -> Iterator[int]: ...
    def __len__(self) -> int: ...


class SequentialSampler:
    """Rows 0, 1, … in order (torch.utils.data.SequentialSampler).

    Parameters
    ----------
    data_source : sized
        Such as a `Dataset`.
    """

    def __init__(self, data_source: Sized) -> None:
        rows_of(self, data_source)
        self.data_source = data_source

    def __len__(self) -> int:
        return len(self.data_source)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))


class RandomSampler:
    """Rows in a new random order every epoch, a function of (seed, epoch) (torch.utils.data.RandomSampler).

    Parameters
    ----------
    data_source : sized
    replacement : bool
        Draw each row independently of the others, so that some come again and some never.
    num_samples : int, optional
        How many; all rows unless given. More than there are only with `replacement`.
    seed : int, not negative

    Attributes
    ----------
    epoch : int
        Of the next iteration; counts up by itself.

    Raises
    ------
    TypeError
        If `data_source` has no length, a number is no integer, or `replacement` no bool.
    ValueError
        If `num_samples` is negative or more than there are, or `seed` is negative.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        seed: int = 0,
    ) -> None:
        rows = rows_of(self, data_source)
        self.data_source = data_source
        self.replacement = flag(self, "replacement", replacement)
        self.num_samples = rows if num_samples is None else integer(self, "num_samples", num_samples, 0)
        self.seed = integer(self, "seed", seed, 0)
        self.epoch = 0
        if self.num_samples > rows and not (replacement and rows):
            more = "; pass replacement=True to draw rows more than once" if rows else ""
            raise ValueError(f"RandomSampler: num_samples is {num_samples}, the data have {rows} rows{more}")

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iteration, as when training is resumed."""
        self.epoch = integer(self, "epoch", epoch, 0)

    def __len__(self) -> int:
        return self.num_samples

    def __iter__(self) -> Iterator[int]:
        epoch, self.epoch = self.epoch, self.epoch + 1
        rows = len(self.data_source)
        if self.replacement:
            order: Indices = _core.draw_rows(self.seed, epoch, self.num_samples, rows)
        else:
            order = epoch_order(rows, self.seed, epoch)[: self.num_samples]
        return iter(order.tolist())


class BatchSampler:
    """The rows of a sampler, `batch_size` at a time (torch.utils.data.BatchSampler).

    Over a `DistributedSampler` with ``mode="exact"`` every rank gets the same number of batches, and those of
    the same number differ by at most one row between ranks; where fewer rows are left than there are ranks,
    some get an empty one.

    Parameters
    ----------
    sampler : sized iterable of int
    batch_size : int
    drop_last : bool
        Leave out a last batch that is smaller, on this rank or any other.

    Raises
    ------
    TypeError
        If `batch_size` is no integer.
    ValueError
        If it is below 1; at the end of an epoch, if the sampler gave more or fewer rows than its length.
    """

    def __init__(self, sampler: Sampler, batch_size: int, drop_last: bool) -> None:
        self.sampler = sampler
        self.batch_size = integer(self, "batch_size", batch_size, 1)
        self.drop_last = flag(self, "drop_last", drop_last)

    def __len__(self) -> int:
        """Batches of an epoch."""
        if self.drop_last:
            return int(getattr(self.sampler, "min_samples", len(self.sampler)) // self.batch_size)
        return int(-(-getattr(self.sampler, "num_samples", len(self.sampler)) // self.batch_size))

    def __iter__(self) -> Iterator[list[int]]:
        rows, length, given = iter(self.sampler), len(self.sampler), 0
        for _ in range(len(self)):
            batch = list(islice(rows, self.batch_size))
            given += len(batch)
            yield batch
        given += sum(1 for _ in islice(rows, length + 1))
        if given != length:
            more = "more than " * (given > length)
            raise ValueError(
                f"{type(self.sampler).__name__}: gave {more}{min(given, length)} rows in an epoch, but its "
                f"length is {length}; its __len__ must say how many rows it gives"
            )


def tell_epoch(sampler: Any, epoch: int) -> None:
    """Pass an epoch on to a sampler, or to the one inside it, if either takes one."""
    for one in (sampler, getattr(sampler, "sampler", None)):
        if one is not None and hasattr(one, "set_epoch"):
            one.set_epoch(epoch)
