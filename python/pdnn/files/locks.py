"""Locks between processes, which end with the process that holds them."""

from __future__ import annotations

import fcntl
import time


def lock(descriptor: int, seconds: float) -> bool | None:
    """Whether an open file or folder is now locked by its holder alone; None if it cannot be by any.

    Parameters
    ----------
    descriptor : int
        Of the open file or folder; closing it ends the lock.
    seconds : float
        For how long to wait for another one that holds it.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02)
        except OSError:  # some network file systems have no such locks
            return None
        else:
            return True
    return False
