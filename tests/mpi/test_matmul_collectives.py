"""Products shared by MPI ranks, through the example; a mistake of the root ends the job with its words."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import Completed

pytestmark = pytest.mark.mpi

Mpiexec = Callable[..., Completed]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_both_products_equal_the_direct_one(mpiexec: Mpiexec, root: Path, ranks: int) -> None:
    sizes = [(1024, 1024, 1024), (1000, 37, 501), (2, 3, 4)]  # two rows: fewer than ranks
    words = [str(word) for size in sizes for word in ("--size", *size)]
    output = mpiexec(ranks, [root / "examples" / "matmul_collectives.py", *words]).stdout
    for rank in range(ranks):
        assert f"My rank is {rank}, same as {rank}\n" in output
    for m, k, n in sizes:
        assert f"({m}, {k}) @ ({k}, {n}) float32: direct" in output
    differences = [float(found) for found in re.findall(r"by \w+: .* ms, .* differs by (\S+)", output)]
    assert len(differences) == 2 * len(sizes) and max(differences) < 1e-5
    identity = [float(found) for found in re.findall(r"data parallel \w+ +- .*: +(\S+)", output)]
    assert len(identity) == 2 and max(identity) < 1e-13


def test_a_mistake_of_the_root_is_raised_on_every_rank(mpiexec: Mpiexec) -> None:
    code = (
        "import numpy as np, pdnn\n"
        "for product in (pdnn.exercises.matmul_by_rows, pdnn.exercises.matmul_by_reduction):\n"
        "    try:\n"
        "        product(np.ones((3, 2)).T, np.ones((3, 4)), root=1)\n"
        "    except ValueError as error:\n"
        "        print(error, flush=True)\n"
    )
    output = mpiexec(3, ["-c", code]).stdout
    for name in ("matmul_by_rows", "matmul_by_reduction"):
        assert output.count(f"{name}: rank 1 passed a Fortran-ordered (2, 3) array as a") == 3
