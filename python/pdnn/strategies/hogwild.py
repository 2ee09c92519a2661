"""Hogwild: workers update one shared vector of parameters and do not wait for each other."""

from __future__ import annotations

from dataclasses import dataclass

from pdnn import _core
from pdnn.checks import integer
from pdnn.strategies.base import CostModel, Engine, Strategy, alone
from pdnn.strategies.engines import Serial, Team
from pdnn.strategies.step_cost import StepCost


@dataclass(frozen=True)
class Hogwild(Strategy):
    """Workers of this process share one vector of parameters and update it without waiting for each other.

    A worker takes the epoch's next batch, makes its gradient on a copy of the parameters, and updates the
    shared ones by its own optimizer. `batch_size` is the rows of one worker's update. The number of updates
    that others made meanwhile is measured as staleness, see `History.updates`. Runs differ from one to the
    next, unless there is one worker: that is serial, bit for bit.

    Every worker has an optimizer state and buffers (running statistics) of its own. They begin as the
    Trainer's. At the end of an epoch the buffers become their average, weighted by rows. Checkpoints and
    later fits use the first worker's optimizer state.

    Parameters
    ----------
    workers : int
        Threads, the caller's among them.
    """

    workers: int

    pattern = r"hogwild:(\d+)"
    examples = ("hogwild:4",)
    same_updates = False
    asynchronous = True

    def __post_init__(self) -> None:
        integer(self, "workers", self.workers, 1, 32)

    @property
    def engine(self) -> Engine:
        """The threads, for work that they share."""
        return Team(self.workers)

    def misfit(self, ranks: int) -> str | None:
        """Its workers are threads."""
        return alone(ranks, f"hogwild-processes:{ranks}")

    def config(self) -> _core.HogwildConfig:
        """The core's, of a process."""
        return _core.HogwildConfig(self.workers)

    def estimate(self, steps: CostModel) -> StepCost:
        """The time from one update to the next."""
        return steps.hogwild(self.workers, threads=self.workers)

    def memory(self, steps: CostModel) -> int:
        """The shared parameters, and all that each worker has."""
        others = (self.workers - 1) * steps.model_elements
        return steps.memory(Serial(), steps.rows, steps.params + others, passes=self.workers, copied=0)

    def __str__(self) -> str:
        return f"hogwild:{self.workers}"


@dataclass(frozen=True)
class HogwildProcesses(Strategy):
    """`Hogwild` whose workers are the ranks of one machine, over memory that they share.

    Parameters
    ----------
    workers : int
        The number of ranks.
    """

    workers: int

    pattern = r"hogwild-processes:(\d+)"
    examples = ("hogwild-processes:4",)
    same_updates = False
    asynchronous = True

    def __post_init__(self) -> None:
        integer(self, "workers", self.workers, 1, 32)

    @property
    def engine(self) -> Engine:
        """A rank is one worker."""
        return Serial()

    def misfit(self, ranks: int) -> str | None:
        """There is a rank for each worker."""
        if ranks == self.workers:
            return None
        fits = HogwildProcesses(ranks) if ranks > 1 else Hogwild(self.workers)
        return f'is for {self.workers} ranks, this world has {ranks}; "{fits}" fits'

    def config(self) -> _core.HogwildConfig:
        """The core's, of a process."""
        return _core.HogwildConfig(1)

    def estimate(self, steps: CostModel) -> StepCost:
        """The time from one update to the next."""
        return steps.hogwild(self.workers)

    def memory(self, steps: CostModel) -> int:
        """The shared parameters beside its own."""
        return steps.memory(self.engine, steps.rows, steps.params + steps.buffers + 1, copied=0)

    def __str__(self) -> str:
        return f"hogwild-processes:{self.workers}"
