"""Samples and labels that stay where they are: Dataset wraps two arrays, Subset picks rows by index."""

from __future__ import annotations

from collections.abc import Iterator
from operator import index as as_index
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from pdnn.data.checks import Array, Indices, check_dtype, check_labels, check_samples, row_numbers

Rows: TypeAlias = "slice | Indices"
ALL = slice(None)


class Dataset:
    """Samples ``x`` and labels ``y``, wrapped without a copy.

    The value of a sample is ``x * scale + shift``, computed as rows are gathered and in the width asked for
    then, so an array of bytes stays an array of bytes in memory.

    Parameters
    ----------
    x : ndarray, shape (n, ...), dtype uint8, float32 or float64
        One sample a row. Each row must be C-contiguous; the distance between rows is free, so a slice of rows
        of a larger array is taken as it is.
    y : ndarray
        Class numbers, shape (n,), any integer dtype; probabilities or targets, shape (n, outputs), float32 or
        float64; or one-hot rows, shape (n, classes), any integer dtype.
    scale, shift : float
        ``scale=1 / 255`` maps bytes to [0, 1].

    Raises
    ------
    TypeError
        If ``x`` or ``y`` is not an array of such a dtype.
    ValueError
        If the shapes do not fit, or the rows are not contiguous in memory.

    Examples
    --------
    >>> data = Dataset(np.zeros((100, 784), np.uint8), np.zeros(100, np.int64), scale=1 / 255)
    >>> data[10:20]
    Dataset(10 samples of 784, uint8 * 0.00392157, labels int64)
    """

    def __init__(self, x: Array, y: Array, scale: float = 1.0, shift: float = 0.0) -> None:
        check_samples(x)
        check_labels(y)
        if len(x) != len(y):
            raise ValueError(f"Dataset: x has {len(x)} rows and y has {len(y)}; every sample needs one label")
        self.x = x
        self.y = y
        self.scale = float(scale)
        self.shift = float(shift)

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample: ``x.shape`` without the rows."""
        return self.x.shape[1:]

    def __len__(self) -> int:
        return len(self.x)

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> tuple[npt.NDArray[np.float32], Any]: ...
    @overload
    def __getitem__(self, key: slice) -> Dataset: ...
    @overload
    def __getitem__(self, key: npt.ArrayLike) -> Subset: ...

    def __getitem__(self, key: Any) -> Any:
        """A scaled sample and its label (integer), a view (slice), or a `Subset` (integers or a mask)."""
        if isinstance(key, slice):
            return Dataset(self.x[key], self.y[key], self.scale, self.shift)
        if np.ndim(key) == 0:
            row = as_index(key)
            return self._scaled(self.x[row], np.dtype(np.float32)), self.y[row]
        return Subset(self, key)

    def __iter__(self) -> Iterator[tuple[npt.NDArray[np.float32], Any]]:
        return (self[row] for row in range(len(self)))

    def gather(self, rows: Rows = ALL, dtype: npt.DTypeLike = np.float32) -> tuple[Array, Array]:
        """The scaled samples and the labels of these rows, as new C-ordered arrays.

        Parameters
        ----------
        rows : slice or integers, shape (m,)
            All rows unless given.
        dtype : float32 or float64
            Of the samples, and of the arithmetic.

        Returns
        -------
        x : ndarray, shape (m, ...), of `dtype`
        y : ndarray, shape (m,) or (m, classes), of the labels' own dtype
        """
        width = check_dtype("Dataset.gather", dtype)
        return self._scaled(self.x[rows], width), self.y[rows].copy()

    def _scaled(self, raw: Array, dtype: np.dtype[Any]) -> Array:
        x = raw.astype(dtype, order="C")
        if self.scale != 1.0:
            x *= dtype.type(self.scale)
        if self.shift != 0.0:
            x += dtype.type(self.shift)
        return x

    def __repr__(self) -> str:
        scale = "" if self.scale == 1.0 else f" * {self.scale:g}"
        shift = "" if self.shift == 0.0 else f" {'-' if self.shift < 0 else '+'} {abs(self.shift):g}"
        shape = "x".join(map(str, self.sample_shape))
        labels = str(self.y.dtype) if self.y.ndim == 1 else f"{self.y.dtype} x {self.y.shape[1]}"
        return f"Dataset({len(self)} samples of {shape}, {self.x.dtype}{scale}{shift}, labels {labels})"


class Subset:
    """Chosen rows of a `Dataset`, in the order of their indices; no row is copied (torch.utils.data.Subset).

    Parameters
    ----------
    dataset : Dataset or Subset
        A subset of a subset is a subset of the data set behind both.
    indices : integers, shape (m,), or a boolean mask, shape (len(dataset),)
        Negative integers count from the end; repeats are allowed.

    Attributes
    ----------
    dataset : Dataset
    indices : ndarray, shape (m,), int64, each in [0, len(dataset))

    Raises
    ------
    TypeError
        If `dataset` is neither, or the indices are neither integers nor booleans.
    ValueError
        If the indices are not one-dimensional, or a mask has another length than the data set.
    IndexError
        If an index lies outside the data set.
    """

    def __init__(self, dataset: Dataset | Subset, indices: npt.ArrayLike) -> None:
        if not isinstance(dataset, (Dataset, Subset)):
            raise TypeError(f"Subset: dataset is a {type(dataset).__name__}, expected a Dataset or a Subset")
        rows = row_numbers("Subset", indices, len(dataset))
        self.dataset: Dataset = dataset.dataset if isinstance(dataset, Subset) else dataset
        self.indices: Indices = dataset.indices[rows] if isinstance(dataset, Subset) else rows

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.dataset.sample_shape

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> tuple[npt.NDArray[np.float32], Any]: ...
    @overload
    def __getitem__(self, key: slice | npt.ArrayLike) -> Subset: ...

    def __getitem__(self, key: Any) -> Any:
        """A scaled sample and its label (integer), or a smaller `Subset` (slice, integers or a mask)."""
        if isinstance(key, slice):
            return Subset(self.dataset, self.indices[key])
        if np.ndim(key) == 0:
            return self.dataset[int(self.indices[as_index(key)])]
        return Subset(self, key)

    def __iter__(self) -> Iterator[tuple[npt.NDArray[np.float32], Any]]:
        return (self[row] for row in range(len(self)))

    def gather(self, rows: Rows = ALL, dtype: npt.DTypeLike = np.float32) -> tuple[Array, Array]:
        """The scaled samples and the labels of these rows of the subset; see `Dataset.gather`."""
        return self.dataset.gather(self.indices[rows], dtype)

    def __repr__(self) -> str:
        return f"Subset({len(self)} of {self.dataset!r})"
