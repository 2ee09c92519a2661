"""Batches as NumPy arrays, for training loops written by hand (torch.utils.data.DataLoader)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from pdnn.data.batches import cut, epoch_order
from pdnn.data.checks import Array, Indices, check_dtype
from pdnn.data.dataset import Dataset, Subset


class DataLoader:
    """Iterates a data set in batches ``(x, y)``; each iteration is one epoch.

    Parameters
    ----------
    dataset : Dataset or Subset
    batch_size : int
        Rows of each batch but the last.
    shuffle : bool
        A new order every epoch, from (seed, epoch) only.
    drop_last : bool
        Leave out a last batch that is smaller. Without `shuffle` those rows are then never seen.
    dtype : float32 or float64
        Of the samples, which are scaled; labels keep their dtype.
    seed : int, not negative

    Attributes
    ----------
    epoch : int
        Of the next iteration; counts up by itself.

    Raises
    ------
    TypeError
        If `dataset` is neither a Dataset nor a Subset.
    ValueError
        If `batch_size` is below 1, `seed` is negative, or `dtype` is another.
    """

    def __init__(
        self,
        dataset: Dataset | Subset,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        dtype: npt.DTypeLike = "float32",
        seed: int = 0,
    ) -> None:
        if not isinstance(dataset, (Dataset, Subset)):
            raise TypeError(
                f"DataLoader: dataset is a {type(dataset).__name__}, expected a Dataset or a Subset; "
                "wrap arrays as Dataset(x, y)"
            )
        if batch_size < 1:
            raise ValueError(f"DataLoader: batch_size is {batch_size}, expected at least 1")
        if seed < 0:
            raise ValueError(f"DataLoader: seed is {seed}, expected 0 or more")
        self.dataset = dataset
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.dtype = check_dtype("DataLoader", dtype)
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next iteration, as when training is resumed."""
        if epoch < 0:
            raise ValueError(f"DataLoader.set_epoch: epoch is {epoch}, expected 0 or more")
        self.epoch = epoch

    def __len__(self) -> int:
        """Batches of an epoch."""
        whole, rest = divmod(len(self.dataset), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[tuple[Array, Array]]:
        batches = cut(self._order(), self.batch_size)[: len(self)]
        self.epoch += 1
        return (self.dataset.gather(rows, self.dtype) for rows in batches)

    def _order(self) -> Indices:
        n = len(self.dataset)
        return epoch_order(n, self.seed, self.epoch) if self.shuffle else np.arange(n, dtype=np.int64)
