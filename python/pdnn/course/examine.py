"""The checks of a sheet, run in this process on a student's file; as a program, under a time limit.

The program writes a line of JSON for each result, as soon as it is there, because what the student wrote may
end the process or never end.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

from pdnn.course.results import Result
from pdnn.course.sheet import Sheet, find
from pdnn.course.submission import Submission, Wrong

Check = Callable[[Submission], str]
"""Takes what the student wrote; returns what is right in words, or raises `Wrong`. Its docstring is the title
of the result."""

TIME_IS_UP = 75
"""The exit code of a process in which a check took too long."""
WORDS = 2_000
"""Characters of a result: an exception of the student's code may have any number."""
FAILED = 70
"""The exit code of a process in which the check itself failed."""


def checks_of(sheet: Sheet) -> list[Check]:
    """The checks of a sheet, in their order."""
    return list(import_module(f"pdnn.course.checks.{sheet.name}").CHECKS)


def title(check: Check) -> str:
    """What a check checks."""
    words = check.__doc__ or check.__name__.replace("_", " ")  # python -OO leaves the name alone
    return words.partition("\n")[0].rstrip(".")


def examine(submission: Submission, sheet: Sheet) -> Iterator[Result]:
    """The result of each check of a sheet."""
    for check in checks_of(sheet):
        try:
            result = Result(title(check), True, check(submission))
        except Wrong as wrong:
            result = Result(title(check), False, str(wrong))
        except BaseException as error:  # SystemExit, too, or whatever else the student's code raises
            try:
                words = submission.explain(error) or (
                    f"what your code returned or imported can't be used: {type(error).__name__}: {error}"
                )
            except Exception:  # of its __str__
                words = f"{type(error).__name__}, whose __str__ fails"
            result = Result(title(check), False, words)
        yield result


class _Watchdog:
    """Ends this process, with words about where it is, when a check takes too long."""

    def __init__(self, seconds: float, write: Callable[[Result], None]) -> None:
        self._seconds, self._write = seconds, write
        self._timer: threading.Timer | None = None

    def start(self, check: Check, submission: Submission) -> None:
        """A check begins, and the one before it has ended."""
        self.stop()
        self._timer = threading.Timer(
            min(self._seconds, threading.TIMEOUT_MAX), self._bark, [check, submission]
        )
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        """The last check has ended."""
        if self._timer is not None:
            self._timer.cancel()

    def _bark(self, check: Check, submission: Submission) -> None:
        frames = sys._current_frames()
        threads = sorted(threading.enumerate(), key=lambda thread: thread.name)
        places = [(each.name, submission.waits(frames.get(each.ident or 0))) for each in threads]
        told = "; ".join(f"{name} is in {place}" for name, place in places if place)
        words = f"did not end within {self._seconds:g} s: {told or 'no line of yours was running'}"
        self._write(Result(title(check), False, words))
        os._exit(TIME_IS_UP)


def run(path: str, name: str, seconds: str, out: str) -> None:
    """Writes the results of a file, each as a line of JSON, to `out`, and ends the process."""
    own = os.getpid()
    with Path(out).open("w", encoding="utf-8") as file:

        def write(result: Result) -> None:
            if os.getpid() != own:  # what the student's code has forked, and not ended
                os._exit(0)
            if len(result.words) > WORDS:
                result = replace(result, words=f"{result.words[:WORDS]} …")
            file.write(json.dumps(asdict(result)) + "\n")
            file.flush()

        try:
            _write_results(Path(path), find(name), float(seconds), write)
        except Exception:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(FAILED)
    with contextlib.suppress(Exception):  # the student's code may have closed it
        sys.stdout.flush()
    os._exit(0)  # threads that the student's code has left waiting do not matter any more


def _write_results(path: Path, sheet: Sheet, seconds: float, write: Callable[[Result], None]) -> None:
    checks = checks_of(sheet)
    watchdog = _Watchdog(seconds, write)
    try:
        submission = Submission(path, lambda begun: watchdog.start(checks[0], begun))
    except Wrong as wrong:
        watchdog.stop()
        for check in checks:
            write(Result(title(check), False, str(wrong)))
        return
    results = examine(submission, sheet)
    for check in checks:
        watchdog.start(check, submission)
        write(next(results))
    watchdog.stop()
