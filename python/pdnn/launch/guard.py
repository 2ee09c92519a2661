"""The guard of a job: starts mpiexec, and ends the whole job when the launching process ends.

Run as a file, ``python -I -S guard.py PARENT FOLDER MPIEXEC …``, in a session of its own, hence the standard
library only. SIGTERM ends the job; so does the death of the parent, whatever killed it, which Linux tells and
which is looked for elsewhere; then the job's folder, which the parent would have removed, goes, too. mpiexec
alone is not enough: when its pipes break it may die before it has ended its ranks.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

GRACE = 3.0  # seconds for mpiexec to end its ranks, of which it gives them half a second
_LOOK = 0.2  # seconds between looks for the parent
_RANKS_GRACE = 0.5  # seconds from SIGTERM to SIGKILL for ranks that mpiexec has left behind
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_PROCESSES = Path("/proc")  # where Linux shows them


def main(parent: int, folder: str, command: list[str]) -> int:
    """Runs the command; its exit code, 128 + n if signal n ended it or this process."""
    for number in _ENDING:
        signal.signal(number, _stop)
    _end_with_parent()
    process = None
    try:
        if os.getppid() != parent:  # it died before it could be watched
            return 1
        try:
            process = subprocess.Popen(command, preexec_fn=_end_with_parent)
        except OSError as error:
            why = (
                "; ulimit -u and the cgroup's pids.max limit processes" if error.errno == errno.EAGAIN else ""
            )
            print(
                f"launch: {command[0]} cannot be started: {error.strerror}{why}", file=sys.stderr, flush=True
            )
            return 1
        code = _wait(process, parent)
        return code if code >= 0 else 128 - code
    finally:
        for number in _ENDING:
            signal.signal(number, signal.SIG_IGN)
        if process is not None and process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
        end_session(os.getsid(0))
        if os.getppid() != parent:
            shutil.rmtree(folder, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], parent: int) -> int:
    """The exit code; SystemExit when the parent has died."""
    if sys.platform == "linux":
        return process.wait()
    while os.getppid() == parent:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(_LOOK)
    raise SystemExit(128 + signal.SIGTERM)


def _end_with_parent() -> None:
    """Has Linux end this process when its parent dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def end_session(session: int) -> None:
    """Ends all other processes of a session; ranks have process groups of their own."""
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
    for pid, state in _processes():
        with contextlib.suppress(OSError):  # it has ended meanwhile, or is another user's
            if not state.startswith("Z") and pid not in (os.getpid(), 0) and os.getsid(pid) == session:
                yield pid


def _processes() -> Iterator[tuple[int, str]]:
    """The number and the state of every process."""
    if _PROCESSES.exists():
        for path in _PROCESSES.glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                stat = path.read_bytes()  # the program's name in it may end within a letter
                yield int(path.parent.name), stat.rpartition(b")")[2].split()[0].decode()
        return
    said = subprocess.run(["ps", "-A", "-o", "pid=,stat="], capture_output=True, text=True, check=True).stdout
    for line in said.splitlines():
        pid, state = line.split()
        yield int(pid), state


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
