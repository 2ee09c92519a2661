"""A Python program on N ranks, watched to its end: what ``pdnn launch`` does."""

from __future__ import annotations

import contextlib
import re
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from types import FrameType

from pdnn.checks import integer
from pdnn.comm.mpiexec import find
from pdnn.launch.job import Job, Sink, check_timeout, pass_on
from pdnn.launch.plan import Plan, one_machine, plan

TIMED_OUT = 124  # as of timeout(1)


def launch(
    program: Sequence[str],
    ranks: int,
    *,
    threads: int | None = None,
    bind: bool = True,
    tag: bool = True,
    timeout: float | None = None,
    mpiexec: str | None = None,
    elastic: bool = False,
    spares: int = 0,
    restarts: int = 0,
    shrink: bool = False,
    dry_run: bool = False,
) -> int:
    """Runs a Python program on `ranks` MPI ranks of this machine, and leaves no process behind.

    Parameters
    ----------
    program : sequence of str
        Arguments of the Python interpreter: a script or ``-m module`` or ``-c code``, and the program's own.
    ranks : int
        How many processes.
    threads : int, optional
        Threads of each rank; by default what ``PDNN_THREADS`` says, else the cores shared evenly.
    bind : bool
        Whether each rank is bound to cores of its own.
    tag : bool
        Whether each line of output begins with ``[rank]``; not so where a batch system gave several machines.
    timeout : float, optional
        Seconds after which the job is ended.
    mpiexec : str, optional
        The launcher to use instead of this environment's own.
    elastic : bool
        Whether the other ranks may go on when one dies, as `Trainer.fit` and `ddp.elastic` then do.
    spares : int
        Ranks beside these, with the highest numbers, that wait to take the place of one that dies.
    restarts : int
        How often the program is started again when a rank was killed or crashed. It should resume from a
        checkpoint.
    shrink : bool
        Whether each such start has a rank fewer than the one before, down to 1: on those that are left.
    dry_run : bool
        Whether the command is only printed, as a line for a shell.

    Returns
    -------
    int
        The job's exit code; 124 after the time-out; 128 + n if signal n ended this process or mpiexec.

    Raises
    ------
    ValueError
        If ranks or threads is less than 1, the time-out not above 0, spares or restarts less than 0, spares
        come without `elastic`, or `shrink` without restarts.
    RuntimeError
        If there is no mpiexec, or it ends the job when a rank dies and `elastic` asks for another one.
    """
    check_timeout("launch", timeout)
    integer("launch", "restarts", restarts, 0)
    if shrink and not restarts:
        raise ValueError("launch: shrink=True (--shrink) needs restarts (--restarts N)")
    launcher = find(mpiexec)

    def planned() -> Plan:
        return plan(program, ranks, launcher, threads=threads, bind=bind, elastic=elastic, spares=spares)

    job = planned()
    for warning in job.warnings:
        print(f"launch: {warning}", file=sys.stderr)
    if dry_run:
        print(
            shlex.join(["env", *(f"{name}={value}" for name, value in job.environment.items()), *job.command])
        )
        return 0
    with _signals_raise():
        try:
            sink = _print_tagged if tag and one_machine() else None
            deadline = None if timeout is None else time.monotonic() + timeout
            for left in reversed(range(restarts + 1)):
                code, anew = _run_once(job, ranks + spares, sink, deadline, left > 0, launcher.family)
                if not anew:
                    break
                if shrink and ranks > 1:
                    ranks -= 1
                    job = planned()
                again = f"starting again on {ranks} rank{'s'[: ranks > 1]}"
                print(f"launch: a rank was lost (exit code {code}); {again}", file=sys.stderr)
            return code
        except TimeoutError:
            print(f"launch: the job still ran after {timeout:g} s and was ended", file=sys.stderr)
            return TIMED_OUT
        except _Signal as caught:
            with contextlib.suppress(OSError):  # a closed terminal
                print(f"launch: {signal.Signals(caught.number).name} ended the job", file=sys.stderr)
            return 128 + caught.number


def _run_once(
    job: Plan, ranks: int, sink: Sink | None, deadline: float | None, restarts: bool, family: str
) -> tuple[int, bool]:
    """The exit code of a job, and whether it is to start anew because a rank was lost, if it may."""
    with Job(job.command, job.environ(), ranks, sink) as running:
        try:
            code = running.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        except TimeoutError:
            pass_on("stderr", running.waits())
            raise
        failures = running.failures()
        if code == 0 and failures:  # ULFM's may forget an MPI_Abort
            print(f"launch: mpiexec ended with 0, but {failures}", file=sys.stderr)
            told = re.search(r"exit code (\d+)", failures)
            code = int(told[1]) if told else 1
        anew = restarts and _lost_a_rank(code, family)  # which is told with the code
        if code:
            waits = running.waits()
            pass_on("stderr", waits)
            if not (anew or waits or failures):  # as when mpiexec itself was ended
                print(f"launch: the job ended with exit code {code}", file=sys.stderr)
    return code, anew


def _lost_a_rank(code: int, family: str) -> bool:
    """Whether an exit code says that a signal ended a rank; MPICH's says which."""
    crashes = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL)
    return code - 128 in crashes or (family == "MPICH" and code in crashes)


def _print_tagged(stream: str, rank: int | None, line: str) -> None:
    pass_on(stream, line if rank is None else f"[{rank}] {line.removesuffix(chr(10))}\n")


class _Signal(BaseException):
    """A signal that ends this process."""

    def __init__(self, number: int) -> None:
        self.number = number


@contextlib.contextmanager
def _signals_raise() -> Iterator[None]:
    """Inside, Ctrl-C, SIGTERM and a closed terminal raise `_Signal`, once; then they are ignored."""
    every = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    kept = (None, signal.SIG_IGN)  # by nohup, say; None: not Python's, which could not restore it
    numbers = [number for number in every if signal.getsignal(number) not in kept]

    def stop(number: int, frame: FrameType | None) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise _Signal(number)

    before = [(number, signal.signal(number, stop)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
