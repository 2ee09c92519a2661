"""Ctrl-C for tests in this process."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def ctrl_c(seconds: float) -> Iterator[list[float]]:
    """Ctrl-C comes after so many seconds, and again a second after each that was heard, until the block ends.

    Python drops an exception that is raised in a callback of its garbage collector (hypothesis has one): the
    Ctrl-C that comes just then raises none.

    Yields
    ------
    list of float
        When it was pressed, by `time.monotonic`.
    """
    pressed: list[float] = []
    done, heard = threading.Event(), threading.Event()

    def hear(number: int, frame: FrameType | None) -> None:
        heard.set()
        if frame is None or all(frame.f_code is not getattr(call, "__code__", None) for call in gc.callbacks):
            signal.default_int_handler(number, frame)

    def press() -> None:
        wait = seconds
        while not done.wait(wait):
            heard.clear()
            pressed.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
            heard.wait()
            wait = 1.0

    thread = threading.Thread(target=press, daemon=True)
    former = signal.signal(signal.SIGINT, hear)
    thread.start()
    try:
        yield pressed
    finally:
        done.set()
        heard.set()
        thread.join()
        signal.signal(signal.SIGINT, former)
