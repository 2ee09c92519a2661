"""How one rank's failure, or a signal to it, ends the whole job, so that the others do not wait forever."""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from pdnn.comm.communicator import Communicator


@functools.cache
def end_the_job_on_errors(mpi: Any, native: Any) -> None:
    """From now on an uncaught exception, in any thread, is printed as before and then ends all ranks.

    Not one of a process that was forked from this one, where MPI would wait for ever.

    Parameters
    ----------
    mpi : module
        mpi4py's MPI.
    native : module
        pdnn._mpi, which puts the exception on record.
    """
    show, show_of_thread = sys.excepthook, threading.excepthook
    process = os.getpid()

    def end(kind: type[BaseException]) -> None:
        if os.getpid() != process:
            return
        native.record_end(f"raised {kind.__name__}")
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # closed, or its disk is full: the others must not wait for that
                stream.flush()
        if not mpi.Is_finalized():
            mpi.COMM_WORLD.Abort(1)

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            if show is sys.__excepthook__:
                write_at_once("", kind, error, trace)
            else:
                show(kind, error, trace)
        finally:
            end(kind)

    def hook_of_thread(args: threading.ExceptHookArgs) -> None:
        try:
            if show_of_thread is threading.__excepthook__ and args.exc_type is not SystemExit:
                name = args.thread.name if args.thread else threading.get_ident()
                write_at_once(f"Exception in thread {name}:\n", *args[:3])
            else:
                show_of_thread(args)
        finally:
            if args.exc_type is not SystemExit:
                end(args.exc_type)

    sys.excepthook, threading.excepthook = hook, hook_of_thread


def write_at_once(
    begin: str, kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    """Writes a traceback as Python does, but not in pieces, between which mpiexec's words would come."""
    text = begin + "".join(traceback.format_exception(kind, error, trace))
    with suppress(Exception):  # standard error is closed, or None
        sys.stderr.write(text)


@contextmanager
def stop_on_sigterm(comm: Communicator, *, alone: bool = False) -> Iterator[threading.Event]:
    """A SIGTERM becomes a wish to stop, on several ranks, or with `alone` on one, too.

    It reaches all ranks in the same step. A program that ignores it, or heeded it before Python
    began, does as before.
    """
    wish = threading.Event()
    taken = signal.getsignal(signal.SIGTERM) in (None, signal.SIG_IGN)  # None: Python could not restore it
    if taken or (comm.size == 1 and not alone) or threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = signal.signal(signal.SIGTERM, lambda *_: wish.set())
    try:
        yield wish
    finally:
        signal.signal(signal.SIGTERM, before)
