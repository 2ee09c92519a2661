"""What a program may bring along, checked on the ranks of `pdnn.world()`: threads or MPI processes."""

from __future__ import annotations

from typing import Any

import numpy as np

import pdnn
from pdnn import models, nn, optim
from pdnn.strategies import DataParallel, Pipeline

Array = np.ndarray[Any, np.dtype[Any]]

X = np.random.default_rng(0).standard_normal((37, 8))
Y = np.arange(37) % 3


def ring(comm: pdnn.comm.Communicator, array: Array) -> None:
    """A ring all-reduce: p - 1 steps that add up chunks, p - 1 that pass the sums on."""
    ranks, after, before = comm.size, (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    chunks = np.array_split(array, ranks)
    for step in range(2 * (ranks - 1)):
        gone, come = chunks[(comm.rank - step) % ranks], chunks[(comm.rank - step - 1) % ranks]
        sent = comm.start_send(gone, after, check=False)
        received = comm.recv(before, out=np.empty_like(come), check=False)
        sent.wait()
        come[:] = come + received if step < ranks - 1 else received


def ring_bytes(count: int, rank: int, ranks: int, itemsize: int) -> int:
    """What a rank sends of so many elements: all but one chunk, twice."""
    sizes = [len(chunk) for chunk in np.array_split(np.empty(count), ranks)]
    return itemsize * sum(sizes[(rank - step) % ranks] for step in range(2 * (ranks - 1)))


class Signs(pdnn.codec.CustomCodec):
    """One bit a value, and their mean magnitude."""

    def encode_values(self, values: Array) -> bytes:
        """The magnitude, then the signs."""
        return np.float32(np.abs(values).mean()).tobytes() + np.packbits(values < 0).tobytes()

    def decode_values(self, data: Array, count: int) -> Array:
        """Plus or minus the magnitude."""
        size = data[:4].view(np.float32)[0]
        return np.where(np.unpackbits(data[4:], count=count) == 1, -size, size)


class Raw(pdnn.codec.CustomCodec):
    """The values of a float64 as they are."""

    name = "raw"

    def encode_values(self, values: Array) -> Array:
        """Their bytes."""
        return values.view(np.uint8)

    def decode_values(self, data: Array, count: int) -> Array:
        """The same values."""
        return data.view(np.float64)


FORWARD, BACKWARD = "forward", "backward"
SCHEDULE = (
    ((FORWARD, 0), (FORWARD, 1), (FORWARD, 2), (BACKWARD, 0), (BACKWARD, 1), (BACKWARD, 2)),
    ((FORWARD, 0), (FORWARD, 1), (BACKWARD, 0), (FORWARD, 2), (BACKWARD, 1), (BACKWARD, 2)),
)
"""Neither "gpipe" nor "1f1b", for two ranks and three micro-batches."""


def train(
    strategy: str | pdnn.strategies.Strategy, comm: pdnn.comm.Communicator | None = None
) -> tuple[Array, pdnn.Trainer]:
    """Two epochs of a small network: its parameters, and the trainer."""
    model = models.mlp([8, 16, 12, 3], seed=1, dtype="float64")
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.5)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy=strategy, comm=comm)
    trainer.fit((X, Y), 2, 10, verbose=False)
    return model.flat_parameters.copy(), trainer


def check_all_reduce() -> None:
    """Trainings, ddp and calls by hand add up by the function, and count what it sends."""
    comm = pdnn.world()
    alone, _ = train("serial", pdnn.comm.SELF)
    count, steps = len(alone), 4
    for strategy in ("ddp", "pipeline:1 x ddp"):
        with pdnn.comm.register("all_reduce", ring):
            together, trainer = train(strategy)
        np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-13)
        sent = trainer.history.ranks[-1][comm.rank]
        if strategy == "ddp":
            expected = ring_bytes(count, comm.rank, comm.size, 8) + ring_bytes(3, comm.rank, comm.size, 8)
            assert (sent["bytes"], sent["shared_bytes"]) == (steps * expected, 0)

    calls = []

    def counted(inner: pdnn.comm.Communicator, array: Array) -> Array:
        calls.append(array.dtype.name)
        array[:] = inner.all_reduce(array, check=False)  # its own one here
        return array

    registration = pdnn.comm.register("all_reduce", counted)
    part = comm.split(0, comm.rank)
    for group in (comm, part):
        a = np.full((2, 3), comm.rank + 1.0, np.float32)
        out = np.empty_like(a)
        assert (group.all_reduce(a, "mean", out) == (comm.size + 1) / 2).all() and (a == comm.rank + 1).all()
    assert comm.all_reduce(np.array([comm.rank]), "max") == [comm.size - 1]
    assert calls == ["float32", "float32"]
    registration.remove()
    comm.all_reduce(np.ones(3))
    assert len(calls) == 2


def check_codec() -> None:
    """Codecs in Python take the place of the core's, with its formulas for bytes, and error feedback."""
    ranks, alone = pdnn.world().size, train("serial", pdnn.comm.SELF)[0]
    for strategy in (DataParallel(codec=Raw()), Pipeline(ranks, codec=Raw())):
        together, trainer = train(strategy)
        np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-13)
        sent = trainer.history.compression[-1]
        assert sent["bytes"] == sent["bytes_uncompressed"] > 0
    rough, trainer = train(DataParallel(codec=Signs(), error_feedback=True))
    assert 0 < np.abs(rough - alone).max() < 0.5
    assert 0 < trainer.history.compression[-1]["error"] < 1
    if ranks == 2:
        assert trainer.history.compression[-1]["bytes"] == 4 * (4 + (len(alone) + 7) // 8)


def check_schedule() -> None:
    """A schedule of one's own trains as the others do."""
    if pdnn.world().size == 2:
        alone, _ = train("serial", pdnn.comm.SELF)
        together, _ = train(Pipeline(2, schedule=SCHEDULE))
        np.testing.assert_allclose(together, alone, rtol=1e-12, atol=1e-13)


if __name__ == "__main__":
    check_all_reduce()
    check_codec()
    check_schedule()
    print("all equal", flush=True)
