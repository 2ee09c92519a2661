"""The guard of a job: starts mpiexec, and ends the whole job when the launching process ends.

Run as a file, ``python -I -S guard.py PARENT MPIEXEC …``, in a session of its own, hence the standard library
only. SIGTERM ends the job; on Linux it also comes when the parent dies, whatever killed it. mpiexec alone is
not enough: when its pipes break it may die before it has ended its ranks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

GRACE = 3.0  # seconds for mpiexec to end its ranks, of which it gives them half a second
_RANKS_GRACE = 0.5  # seconds from SIGTERM to SIGKILL for ranks that mpiexec has left behind
_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(parent: int, command: list[str]) -> int:
    """Runs the command; its exit code, 128 + n if signal n ended it or this process."""
    signal.signal(signal.SIGTERM, _stop)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    process = None
    try:
        if os.getppid() != parent:  # it died before it could be watched
            return 1
        process = subprocess.Popen(command)
        code = process.wait()
        return code if code >= 0 else 128 - code
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if process is not None and process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
        end_session(os.getsid(0))


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def end_session(session: int) -> None:
    """Ends all other processes of a session; ranks have process groups of their own. Linux only."""
    for number, seconds in [(signal.SIGTERM, _RANKS_GRACE), (signal.SIGKILL, 0.0)]:
        members = list(_members(session))
        if not members:
            return
        until = time.monotonic() + seconds
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        while time.monotonic() < until and any(_members(session)):
            time.sleep(0.02)


def _members(session: int) -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _parent, _group, its_session, *_ = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        pid = int(path.parent.name)
        if int(its_session) == session and state != "Z" and pid != os.getpid():
            yield pid


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
