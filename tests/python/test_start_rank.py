"""Which cores a rank takes: disjoint sets, physical cores before hardware threads, within the mask only."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pdnn.launch import start_rank
from pdnn.launch.start_rank import Core, allowed_cores, main, share
from processes import Completed

# Two packages of two cores with two hardware threads each; as in Linux, CPUs n and n + 4 are one core.
TWO_PACKAGES: list[Core] = [(cpu % 4 // 2, cpu % 4 % 2, cpu) for cpu in range(8)]
ONE_THREAD_EACH: list[Core] = [(0, cpu, cpu) for cpu in range(5)]


def test_two_ranks_of_one_thread_take_different_packages() -> None:
    assert [share(TWO_PACKAGES, index, 2, 1) for index in range(2)] == [{0}, {2}]


def test_a_rank_takes_physical_cores_first() -> None:
    assert share(TWO_PACKAGES, 1, 2, 2) == {2, 3}
    assert share(TWO_PACKAGES, 1, 2, 4) == {2, 3, 6, 7}


def test_neighbors_share_a_core_only_when_they_must() -> None:
    assert [share(TWO_PACKAGES, index, 4, 2) for index in range(4)] == [{0, 4}, {1, 5}, {2, 6}, {3, 7}]


@pytest.mark.parametrize("cores", [TWO_PACKAGES, ONE_THREAD_EACH])
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_shares_are_disjoint_and_as_large_as_promised(cores: list[Core], ranks: int) -> None:
    threads = len(cores) // ranks
    shares = [share(cores, index, ranks, threads) for index in range(ranks)]
    assert [len(one) for one in shares] == [threads] * ranks
    assert len(set().union(*shares)) == threads * ranks


def test_only_cores_of_the_mask_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    assert [cpu for _, _, cpu in allowed_cores()] == [0]


def test_a_rank_that_mpiexec_has_bound_keeps_its_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[set[int]] = []
    begun: list[str] = []
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, cores: taken.append(cores))
    monkeypatch.setattr("os.execv", lambda program, words: begun.append(program))
    monkeypatch.setenv("MPI_LOCALRANKID", "0")
    monkeypatch.setenv("MPI_LOCALNRANKS", "2")
    for name in ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "PDNN_RANK_OUTPUT"):
        monkeypatch.delenv(name, raising=False)
    for allowed in ({5}, {4, 5}):
        monkeypatch.setattr("os.sched_getaffinity", lambda pid, allowed=allowed: allowed)
        main(1, ["program"])
    assert len(taken) == 1 and taken[0] <= {4, 5}, "of two cores it takes one, of one alone none"
    assert begun == ["program"] * 2


SPEAK = "import os, sys; print('PDNN_RANK_OUTPUT' in os.environ); print('a word', file=sys.stderr)"


def test_a_rank_writes_into_its_own_pipes_and_its_children_do_not(
    run_python: Callable[..., Completed], tmp_path: Path
) -> None:
    """A job that a rank starts would write into those of the first."""
    for rank in range(2):
        for name in ("stdout", "stderr"):
            (tmp_path / f"{rank}.{name}").touch()
    env = {"PDNN_RANK_OUTPUT": str(tmp_path), "PMI_RANK": "1", "OMPI_COMM_WORLD_RANK": None}
    said = run_python([start_rank.__file__, "0", sys.executable, "-c", SPEAK], env=env)
    assert not said.stdout
    written = {name: (tmp_path / name).read_text() for name in os.listdir(tmp_path)}
    assert written == {"0.stdout": "", "0.stderr": "", "1.stdout": "False\n", "1.stderr": "a word\n"}
