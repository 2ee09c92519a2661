"""Workers: the processes in which the sides of a comparison wait for the word, and run a block when it comes.

Sides are pinned alike: each process has `cores` cores in its affinity mask and as many threads, told to it
before it starts and, where threadpoolctl is installed, once more by that. A side of several ranks is as many
processes, each with its share of the cores; `pdnn.run` starts them under mpiexec, also those that do not use
MPI.
"""

from __future__ import annotations

import multiprocessing
import os
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
from time import process_time
from types import MappingProxyType
from typing import Any, Protocol

Runner = Callable[[], tuple[float, float] | tuple[float, float, Mapping[str, Any]]]
"""Runs one block; returns seconds a step, a number that all sides must agree on, and perhaps the seconds of
what a step consists of."""

Turn = tuple[float, float, float, Mapping[str, Any]]
"""What comes of a block: seconds a step, the number, seconds of processor time, seconds of parts."""


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
    tolerance : float
        How far, relatively, its number may be from the first side's.
    """

    name: str
    make: Callable[..., Runner]
    arguments: tuple[Any, ...] = ()
    cores: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    ranks: int = 1
    python: str = ""
    tolerance: float = 1e-3


def start(side: Side) -> Worker:
    """The processes of a side, which wait."""
    if side.ranks > 1:
        return _Ranks(side)
    return _Foreign(side) if side.python else _Process(side)


class Worker(Protocol):
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
        with pinned(side.cores, environment=side.environment):
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
            "import sys; sys.path.insert(0, sys.argv[1]); import workers; workers.serve_at(int(sys.argv[2]))"
        )
        words = [side.python, "-c", serve, str(Path(__file__).parent), str(theirs.fileno())]
        with pinned(side.cores, environment=side.environment), theirs:
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
        with (
            tempfile.TemporaryDirectory() as folder,
            socket.socket(socket.AF_UNIX) as server,
            pinned(side.cores, side.ranks, side.environment),
        ):
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
def pinned(
    cores: int, ranks: int = 1, environment: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    """What a process started in here inherits: the last cores of this process's mask, and as many threads.

    Ranks share both evenly. `environment`: more variables.
    """
    threads = {
        name: str(cores // ranks) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    }
    mask, variables = os.sched_getaffinity(0), dict(os.environ)
    if cores > len(mask):
        raise ValueError(f"{cores} cores are needed, this process may use {len(mask)}")
    try:
        os.sched_setaffinity(0, sorted(mask)[-cores:])
        os.environ.update(threads | dict(environment))
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


def installed_version(package: str) -> str | None:
    """The version of an installed package, None if it is absent."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
