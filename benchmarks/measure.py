"""Measuring side by side: programs in processes of their own take turns, block by block, within one run.

The clock of a machine drifts and other programs come and go, so times of different runs do not compare.
Here every side runs one block a turn, the turns go round, and a side's time is the median of the fastest
quarter of its blocks: what the side does when nothing disturbs it. A figure is a ratio of two such times.

A side that has slept does not begin as it goes on: its data are not in the caches, and the threads of some
libraries wake up on one core. So each block follows at once on untimed ones of the same side. At the end
every side runs as many blocks again one after another, the others asleep: what it takes alone.

Sides are pinned alike: each process has `cores` cores in its affinity mask and as many threads, told to it
before it starts and, where threadpoolctl is installed, once more by that. A side with several cores hands
data from core to core, and on shared machines that has slow spells of seconds: the round trip is measured
between blocks, and blocks beside a slow one are left out.

A side of several ranks is as many processes, each with its share of the cores; `pdnn.run` starts them under
mpiexec, also those that do not use MPI. The other processes sleep until it is their turn.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import platform
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from time import perf_counter, process_time, sleep
from typing import Any, Protocol

Runner = Callable[[], tuple[float, float] | tuple[float, float, Mapping[str, float]]]
"""Runs one block; returns seconds a step, a number that all sides must agree on, and perhaps the seconds of
what a step consists of."""

Turn = tuple[float, float, float, Mapping[str, float]]
"""What comes of a block: seconds a step, the number, seconds of processor time, seconds of parts."""


SETTLE = 0.05
"""Seconds from the end of a side's block to what the next side does."""

WARM_UP = 0.1
"""Seconds of untimed blocks before each block, unless told otherwise."""


@dataclass(frozen=True)
class Side:
    """One program of a comparison.

    Parameters
    ----------
    name : str
    make : function
        Builds the runner, in the side's own process; importable, called with `arguments`.
    cores : int
        In its affinity mask, and threads it may use; over all its ranks.
    environment : mapping
        Variables set before its process starts.
    ranks : int
        Processes that run it together; in each, `pdnn.world()` is all of them.
    python : str
        The interpreter of its process; empty: this one. Another one needs the packages of the side alone.
    """

    name: str
    make: Callable[..., Runner]
    arguments: tuple[Any, ...] = ()
    cores: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    ranks: int = 1
    python: str = ""


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
    parts : list of dict of str to float
        Seconds of what a step consists of, in each block, where the side tells; rank 0's.
    check : float
        The runner's number after the first block.
    blas : str
        The BLAS library in its process and the processor that its kernels are for; empty if not known.
    alone : list of float
        A step, in each of as many blocks one after another, while the other sides sleep.
    """

    seconds: list[float]
    processor: list[float]
    check: float
    blas: str
    alone: list[float] = field(default_factory=list)
    parts: list[Mapping[str, float]] = field(default_factory=list)


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
    sides: Sequence[Side], blocks: int, between: Callable[[], float], warm_up: float = WARM_UP
) -> tuple[list[Blocks], list[float]]:
    """Runs `blocks` blocks of every side in turns, and then those of each side alone.

    Between two sides it waits for what the last one may have left running: the threads of a BLAS library
    spin on for some 30 ms.

    Parameters
    ----------
    sides : sequence of Side
    blocks : int
    between : function
        Called before the first turn and after each one.
    warm_up : float
        Seconds, at least, of the untimed blocks before each block: a whole number of them.

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
    workers: list[_Worker] = []
    try:
        workers.extend(_start(side) for side in sides)
        results = [Blocks([], [], worker.run(0)[1], worker.blas) for worker in workers]
        untimed = [math.ceil(warm_up / _seconds(worker)) for worker in workers]
        values = [between()]
        for _ in range(blocks):
            for worker, result, number in zip(workers, results, untimed, strict=True):
                sleep(SETTLE)
                seconds, _, processor, parts = worker.run(number)
                result.seconds.append(seconds)
                result.processor.append(processor)
                result.parts.append(parts)
            sleep(SETTLE)
            values.append(between())
        for worker, result, number in zip(workers, results, untimed, strict=True):
            sleep(SETTLE)
            worker.run(number)
            result.alone.extend(worker.run(0)[0] for _ in range(blocks))
    finally:
        for worker in workers:
            worker.stop()
    return results, values


def _start(side: Side) -> _Worker:
    if side.ranks > 1:
        return _Ranks(side)
    return _Foreign(side) if side.python else _Process(side)


def _seconds(worker: _Worker) -> float:
    """Of a whole block, the second one."""
    began = perf_counter()
    worker.run(0)
    return perf_counter() - began


class _Worker(Protocol):
    """A side that waits for the word between blocks: the number of untimed ones before the next."""

    blas: str

    def run(self, untimed: int) -> Turn: ...
    def stop(self) -> None: ...


