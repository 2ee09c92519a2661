"""Calls in the main thread at some time, by a signal that is not that of the tests' own time-out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Ring = Callable[[float], None]


@contextmanager
def alarm(call: Callable[[Ring], object], after: float) -> Iterator[None]:
    """Within the block the main thread makes `call(ring)` after so many seconds, and again if it rings."""
    timers: list[threading.Timer] = []
    main = threading.main_thread().ident
    assert main is not None

    def ring(after: float) -> None:
        timers.append(threading.Timer(after, signal.pthread_kill, (main, signal.SIGUSR1)))
        timers[-1].start()

    former = signal.signal(signal.SIGUSR1, lambda *_: call(ring))
    try:
        ring(after)
        yield
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        for timer in timers:
            timer.cancel()
            timer.join()
        signal.signal(signal.SIGUSR1, former)
