"""Workers: which ranks and how many threads train an estimator, beside joblib's own workers."""

from __future__ import annotations

from dataclasses import dataclass

import joblib
from joblib.parallel import get_active_backend

from pdnn.comm import SELF, Communicator, cores_of_rank, world
from pdnn.strategies import Strategy


@dataclass(frozen=True)
class Workers:
    """Who trains.

    Attributes
    ----------
    comm : Communicator
    threads : int
        Of this rank, for predictions.
    strategy : str or Strategy
        As a Trainer takes it.
    """

    comm: Communicator
    threads: int
    strategy: str | Strategy


def workers(strategy: str | Strategy, n_jobs: int | None, long: bool) -> Workers:
    """The workers of an estimator here and now.

    In a worker of joblib, a process or a thread, such as those of a search with n_jobs=2, one thread unless
    n_jobs asks for more, and no other ranks: each worker has an estimator of its own.

    Parameters
    ----------
    strategy, n_jobs
        The estimator's.
    long : bool
        Whether it is worth measuring, before ranks train, how many threads of each pay; else they have one.

    Raises
    ------
    ValueError
        If both a strategy and n_jobs are given.
    """
    backend, jobs_of_context = get_active_backend()
    nested = (backend.nesting_level or 0) > 0
    comm = SELF if nested else world()
    if strategy != "auto":
        if n_jobs is not None:
            raise ValueError(
                f"n_jobs={n_jobs} and strategy={str(strategy)!r}: a strategy has its own number of threads; "
                'give one of the two, as in strategy="pool:4" or n_jobs=4'
            )
        return Workers(comm, 1 if nested else cores_of_rank(comm), strategy)
    asked = jobs_of_context if n_jobs is None else n_jobs
    if asked is not None:
        # Not joblib's effective_n_jobs: it counts processes, and has one where none may be started.
        threads = asked if asked > 0 else max(joblib.cpu_count() + 1 + asked, 1)
    elif nested:
        threads = 1
    else:
        return Workers(comm, cores_of_rank(comm), "auto" if long or comm.size == 1 else "ddp")
    engine = f"team:{threads}" if threads > 1 else "serial"
    return Workers(comm, threads, f"ddp+{engine}" if comm.size > 1 else engine)