class _Process:
    """A side in one process, a fresh interpreter."""

    def __init__(self, side: Side) -> None:
        context = multiprocessing.get_context("spawn")  # a fresh interpreter: nothing imported, no threads
        self._side = side
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, side), daemon=True)
        with _pinned(side):
            self._process.start()
        theirs.close()
        self.blas: str = _receive(self._connection, side)

    def run(self, untimed: int) -> Turn:
        self._connection.send(untimed)
        turn: Turn = _receive(self._connection, self._side)
        return turn

    def stop(self) -> None:
        self._connection.close()
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()


class _Foreign(_Process):
    """A side in one process of another interpreter."""

    def __init__(self, side: Side) -> None:
        self._side = side
        ours, theirs = socket.socketpair()
        serve = (
            "import sys; sys.path.insert(0, sys.argv[1]); import measure; measure.serve_at(int(sys.argv[2]))"
        )
        words = [side.python, "-c", serve, str(Path(__file__).parent), str(theirs.fileno())]
        with _pinned(side), theirs:
            os.environ.pop("PYTHONPATH", None)  # it is this interpreter's
            self._popen = subprocess.Popen(words, pass_fds=[theirs.fileno()])
        self._connection = Connection(ours.detach())
        self._connection.send(side)
        self.blas: str = _receive(self._connection, side)

    def stop(self) -> None:
        self._connection.close()
        try:
            self._popen.wait(10)
        except subprocess.TimeoutExpired:
            self._popen.kill()


class _Ranks:
    """A side in several processes: a step takes as long as its slowest rank."""

    def __init__(self, side: Side) -> None:
        import pdnn

        self._side = side
        self._connections: list[Connection] = []
        self._thread = ThreadPoolExecutor(1)
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server, _pinned(side):
            address = str(Path(folder, "socket"))
            server.bind(address)
            server.listen(side.ranks)
            server.settimeout(0.1)
            cores = sorted(os.sched_getaffinity(0))
            self._job = self._thread.submit(pdnn.run, _serve_rank, address, side, cores, ranks=side.ranks)
            while len(self._connections) < side.ranks:
                try:
                    accepted, _ = server.accept()
                except TimeoutError:
                    if self._job.done():
                        self._job.result()
                        raise RuntimeError(f"{side.name}: its ranks ended") from None
                else:
                    accepted.setblocking(True)
                    self._connections.append(Connection(accepted.detach()))
        self.blas: str = self._receive()[0]

    def run(self, untimed: int) -> Turn:
        for connection in self._connections:
            connection.send(untimed)
        turns: list[Turn] = self._receive()
        seconds, checks, processor, parts = zip(*turns, strict=True)
        return max(seconds), checks[0], sum(processor), next(filter(None, parts), {})

    def stop(self) -> None:
        for connection in self._connections:
            connection.close()
        self._job.exception(30)  # whatever it was, a block has reported it
        self._thread.shutdown()

    def _receive(self) -> list[Any]:
        return [_receive(connection, self._side) for connection in self._connections]


def _receive(connection: Connection, side: Side) -> Any:
    try:
        answer = connection.recv()
    except (EOFError, ConnectionError):
        raise RuntimeError(f"{side.name}: its process died") from None
    if isinstance(answer, Exception):
        raise RuntimeError(f"{side.name}: {type(answer).__name__}: {answer}") from answer
    return answer


@contextmanager
def _pinned(side: Side) -> Iterator[None]:
    """What a process started in here inherits: the last cores of this process's mask, and as many threads.

    Ranks share both evenly.
    """
    threads = {
        name: str(side.cores // side.ranks)
        for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
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


def _serve(connection: Connection, side: Side) -> Exception | None:
    try:
        runner = side.make(*side.arguments)
        connection.send(_limit_blas(side.cores // side.ranks))
        while True:
            for _ in range(connection.recv()):
                runner()
            began = process_time()
            seconds, check, *parts = runner()
            connection.send((seconds, check, process_time() - began, parts[0] if parts else {}))
    except EOFError:
        pass
    except Exception as error:
        connection.send(error)
        return error
    return None


def serve_at(descriptor: int) -> None:
    """Serves the side that comes first through a socket, in the process of another interpreter."""
    connection = Connection(descriptor)
    _serve(connection, connection.recv())


def _serve_rank(address: str, side: Side, cores: Sequence[int]) -> None:
    import pdnn

    rank = pdnn.world().rank  # its own cores also where ranks take themselves to be on several machines
    os.sched_setaffinity(0, [core for index, core in enumerate(cores) if index % side.ranks == rank])
    with socket.socket(socket.AF_UNIX) as own:
        own.connect(address)
        if error := _serve(Connection(own.detach()), side):
            raise error  # the other ranks may wait for this one


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
    names = ("numpy", "torch", "scikit-learn", "jax", "cmeel-eigen")
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
