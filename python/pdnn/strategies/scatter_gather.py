"""Scatter and gather: the root has the data and controls every step."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pdnn import _core
from pdnn.checks import flag
from pdnn.strategies.base import CostModel, Engine, Strategy
from pdnn.strategies.engines import Serial
from pdnn.strategies.step_cost import StepCost


@dataclass(frozen=True)
class ScatterGather(Strategy):
    """Rank 0 has the data: it scatters each batch, gathers the gradients, updates and broadcasts.

    Parameters
    ----------
    once : bool
        Scatter the rows in the first step only, in the order of the data set; every batch must then be all
        of it.
    """

    once: bool = False

    pattern = r"scatter-gather(:once)?"
    examples = ("scatter-gather",)
    root_updates = True

    def __post_init__(self) -> None:
        flag(self, "once", self.once)

    @property
    def whole_gradient(self) -> bool:
        """Only rank 0 has it."""
        return False

    @classmethod
    def spelled(cls, match: re.Match[str]) -> ScatterGather:
        """The rows are sent once or in every step."""
        return cls(once=match[1] is not None)

    @property
    def engine(self) -> Engine:
        """A rank works by one thread."""
        return Serial()

    def check_rows(self, rows: int, batch_size: int, augmented: bool) -> None:
        """Rows that are sent once must be all rows, without augmentation."""
        if self.once and batch_size < rows:
            raise ValueError(
                f'fit: strategy "{self}" sends the rows once, so a batch must be all of them; '
                f"pass batch_size={rows} or more"
            )
        if self.once and augmented:
            raise ValueError(
                f'fit: strategy "{self}" sends the rows once, so they cannot be augmented anew '
                'each epoch; "scatter-gather" can'
            )

    def config(self) -> _core.ScatterGatherConfig:
        """The core's."""
        return _core.ScatterGatherConfig(self.engine.engine_config(), self.once)

    def estimate(self, steps: CostModel) -> StepCost:
        """Rows out, gradients in, parameters out through rank 0."""
        return steps.scatter_gather(self.once)

    def memory(self, steps: CostModel) -> int:
        """The root's, which has the whole batch, its share twice, and every rank's gradient."""
        gathered = steps.ranks * (steps.params + 3)
        return steps.memory(self.engine, steps.rows, gathered, passes=1 + 2 / steps.ranks)

    def __str__(self) -> str:
        return "scatter-gather:once" if self.once else "scatter-gather"
