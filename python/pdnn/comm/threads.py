"""Ranks that are threads of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from pdnn import _core
from pdnn.comm.communicator import Communicator

Result = TypeVar("Result")

CURRENT: ContextVar[Communicator | None] = ContextVar("pdnn_rank", default=None)
"""The communicator of the rank that this thread is, if it is one."""


def run_threads(function: Callable[[], Result], ranks: int) -> list[Result]:
    """Calls `function` on as many threads, each of which is a rank: `pdnn.world` joins them.

    Parameters
    ----------
    function : callable
        What each rank calls.
    ranks : int
        How many.

    Returns
    -------
    list
        The results of rank 0, 1, ...

    Raises
    ------
    Exception
        The first error of a rank; whoever waited for that rank has been released.
    ValueError
        If ranks is less than 1.
    """
    group = _core.ThreadGroup(ranks)
    results: dict[int, Result] = {}
    errors: list[BaseException] = []

    def work(rank: int) -> None:
        CURRENT.set(Communicator(group.communicator(rank)))
        try:
            results[rank] = function()
        except BaseException as error:
            errors.append(error)
            group.abort()

    threads = [
        threading.Thread(target=work, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(ranks)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException:  # Ctrl-C
        group.abort()
        for thread in threads:
            thread.join()
        raise
    if errors:
        raise next((error for error in errors if not isinstance(error, _core.Aborted)), errors[0])
    return [results[rank] for rank in range(ranks)]
