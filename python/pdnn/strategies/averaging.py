"""Averaging: each rank trains its own model, and the models are averaged at intervals."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pdnn import _core
from pdnn.checks import flag, integer
from pdnn.strategies.base import (
    CostModel,
    Engine,
    Strategy,
    codec_suffix,
    compression,
    refuse_leaves,
    spelled_codec,
    take_codec,
)
from pdnn.strategies.engines import Serial
from pdnn.strategies.step_cost import StepCost

if TYPE_CHECKING:
    from pdnn.codec import Codec


@dataclass(frozen=True)
class ModelAveraging(Strategy):
    """Every rank trains its own model; at intervals all models become their average.

    An update is one rank's, from `batch_size` rows: a step deals ranks × `batch_size` rows of the epoch, in
    shares that differ by at most one; a rank may get none of the last ones and then makes no update. The
    average weighs parameters and buffers (running statistics) by the rows that each rank has trained on since
    the last one, or by what these count in the loss if rows or classes have weights. The optimizer's state
    (momentum) is not averaged: it stays each rank's own.

    `fit` ends with an average, so every rank then holds the same model. Validation and callbacks in between
    see the average of the models so far; the ranks continue with their own models.

    Parameters
    ----------
    every : int, optional
        Steps from one average to the next, counted over all of training. None: one average, when `fit` ends.
    by : "all_reduce" or "master"
        Who adds up: all ranks at once, or rank 0, to which they send their models and which sends the sum
        back. The models are equal to rounding, between threads bit for bit.
    same_init : bool
        Whether `fit` begins with rank 0's parameters on all ranks. An average of networks that started apart
        means little: False is there to show it, with models of other seeds.
    engine : Serial, Team or Pool
        How a rank makes its gradient.
    codec : str or Codec, optional
        By which an average travels: each rank sends what its parameters have moved since the last average,
        times its weight. The buffers, and averages that are only looked at, travel as they are. Basu et al.,
        "Qsparse-local-SGD", NeurIPS 2019. Not with ``by="master"`` or ``same_init=False``.
    error_feedback : bool, optional
        Whether what a codec lost is added to what is sent for the next average; by default
        if the codec loses much of it. As in `DataParallel`.
    """

    every: int | None = None
    by: str = "all_reduce"
    same_init: bool = True
    engine: Engine = field(default_factory=Serial)
    codec: str | Codec | None = None
    error_feedback: bool | None = None

    pattern = r"average:(end|\d+)(:master)?(:own-init)?(?::(.+))?"
    examples = ("average:end", "average:8", "average:8+team:2", "average:8:topk:0.01")
    unspelled = ("error_feedback",)
    models_apart = True
    same_updates = False
    survives = True
    takes_spares = True

    def __post_init__(self) -> None:
        take_codec(self)
        flag(self, "same_init", self.same_init)
        if self.every is not None:
            integer(self, "every", self.every, 1)
        if self.by not in ("all_reduce", "master"):
            raise ValueError(f'ModelAveraging: by "{self.by}"; expected "all_reduce" or "master"')
        if self.codec is not None and self.by == "master":
            raise ValueError(
                f'ModelAveraging: codec "{self.codec}" is of sums that all ranks make; use by="all_reduce"'
            )
        if self.codec is not None and not self.same_init:
            raise ValueError(
                f'ModelAveraging: codec "{self.codec}" is of what models moved since they were the same, and '
                "with same_init=False they never were"
            )
        refuse_leaves(self, "each rank trains a model of its own")

    @classmethod
    def spelled(cls, match: re.Match[str]) -> ModelAveraging:
        """After "average" the steps, then who adds up, how ranks begin, and a codec."""
        return cls(
            every=None if match[1] == "end" else int(match[1]),
            by="master" if match[2] else "all_reduce",
            same_init=not match[3],
            codec=spelled_codec(match.string, match[4]),
        )

    def rows_per_step(self, batch_size: int, ranks: int) -> int:
        """An update of each rank."""
        return batch_size * ranks

    def config(self) -> _core.ModelAveragingConfig:
        """The core's."""
        return _core.ModelAveragingConfig(
            self.engine.engine_config(), self.every or 0, self.by == "master", compression(self, 1)
        )

    def estimate(self, steps: CostModel) -> StepCost:
        """An update of a rank's own, and now and then a sum of models."""
        return steps.averaging(self.engine, self.every, self.codec, by_master=self.by == "master")

    def memory(self, steps: CostModel) -> int:
        """The average beside the model."""
        return steps.memory(self.engine, steps.rows, steps.params + steps.buffers + 1)

    def __str__(self) -> str:
        words = f"average:{'end' if self.every is None else self.every}"
        words += ":master" * (self.by == "master") + ":own-init" * (not self.same_init)
        return words + codec_suffix(self.codec) + self.engine.suffix
