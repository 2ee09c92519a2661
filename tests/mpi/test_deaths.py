"""Ranks of MPI of which one dies: the others hear of it out of any call, and go on without it."""

from __future__ import annotations

import random
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from leftovers import check_files
from processes import Completed

ULFM = ["--with-ft", "ulfm"]


@pytest.mark.mpi
@pytest.mark.parametrize(
    "calls", [1, 14, *(pytest.param(n, marks=pytest.mark.full_length) for n in range(2, 60, 3))]
)
def test_the_ranks_that_are_left_go_on(mpiexec: Callable[..., Completed], root: Path, calls: int) -> None:
    output = mpiexec(3, [root / "tests" / "death_checks.py", str(calls)], timeout=30, options=ULFM).stdout
    assert output.count("ends among 2") == 2, output
    assert "rank 1 ends" not in output


@pytest.mark.mpi
def test_without_the_extension_it_is_said_what_is_needed(mpiexec: Callable[..., Completed]) -> None:
    code = (
        "import pdnn; comm = pdnn.world(); assert not comm.survives\n"
        "for call in (comm.shrink, lambda: comm.agree(True)):\n"
        "    try: call()\n"
        "    except pdnn.CommunicationError as error: print(error)"
    )
    output = mpiexec(2, ["-c", code], timeout=30).stdout
    for call in ("shrink", "agree"):
        said = f"{call}: this MPI ends the job when a rank dies; start it with Open MPI 5 or later"
        assert output.count(said) == 2


@pytest.mark.mpi
def test_a_loop_by_hand_goes_on_when_a_rank_is_killed(mpiexec: Callable[..., Completed], root: Path) -> None:
    job = [root / "tests" / "elastic_job.py", "1", str(random.uniform(0, 0.3)), str(int(signal.SIGKILL))]
    output = mpiexec(3, job, timeout=60, options=ULFM, tidy=True).stdout
    assert output.count("ends among 2") == 2, output
    check_files(output)
