"""Communicators: arrays sent between ranks, which are MPI processes, threads, or one process alone."""

from __future__ import annotations

import functools

from pdnn import _core
from pdnn.comm.communicator import Communicator
from pdnn.comm.cores import cores_of_rank
from pdnn.comm.mpi import from_mpi4py, launched_ranks, mpi_world
from pdnn.comm.request import Request
from pdnn.comm.threads import CURRENT, run_threads

__all__ = ["SELF", "Communicator", "Request", "cores_of_rank", "from_mpi4py", "run_threads", "world"]

SELF = Communicator(_core.make_self())
"""The group of this process alone."""


def world() -> Communicator:
    """All ranks of this job.

    In a thread of `run_threads`: those threads. In a process that was started as an MPI rank (mpiexec sets
    ``OMPI_COMM_WORLD_SIZE``, ``PMI_SIZE`` or ``PMIX_RANK``; ``PDNN_MPI=0`` or ``1`` overrides), MPI's world:
    the first call starts MPI, is collective, and from then on an uncaught exception of one rank, or an exit
    code other than 0, ends the whole job. Otherwise `SELF`.

    Raises
    ------
    ImportError
        If this process is an MPI rank, but mpi4py or its library is missing, or pdnn was built for another.
    CommunicationError
        If the launcher started several ranks and the MPI library knows of one.
    """
    return CURRENT.get() or _process_world()


@functools.cache
def _process_world() -> Communicator:
    launched = launched_ranks()
    return SELF if launched is None else mpi_world(launched)
