"""Parts that a program brings along, over MPI."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import processes

pytestmark = pytest.mark.mpi


def test_parts_of_ones_own_work_between_processes(
    mpiexec: Callable[..., processes.Completed], root: Path
) -> None:
    done = mpiexec(2, [root / "tests" / "plugged_parts.py"], timeout=60)
    assert done.stdout.count("all equal") == 2
