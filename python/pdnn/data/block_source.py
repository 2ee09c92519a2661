"""BlockSource: a BlockStream as the core reads it, a part of an epoch after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from mmap import mmap
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pdnn.data.blocks import Ahead, BlockStream
from pdnn.data.checks import Indices
from pdnn.data.source import Source, source_of

if TYPE_CHECKING:
    from pdnn.nn.loss import Loss
    from pdnn.nn.sequential import Sequential


class _Part(NamedTuple):
    core: Any
    order: Indices
    begin: int
    end: int
    epoch: int


@dataclass
class BlockSource(Source):
    """A source whose rows come in parts; what a Source has is of the first block.

    Attributes
    ----------
    stream : BlockStream
    model : nn.Sequential
    loss : Loss
    """

    stream: BlockStream
    model: Sequential
    loss: Loss
    _ahead: Ahead[_Part] | None = field(default=None, init=False)
    _now: _Part | None = field(default=None, init=False)

    def __len__(self) -> int:
        return len(self.stream)

    def shuffled(self, shuffle: bool) -> bool | str:
        """Whether rows are mixed, and in which windows."""
        return shuffle and self.stream.blocks

    def digest(self) -> str:
        """Empty: a block is made anew for each epoch, maybe in another way."""
        return ""

    def part(self, epoch: int, seed: int, row: int, step: int, shuffle: bool) -> tuple[Any, Indices, int]:
        """What has the row at a place of an epoch, waiting until it is there.

        Returns
        -------
        core : object of the core
        order : ndarray, shape (rows of the epoch,), int64
            Rows of `core` at the places that it has; elsewhere 0, which takes no memory.
        end : int
            The place after the last one that it has.
        """
        now = self._now
        if now is None or now.epoch != epoch or not now.begin <= row < now.end:
            if self._ahead is None or now is None or (now.epoch, now.end) != (epoch, row):
                self.close()
                self._ahead = Ahead(self._parts(epoch, seed, row, step, shuffle))
            self._now = None  # so that it is not in memory beside two others
            now = self._now = self._ahead.take()
        # All rows' places, of which one part is filled: `np.zeros` would clear up to 32 MB of them each time.
        order: Indices = np.frombuffer(mmap(-1, 8 * len(self)), np.int64)
        order[now.begin : now.end] = now.order
        return now.core, order, now.end

    def close(self) -> None:
        """Reads no further, and holds no blocks."""
        if self._ahead is not None:
            self._ahead.close()
        self._ahead = self._now = None

    def _parts(self, epoch: int, seed: int, row: int, step: int, shuffle: bool) -> Iterator[_Part]:
        for part in self.stream.parts(epoch, seed, row, step, shuffle):
            source = source_of("train", part.data, self.model, self.loss, None)
            if (source.sample, source.width) != (self.sample, self.width):
                raise ValueError(
                    f"BlockStream: epoch {epoch} has samples of shape {source.sample} and targets of width "
                    f"{source.width}, its first block {self.sample} and {self.width}"
                )
            yield _Part(source.core, part.order, part.begin, part.end, epoch)


def block_source(stream: BlockStream, model: Sequential, loss: Loss, batch_size: int) -> BlockSource:
    """The source for training a model; reads the first block.

    Raises
    ------
    TypeError, ValueError
        If its samples do not fit the model or its labels the outputs.
    """
    first = stream.first()
    source = source_of("train", first, model, loss, None)
    # Enough for a batch, where steps are measured.
    rows = np.resize(source.rows, max(batch_size, len(source)))
    fields = vars(source) | {"rows": rows, "converted": first.converted}
    return BlockSource(**fields, stream=stream, model=model, loss=loss)
