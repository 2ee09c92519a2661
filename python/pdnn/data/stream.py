"""Stream: a data set on disk that may be larger than memory, shuffled by blocks and read ahead of its use."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from pdnn import _core
from pdnn.checks import integer, kind_of
from pdnn.data.batches import epoch_order
from pdnn.data.checks import Array, Indices
from pdnn.data.containers import READ
from pdnn.data.dataset import Dataset
from pdnn.data.sparse import is_sparse

BLOCK_BYTES = 1 << 20
"""About what a block has, unless its rows are given."""

_PAGE = 4096
KEYS = 2**62
"""So many keys of windows may be drawn."""


class Stream(Dataset):
    """A `Dataset` whose samples stay in a file, from which training reads them in place.

    Memory holds no samples but the pages that the system keeps of the file, and gives up when it needs room.
    An epoch takes the rows by blocks: the blocks in a random order, and the rows of each `window` blocks
    mixed. While training works on one window a thread reads the next. The order is a function of (seed,
    epoch), the same on every number of threads and ranks, and a training resumed within an epoch goes on in
    it. A slice of a stream is a stream over a part of the file. A copy, also in another process, reads the
    same file.

    Parameters
    ----------
    x : path or array, shape (n, ...)
        A .npy file, or an array such as ``np.memmap``: uint8, float32 or float64 in C order, which is read
        as it is. It must stay as it is meanwhile: where a file is cut, or written anew in place, as np.save
        does, the system ends the process (SIGBUS). Write the new one beside it, and `os.replace`.
    y : path or array
        Labels as a Dataset takes them. They may be in memory: class numbers are copied when `fit` begins, as
        are targets of another dtype than the model's.
    scale, shift : float
        As of a Dataset.
    weight : path or array, shape (n,), optional
        What each row counts in losses, as of a Dataset; held in memory.
    block : int, optional
        Rows that lie together in the file and are read together; about a megabyte unless given.
    window : int
        Blocks whose rows are mixed. More of them mix better, and need more of the system's memory for files
        to be quick.

    Attributes
    ----------
    x, y : ndarray
        What is read.
    block, window : int

    Raises
    ------
    TypeError, ValueError
        If x cannot be read as it is, or a Dataset would refuse the data; if `block` or `window` is no
        integer, or below 1.
    """

    def __init__(
        self,
        x: str | os.PathLike[str] | Array,
        y: str | os.PathLike[str] | npt.ArrayLike,
        scale: float = 1.0,
        shift: float = 0.0,
        weight: str | os.PathLike[str] | npt.ArrayLike | None = None,
        *,
        block: int | None = None,
        window: int = 64,
    ) -> None:
        samples = _opened(x)
        if is_sparse(samples):
            raise TypeError("Stream: x is sparse; pass a Dataset, or blocks of it as a BlockStream")
        in_place = hasattr(samples, "__array_interface__") or hasattr(samples, "__dlpack__")
        if not (in_place or isinstance(samples, memoryview)):
            raise TypeError(
                f"Stream: x is of type {kind_of(samples)}, which NumPy would copy into memory; pass a .npy "
                "file or the array that it has, make blocks of its rows with a BlockStream, or pass a Dataset"
            )
        try:
            samples = np.asanyarray(samples)
        except TypeError as error:  # torch's of bfloat16
            raise TypeError(f"Stream: x is no array that NumPy can read ({error})") from error
        if samples.dtype not in READ or not samples.flags.c_contiguous or not samples.flags.aligned:
            order = "" if samples.flags.c_contiguous else ", not in C order"
            order += (
                "" if samples.flags.aligned else ", at an address that is no multiple of an element's size"
            )
            raise TypeError(
                f"Stream: x is {samples.dtype.str}{order}; expected uint8, float32 or float64 in C order, "
                "which are read as they are; write such a file, or pass a Dataset, which converts x in memory"
            )
        super().__init__(samples, _opened(y), scale, shift, None if weight is None else _opened(weight))
        usual = max(1, BLOCK_BYTES // max(samples[:1].nbytes, 1))
        self.block = usual if block is None else integer(self, "block", block, 1)
        self.window = integer(self, "window", window, 1)

    @property
    def blocks(self) -> str:
        """How many blocks of how many rows are mixed."""
        return f"windows of {self.window} blocks of {self.block} rows"

    def epoch_order(self, rows: int, seed: int, epoch: int) -> Indices:
        """The places 0..rows-1, by blocks in a random order, mixed within each window of them."""
        block = max(1, min(self.block, rows))
        blocks = epoch_order(ceil(rows / block), seed, epoch)
        keys = _core.draw_rows(seed % 2**64, epoch, ceil(len(blocks) / self.window), KEYS)
        order, end = np.empty(rows, np.int64), 0
        for key, begin in zip(keys.tolist(), range(0, len(blocks), self.window), strict=True):
            firsts = blocks[begin : begin + self.window, np.newaxis] * block
            places = (firsts + np.arange(block)).reshape(-1)
            places = places[places < rows]  # the last block may be shorter
            begin, end = end, end + len(places)
            order[begin:end] = places[epoch_order(len(places), key, epoch)]
        return order

    def __copy__(self) -> Stream:  # as for a slice, which reads this mapping
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"x": _place_in_file(self.x)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        x = state["x"]
        self.__dict__.update(state | {"x": x.mapped() if isinstance(x, _PlaceInFile) else x})

    def __repr__(self) -> str:
        own = super().__repr__().removeprefix("Dataset").removesuffix(")")
        return f"Stream{own}, {self.blocks})"


def reading_ahead(
    data: Dataset, order: Indices, first: int = 0
) -> AbstractContextManager[Callable[[int], object]]:
    """Meanwhile a thread reads what comes next of a stream; of other data sets there is nothing to read.

    Parameters
    ----------
    data : Dataset
    order : ndarray, shape (n,), int64
        Rows of the data set, as they are taken.
    first : int
        The place in `order` at which the taking begins.

    Returns
    -------
    context manager
        It gives what is to be told how many of `order` have been taken.
    """
    return _Reader(data, order, first) if isinstance(data, Stream) else _NO_READER


_NO_READER = nullcontext(lambda taken: None)


class _Reader(threading.Thread):
    """Touches the pages of one window after another, each while the one before it is taken."""

    def __init__(self, data: Stream, order: Indices, first: int) -> None:
        super().__init__(name="pdnn-read-ahead", daemon=True)
        self._data, self._order = data, order
        self._length = data.block * data.window
        self._near = max(1, _PAGE // max(data.x[:1].nbytes, 1))  # rows of a page
        self._window = first // self._length  # the one that is taken now
        self._changed = threading.Condition()
        self._ended = False

    def __enter__(self) -> Callable[[int], object]:
        self.start()
        return self.taken

    def __exit__(self, *error: object) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()
        self.join()

    def taken(self, rows: int) -> None:
        with self._changed:
            self._window = rows // self._length
            self._changed.notify()

    def run(self) -> None:
        for window in range(self._window, ceil(len(self._order) / self._length)):
            with self._changed:
                while window > self._window + 1 and not self._ended:
                    self._changed.wait()
            rows = np.sort(self._order[window * self._length : (window + 1) * self._length])
            lasts = np.append(np.flatnonzero(np.diff(rows) > self._near), len(rows) - 1)
            firsts = np.append(0, lasts[:-1] + 1)
            for begin, last in zip(rows[firsts].tolist(), rows[lasts].tolist(), strict=True):
                if self._ended:
                    return
                for array in (self._data.x, self._data.y):
                    _touch(array[begin : last + 1])


def _touch(part: Array) -> None:
    """Reads a byte of each page, without the GIL."""
    if part.flags.c_contiguous:
        part = part.reshape(-1).view(np.uint8)[::_PAGE]
    part.max(initial=0)


@dataclass(frozen=True)
class _PlaceInFile:
    """Where the samples of a stream are: each `step`-th row from a place on, or from the end if below 0."""

    file: str
    offset: int
    dtype: str
    shape: tuple[int, ...]
    step: int

    def mapped(self) -> Array:
        rows, *sample = self.shape
        whole = ((rows - 1) * abs(self.step) + 1, *sample)
        try:
            return np.memmap(self.file, self.dtype, "r", self.offset, whole)[:: self.step]
        except ValueError as error:
            raise ValueError(
                f"Stream: {self.file}: it has no longer the samples, {self.shape} of {self.dtype}, of which "
                f"this stream was made ({error})"
            ) from error


def _place_in_file(x: Array) -> Array | _PlaceInFile:
    """The array itself, unless it is what is in a file, as with mode "c" it need not be."""
    if not isinstance(x, np.memmap) or x.filename is None or x.mode == "c" or x.size == 0:
        return x
    mapping: Any = x
    while not isinstance(mapping, mmap.mmap):
        if (mapping := mapping.base) is None:
            return x
    begin = np.frombuffer(mapping, np.uint8).ctypes.data + x.offset % mmap.ALLOCATIONGRANULARITY
    step = 1 if len(x) == 1 else x.strides[0] // x[0].nbytes
    first = (x if step > 0 else x[::-1]).ctypes.data
    return _PlaceInFile(str(x.filename), x.offset + first - begin, x.dtype.str, x.shape, step)


def _opened(given: Any) -> Any:
    """An array that is given, or the array of a .npy file, mapped."""
    if not isinstance(given, str | os.PathLike):
        return given
    try:
        return np.lib.format.open_memmap(given, mode="r")
    except (EOFError, ValueError) as error:
        raise ValueError(f"Stream: {os.fspath(given)}: not a sound .npy file ({error})") from error
