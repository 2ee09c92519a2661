"""Strategies: how a training step is made parallel, as values and as the strings that spell them."""

from __future__ import annotations

import os
import re
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from pdnn import _core
from pdnn.closeness import Closeness as Closeness
from pdnn.closeness import check_parameter_closeness as check_parameter_closeness
from pdnn.nn.targets import core_for

if TYPE_CHECKING:
    from pdnn.comm import Communicator
    from pdnn.nn.module import Array


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

SPECS = '"auto", "serial", "team:2", "pool:5", "pool:5/25", "ddp", "ddp+team:2", "scatter-gather"'


def parse(spec: str) -> Strategy:
    """The strategy that a string spells; see `SPECS` for the forms.

    Raises
    ------
    ValueError
        If it is none of them.
    """
    words = spec.strip()
    if words == "serial":
        return Serial()
    if words in ("scatter-gather", "scatter-gather:once"):
        return ScatterGather(once=words.endswith(":once"))
    if words == "ddp":
        return DataParallel()
    if words.startswith("ddp+"):
        inner = parse(words[4:])
        if isinstance(inner, (Serial, Team, Pool)):
            return DataParallel(inner)
    if match := re.fullmatch(r"team:(\d+)", words):
        return Team(int(match[1]))
    if match := re.fullmatch(r"pool:(\d+)(?:/(\d+))?", words):
        return Pool(int(match[1]), int(match[2])) if match[2] else Pool(int(match[1]))
    raise ValueError(f'strategy "{spec}"; expected one of {SPECS}')


def choose(strategy: str | Strategy, comm: Communicator) -> Strategy:
    """The strategy for a world: parses, resolves "auto", and refuses what does not fit.

    Raises
    ------
    ValueError
        If the string is no strategy, or the strategy is for one process and the world has more.
    TypeError
        If it is neither a string nor a strategy.
    """
    if strategy == "auto":
        threads = cores_of_rank(comm)
        engine: Engine = Team(threads) if threads > 1 else Serial()
        return DataParallel(engine) if comm.size > 1 else engine
    chosen = parse(strategy) if isinstance(strategy, str) else strategy
    if not isinstance(chosen, (Serial, Team, Pool, DataParallel, ScatterGather)):
        raise TypeError(
            f"Trainer: strategy is a {type(chosen).__name__}, expected a string or one of pdnn.parallel's"
        )
    if comm.size > 1 and isinstance(chosen, (Serial, Team, Pool)):
        fits = DataParallel(chosen)
        raise ValueError(
            f'Trainer: strategy "{chosen}" is for one process, this world has {comm.size} ranks; '
            f'"{fits}" fits, or pass comm=pdnn.comm.SELF to train on each rank by itself'
        )
    _warn_if_crowded(chosen, comm)
    return chosen


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


def cores_of_rank(comm: Communicator) -> int:
    """Cores that this rank may use: its affinity mask and cgroup quota, shared with the ranks of its node.

    ``PDNN_THREADS`` overrides it; the launcher sets it.
    """
    if text := os.environ.get("PDNN_THREADS"):
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"PDNN_THREADS={text}; expected a number of threads, at least 1")
        return int(text)
    neighbours = min(_local_ranks(), comm.size) if comm.size > 1 else 1
    online, _, quota = _core.read_cores()
    whole = min(online, quota or online)
    return int(max(1, min(_core.available_cores(), whole // neighbours)))


def _local_ranks() -> int:
    for name in ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"):
        if name in os.environ:
            return int(os.environ[name])
    return 2**31  # ranks are threads, or the launcher does not say: take all of them to be here


def _warn_if_crowded(strategy: Strategy, comm: Communicator) -> None:
    threads, cores = threads_of(engine_of(strategy)), cores_of_rank(comm)
    if isinstance(strategy, (Team, DataParallel)) and threads > cores:
        hint = "; mpiexec bound it, add --bind-to none" if comm.size > 1 else ""
        warnings.warn(
            f'strategy "{strategy}": {threads} threads share {cores} core(s) of this process{hint}',
            stacklevel=4,
        )


def _check_positive(what: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{what} = {value}; expected at least 1")


def matmul(a: Array, b: Array, threads: int = 1) -> Array:
    """The product a @ b by pdnn's kernels.

    Parameters
    ----------
    a, b : ndarray, shapes (m, k) and (k, n), both float32 or both float64, C-ordered
    threads : int
        Threads to share the product; they are started for this call.

    Returns
    -------
    ndarray, shape (m, n)

    Raises
    ------
    TypeError
        If the dtypes differ or are neither.
    ValueError
        If the shapes do not fit or an array is not C-contiguous.
    """
    if a.dtype != b.dtype or a.dtype.name not in ("float32", "float64"):
        raise TypeError(f"matmul: got {a.dtype} and {b.dtype}, expected both float32 or both float64")
    product: Array = core_for(a.dtype.name).matmul(a, b, threads)
    return product
