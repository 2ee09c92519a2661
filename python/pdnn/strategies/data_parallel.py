"""Data parallel: every rank has the whole network, and all make the same updates."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING

from pdnn import _core
from pdnn.checks import flag, integer
from pdnn.strategies.base import (
    CostModel,
    Engine,
    Strategy,
    check_engine,
    codec_suffix,
    compression,
    not_reproducible,
    refuse_leaves,
    spelled_codec,
    take_codec,
)
from pdnn.strategies.engines import Serial, leaves_suffix
from pdnn.strategies.step_cost import StepCost

if TYPE_CHECKING:
    from pdnn.codec import Codec


MEASURE_EVERY = 16
"""Encodings of which one tells its error: that takes next to nothing of an epoch."""


@dataclass(frozen=True)
class DataParallel(Strategy):
    """Every rank computes the gradient of its share of each batch; their sum is the batch's gradient.

    Ranks of one machine store gradients and parameters in shared memory, and each rank updates its part of
    the parameters. Otherwise, or if that is measured to be slower, gradients are sent in buckets during the
    backward pass, the last layer's first.

    With an engine that has leaves (`Pool`, ``Serial(leaves=8)``), these are fixed pieces of the whole batch,
    of which each rank takes some. All sums are made by one tree over them, so neither the number of ranks
    nor of threads changes a bit.

    Parameters
    ----------
    engine : Serial, Team or Pool
        How a rank computes its gradient. With a codec or a sum of means a pool cuts each rank's rows, and
        there are no leaves.
    average : "mean" or "sum"
        The gradient of an update: of the mean loss over the rows of the whole batch, or the sum over ranks of
        each one's mean over its own rows. The sum is another optimizer: its steps grow with the ranks.
    bucket_bytes : int, optional
        Size of a bucket; if given, gradients are sent in buckets. None: the best size by the latency and
        bandwidth of an all-reduce, measured when `fit` begins; with a codec 256 KiB.
    shared_memory : bool, optional
        Whether ranks of one machine share memory. None: if it is measured to be faster.
    codec : str or Codec, optional
        Encodes the buckets: a string as in `pdnn.codec.SPECS`. All ranks get the same bits. With `PowerSGD`
        buckets end where parameters end, because it needs whole matrices. `History.compression` has the
        statistics: bytes, seconds, error.
    error_feedback : bool, optional
        Whether the error of the codec is added to the next gradient; by default if the codec loses much.
        Checkpoints contain this residual; a new call of `fit` starts without one.
    """

    engine: Engine = field(default_factory=Serial)
    average: str = "mean"
    bucket_bytes: int | None = None
    shared_memory: bool | None = None
    codec: str | Codec | None = None
    error_feedback: bool | None = None

    pattern = r"ddp(?:/(\d+))?(:sum)?(?::(.+))?"
    examples = ("ddp", "ddp+team:2", "ddp/8", "ddp+team:2/8", "ddp:sum", "ddp:int8")
    factor = "data"
    survives = True
    takes_spares = True
    unspelled = ("bucket_bytes", "shared_memory", "error_feedback")

    def __post_init__(self) -> None:
        take_codec(self)
        for name in ("shared_memory", "error_feedback"):
            if (given := getattr(self, name)) is not None:
                flag(self, name, given)
        if self.average not in ("mean", "sum"):
            raise ValueError(f'DataParallel: average "{self.average}"; expected "mean" or "sum"')
        if self.bucket_bytes is not None:
            integer(self, "bucket_bytes", self.bucket_bytes, 1)
            if self.shared_memory:
                raise ValueError("DataParallel: bucket_bytes is of messages, shared_memory=True sends none")
        if self.codec is not None and self.shared_memory:
            raise ValueError(
                f'DataParallel: codec "{self.codec}" is of messages, shared_memory=True sends none; '
                "leave one of them out"
            )
        check_engine(self)
        if not self.leaves:
            refuse_leaves(self, self._apart())

    @classmethod
    def spelled(cls, match: re.Match[str]) -> DataParallel:
        """After "ddp" the leaves, the way to add up, and a codec."""
        engine, average = Serial(int(match[1] or 0)), "sum" if match[2] else "mean"
        return cls(engine, average, codec=spelled_codec(match.string, match[3]))

    def with_engine(self, engine: Engine) -> Strategy | None:
        """The same by another engine; None if there are leaves already, which that engine would not have."""
        return None if self.leaves else super().with_engine(engine)

    def _apart(self) -> str:
        """Why its sums are not made over leaves of the whole batch; "" if they can be."""
        if self.codec is not None:
            return "what a codec loses depends on who adds up what"
        return "a sum of the ranks' means depends on the ranks" if self.average == "sum" else ""

    @property
    def whole_gradient(self) -> bool:
        """Unless a codec changes it, or it is a sum of the ranks' means."""
        return not self._apart()

    @property
    def leaves(self) -> int:
        """Those of the engine, unless each rank's sum is its own."""
        return 0 if self._apart() else self.engine.leaves

    def reproducible(self) -> DataParallel:
        """With leaves, if it has none."""
        if why := self._apart():
            raise not_reproducible(self, why)
        return self if self.leaves else replace(self, engine=self.engine.reproducible())

    def misfit(self, ranks: int) -> str | None:
        """A rank has a leaf at least."""
        if not 0 < self.leaves < ranks:
            return None
        fits = replace(self, engine=self.engine.with_leaves(ranks))
        return f'cuts a batch into {self.leaves} leaves, this world has {ranks} ranks; "{fits}" fits'

    def identity(self) -> str:
        """With the leaves, which all ranks share."""
        return super().identity() + leaves_suffix(self.leaves)

    def engine_of_rank(self, ranks: int) -> Engine:
        """The engine, for an estimate: a pool with the pieces that a rank takes."""
        if not (self.leaves and self.engine.passes):
            return self.engine
        return self.engine.with_leaves(ceil(self.leaves / ranks))

    def reducer_options(self) -> _core.ReducerOptions:
        """How gradients are added up."""
        coded = compression(self, MEASURE_EVERY)
        return _core.ReducerOptions(self.shared_memory, self.bucket_bytes or 0, coded)

    def config(self) -> _core.DataParallelConfig:
        """The core's."""
        engine = self.engine.engine_config()
        return _core.DataParallelConfig(engine, self.average == "sum", self.reducer_options(), self.leaves)

    def estimate(self, steps: CostModel) -> StepCost:
        """A rank's share of the rows, and a sum of gradients."""
        return steps.data_parallel(self)

    def memory(self, steps: CostModel) -> int:
        """With leaves, beside the gradient those of more nodes of a rank, and the others' of its share."""
        if not self.leaves or steps.ranks == 1:
            return super().memory(steps)
        own = ceil(self.leaves / steps.ranks)
        rows = min(own * ceil(steps.rows / self.leaves), steps.rows)
        more = self.more_gradients(steps.ranks) * steps.params
        return steps.memory(self.engine_of_rank(steps.ranks), rows, more)

    def more_gradients(self, ranks: int) -> float:
        """What a rank keeps beside its gradient for sums over leaves, in gradients."""
        if not self.leaves or ranks == 1:
            return 0.0
        nodes = _core.nodes_of_ranks(self.leaves, ranks)
        return max(nodes) - 1 + (sum(nodes) - max(nodes) + 1) / ranks

    def __str__(self) -> str:
        words = "ddp:sum" if self.average == "sum" else "ddp"
        return words + codec_suffix(self.codec) + self.engine.suffix
