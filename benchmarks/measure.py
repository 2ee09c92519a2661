"""Measuring side by side: programs in processes of their own take turns, block by block, within one run.

The clock of a machine drifts and other programs come and go, so times of different runs do not compare.
Here every side runs one block a turn, the turns go round, and a side's time is the median of the fastest
quarter of its blocks: what the side does when nothing disturbs it. A figure is a ratio of two such times.

Sides are pinned alike: each process has `cores` cores in its affinity mask and as many threads, told to it
before it starts and, where threadpoolctl is installed, once more by that. A side with several cores hands
data from core to core, and on shared machines that has slow spells of seconds: the round trip is measured
between blocks, and blocks beside a slow one are left out.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from statistics import median
from time import process_time, sleep
from typing import Any

Runner = Callable[[], tuple[float, float]]
"""Runs one block; returns seconds a step, and a number that all sides must agree on."""


SETTLE = 0.05
"""Seconds between two blocks."""


@dataclass(frozen=True)
class Side:
    """One program of a comparison.

    Parameters
    ----------
    name : str
    make : function
        Builds the runner, in the side's own process; importable, called with `arguments`.
    cores : int
        In its affinity mask, and threads it may use.
    environment : mapping
        Variables set before its process starts.
    """

    name: str
    make: Callable[..., Runner]
    arguments: tuple[Any, ...] = ()
    cores: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Blocks:
    """What a side's blocks measured.

    Attributes
    ----------
    seconds : list of float
        A step, in each block.
    processor : list of float
        Seconds of processor time that each block took, over all threads: a clock that stands still while
        other programs have the core.
    check : float
        The runner's number after the first block.
    blas : str
        The BLAS library in its process and the processor that its kernels are for; empty if not known.
    """

    seconds: list[float]
    processor: list[float]
    check: float
    blas: str


def fastest_quarter(seconds: Sequence[float]) -> float:
    """The median of the fastest quarter, at least one value, of a side's blocks; nan if there are none."""
    return median(sorted(seconds)[: math.ceil(len(seconds) / 4)]) if seconds else math.nan


def quiet(seconds: Sequence[float], trips: Sequence[float], slowest: float) -> list[float]:
    """The blocks with no round trip over `slowest` before (``trips[i]``) or after (``trips[i + 1]``)."""
    return [
        block
        for block, before, after in zip(seconds, trips[:-1], trips[1:], strict=True)
        if max(before, after) <= slowest
    ]


def alternate(
    sides: Sequence[Side], blocks: int, between: Callable[[], float]
) -> tuple[list[Blocks], list[float]]:
    """Runs `blocks` blocks of every side in turns, after one block each that is not counted.

    Between two blocks it waits for what the last side may have left running: the threads of a BLAS library
    spin on for some 30 ms.

    Parameters
    ----------
    sides : sequence of Side
    blocks : int
    between : function
        Called before the first turn and after each one.

    Returns
    -------
    list of Blocks
        One a side.
    list of float
        What `between` returned, blocks + 1 values.

    Raises
    ------
    RuntimeError
        If a side fails; with its message.
    """
    workers = [_Worker(side) for side in sides]
    try:
        results = [Blocks([], [], worker.run()[1], worker.blas) for worker in workers]
        values = [between()]
        for _ in range(blocks):
            for worker, result in zip(workers, results, strict=True):
                sleep(SETTLE)
                seconds, _, processor = worker.run()
                result.seconds.append(seconds)
                result.processor.append(processor)
            sleep(SETTLE)
            values.append(between())
    finally:
        for worker in workers:
            worker.stop()
    return results, values


class _Worker:
    """A side in its own process, which waits for the word between blocks."""

    def __init__(self, side: Side) -> None:
        context = multiprocessing.get_context("spawn")  # a fresh interpreter: nothing imported, no threads
        self._side = side
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, side), daemon=True)
        with _pinned(side):
            self._process.start()
        theirs.close()
        self.blas: str = self._receive()

    def run(self) -> tuple[float, float, float]:
        self._connection.send(True)
        result: tuple[float, float, float] = self._receive()
        return result

    def stop(self) -> None:
        self._connection.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()

    def _receive(self) -> Any:
        try:
            answer = self._connection.recv()
        except EOFError:
            raise RuntimeError(f"{self._side.name}: its process died") from None
        if isinstance(answer, Exception):
            raise RuntimeError(f"{self._side.name}: {type(answer).__name__}: {answer}") from answer
        return answer


@contextmanager
def _pinned(side: Side) -> Iterator[None]:
    """What a process started in here inherits: the last cores of this process's mask, and as many threads."""
    threads = {
        name: str(side.cores) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    }
    mask, variables = os.sched_getaffinity(0), dict(os.environ)
    if side.cores > len(mask):
        raise ValueError(f"{side.name}: {side.cores} cores, this process may use {len(mask)}")
    try:
        os.sched_setaffinity(0, sorted(mask)[-side.cores :])
        os.environ.update(threads | dict(side.environment))
        yield
    finally:
        os.sched_setaffinity(0, mask)
        os.environ.clear()
        os.environ.update(variables)


def _serve(connection: Connection, side: Side) -> None:
    try:
        runner = side.make(*side.arguments)
        connection.send(_limit_blas(side.cores))
        while connection.recv():
            began = process_time()
            seconds, check = runner()
            connection.send((seconds, check, process_time() - began))
    except EOFError:
        pass
    except Exception as error:
        connection.send(error)


def _limit_blas(threads: int) -> str:
    """Sets the threads of the libraries loaded by now; names the BLAS ones and their processors."""
    if not installed_version("threadpoolctl"):
        return ""
    from threadpoolctl import threadpool_info, threadpool_limits

    threadpool_limits(threads)
    blas = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return ", ".join(f"{pool['internal_api']} {pool.get('architecture', '')}" for pool in blas)


def machine() -> dict[str, Any]:
    """Where a figure was measured: processor, cores, system, load, and versions of what is installed."""
    model = platform.processor()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    names = ("numpy", "torch", "scikit-learn", "jax")
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "versions": {name: installed for name in names if (installed := installed_version(name))},
    }


def installed_version(package: str) -> str | None:
    """The version of an installed package, None if it is absent."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
