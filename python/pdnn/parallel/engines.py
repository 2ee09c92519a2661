"""Engines: how one rank makes its gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


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
        check_positive("Team: threads", self.threads)

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
        check_positive("Pool: workers", self.workers)
        check_positive("Pool: parallel_batches", self.parallel_batches)

    def __str__(self) -> str:
        return f"pool:{self.workers}/{self.parallel_batches}"


Engine: TypeAlias = Serial | Team | Pool


def threads_of(engine: Engine) -> int:
    """Threads that an engine keeps busy."""
    if isinstance(engine, Team):
        return engine.threads
    return engine.workers if isinstance(engine, Pool) else 1


def suffix(engine: Engine) -> str:
    """How a strategy's string ends in its engine: "+team:2", or nothing for serial."""
    return "" if isinstance(engine, Serial) else f"+{engine}"


def check_positive(what: str, value: int) -> None:
    """Raises ValueError unless the value is at least 1."""
    if value < 1:
        raise ValueError(f"{what} = {value}; expected at least 1")
