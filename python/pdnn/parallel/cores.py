"""Cores that a rank may use, and a warning when a strategy wants more."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

from pdnn import _core
from pdnn.parallel.engines import Pool, threads_of
from pdnn.parallel.strategies import Strategy, engine_of

if TYPE_CHECKING:
    from pdnn.comm import Communicator


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


def warn_if_crowded(strategy: Strategy, comm: Communicator) -> None:
    """Says that a strategy wants more threads than this rank has cores."""
    threads, cores = threads_of(engine_of(strategy)), cores_of_rank(comm)
    if not isinstance(strategy, Pool) and threads > cores:
        hint = "; mpiexec bound it, add --bind-to none" if comm.size > 1 else ""
        warnings.warn(
            f'strategy "{strategy}": {threads} threads share {cores} core(s) of this process{hint}',
            stacklevel=4,
        )
