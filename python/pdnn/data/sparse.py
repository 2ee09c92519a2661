"""Sparse samples: SciPy's CSR arrays, of whose rows a batch has the elements that are not 0."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pdnn.core import CoreSource, array_dtype, core_for

Array = npt.NDArray[Any]


def is_sparse(x: Any) -> bool:
    """Whether x is one of SciPy's sparse arrays or matrices, which only programs have that import them."""
    scipy = sys.modules.get("scipy.sparse")
    return scipy is not None and bool(scipy.issparse(x))


def check_starts(where: str, x: Any) -> None:
    """Raises ValueError if the starts of its lines are none: SciPy, which would crash, does not look."""
    starts, count = x.indptr, min(len(x.indices), len(x.data))
    lines = x.shape[x.format == "csc"] // (x.blocksize[0] if x.format == "bsr" else 1)
    falls = (
        len(starts) != lines + 1 or starts[0] != 0 or starts[-1] > count or (starts[1:] < starts[:-1]).any()
    )
    if falls:
        raise ValueError(
            f"{where}: sparse x: its indptr does not rise from 0 to its {count} values in {lines} steps"
        )


def to_csr(x: Any, dtype: Any) -> Any:
    """A CSR array in this dtype, with each column of a row once and in order; itself if it is that."""
    csr = x.astype(dtype, copy=False)
    if not csr.has_canonical_format:
        csr = csr.copy() if csr is x else csr
        csr.sum_duplicates()
    return csr


def dense_rows(x: Any, rows: Any) -> Array:
    """These rows of an array, dense or sparse, with their zeros."""
    some = x[rows]
    return np.asarray(some.toarray() if is_sparse(some) else some)


def joined(arrays: Sequence[Any]) -> Any:
    """The rows of several arrays, all of them dense or all sparse, one after another."""
    if len(arrays) == 1:
        return arrays[0]
    if is_sparse(arrays[0]):
        return sys.modules["scipy.sparse"].vstack(arrays, format="csr")
    return np.concatenate(arrays)


def core_source(
    dtype: str,
    x: Any,
    targets: Array | None = None,
    scale: float = 1.0,
    shift: float = 0.0,
    weight: Array | None = None,
) -> CoreSource:
    """Samples, dense or in CSR, as the core reads them for a model of this dtype; with targets, if any."""
    source: type[CoreSource] = core_for(dtype).Source
    targets = np.zeros(x.shape[0], np.int32) if targets is None else targets
    if not is_sparse(x):
        return source(x, targets, scale, shift, weight)
    if x.shape[1] >= 2**31:
        raise ValueError(f"sparse x has {x.shape[1]} columns; at most 2**31 - 1 can be read")
    if x.indices.dtype.itemsize > 4 and x.indices.size:  # the core checks narrower ones
        lowest, highest = x.indices.min(), x.indices.max()
        if lowest < 0 or highest >= x.shape[1]:
            wrong = lowest if lowest < 0 else highest
            raise ValueError(f"sparse x has an element in column {wrong} of {x.shape[1]}")
    with np.errstate(over="ignore"):  # infinity comes of it, as where rows are dense
        values = np.ascontiguousarray(x.data, array_dtype(dtype))
    columns, starts = np.ascontiguousarray(x.indices, np.int32), np.ascontiguousarray(x.indptr, np.int64)
    return source(values, columns, starts, x.shape[1], targets, weight)
