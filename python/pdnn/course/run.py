"""The check of a student's file, in a child process that is ended with its group: it may do anything."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from codecs import getincrementaldecoder
from pathlib import Path
from select import select
from typing import TextIO

from pdnn.course.examine import FAILED, TIME_IS_UP, checks_of, title
from pdnn.course.results import Report, Result
from pdnn.course.sheet import Sheet, sheet_of

SECONDS = 2.5  # for one check: far more than any needs, and little enough to wait for
SHOWN = 100_000  # characters of what a student's code prints, and as many of its standard error


def check(path: str | os.PathLike[str], seconds: float = SECONDS) -> Report:
    """Checks what a student wrote.

    Parameters
    ----------
    path : path
        The script or notebook of a sheet.
    seconds : float
        The time limit of each check. Whatever runs longer is ended, and the checks after it are not run.

    Returns
    -------
    Report
        What is right, and what is wrong, in words. What the student's code prints is printed, up to a limit.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is no sheet of this course.
    RuntimeError
        If a check itself failed.
    """
    path = Path(path)
    sheet = sheet_of(path)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="pdnn-course-") as folder:
        out = Path(folder, "results")
        code, errors = _run_child(path, sheet, seconds, out)
        began_to_check = out.exists()
        lines = out.read_text(encoding="utf-8").splitlines() if began_to_check else []
    results = [Result(**json.loads(line)) for line in lines]
    missing = [title(each) for each in checks_of(sheet)[len(results) :]]
    if code == FAILED or not began_to_check:
        raise RuntimeError(f"{path}: the check failed itself, please report this:\n{errors}")
    if missing and code != TIME_IS_UP:
        results.append(Result(missing.pop(0), False, _ending(code)))
    results += [Result(each, False, "not run, because the check before it did not end") for each in missing]
    return Report(sheet, path, results, time.perf_counter() - began)


def _ending(code: int | None) -> str:
    """Why there are no more results, in words."""
    if code is None:
        return "did not end, and held the interpreter in one call, or in what a class or an import runs"
    how = f"was ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"your code took the process with it, which {how}"


def _run_child(path: Path, sheet: Sheet, seconds: float, out: Path) -> tuple[int | None, str]:
    """Runs the checks in a process group of their own.

    Returns
    -------
    code : int or None
        Its exit code; None if it had to be ended.
    errors : str
        What it wrote to standard error.
    """
    places = [*filter(None, sys.path), str(path.resolve().parent)]  # a sheet may import what lies beside it
    start = (
        "import ctypes, os, signal, sys\n"
        'if sys.platform == "linux": ctypes.CDLL(None).prctl(1, signal.SIGKILL)\n'  # PR_SET_PDEATHSIG
        f"if os.getppid() != {os.getpid()}: os._exit(1)\n"  # the parent has died already
        f"sys.path[:] = {places!r}\n"
        "from pdnn.course.examine import run\n"
        "run(*sys.argv[1:])"
    )
    child = subprocess.Popen(
        [sys.executable, "-u", "-c", start, str(path), sheet.name, str(seconds), str(out)],
        env={**os.environ, "PDNN_MPI": "0"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert child.stdout is not None and child.stderr is not None
    shown = {child.stdout: _Shown(sys.stdout), child.stderr: _Shown(sys.stderr)}

    def pass_on(patience: float) -> None:
        for pipe in select([pipe for pipe in shown if not shown[pipe].ended], [], [], patience)[0]:
            shown[pipe].add(os.read(pipe.fileno(), 1 << 16))

    try:
        end = time.monotonic() + 10 + seconds * len(checks_of(sheet))
        while child.poll() is None and time.monotonic() < end:
            pass_on(0.02)
        code = child.poll()  # None: it holds the interpreter, so that its own watchdog cannot bark
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    for _ in range(4):
        pass_on(0)  # what is left in the pipes, which processes that have left the group may hold open
    for pipe, each in shown.items():
        pipe.close()
        each.close()
    return code, shown[child.stderr].text


class _Shown:
    """What comes out of a pipe, shown as it comes, but no more than anybody reads."""

    def __init__(self, stream: TextIO) -> None:
        self.text, self.ended = "", False
        self._stream, self._more = stream, 0
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def add(self, data: bytes) -> None:
        """Some more; nothing at the end."""
        self.ended = not data
        self._show(self._decoder.decode(data, final=self.ended))

    def close(self) -> None:
        """There is no more."""
        if self._more:
            self._show(f"\n… {self._more:,} characters more\n", len(self.text) + 100)

    def _show(self, text: str, limit: int = SHOWN) -> None:
        text, rest = text[: limit - len(self.text)], text[limit - len(self.text) :]
        self.text += text
        self._more += len(rest)
        with contextlib.suppress(BrokenPipeError):  # the check goes on where nobody reads
            self._stream.write(text)
            self._stream.flush()
