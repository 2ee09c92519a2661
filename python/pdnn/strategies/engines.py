"""Engines: how one rank computes its gradient; each is also a strategy for one process."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pdnn import _core
from pdnn.checks import integer
from pdnn.strategies.base import Engine, waiting_of


@dataclass(frozen=True)
class Serial(Engine):
    """One thread: the reference that every other strategy is compared with.

    Parameters
    ----------
    leaves : int
        Fixed pieces of a batch, by whose tree its sums are made, so that ranks that share them get the same
        bits; 0: sums go over all rows.
    """

    leaves: int = 0

    pattern = r"serial(?:/(\d+))?"
    examples = ("serial", "serial/8")
    threads = 1

    def __post_init__(self) -> None:
        integer(self, "leaves", self.leaves, 0, 32)

    @property
    def suffix(self) -> str:
        """Nothing but the leaves: "ddp/8"."""
        return leaves_suffix(self.leaves)

    def __str__(self) -> str:
        return f"serial{self.suffix}"


@dataclass(frozen=True)
class Team(Engine):
    """Threads inside each layer, each computing its part of every output; bit for bit equal to serial.

    Parameters
    ----------
    threads : int
    leaves : int
        As `Serial` has them.
    """

    threads: int
    leaves: int = 0

    pattern = r"team:(\d+)(?:/(\d+))?"
    examples = ("team:2", "team:2/8")

    def __post_init__(self) -> None:
        integer(self, "threads", self.threads, 1, 32)
        integer(self, "leaves", self.leaves, 0, 32)

    def __str__(self) -> str:
        return f"team:{self.threads}{leaves_suffix(self.leaves)}"


def engines_up_to(cores: int, leaves: int = 0) -> list[Engine]:
    """One thread, and teams of two, four, eight, … threads up to all cores; all have the same bits."""
    teams = [2**power for power in range(1, (cores - 1).bit_length())]
    return [Serial(leaves), *(Team(threads, leaves) for threads in [*teams, cores] if threads > 1)]


@dataclass(frozen=True)
class Pool(Engine):
    """A batch cut into `parallel_batches` pieces, whose gradients are tasks for `workers` threads.

    The gradients are added by one binary tree over the pieces, so the bits do not depend on the number of
    workers.

    Parameters
    ----------
    workers : int
    parallel_batches : int
        Fixed; it does not depend on the number of workers.
    """

    workers: int
    parallel_batches: int = 8

    pattern = r"pool:(\d+)(?:/(\d+))?"
    examples = ("pool:5", "pool:5/25")
    needs_cores = False

    def __post_init__(self) -> None:
        integer(self, "workers", self.workers, 1, 32)
        integer(self, "parallel_batches", self.parallel_batches, 1, 32)

    @property
    def threads(self) -> int:
        """The workers."""
        return self.workers

    @property
    def pieces(self) -> int:  # type: ignore[override]
        """Number of pieces of the rows of a gradient."""
        return self.parallel_batches

    @property
    def leaves(self) -> int:
        """The pieces."""
        return self.parallel_batches

    def with_leaves(self, leaves: int) -> Pool:
        """With so many pieces."""
        return replace(self, parallel_batches=leaves)

    @property
    def passes(self) -> int:  # type: ignore[override]
        """As many as there are workers with a piece."""
        return min(self.workers, self.parallel_batches)

    @property
    def waiting(self) -> int:  # type: ignore[override]
        """Of the pieces."""
        return waiting_of(self.parallel_batches)

    def engine_config(self) -> _core.PoolConfig:
        """The core's configuration of an engine."""
        return _core.PoolConfig(self.workers, self.parallel_batches)

    def __str__(self) -> str:
        return f"pool:{self.workers}/{self.parallel_batches}"


def leaves_suffix(leaves: int) -> str:
    """How a strategy's string ends in its leaves: "/8", or nothing."""
    return f"/{leaves}" if leaves else ""
