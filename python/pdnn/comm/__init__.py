"""Communicators: arrays sent between ranks, which are MPI processes, threads, or one process alone."""

from __future__ import annotations

import functools
import os

from pdnn import _core
from pdnn._core import RankFailed
from pdnn.checks import integer
from pdnn.comm.communicator import Communicator
from pdnn.comm.cores import cores_of_every_rank, cores_of_rank
from pdnn.comm.mpi import from_mpi4py, launched_ranks, mpi_world, warn_of_separate_tasks
from pdnn.comm.plugged import INHERITED, AllReduce, Registration, registered
from pdnn.comm.request import Request
from pdnn.comm.threads import CURRENT, run_threads

__all__ = [
    "SELF",
    "Communicator",
    "RankFailed",
    "Registration",
    "Request",
    "become_world",
    "cores_of_every_rank",
    "cores_of_rank",
    "die",
    "from_mpi4py",
    "ranks_may_die",
    "register",
    "run_threads",
    "world",
]

SELF: Communicator
"""The group of this process alone, made when it is first asked for: its settings may be wrong."""


@functools.cache
def _alone() -> Communicator:
    return Communicator(_core.make_self())


def __getattr__(name: str) -> Communicator:
    if name == "SELF":
        return _alone()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def world() -> Communicator:
    """All ranks of this job.

    In a thread of `run_threads`: those threads. In a process that was started as an MPI rank (mpiexec sets
    ``OMPI_COMM_WORLD_SIZE``, ``PMI_SIZE`` or ``PMIX_RANK``; ``PDNN_MPI=0`` or ``1`` overrides), MPI's world:
    the first call starts MPI, is collective, and from then on an uncaught exception of one rank, or an exit
    code other than 0, ends the whole job. Otherwise `SELF`, with a warning if Slurm's srun started several
    processes of which none knows of the others.

    Raises
    ------
    ImportError
        If this process is an MPI rank, but mpi4py or its library is missing, or pdnn was built for another.
    CommunicationError
        If the launcher started several ranks and the MPI library knows of one.
    """
    if (comm := CURRENT.get()) is not None:
        return comm
    return _SHRUNK[-1] if _SHRUNK else _process_world()


_SHRUNK: list[Communicator] = []  # what the world of this process has become


def become_world(comm: Communicator) -> None:
    """From now on `world` is this group of ranks, which are left of those that it was."""
    if CURRENT.get() is not None:
        CURRENT.set(comm)
    else:
        _SHRUNK[:] = [comm]


def ranks_may_die(comm: Communicator) -> bool:
    """Whether ranks of a group are processes, whose death the others survive; threads die by `die` only."""
    return comm.survives and CURRENT.get() is None


def die(after: int = 0) -> None:
    """This rank dies, as by SIGKILL: for trying out what the others do then.

    A process ends at once, without a word. A thread of `run_threads` ends with `Died`, which nobody should
    catch; the other ranks see a dead rank.

    Parameters
    ----------
    after : int
        Die at so many calls from now on, of any group of several ranks; 0: now. A checked call of Python
        counts twice, and the steps of a `Trainer` make calls, too.

    Raises
    ------
    TypeError, ValueError
        If `after` is no integer, or negative.
    """
    if integer("die", "after", after, 0) == 0:
        world().core.die()
    _core.die_after(after)


def register(
    operation: str, function: AllReduce, *, name: str | None = None, comm: Communicator | None = None
) -> Registration:
    """A function of this program's takes the place of a communicator's own operation.

    Until it is removed, whatever adds up floating-point numbers over the ranks calls it: `Trainer` under
    every strategy that has an all-reduce, `pdnn.ddp`, and ``comm.all_reduce`` with the sum or the mean.
    (For maxima, minima and integers its own stays in use.) Gradients then always travel in messages, also
    between ranks of one machine, and ranks compare the name before they train. A backward pass waits while
    the function runs; the communicator's own operation goes on beside it. The bytes that the function sends
    are counted in place of the formula's.

    Parameters
    ----------
    operation : "all_reduce"
    function : callable
        Called as ``function(comm, array)`` on every rank: leaves in the one-dimensional array of float32 or
        float64, of any length, the sum over the ranks. It may use all calls of `comm`, whose own
        ``all_reduce`` it is there.
    name : str, optional
        By which ranks compare it; ``function.__name__`` unless given.
    comm : Communicator, optional
        The communicator, with those split off it from now on. Unless given `world()`, and that of ranks that
        `run_threads` starts from here.

    Returns
    -------
    Registration
        Its `remove` ends it, as the end of ``with register(…):`` does.

    Raises
    ------
    ValueError, TypeError
        If there is no such operation, the function cannot be called, or another one is in use.
    """
    registration = registered(world() if comm is None else comm, operation, function, name)
    if comm is None:
        INHERITED.set(registration)
    return registration


@functools.cache
def _process_world() -> Communicator:
    launched = launched_ranks()
    if launched is None:
        warn_of_separate_tasks()
        return _alone()
    return mpi_world(launched)


def _leave_the_ranks() -> None:
    """A process that a rank has forked is none: MPI, and the ranks that are threads, are its parent's.

    The group that it leaves is kept: MPI would free it.
    """
    if CURRENT.get() is not None or _process_world.cache_info().currsize:
        CURRENT.set(None)
        _SHRUNK.append(_alone())


os.register_at_fork(after_in_child=_leave_the_ranks)
