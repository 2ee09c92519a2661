"""What arrays a data set accepts, and the messages when it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]


def check_dtype(where: str, dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype of a batch: float32 or float64, else a ValueError that names `where`."""
    width = np.dtype(dtype)
    if width not in (np.float32, np.float64):
        raise ValueError(f"{where}: dtype is {width}, expected float32 or float64")
    return width


def check_samples(x: Array) -> None:
    """Refuse samples that no batch can be gathered from row by row."""
    if not isinstance(x, np.ndarray):
        raise TypeError(f"Dataset: x is a {type(x).__name__}, expected a NumPy array; pass np.asarray(x)")
    if x.dtype not in (np.uint8, np.float32, np.float64):
        raise TypeError(
            f"Dataset: x has dtype {x.dtype.str}, expected uint8, float32 or float64 in the machine's byte "
            "order; pass x.astype(np.float32)"
        )
    if x.ndim < 2:
        raise ValueError(
            f"Dataset: x has shape {x.shape}, expected (n, ...) with one sample a row; "
            "for one feature pass x[:, None]"
        )
    if not _rows_contiguous(x):
        raise ValueError(
            f"Dataset: the rows of x, shape {x.shape} with strides {x.strides}, are not C-contiguous; "
            "pass np.ascontiguousarray(x)"
        )


def check_labels(y: Array) -> None:
    """Refuse labels that are neither class numbers, one-hot rows, nor targets."""
    if not isinstance(y, np.ndarray):
        raise TypeError(f"Dataset: y is a {type(y).__name__}, expected a NumPy array; pass np.asarray(y)")
    is_class = y.dtype.kind in "iu" and y.dtype.isnative
    if not is_class and y.dtype not in (np.float32, np.float64):
        raise TypeError(
            f"Dataset: y has dtype {y.dtype.str}, expected integers (class numbers, one-hot), float32 or "
            "float64 (probabilities, targets), in the machine's byte order"
        )
    if y.ndim != 2 and not (y.ndim == 1 and is_class):
        wanted = "(n,) or (n, classes)" if is_class else "(n, outputs), as y[:, None]"
        raise ValueError(f"Dataset: y has shape {y.shape} and dtype {y.dtype}, expected shape {wanted}")
    if not _rows_contiguous(y):
        raise ValueError(
            f"Dataset: the rows of y, shape {y.shape} with strides {y.strides}, are not C-contiguous; "
            "pass np.ascontiguousarray(y)"
        )


def _rows_contiguous(a: Array) -> bool:
    """Whether each row is one piece of aligned memory in C order; where the rows lie does not matter."""
    step = a.itemsize
    for size, stride in zip(reversed(a.shape[1:]), reversed(a.strides[1:]), strict=True):
        if size > 1 and stride != step:
            return a.size == 0
        step *= size
    return a.flags.aligned


def row_numbers(where: str, indices: npt.ArrayLike, size: int) -> Indices:
    """These indices or this mask as a new int64 array in [0, size); errors begin with `where`."""
    given = np.asarray(indices)
    if given.ndim != 1:
        raise ValueError(f"{where}: the indices have shape {given.shape}, expected one dimension")
    if given.dtype == np.bool_:
        if len(given) != size:
            raise ValueError(f"{where}: the mask has {len(given)} entries, the data set has {size} rows")
        return np.flatnonzero(given).astype(np.int64)
    if given.size and given.dtype.kind not in "iu":
        raise TypeError(f"{where}: the indices have dtype {given.dtype}, expected integers or booleans")
    outside = (given < -size) | (given >= size) if given.size else np.zeros(0, np.bool_)
    if outside.any():
        raise IndexError(f"{where}: index {given[outside][0]} lies outside a data set of {size} rows")
    rows = given.astype(np.int64)
    rows[rows < 0] += size
    return rows
