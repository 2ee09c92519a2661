"""Ranks that are threads of this process."""

from __future__ import annotations

import ctypes
import math
import sys
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TypeVar

from pdnn import _core
from pdnn.checks import integer, kind_of
from pdnn.comm.communicator import Communicator
from pdnn.comm.plugged import INHERITED

Result = TypeVar("Result")

_GRACE = 1.0  # seconds for ranks to hear that the group was aborted, before their Python code is interrupted

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
        The results of rank 0, 1, ...; None of a rank that has died (`die`).

    Raises
    ------
    Exception
        The first error of a rank; the ranks that waited for it are released.
    KeyboardInterrupt
        On Ctrl-C, when all ranks have ended: each ends where it next checks the others, or after a second,
        or a second Ctrl-C, where its Python code is. A call out of Python, such as a long sleep, ends first.
    RuntimeError
        If the system refuses a thread.
    TypeError, ValueError
        If ranks is no integer, or less than 1, or the function cannot be called.
    """
    if not callable(function):
        raise TypeError(f"run_threads: function is of type {kind_of(function)}, expected what a rank calls")
    integer("run_threads", "ranks", ranks, 1, bits=32)
    group = _core.ThreadGroup(ranks)
    results: dict[int, Result] = {}
    errors: list[BaseException] = []
    ended: list[Communicator] = []  # kept, so that those who wait for one of them know its group
    registration = INHERITED.get()

    def work(rank: int) -> None:
        try:
            comm = Communicator(group.communicator(rank))
            CURRENT.set(comm)
            if registration is not None:
                INHERITED.set(registration)
                registration.use(comm)
            results[rank] = function()
            comm.core.end_record("has returned")
            ended.append(comm)
        except _core.Died:
            pass  # the others have been told, and may go on
        except BaseException as error:
            errors.append(error)
            group.abort(None if isinstance(error, _core.Aborted) else rank)

    threads = [
        threading.Thread(target=work, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(ranks)
    ]
    try:
        for rank, thread in enumerate(threads):
            start(thread, f"run_threads: the thread of rank {rank} of {ranks}", "use fewer ranks")
        for thread in threads:
            while thread.is_alive():
                thread.join(1)  # a Ctrl-C that comes just before a wait without an end is not heard
    except BaseException:  # Ctrl-C
        group.abort()
        _end(threads)
        raise
    if errors:
        try:
            raise next((error for error in errors if not isinstance(error, _core.Aborted)), errors[0])
        finally:
            errors.clear()  # an error knows this frame; together they would keep what the ranks had
    return [results.get(rank) for rank in range(ranks)]  # type: ignore[misc]  # None of the dead


def start(thread: threading.Thread, what: str, way_out: str) -> None:
    """Starts a thread; a RuntimeError of the system says `what` it is, and the way out."""
    try:
        thread.start()
    except RuntimeError as error:
        raise RuntimeError(
            f"{what} could not be started: {error}; {way_out}, or let this process have more threads and "
            "memory (ulimit -u, ulimit -v, a limit of pids)"
        ) from error


def _end(threads: list[threading.Thread]) -> None:
    """Waits for the ranks, whose group was aborted, through any number of Ctrl-C.

    They must not outlive the interpreter: when a thread of the core comes back to it too late, the process is
    aborted. Thread.join() is no help: after a Ctrl-C it takes a running thread for one that has ended.
    """
    interrupt_at = time.monotonic() + _GRACE
    while running := [thread for thread in threads if thread.ident in sys._current_frames()]:
        try:
            time.sleep(0.01)
            if time.monotonic() < interrupt_at:
                continue
        except KeyboardInterrupt:
            pass
        interrupt_at = math.inf
        for thread in running:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident or 0), ctypes.py_object(KeyboardInterrupt)
            )
