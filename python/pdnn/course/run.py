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
from pathlib import Path

from pdnn.course.examine import FAILED, TIME_IS_UP, checks_of, title
from pdnn.course.results import Report, Result
from pdnn.course.sheet import Sheet, sheet_of

SECONDS = 2.5  # for one check: far more than any needs, and little enough to wait for


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
        What is right, and what is wrong, in words. What the student's code prints is printed.

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
    sys.stderr.write(errors)
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
    start = f"import sys; sys.path[:] = {places!r}; from pdnn.course.examine import run; run(*sys.argv[1:])"
    command = [sys.executable, "-c", start, str(path), sheet.name, str(seconds), str(out)]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
        child = subprocess.Popen(
            command,
            env={**os.environ, "PDNN_MPI": "0"},
            stdin=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        try:
            code: int | None = child.wait(10 + seconds * len(checks_of(sheet)))
        except subprocess.TimeoutExpired:  # it holds the interpreter, so that its own watchdog cannot bark
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        errors.seek(0)
        return code, errors.read()
