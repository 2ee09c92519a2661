"""BlockStream: rows that a function makes, block by block; the next blocks are made while these train."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from itertools import islice
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from pdnn import _core
from pdnn.checks import integer
from pdnn.data.batches import epoch_order
from pdnn.data.checks import Indices, digest
from pdnn.data.dataset import ALL, Dataset
from pdnn.data.sparse import is_sparse, joined
from pdnn.data.stream import KEYS

if TYPE_CHECKING:
    from concurrent.futures import Future

T = TypeVar("T")
Block = tuple[npt.ArrayLike, npt.ArrayLike] | tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike]


class Part(NamedTuple):
    """Rows of an epoch that are in memory together.

    Attributes
    ----------
    data : Dataset
    order : ndarray of int64
        The rows to take, as they are taken.
    begin, end : int
        Their places in the epoch.
    """

    data: Dataset
    order: Indices
    begin: int
    end: int


def blocks_of(data: object) -> str:
    """How to train on what makes its rows, for a message; empty if this makes none."""
    if not isinstance(data, (Iterator, FunctionType, MethodType)):
        return ""
    return "; a function that makes blocks of rows trains as pdnn.data.BlockStream(function, rows=…)"


class BlockStream:
    """Training data that a function makes, block by block, as from many files or a simulation.

    Memory holds the blocks of about four windows. While training works on one window, a thread calls for the
    blocks of the next. `fit` takes it as training data, on every rank: each makes all blocks, and takes its
    share of each batch.

    Parameters
    ----------
    make : callable
        Called with the number of an epoch, it returns an iterable of blocks (x, y), or (x, y, weight), such
        as a generator. Each is what a Dataset takes, with any number of rows, in memory that the blocks after
        it do not use; labels are numbers, not names. On every rank, and when a training is resumed, an epoch
        must have the same blocks in the same order: shuffle files as a function of the epoch.
    rows : int
        Of an epoch. Blocks beyond them are not asked for.
    scale, shift : float
        As of a Dataset.
    window : int
        Blocks whose rows are mixed, if `fit` shuffles, as a function of (seed, epoch).

    Raises
    ------
    TypeError
        If `make` is no function; a generator could be read only once. If `rows` or `window` is no integer.
    ValueError
        If `rows` or `window` is below 1; in an epoch, if blocks do not fit each other or `rows`, or one
        overwrites one before it that is still to be trained on.

    Examples
    --------
    >>> def blocks(epoch):
    ...     for number in np.random.default_rng(epoch).permutation(100):
    ...         with np.load(f"part{number}.npz") as part:
    ...             yield part["x"], part["y"]
    >>> data = BlockStream(blocks, rows=1_000_000)
    """

    def __init__(
        self,
        make: Callable[[int], Iterable[Block]],
        rows: int,
        scale: float = 1.0,
        shift: float = 0.0,
        *,
        window: int = 8,
    ) -> None:
        if not callable(make):
            raise TypeError(
                f"BlockStream: make is of type {type(make).__name__}, expected a function of the epoch that "
                "returns its blocks; what can be read only once serves one epoch"
            )
        self.make = make
        self.rows = integer(self, "rows", rows, 1, bits=60)  # whose places a process can count
        self.scale = scale
        self.shift = shift
        self.window = integer(self, "window", window, 1)

    @property
    def blocks(self) -> str:
        """How many blocks are mixed, in words."""
        return f"windows of {self.window} blocks"

    def __len__(self) -> int:
        return self.rows

    def first(self) -> Dataset:
        """The first block of epoch 0 that has rows; `fit` looks at it before it begins."""
        return next(made.data for made in self._blocks(0) if len(made.data))

    def parts(self, epoch: int, seed: int, first: int, step: int, shuffle: bool) -> Iterator[Part]:
        """The rows of an epoch from one place on, a window at a time.

        Each part but the last has whole steps; what a window has beyond them goes into the next part.

        Parameters
        ----------
        epoch, seed : int
        first : int
            Place in the epoch of the first row to take.
        step : int
            Rows of a step.
        shuffle : bool
            Whether rows are mixed in each window.
        """
        blocks, done, number, left = self._blocks(epoch), 0, 0, None
        keys: Indices = np.zeros(0, np.int64)  # of the windows
        while done < self.rows:
            some = _kept(islice(blocks, self.window))
            rows = sum(map(len, some))
            order = np.arange(rows)
            if shuffle:
                if number == len(keys):  # a longer draw begins with the shorter one
                    keys = _core.draw_rows(seed % 2**64, epoch, 2 * number + 8, KEYS)
                order = epoch_order(rows, int(keys[number]), epoch)
            begin, done, number = done, done + rows, number + 1
            if done <= first:
                continue
            order = order[max(first - begin, 0) :]
            if left is not None:
                some.insert(0, left)
                order = np.concatenate([np.arange(len(left)), order + len(left)])
            begin = done - len(order)
            end = done if done == self.rows else done - len(order) % step
            data = self._joined(some)
            some.clear()
            rest = order[end - begin :]
            left = self._joined([data], rest) if len(rest) else None
            if end > begin:
                yield Part(data, order[: end - begin], begin, end)

    def _blocks(self, epoch: int) -> Iterator[_Made]:
        """The blocks of an epoch, the last one cut to its rows."""
        done, kind, blocks = 0, None, self.make(epoch)
        before: _Made | None = None
        if not isinstance(blocks, Iterable):
            raise TypeError(
                f"BlockStream: make({epoch}) returned {blocks!r}, expected blocks (x, y) or (x, y, weight), "
                "as a generator yields them"
            )
        for number, block in enumerate(blocks):
            if not (isinstance(block, tuple) and len(block) in (2, 3)):
                raise TypeError(
                    f"BlockStream: block {number} is of type {type(block).__name__}, expected (x, y) or "
                    "(x, y, weight)"
                )
            x, y, weight = (*block, None)[:3]
            try:
                data = Dataset(x, y, self.scale, self.shift, weight)
            except (TypeError, ValueError) as error:
                kind_of_error = TypeError if isinstance(error, TypeError) else ValueError
                raise kind_of_error(f"BlockStream: block {number} of epoch {epoch}: {error}") from error
            if data.classes is not None:
                raise TypeError("BlockStream: labels are names of classes; pass their numbers")
            kind_of_x = f"{'sparse ' * is_sparse(data.x)}{data.x.dtype}"
            own = (data.sample_shape, kind_of_x, data.y.shape[1:], data.y.dtype, data.weight is None)
            kind = own if kind is None else kind
            if own != kind:
                raise ValueError(
                    f"BlockStream: block {number} has {_told(*own)}, those before it {_told(*kind)}"
                )
            if before is not None:
                before.check_kept()
            data = data[: self.rows - done]
            done += len(data)
            before = _Made(number, data, _held(data))
            yield before
            if done == self.rows:
                return
        raise ValueError(f"BlockStream: epoch {epoch} has {done} rows, expected rows={self.rows}")

    def _joined(self, some: list[Dataset], rows: Indices | slice = ALL) -> Dataset:
        """Blocks as one, or these rows of it."""
        x, y = joined([block.x for block in some])[rows], joined([block.y for block in some])[rows]
        weights = [block.weight for block in some if block.weight is not None]
        return Dataset(x, y, self.scale, self.shift, joined(weights)[rows] if weights else None)

    def __repr__(self) -> str:
        return f"BlockStream({self.rows} rows, {self.blocks})"


class _Made(NamedTuple):
    """A block as it was made: its number, its rows and what they held."""

    number: int
    data: Dataset
    held: int

    def check_kept(self) -> None:
        """Raises ValueError if a block after it was made in its memory."""
        if _held(self.data) != self.held:
            raise ValueError(
                f"BlockStream: a block after block {self.number} overwrites its memory, which is still to be "
                "trained on; make each block in memory of its own, or yield copies"
            )


def _kept(blocks: Iterator[_Made]) -> list[Dataset]:
    """The rows of these blocks, once all are made and none in the memory of another."""
    made = list(blocks)
    for each in made:
        each.check_kept()
    return [each.data for each in made]


def _held(block: Dataset) -> int:
    """What its memory holds, by a few rows."""
    return digest(range(len(block)), block.x, block.y, block.weight)


def _told(sample: tuple[int, ...], x: str, target: tuple[int, ...], y: Any, plain: bool) -> str:
    weights = "no weights" if plain else "weights"
    return f"samples {x} of shape {sample}, labels {y} of shape {target}, {weights}"


class Ahead(Generic[T]):
    """Items of an iterator, of which the next one is made by a thread while the last one is in use."""

    def __init__(self, items: Iterator[T]) -> None:
        from concurrent.futures import ThreadPoolExecutor, wait  # few programs ask

        self._items, self._wait = items, wait  # which cannot be imported when the interpreter ends
        self._context = copy_context()  # so that `pdnn.world` is this thread's there, too
        self._thread = ThreadPoolExecutor(1, "pdnn-read-ahead")
        self._coming: Future[T] = self._thread.submit(self._context.run, next, items)

    def take(self) -> T:
        """The next item, when it is there; raises what making it raised."""
        while self._wait([self._coming], 1).not_done:  # an endless wait may not hear a Ctrl-C
            pass
        item = self._coming.result()
        self._coming = self._thread.submit(self._context.run, next, self._items)
        return item

    def close(self) -> None:
        """Waits for what is being made; says so if that takes long, as it may after a Ctrl-C."""
        if self._wait([self._coming], 2).not_done:
            words = "BlockStream: waits for the block that is being made; another Ctrl-C leaves it"
            print(words, file=sys.stderr, flush=True)
        self._thread.shutdown(wait=True, cancel_futures=True)
