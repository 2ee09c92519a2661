"""The widths and row numbers that data sets accept, and the messages when they do not."""

from __future__ import annotations

from collections.abc import Sized
from typing import Any
from zlib import crc32

import numpy as np
import numpy.typing as npt

from pdnn.checks import kind_of, unmasked
from pdnn.data.sparse import dense_rows

Array = npt.NDArray[Any]
Indices = npt.NDArray[np.int64]

COMPARED = 64
"""Rows that a `digest` reads: few, so that it soon is made, also of a file larger than memory."""


def check_dtype(where: str, dtype: npt.DTypeLike) -> np.dtype[Any]:
    """The dtype of a batch: float32 or float64, else a ValueError that names `where`."""
    try:
        width = np.dtype(dtype)
    except TypeError:
        raise ValueError(f"{where}: dtype is {dtype}, expected float32 or float64") from None
    if width not in (np.float32, np.float64):
        raise ValueError(f"{where}: dtype is {width}, expected float32 or float64")
    return width


def rows_of(owner: object, data: Any) -> int:
    """How many rows data have; TypeError if they have no length."""
    if not isinstance(data, Sized):
        raise TypeError(
            f"{type(owner).__name__}: got {kind_of(data)}, expected a Dataset, or something else with a len()"
        )
    return len(data)


def row_numbers(where: str, indices: npt.ArrayLike, size: int) -> Indices:
    """These indices or this mask as a new int64 array in [0, size); errors begin with `where`."""
    unmasked(where, "the choice of rows", indices)
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


def compared(rows: Indices | range) -> Indices:
    """At most `COMPARED` of these rows, evenly spread."""
    return np.asarray(rows[:: -(-len(rows) // COMPARED) or 1], np.int64)


def digest(rows: Indices | range, *columns: Array | None) -> int:
    """A checksum of those of these rows that are `compared`, in the columns that there are."""
    found, some = 0, compared(rows)
    for column in columns:
        if column is not None:
            found = crc32(dense_rows(column, some).tobytes(), found)
    return found
