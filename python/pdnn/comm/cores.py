"""Cores that a rank may use."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from pdnn import _core

if TYPE_CHECKING:
    from pdnn.comm.communicator import Communicator


def cores_of_rank(comm: Communicator) -> int:
    """Cores that this rank may use: its affinity mask and cgroup quota, shared with the ranks of its node.

    ``PDNN_THREADS`` overrides it; the launcher sets it.
    """
    if text := os.environ.get("PDNN_THREADS"):
        if not text.isdecimal() or int(text) < 1:
            raise ValueError(f"PDNN_THREADS={text}; expected a number of threads, at least 1")
        return int(text)
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
    for name in ("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"):
        if name in os.environ:
            return int(os.environ[name])
    return 2**31  # ranks are threads, or the launcher does not say: take all of them to be here
