"""Ranks equal one process over MPI, as replicas and together: all networks on two ranks, one on others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import processes
import replicas

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize(
    ("ranks", "narrow", "full"),
    [(1, ["cnn"], []), (2, replicas.NARROW, replicas.FULL), (3, ["cnn"], []), (4, ["cnn"], [])],
)
def test_replicas_equal_one_process(
    mpiexec: Callable[..., processes.Completed], root: Path, ranks: int, narrow: list[str], full: list[str]
) -> None:
    names = [",".join(narrow), ",".join(full)]
    said = mpiexec(ranks, [root / "tests" / "replicas.py", *names], timeout=100).stdout
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: all equal" in said
