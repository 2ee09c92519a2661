"""Strategies as values: how a training step is made parallel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Serial:
    """One thread: the reference that every other strategy is compared with."""

    def __str__(self) -> str:
        return "serial"


@dataclass(frozen=True)
class Team:
    """Threads inside each layer, each computing its part of every output; bit for bit equal to serial.

    Parameters
    ----------
    threads : int
    """

    threads: int

    def __post_init__(self) -> None:
        _check_positive("Team: threads", self.threads)

    def __str__(self) -> str:
        return f"team:{self.threads}"


@dataclass(frozen=True)
class Pool:
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

    def __post_init__(self) -> None:
        _check_positive("Pool: workers", self.workers)
        _check_positive("Pool: parallel_batches", self.parallel_batches)

    def __str__(self) -> str:
        return f"pool:{self.workers}/{self.parallel_batches}"


Engine: TypeAlias = Serial | Team | Pool


@dataclass(frozen=True)
class DataParallel:
    """Every rank makes the gradient of its share of each batch; one all-reduce adds the shares up.

    Parameters
    ----------
    engine : Serial, Team or Pool
        How a rank makes its gradient.
    """

    engine: Engine = field(default_factory=Serial)

    def __str__(self) -> str:
        return "ddp" if isinstance(self.engine, Serial) else f"ddp+{self.engine}"


@dataclass(frozen=True)
class ScatterGather:
    """Rank 0 holds the data: it scatters each batch, gathers the gradients, updates and broadcasts.

    Parameters
    ----------
    once : bool
        Scatter the rows in the first step only; every batch must then be the whole data set.
    """

    once: bool = False

    def __str__(self) -> str:
        return "scatter-gather:once" if self.once else "scatter-gather"


Strategy: TypeAlias = Serial | Team | Pool | DataParallel | ScatterGather


def engine_of(strategy: Strategy) -> Engine:
    """How one rank makes its gradient."""
    if isinstance(strategy, DataParallel):
        return strategy.engine
    return Serial() if isinstance(strategy, ScatterGather) else strategy


def threads_of(engine: Engine) -> int:
    """Threads that an engine keeps busy."""
    if isinstance(engine, Team):
        return engine.threads
    return engine.workers if isinstance(engine, Pool) else 1


def session_options(strategy: Strategy) -> dict[str, Any]:
    """What the core's Session must know of a strategy, by the names of its arguments."""
    engine = engine_of(strategy)
    scheme = "replicated"
    if isinstance(strategy, ScatterGather):
        scheme = "scatter-once" if strategy.once else "scatter"
    return {
        "scheme": scheme,
        "engine": "pool" if isinstance(engine, Pool) else "team",
        "threads": threads_of(engine),
        "pieces": engine.parallel_batches if isinstance(engine, Pool) else 1,
    }


def _check_positive(what: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{what} = {value}; expected at least 1")
