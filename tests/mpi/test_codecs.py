"""Codecs among MPI processes, in sums and between stages: all hold the bits that ranks as threads hold."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from processes import Completed

PROGRAM = """
import numpy as np
import pdnn
from pdnn import codec, ddp
from pdnn.comm import run_threads
from pdnn.strategies import Pipeline

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
            assert reduce.stats.bytes == 3 * reduce.bytes_sent > 0
            results.append(array)
    return results

def pipelines():
    comm, results = pdnn.world(), []
    for spec in (None, "fp16", "bf16", "int8:64", "1bit:16", "topk:0.2"):
        strategy = Pipeline(comm.size, 4, cut=(2, 4)[: comm.size - 1], codec=spec)
        model = pdnn.models.mlp([20, 15, 9, 5], "tanh", seed=1)
        sgd = pdnn.optim.SGD(model.parameters(), lr=0.1)
        trainer = pdnn.Trainer(model, pdnn.nn.CrossEntropyLoss(), sgd, strategy=strategy)
        rng = np.random.default_rng(0)
        data = rng.standard_normal((38, 20), dtype=np.float32), rng.integers(0, 5, 38)
        stats = trainer.fit(data, 1, 9, verbose=False).compression[0]
        borders = [15, 9][max(0, comm.rank - 1) : min(comm.rank + 1, comm.size - 1)]  # below, above
        rows = [len(piece) for n in (9, 9, 9, 9, 2) for piece in np.array_split(range(n), 4)]
        size = codec.parse(spec).bytes if spec else lambda shape: 4 * shape[0] * shape[1]
        assert stats["bytes"] == sum(size((n, width)) for n in rows for width in borders)
        results.append(model.flat_parameters)
    return results

def replicas():
    comm, results = pdnn.world(), []
    rng = np.random.default_rng(0)
    data = rng.standard_normal((38, 20), dtype=np.float32), rng.integers(0, 5, 38)
    for across in ("ddp:", "ddp:sum:", "average:2:"):
        for spec in ("fp16", "bf16", "int8:64", "1bit:16", "topk:0.2"):
            model = pdnn.models.mlp([20, 15, 9, 5], "tanh", seed=1)
            sgd = pdnn.optim.SGD(model.parameters(), lr=0.1)
            trainer = pdnn.Trainer(model, pdnn.nn.CrossEntropyLoss(), sgd, strategy=across + spec)
            history = trainer.fit(data, 2, 9, verbose=False)
            count, size = len(model.flat_parameters), codec.parse(spec).bytes
            parts = [size(len(part)) for part in np.array_split(range(count), comm.size)]
            once = size(count) if comm.size == 2 else sum(parts) + (comm.size - 2) * parts[comm.rank]
            for stats in history.compression:
                assert stats["bytes"] == stats["sums"] * once > 0 < stats["error"] < 1, (across, spec)
            results.append(model.flat_parameters)
    for spec in ("int8:64", "topk:0.2"):
        model = pdnn.models.mlp([20, 15, 9, 5], "tanh", seed=1)
        sgd = pdnn.optim.SGD(model.parameters(), lr=0.1)
        opt = ddp.DistributedOptimizer(sgd, compression=spec, bucket_bytes=1200)
        for step in range(3):
            rows = slice(6 * step + comm.rank, 6 * step + 2 * comm.rank + 2)
            opt.zero_grad()
            pdnn.nn.CrossEntropyLoss()(model(data[0][rows]), data[1][rows]).backward()
            opt.step()
        assert opt.stats.sums == 3 and opt.stats.bytes > 0
        results.append(model.flat_parameters)
    return results

comm = pdnn.world()
for got, want in zip(replicas(), run_threads(replicas, comm.size)[0], strict=True):
    np.testing.assert_array_equal(got, want)
for got, want in zip(pipelines(), run_threads(pipelines, comm.size)[0], strict=True):
    np.testing.assert_array_equal(got, want)
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
def test_codecs_over_mpi_are_those_over_threads(mpiexec: Callable[..., Completed], ranks: int) -> None:
    assert mpiexec(ranks, ["-c", PROGRAM], timeout=110).stdout.count("content") == ranks
