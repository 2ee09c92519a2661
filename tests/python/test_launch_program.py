"""What `launch` makes of the ends of jobs and of signals; the jobs are stand-ins, which start nothing."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pdnn.comm.mpiexec import Mpiexec
from pdnn.launch import guard, launch, program
from pdnn.launch.job import Sink
from processes import Completed

KILLED, LATE = 128 + signal.SIGKILL, 124
WHO_WAITS = "rank 1 never entered #1 barrier\n"


class Ended:
    """Stands in for `Job`: each ends with the next of `codes`, the last of them for good (124: late)."""

    codes: list[int]
    sent: list[signal.Signals]  # to this process, as a job runs and as it ends
    said: str
    failed: str
    ranks: list[int]
    timeouts: list[float | None]
    tagged: list[bool]

    def __init__(
        self, command: list[str], environment: dict[str, str], ranks: int, sink: Sink | None
    ) -> None:
        self.ranks.append(ranks)
        self.tagged.append(sink is not None)

    def __enter__(self) -> Ended:
        return self

    def __exit__(self, *error: object) -> None:
        for number in self.sent[1:]:
            os.kill(os.getpid(), number)

    def wait(self, timeout: float | None = None) -> int:
        self.timeouts.append(timeout)
        for number in self.sent[:1]:
            os.kill(os.getpid(), number)
        if self.codes[0] == LATE:
            raise TimeoutError
        return self.codes.pop(0) if len(self.codes) > 1 else self.codes[0]

    def waits(self) -> str:
        return self.said

    def failures(self) -> str:
        return self.failed


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> type[Ended]:
    """The jobs that `launch` starts; they end with 0 unless a test says otherwise."""

    class Own(Ended):
        codes, sent, said, failed = [0], [], "", ""
        ranks, timeouts, tagged = [], [], []

    set_family(monkeypatch, "Open MPI")
    monkeypatch.setattr(program, "Job", Own)
    monkeypatch.setattr("pdnn.launch.plan._cores", lambda: (2, True))  # else a note on them may be said
    for name in ("SLURM_JOB_NUM_NODES", "PBS_NODEFILE", "PE_HOSTFILE", "LSB_DJOB_HOSTFILE"):
        monkeypatch.delenv(name, raising=False)
    return Own


def set_family(monkeypatch: pytest.MonkeyPatch, family: str) -> None:
    monkeypatch.setattr(program, "find", lambda asked: Mpiexec("/bin/mpiexec", family, "5.0.8"))


def test_a_job_is_started_again_as_often_as_was_asked_for(
    jobs: type[Ended], capsys: pytest.CaptureFixture[str]
) -> None:
    jobs.codes = [KILLED]
    assert launch(["x.py"], 2, restarts=2) == KILLED
    assert jobs.ranks == [2, 2, 2]
    said = capsys.readouterr().err
    assert said.count("a rank was lost (exit code 137); starting again on 2 ranks") == 2
    assert said.endswith("launch: the job ended with exit code 137\n")


def test_it_shrinks_to_one_rank_and_no_further(jobs: type[Ended], capsys: pytest.CaptureFixture[str]) -> None:
    jobs.codes = [KILLED, KILLED, KILLED, 0]
    assert launch(["x.py"], 3, restarts=5, shrink=True) == 0
    assert jobs.ranks == [3, 2, 1, 1]
    assert capsys.readouterr().err.count("starting again on 1 rank\n") == 2


@pytest.mark.parametrize("family", ["Open MPI", "MPICH"])
@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL"])
def test_each_crash_is_a_reason_to_start_again(
    jobs: type[Ended], monkeypatch: pytest.MonkeyPatch, family: str, name: str
) -> None:
    """MPICH's mpiexec may end with the number of the signal itself; any other's code is the program's own."""
    set_family(monkeypatch, family)
    number = signal.Signals[name]
    jobs.codes = [128 + number, 0]
    assert launch(["x.py"], 2, restarts=1) == 0
    jobs.codes = [int(number), 0]
    assert launch(["x.py"], 2, restarts=1) == (0 if family == "MPICH" else number)
    jobs.codes = [128 + signal.SIGTERM, 0]
    assert launch(["x.py"], 2, restarts=1) == 128 + signal.SIGTERM, "somebody has ended it"


def test_all_starts_share_the_timeout(jobs: type[Ended]) -> None:
    jobs.codes = [KILLED]
    launch(["x.py"], 2, restarts=1, timeout=100)
    first, second = jobs.timeouts
    assert first is not None and second is not None and second < first < 100


def test_who_waits_for_whom_is_all_that_is_said_of_an_end(
    jobs: type[Ended], capsys: pytest.CaptureFixture[str]
) -> None:
    jobs.codes, jobs.said = [3], WHO_WAITS
    assert launch(["x.py"], 2) == 3
    assert capsys.readouterr().err == WHO_WAITS
    jobs.said, jobs.failed = "", "rank 1 raised ValueError"  # with a traceback
    assert launch(["x.py"], 2) == 3
    assert capsys.readouterr().err == ""


def test_who_waits_for_whom_is_said_when_the_time_is_up(
    jobs: type[Ended], capsys: pytest.CaptureFixture[str]
) -> None:
    jobs.codes, jobs.said = [LATE], WHO_WAITS
    assert launch(["x.py"], 2, restarts=3, timeout=1) == LATE
    assert jobs.ranks == [2], "no time is left to start again"
    assert capsys.readouterr().err == f"{WHO_WAITS}launch: the job still ran after 1 s and was ended\n"


def test_lines_are_tagged_on_one_machine_alone(jobs: type[Ended], monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipes of ranks elsewhere are not here."""
    launch(["x.py"], 2)
    launch(["x.py"], 2, tag=False)
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    launch(["x.py"], 2)
    assert jobs.tagged == [True, False, False]


@pytest.mark.parametrize("later", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_only_the_first_signal_is_heard_and_handlers_come_back(
    jobs: type[Ended], capsys: pytest.CaptureFixture[str], later: signal.Signals
) -> None:
    """Impatient users press Ctrl-C twice."""
    every = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    heard: list[int] = []

    def hear(number: int, frame: object) -> None:
        heard.append(number)

    before = [(number, signal.signal(number, hear)) for number in every]
    try:
        jobs.sent = [signal.SIGTERM, later]
        assert launch(["x.py"], 2) == 128 + signal.SIGTERM
        assert all(signal.getsignal(number) is hear for number in every)
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    assert not heard
    assert capsys.readouterr().err == "launch: SIGTERM ended the job\n"


def test_what_nohup_ignores_ends_no_job(jobs: type[Ended]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        jobs.sent = [signal.SIGHUP]
        assert launch(["x.py"], 2) == 0
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_dry_run_shows_the_environment(
    jobs: type[Ended], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    options: dict[str, Any] = {"threads": 3, "dry_run": True}
    assert launch(["x.py"], 2, **options) == 0
    words = capsys.readouterr().out.split()
    assert words[0] == "env" and {"PDNN_THREADS=3", "OMP_NUM_THREADS=3"} <= {*words}
    assert words[-2:] == [sys.executable, "x.py"]
    assert not jobs.ranks


def test_what_cannot_be_started_is_said_in_a_line(
    tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    words = ["-I", "-S", guard.__file__, str(os.getpid()), tmp_path, tmp_path / "none", "-n", "2"]
    ended = run_python(words, timeout=20, check=False)
    assert ended.returncode == 1
    assert ended.stdout == f"launch: {tmp_path / 'none'} cannot be started: No such file or directory\n"
