"""Cores that a rank may use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from pdnn import _core
from pdnn.comm.threads import CURRENT

if TYPE_CHECKING:
    from pdnn.comm.communicator import Communicator


MOST = 2**31 - 1
"""Threads or ranks that there may be: what C has as an int."""


def threads_wanted() -> int | None:
    """What ``PDNN_THREADS`` says; None if it is not set.

    Raises
    ------
    ValueError
        If it is no number of threads.
    """
    return numbered("PDNN_THREADS", "threads") if os.environ.get("PDNN_THREADS") else None


def numbered(variable: str, what: str) -> int:
    """The number, from 1 on, in an environment variable, which says how many of `what` there are.

    Raises
    ------
    ValueError
        If it has something else.
    """
    text = os.environ[variable]
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise ValueError(f"{variable}={text}; expected a number of {what}, from 1 to {MOST}")
    return int(text)


def cores_of_rank(comm: Communicator) -> int:
    """Cores that this rank may use: its affinity mask, at most its share of its node's cores or cgroup quota.

    ``PDNN_THREADS`` overrides it; the launcher sets it. Set it where ranks share a mask, as those that
    mpiexec does not bind do in a container with some of a machine's cores.
    """
    if (wanted := threads_wanted()) is not None:
        return wanted
    neighbors = min(_local_ranks(), comm.size) if comm.size > 1 else 1
    online, _, quota = _core.read_cores()
    whole = min(online, quota or online)
    return int(max(1, min(_core.available_cores(), whole // neighbors)))


def cores_of_every_rank(comm: Communicator) -> int:
    """Cores that every rank may use, at least; collective."""
    least = np.array([cores_of_rank(comm)], np.int64)
    if comm.size > 1:
        comm.all_reduce(least, op="min", check=False)
    return int(least[0])


def _local_ranks() -> int:
    if CURRENT.get() is not None:
        return 2**31  # ranks are threads of this process, whatever started it
    for name in ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"):
        if name in os.environ:
            return numbered(name, "ranks")
    return 2**31  # the launcher does not say: take all of them to be here
