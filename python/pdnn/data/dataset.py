"""Samples and labels without a copy: Dataset wraps two arrays, Subset picks rows by index."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from operator import index as as_index
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from pdnn.checks import finite, kind_of
from pdnn.core import CoreSource
from pdnn.data.batches import epoch_order
from pdnn.data.checks import Array, Indices, check_dtype, row_numbers
from pdnn.data.containers import to_labels, to_samples
from pdnn.data.sparse import core_source, is_sparse
from pdnn.nn.targets import row_weights

Rows: TypeAlias = "slice | Indices"
ALL = slice(None)


class Dataset:
    """Samples ``x`` and labels ``y``, wrapped without a copy where they can be read as they are.

    The value of a sample is ``x * scale + shift``, computed when rows are gathered, in the dtype of that
    call. So an array of bytes stays an array of bytes in memory.

    Parameters
    ----------
    x : array, list or SciPy sparse array, shape (n, ...)
        One sample per row. Arrays of uint8, float32 or float64 with each row in C order are read without a
        copy; rows may be apart in memory, as in a slice of a larger array. Other numbers, orders and
        containers are converted once (see the table in docs/data.md). A sparse array, shape (n, features),
        is kept as CSR, and its zeros are left out where a network's first layer can leave them out.
    y : array or list
        Class numbers, shape (n,), any integers or booleans; names of classes, strings of shape (n,), which
        become class numbers; probabilities or targets, shape (n, outputs) or (n,), floats; or one-hot rows,
        shape (n, classes), any integers.
    scale, shift : float
        ``scale=1 / 255`` maps bytes to [0, 1]. Sparse samples have neither.
    weight : array or list, shape (n,), optional
        What each row counts in losses: finite numbers from 0. Each counts 1 unless given.

    Attributes
    ----------
    x, y : ndarray
        What is read; x may be a CSR array.
    weight : ndarray of float64, shape (n,), or None
        The rows' weights, if they were given.
    classes : ndarray of str, or None
        The names that class numbers stand for, sorted as ``numpy.unique`` does, where ``y`` had names.
    columns : list of str, or None
        The names of the columns of `x`, where it is of a table with names that `pdnn.datasets.csv` has read.
    integers : bool
        Whether the samples came as integers or booleans.
    converted : str
        What was converted, in words; empty if nothing was.

    Raises
    ------
    TypeError
        If ``x``, ``y``, ``weight`` or a number is no such thing.
    ValueError
        If the shapes do not fit, a weight is negative or not finite, or ``scale`` or ``shift`` is not finite,
        or given for sparse samples.

    Examples
    --------
    >>> data = Dataset(np.zeros((100, 784), np.uint8), np.zeros(100, np.int64), scale=1 / 255)
    >>> data[10:20]
    Dataset(10 samples of 784, uint8 * 0.00392157, labels int64)
    """

    def __init_subclass__(cls, **given: Any) -> None:
        """Refuses rows of a subclass's own, by a TypeError: batches are read from the arrays."""
        super().__init_subclass__(**given)
        if own := {"__getitem__", "gather"} & vars(cls).keys():
            raise TypeError(
                f"{cls.__name__}: loaders and trainers read the arrays of a Dataset, and do not call its "
                f"{min(own)}; change the arrays, or make blocks of rows with a BlockStream"
            )

    def __init__(
        self,
        x: npt.ArrayLike,
        y: npt.ArrayLike,
        scale: float = 1.0,
        shift: float = 0.0,
        weight: npt.ArrayLike | None = None,
    ) -> None:
        samples, labels = to_samples("Dataset", x), to_labels("Dataset", y)
        self.x, self.y, self.classes = samples.array, labels.array, labels.classes
        self.columns: list[str] | None = None
        self.integers = samples.integers
        self.converted = ", ".join(filter(None, (samples.note, labels.note)))
        if self.x.shape[0] != len(self):
            raise ValueError(
                f"Dataset: x has {self.x.shape[0]} rows and y has {len(self)}; every sample needs one label"
            )
        self.scale = float(finite("Dataset", "scale", scale))
        self.shift = float(finite("Dataset", "shift", shift))
        if is_sparse(self.x) and (self.scale, self.shift) != (1.0, 0.0):
            raise ValueError(
                f"Dataset: scale={self.scale:g} and shift={self.shift:g} of sparse samples; multiply x "
                "itself, and do not shift it, as its zeros would be none"
            )
        self.weight = None if weight is None else row_weights("Dataset", weight, len(self))

    @property
    def blocks(self) -> str:
        """How rows that are shuffled stay together, in words; empty if they do not."""
        return ""

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample: ``x.shape`` without the rows."""
        return self.x.shape[1:]

    def __len__(self) -> int:
        return len(self.y)

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> tuple[Any, ...]: ...
    @overload
    def __getitem__(self, key: slice) -> Dataset: ...
    @overload
    def __getitem__(self, key: npt.ArrayLike) -> Subset: ...

    def __getitem__(self, key: Any) -> Any:
        """A scaled sample, its label and its weight if it has one (integer), or a part of the rows.

        A slice is a view, integers and masks make a `Subset`.
        """
        if isinstance(key, slice):
            part = copy.copy(self)
            part.x, part.y = self.x[key], self.y[key]
            part.weight = None if self.weight is None else self.weight[key]
            return part
        if np.ndim(key) == 0:
            row = as_index(key)
            sample = self.gather(np.array([row]))[0][0], self.y[row]
            return sample if self.weight is None else (*sample, self.weight[row])
        return Subset(self, key)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
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
        if isinstance(rows, slice):
            numbers = np.arange(*rows.indices(len(self)))
        else:
            numbers = row_numbers("Dataset.gather", rows, len(self))
        if 2 * len(numbers) > len(self):
            return self.core_source(width).gather(numbers), self.y[numbers]
        # A source looks at each of its rows, so this one has no others.
        source = core_source(width.name, self.x[numbers], scale=self.scale, shift=self.shift)
        return source.gather(np.arange(len(numbers))), self.y[numbers]

    def core_source(self, dtype: npt.DTypeLike) -> CoreSource:
        """The samples as the core reads them, float32 or float64, for all loaders."""
        return core_source(np.dtype(dtype).name, self.x, scale=self.scale, shift=self.shift)

    def epoch_order(self, rows: int, seed: int, epoch: int) -> Indices:
        """The places 0..rows-1 in the order in which an epoch takes them, shuffled."""
        return epoch_order(rows, seed, epoch)

    def __repr__(self) -> str:
        scale = "" if self.scale == 1.0 else f" * {self.scale:g}"
        shift = "" if self.shift == 0.0 else f" {'-' if self.shift < 0 else '+'} {abs(self.shift):g}"
        shape, sparse = "x".join(map(str, self.sample_shape)), "sparse " * is_sparse(self.x)
        labels = str(self.y.dtype) if self.y.ndim == 1 else f"{self.y.dtype} x {self.y.shape[1]}"
        weight = "" if self.weight is None else ", weighted"
        return (
            f"Dataset({len(self)} {sparse}samples of {shape}, {self.x.dtype}{scale}{shift}, "
            f"labels {labels}{weight})"
        )


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
        check_dataset("Subset", dataset)
        rows = row_numbers("Subset", indices, len(dataset))
        self.dataset: Dataset = dataset.dataset if isinstance(dataset, Subset) else dataset
        self.indices: Indices = dataset.indices[rows] if isinstance(dataset, Subset) else rows

    @property
    def sample_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return self.dataset.sample_shape

    @property
    def weight(self) -> Array | None:
        """The rows' weights, a copy, if the data set has them."""
        weight = self.dataset.weight
        return None if weight is None else weight[self.indices]

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> tuple[Any, ...]: ...
    @overload
    def __getitem__(self, key: slice | npt.ArrayLike) -> Subset: ...

    def __getitem__(self, key: Any) -> Any:
        """A row as `Dataset` has it (integer), or a smaller `Subset` (slice, integers or a mask)."""
        if isinstance(key, slice):
            return Subset(self.dataset, self.indices[key])
        if np.ndim(key) == 0:
            return self.dataset[int(self.indices[as_index(key)])]
        return Subset(self, key)

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return (self[row] for row in range(len(self)))

    def gather(self, rows: Rows = ALL, dtype: npt.DTypeLike = np.float32) -> tuple[Array, Array]:
        """The scaled samples and the labels of these rows of the subset; see `Dataset.gather`."""
        if not isinstance(rows, slice):
            rows = row_numbers("Subset.gather", rows, len(self))
        return self.dataset.gather(self.indices[rows], dtype)

    def __repr__(self) -> str:
        return f"Subset({len(self)} of {self.dataset!r})"


def parts_of(data: Dataset | Subset) -> tuple[Dataset, Indices]:
    """A data set and the numbers of those of its rows that belong."""
    if isinstance(data, Subset):
        return data.dataset, data.indices
    return data, np.arange(len(data))


def check_dataset(where: str, dataset: object, advice: str = "") -> None:
    """Raises TypeError if it is neither a Dataset nor a Subset; the message begins with `where`."""
    if not isinstance(dataset, (Dataset, Subset)):
        raise TypeError(
            f"{where}: dataset is of type {kind_of(dataset)}, expected a Dataset or a Subset; wrap arrays as "
            f"Dataset(x, y){advice}"
        )
