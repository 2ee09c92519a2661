"""FitLock: the thread that is within a `Trainer.fit` of a model."""

from __future__ import annotations

import os
from threading import get_ident


class FitLock:
    """Held by the thread within a fit of a model, whose steps another thread would disturb.

    Attributes
    ----------
    thread : int
        Its number; 0: none.
    """

    def __init__(self) -> None:
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._fits: dict[str, object] = {}
        self.thread, self._process = 0, os.getpid()

    def acquire(self, fit: object) -> bool:
        """Whether this fit has it now: no other was under way. Release it also if a Ctrl-C ends this call."""
        if self._process != os.getpid():  # a fork, without its parent's threads and their fits
            self._begin_anew()
        if self._fits.setdefault("now", fit) is not fit:
            return False
        self.thread = get_ident()
        return True

    def release(self, fit: object) -> None:
        """This fit is over, if it has begun."""
        if self._fits.get("now") is fit:
            self.thread = 0
            self._fits.clear()

    def check(self, call: str) -> None:
        """Raises ValueError if another thread of this process is within a fit."""
        thread = self.thread  # which ends meanwhile, perhaps
        if thread and thread != get_ident() and self._process == os.getpid():
            raise ValueError(
                f"{call}: another thread is within a fit of this model, which changes meanwhile; let that "
                "thread call it, in a callback, or call it after the fit"
            )
