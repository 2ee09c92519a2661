"""Data parallel: every rank has the whole network, and all make the same updates."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pdnn import _core
from pdnn.strategies.base import (
    CostModel,
    Engine,
    Strategy,
    check_positive,
    codec_suffix,
    compression,
    spelled_codec,
    take_codec,
)
from pdnn.strategies.engines import Serial
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

    Parameters
    ----------
    engine : Serial, Team or Pool
        How a rank computes its gradient.
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

    pattern = r"ddp(:sum)?(?::(.+))?"
    examples = ("ddp", "ddp+team:2", "ddp:sum", "ddp:int8")
    factor = "data"
    unspelled = ("bucket_bytes", "shared_memory", "error_feedback")

    def __post_init__(self) -> None:
        take_codec(self)
        if self.average not in ("mean", "sum"):
            raise ValueError(f'DataParallel: average "{self.average}"; expected "mean" or "sum"')
        if self.bucket_bytes is not None:
            check_positive("DataParallel: bucket_bytes", self.bucket_bytes)
            if self.shared_memory:
                raise ValueError("DataParallel: bucket_bytes is of messages, shared_memory=True sends none")
        if self.codec is not None and self.shared_memory:
            raise ValueError(
                f'DataParallel: codec "{self.codec}" is of messages, shared_memory=True sends none; '
                "leave one of them out"
            )

    @classmethod
    def spelled(cls, match: re.Match[str]) -> DataParallel:
        """After "ddp" the way to add up, and a codec."""
        return cls(average="sum" if match[1] else "mean", codec=spelled_codec(match.string, match[2]))

    def reducer_options(self) -> _core.ReducerOptions:
        """How gradients are added up."""
        coded = compression(self, MEASURE_EVERY)
        return _core.ReducerOptions(self.shared_memory, self.bucket_bytes or 0, coded)

    def config(self) -> _core.DataParallelConfig:
        """The core's."""
        engine = self.engine.engine_config()
        return _core.DataParallelConfig(engine, self.average == "sum", self.reducer_options())

    def estimate(self, steps: CostModel) -> StepCost:
        """A rank's share of the rows, and a sum of gradients."""
        return steps.data_parallel(self)

    def __str__(self) -> str:
        words = "ddp:sum" if self.average == "sum" else "ddp"
        return words + codec_suffix(self.codec) + self.engine.suffix
