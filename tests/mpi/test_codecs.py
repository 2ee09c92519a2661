"""Sums over ranks by codecs, among MPI processes: all hold the bits that ranks as threads hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from processes import Completed

PROGRAM = """
import numpy as np
import pdnn
from pdnn import codec
from pdnn.comm import run_threads

SPECS = ("fp16", "bf16", "int8", "1bit", "topk:0.05", "powersgd:2")

def sums():
    comm = pdnn.world()
    results = []
    for spec in SPECS:
        for form in ("gather", "shares"):
            reduce = codec.CompressedAllReduce(comm, spec, (40, 51), op="mean", form=form)
            for step in range(3):
                array = np.random.default_rng((step, comm.rank)).standard_normal((40, 51)).astype("f4")
                reduce(array)
            assert reduce.books.bytes == 3 * reduce.bytes_sent > 0
            results.append(array)
    return results

comm = pdnn.world()
own, others = sums(), run_threads(sums, comm.size)[0]
for spec, array, other in zip(np.repeat(SPECS, 2), own, others, strict=True):
    if spec.startswith("powersgd"):  # MPI adds up the factors in its own order
        np.testing.assert_allclose(array, other, atol=1e-4)
    else:
        np.testing.assert_array_equal(array, other)
try:
    codec.CompressedAllReduce(comm, "int8" if comm.rank == 0 else "fp16", 5)
except ValueError as error:
    assert "rank 1 has codec fp16, rank 0 has int8" in str(error)
    print("content")
"""


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [2, 3])
def test_sums_over_mpi_are_those_over_threads(mpiexec: Callable[..., Completed], ranks: int) -> None:
    assert mpiexec(ranks, ["-c", PROGRAM], timeout=110).stdout.count("content") == ranks
