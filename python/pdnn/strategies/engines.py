"""Engines: how one rank makes its gradient; each is also a strategy for one process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pdnn.strategies.base import Strategy, check_positive

if TYPE_CHECKING:
    from pdnn.estimate.parts import Parts
    from pdnn.estimate.steps import Steps


class Engine(Strategy):
    """How one rank makes its gradient.

    Attributes
    ----------
    threads : int
        That it keeps busy.
    pieces : int
        Into which it cuts the rows of a gradient.
    passes : int
        That go on side by side, each with a gradient of its own; 0: all threads share one pass.
    needs_cores : bool
        Its threads wait for each other so often that each needs a core of its own.
    suffix : str
        How a strategy's string ends in it: "+team:2".
    """

    pieces: ClassVar[int] = 1
    passes: ClassVar[int] = 0
    needs_cores: ClassVar[bool] = True

    if TYPE_CHECKING:

        @property
        def threads(self) -> int:
            """That it keeps busy."""

    @property
    def engine(self) -> Engine:
        """Itself."""
        return self

    @property
    def suffix(self) -> str:
        """How a strategy's string ends in it: "+team:2"."""
        return f"+{self}"

    def misfit(self, ranks: int) -> str | None:
        """An engine alone knows nothing of other ranks."""
        return alone(ranks, f"ddp{self.suffix}")

    def identity(self) -> str:
        """All of it."""
        return str(self)

    def estimate(self, steps: Steps) -> Parts:
        """A step of all rows."""
        return steps.engine(self, steps.rows)


@dataclass(frozen=True)
class Serial(Engine):
    """One thread: the reference that every other strategy is compared with."""

    pattern = "serial"
    examples = ("serial",)
    threads = 1
    suffix = ""

    def __str__(self) -> str:
        return "serial"


@dataclass(frozen=True)
class Team(Engine):
    """Threads inside each layer, each computing its part of every output; bit for bit equal to serial.

    Parameters
    ----------
    threads : int
    """

    threads: int

    pattern = r"team:(\d+)"
    examples = ("team:2",)

    def __post_init__(self) -> None:
        check_positive("Team: threads", self.threads)

    def __str__(self) -> str:
        return f"team:{self.threads}"


@dataclass(frozen=True)
class Pool(Engine):
    """A batch cut into `parallel_batches` pieces, whose gradients are tasks for `workers` threads.

    The gradients join in the order of the pieces, so the number of workers never changes a bit.

    Parameters
    ----------
    workers : int
    parallel_batches : int
        Fixed; never derived from the number of workers.
    """

    workers: int
    parallel_batches: int = 8

    pattern = r"pool:(\d+)(?:/(\d+))?"
    examples = ("pool:5", "pool:5/25")
    needs_cores = False

    def __post_init__(self) -> None:
        check_positive("Pool: workers", self.workers)
        check_positive("Pool: parallel_batches", self.parallel_batches)

    @property
    def threads(self) -> int:
        """The workers."""
        return self.workers

    @property
    def pieces(self) -> int:  # type: ignore[override]
        """Into which the rows of a gradient are cut."""
        return self.parallel_batches

    @property
    def passes(self) -> int:  # type: ignore[override]
        """As many as there are workers with a piece."""
        return min(self.workers, self.parallel_batches)

    def __str__(self) -> str:
        return f"pool:{self.workers}/{self.parallel_batches}"


def alone(ranks: int, fits: str) -> str | None:
    """Why a strategy for one process does not fit several ranks."""
    if ranks == 1:
        return None
    return (
        f'is for one process, this world has {ranks} ranks; "{fits}" fits, or pass comm=pdnn.comm.SELF to '
        "train on each rank by itself"
    )
