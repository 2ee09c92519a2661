"""How one rank's failure ends the whole job: the others would wait for it for ever."""

from __future__ import annotations

import functools
import sys
import threading
from types import TracebackType
from typing import Any


@functools.cache
def end_the_job_on_errors(mpi: Any) -> None:
    """From now on an uncaught exception, in any thread, is printed as before and then ends all ranks.

    Parameters
    ----------
    mpi : module
        mpi4py's MPI.
    """
    show, show_of_thread = sys.excepthook, threading.excepthook

    def end() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        if not mpi.Is_finalized():
            mpi.COMM_WORLD.Abort(1)

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        try:
            show(kind, error, trace)
        finally:
            end()

    def hook_of_thread(args: threading.ExceptHookArgs) -> None:
        try:
            show_of_thread(args)
        finally:
            if args.exc_type is not SystemExit:
                end()

    sys.excepthook, threading.excepthook = hook, hook_of_thread
