"""Tables, dense or sparse: their rows as the core reads them in training, and in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from pdnn import nn
from pdnn.core import array_dtype
from pdnn.data import Dataset
from pdnn.data.checks import compared, digest
from pdnn.data.source import source_of
from pdnn.data.sparse import core_source, is_sparse
from pdnn.nn.loss import Loss
from pdnn.store import Array

T = TypeVar("T")

CONVERTED_BYTES = 2**30
"""Of a converted table, at most; a larger one is converted a batch at a time."""

FEW = 16
"""Epochs after which a table is converted: memory new to the process may cost as much as tens of them."""


@dataclass
class Table:
    """Validated rows.

    Attributes
    ----------
    x : ndarray or CSR array, shape (n, features)
    targets : ndarray
        As pdnn's loss takes them, n of them.
    weight : ndarray, shape (n,), or None
        What the rows count, if not all count 1.
    """

    x: Any
    targets: Array
    weight: Array | None = None

    def __len__(self) -> int:
        return len(self.targets)

    def pick(self, rows: Array) -> Table:
        """Copies of these rows."""
        return Table(self.x[rows], self.targets[rows], None if self.weight is None else self.weight[rows])

    def digest(self, rows: Array) -> str:
        """A checksum of a few of these rows."""
        some = self.pick(compared(rows))
        return f"{digest(range(len(some)), some.x, some.targets, some.weight):08x}"

    def count(self, rows: Array) -> float:
        """What these rows count together."""
        return float(len(rows) if self.weight is None else self.weight[rows].sum())


class Feed:
    """The rows of a table as the core reads them, in place; those of a sparse one become dense in a batch.

    Parameters
    ----------
    x : ndarray or CSR array, shape (n, features)
    targets : ndarray
        As the loss takes them.
    weight : ndarray, shape (n,), optional
        Of the rows.
    model : nn.Sequential
    loss : Loss
    rows : ndarray of int64
        Numbers of those to train on.
    step : int
        Rows of a step.

    Raises
    ------
    ValueError
        As `check_range`.

    Attributes
    ----------
    source : Source
        Its `rows` are those to train on next.
    whole : bool
        Whether it takes the rows of an epoch all at once.
    """

    def __init__(
        self,
        x: Any,
        targets: Array,
        weight: Array | None,
        model: nn.Sequential,
        loss: Loss,
        rows: Array,
        step: int,
    ) -> None:
        self._dtype = np.dtype(array_dtype(model.dtype))
        self._epochs = 0
        check_range(x, self._dtype)
        self.source = source_of("fit", Dataset(x, targets, weight=weight), model, loss, None)
        samples = self.source.arrays[0]
        self._settled = is_sparse(samples) or samples.dtype == self._dtype
        self.source.rows = rows
        self._step, self.whole = step, len(rows) % step == 0

    def note(self, epochs: int) -> None:
        """So many more epochs were made; after `FEW`, a dense table has the model's type if there is room."""
        self._epochs += epochs
        if self._settled or self._epochs < FEW:
            return
        self._settled = True
        given, targets, scale, shift, weight = self.source.arrays
        self.source.arrays = converted(given, self._dtype), targets, scale, shift, weight
        self.source.core = core_source(self._dtype.name, *self.source.arrays)

    def parts(self, order: Array) -> list[Array]:
        """The rows of an epoch: those of full steps, and what is left of them."""
        full = len(order) - len(order) % self._step
        return [part for part in (order[:full], order[full:]) if len(part)]


def converted(x: Any, dtype: np.dtype[Any]) -> Any:
    """A dense table, all of it in this dtype; as it is, if it is sparse or there is no room for a copy."""
    if is_sparse(x) or x.size * dtype.itemsize > CONVERTED_BYTES:
        return x
    try:
        return np.ascontiguousarray(x, dtype)
    except MemoryError:
        return x


def check_range(x: Any, dtype: Any) -> None:
    """Raises ValueError if a number of a table, dense or sparse, is beyond the range of this dtype."""
    values = x.data if is_sparse(x) else x
    if not values.size or values.dtype.itemsize <= dtype.itemsize:
        return
    most = np.finfo(dtype).max
    if not (values.min() >= -most and values.max() <= most):
        raise ValueError(
            f"X has numbers beyond the range of {dtype}, in which the model computes; scale X, or fit with "
            'dtype="float64"'
        )


class Blocks:
    """The rows of a table in blocks of nearly one size, which do not depend on the threads.

    Parameters
    ----------
    rows, most : int
        How many there are, and how many a block has at most.
    threads : int
        They last as long as the `with` statement that this belongs in.
    """

    def __init__(self, rows: int, most: int, threads: int) -> None:
        count = -(-rows // most)
        edges = [rows * block // max(count, 1) for block in range(count + 1)]
        self._blocks = [slice(begin, end) for begin, end in pairwise(edges)]
        self._threads = min(threads, count)
        self._others = ThreadPoolExecutor(self._threads - 1) if self._threads > 1 else None

    def __enter__(self) -> Blocks:
        return self

    def __exit__(self, *_: object) -> None:
        if self._others is not None:
            self._others.shutdown()

    def results(self, work: Callable[[slice], T]) -> Iterator[T]:
        """What some work makes of each block, in order, a few blocks a thread at a time.

        This thread works from the first of these on, and the others from the last.
        """
        if self._others is None:
            yield from map(work, self._blocks)
            return
        several = 4 * self._threads
        for begin in range(0, len(self._blocks), several):
            blocks = self._blocks[begin : begin + several]
            begun = [self._others.submit(work, block) for block in reversed(blocks)]
            for block, future in zip(blocks, reversed(begun), strict=True):
                yield work(block) if future.cancel() else future.result()
