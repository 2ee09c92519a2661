"""FitLock: the thread that is within a `Trainer.fit` of a model."""

from __future__ import annotations

import os
from threading import Lock, get_ident


class FitLock:
    """Held by the thread within a fit of a model, whose steps another thread would disturb.

    Attributes
    ----------
    thread : int
        Its number; 0: none.
    """

    def __init__(self) -> None:
        self._lock, self.thread, self._process = Lock(), 0, os.getpid()

    def acquire(self) -> bool:
        """Whether the calling thread has it now: no fit was under way."""
        if self._process != os.getpid():  # a fork, without its parent's threads and their fits
            self._lock, self.thread, self._process = Lock(), 0, os.getpid()
        if not self._lock.acquire(blocking=False):
            return False
        self.thread = get_ident()
        return True

    def release(self) -> None:
        """The fit is over."""
        self.thread = 0
        self._lock.release()

    def check(self, call: str) -> None:
        """Raises ValueError if another thread of this process is within a fit."""
        thread = self.thread  # which ends meanwhile, perhaps
        if thread and thread != get_ident() and self._process == os.getpid():
            raise ValueError(
                f"{call}: another thread is within a fit of this model, which changes meanwhile; let that "
                "thread call it, in a callback, or call it after the fit"
            )
