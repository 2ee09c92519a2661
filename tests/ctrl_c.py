"""Ctrl-C for tests in this process."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator


@contextlib.contextmanager
def ctrl_c(seconds: float) -> Iterator[list[float]]:
    """Ctrl-C comes after so many seconds, and each second from then on, until the block ends.

    Python drops an exception that is raised in a callback of its garbage collector (hypothesis has one), and
    with it the one Ctrl-C that comes just then.

    Yields
    ------
    list of float
        When it was pressed, by `time.monotonic`.
    """
    pressed: list[float] = []
    done = threading.Event()

    def press() -> None:
        wait = seconds
        while not done.wait(wait):
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
            wait = 1.0

    thread = threading.Thread(target=press, daemon=True)
    thread.start()
    try:
        yield pressed
    finally:
        done.set()
        thread.join()
