"""What the ranks of test_training.py run: every check here is made on every rank, several a launch."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim
from pdnn.checkpoint import FILE
from pdnn.data import Dataset
from pdnn.strategies import DataParallel, Pool, Serial, Strategy, Team

comm = pdnn.world()
RNG = np.random.default_rng(0)
DATA = Dataset(RNG.integers(0, 256, (53, 12), dtype=np.uint8), RNG.integers(0, 4, 53), scale=1 / 255)


def train(
    strategy: str | Strategy, comm: pdnn.comm.Communicator, seed: int = 2, **options: object
) -> pdnn.Trainer:
    model = models.mlp([12, 9, 4], "sigmoid", dtype="float64", seed=seed)
    sgd = optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy, comm=comm)
    settings = {"epochs": 2, "batch_size": 17, "validation": DATA, "verbose": False} | options
    trainer.fit(DATA, **settings)  # type: ignore[arg-type]
    return trainer


def normalized(
    strategy: str | Strategy, comm: pdnn.comm.Communicator, sync: bool, seed: int = 2
) -> pdnn.Trainer:
    layers = nn.Linear(12, 9), nn.BatchNorm1d(9, sync=sync), nn.Sigmoid(), nn.Linear(9, 4)
    model = nn.Sequential(*layers, dtype="float64", seed=seed)
    sgd = optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy, comm=comm)
    model.flat_buffers[:] += seed  # taken from rank 0, as the parameters are
    trainer.fit(DATA, epochs=2, batch_size=17, validation=DATA, verbose=False)
    return trainer


def averaged(
    strategy: str, momentum: float = 0.9, comm: pdnn.comm.Communicator = comm, **options: object
) -> pdnn.Trainer:
    model = models.mlp([12, 9, 4], "sigmoid", dtype="float64", seed=2 + comm.rank)
    sgd = optim.SGD(model.parameters(), lr=0.3, momentum=momentum)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy, comm=comm)
    settings = {"epochs": 2, "batch_size": 5, "validation": DATA, "verbose": False} | options
    trainer.fit(DATA, **settings)  # type: ignore[arg-type]
    return trainer


def check_averaging(folder: Path) -> None:
    """One model on all ranks, whoever adds; after every step data parallel; resumed as if never stopped."""
    want = averaged("average:3")
    equal(averaged("average:3:master+team:2"), want)
    for model in comm.all_gather(want.model.flat_parameters):
        np.testing.assert_allclose(model, want.model.flat_parameters, rtol=0, atol=1e-15)
    equal(averaged("average:1", 0.0), averaged("ddp", 0.0, batch_size=5 * comm.size))
    averaged("average:3", checkpoint=folder, epochs=1)
    equal(averaged("average:3", checkpoint=folder, resume=True), want)
    apart = averaged("average:end:own-init").model.flat_parameters
    assert (np.abs(apart - averaged("average:end").model.flat_parameters).max() > 0.01) == (comm.size > 1)


def check_elastic_averaging(folder: Path) -> None:
    """One center on all ranks, to the bit; one rank is serial; resumed as if never stopped."""
    want = averaged("elastic-average:3" if comm.size > 1 else "serial")
    averaged("elastic-average:3", checkpoint=folder, epochs=1)
    for got in (
        averaged("elastic-average:3"),
        averaged("elastic-average:3+team:2"),
        averaged("elastic-average:3", checkpoint=folder, resume=True),
    ):
        for model in comm.all_gather(got.model.flat_parameters):
            np.testing.assert_array_equal(model, want.model.flat_parameters)
        assert got.history.history["val_loss"] == want.history.history["val_loss"]


def check_hogwild() -> None:
    """Ranks share one model: the same on all, every update counted, serial if there is one."""
    got = averaged(f"hogwild-processes:{comm.size}", 0.5, epochs=20)
    for model in comm.all_gather(got.model.flat_parameters):
        np.testing.assert_array_equal(model, got.model.flat_parameters)
    assert [epoch["count"] for epoch in got.history.updates] == [11] * 20  # of 53 rows, 5 an update
    losses = got.history.history["loss"]
    assert losses[-1] < losses[0]
    if comm.size == 1:
        want = averaged("serial", 0.5, epochs=20)
        np.testing.assert_array_equal(got.model.flat_parameters, want.model.flat_parameters)


def check_moving_checkpoints(folder: Path, serial: pdnn.Trainer) -> None:
    """Written in the middle of an epoch by one strategy, resumed by another: as if never stopped."""
    ranks = comm.size
    together = ["ddp", f"pipeline:{ranks}", f"tp:{ranks}"]
    for first in [*together, "average:3"]:
        options = {"every": 2, "every_steps": 6 if first in together else 2, "keep": 2}
        (train if first in together else averaged)(first, comm=comm, checkpoint=folder / first, **options)
        written = folder / first / "checkpoint.1.safetensors"
        for second, group in [("serial", pdnn.comm.SELF), *((second, comm) for second in together)]:
            copy = folder / f"{first} {second} {comm.rank if group is pdnn.comm.SELF else ''}"
            if group.rank == 0:
                copy.mkdir()
                shutil.copy(written, copy / FILE)
            comm.barrier()
            if first in together:
                equal(train(second, group, checkpoint=copy, resume=True), serial)
            else:
                got = averaged(second, comm=group, checkpoint=copy, resume=True)
                assert got.history.epochs == 2
                for model in comm.all_gather(got.model.flat_parameters):
                    np.testing.assert_allclose(model, got.model.flat_parameters, rtol=0, atol=1e-13)


def check_reproducible() -> None:
    """With the same leaves all of them have the bits of one process."""
    want, of_batches = train("serial/8", pdnn.comm.SELF), normalized("serial/8", pdnn.comm.SELF, True)
    strategies: list[str | Strategy] = [
        "ddp/8",
        "ddp+team:2/8",
        "ddp+pool:2/8",
        DataParallel(Serial(8), shared_memory=False),
    ]
    if comm.size == 2:
        strategies.append("pipeline:2/8")
    for strategy in strategies:
        got = train(strategy, comm)
        assert got.history.fingerprint == want.history.fingerprint, strategy
        assert got.history.history["loss"] == want.history.history["loss"], strategy
        if strategy != "pipeline:2/8":
            got = normalized(strategy, comm, True)
            assert got.history.fingerprint == of_batches.history.fingerprint, strategy
            np.testing.assert_array_equal(got.model.flat_buffers, of_batches.model.flat_buffers)


def equal(got: pdnn.Trainer, want: pdnn.Trainer) -> None:
    np.testing.assert_allclose(got.model.flat_parameters, want.model.flat_parameters, rtol=0, atol=1e-13)
    for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
        np.testing.assert_allclose(got.history.history[name], want.history.history[name], rtol=1e-12)


def main(folder: Path) -> None:
    serial = train("serial", pdnn.comm.SELF)
    traveling = [
        DataParallel(shared_memory=True),
        DataParallel(Pool(2, 3), shared_memory=True),
        DataParallel(shared_memory=False),
        DataParallel(Team(2), bucket_bytes=56),
    ]
    for strategy in ("ddp", "ddp+team:2", "ddp+pool:2/3", "scatter-gather", "auto", *traveling):
        # A rank that starts from other values must get rank 0's; the last batch has two rows.
        equal(train(strategy, comm, seed=2 if comm.rank == 0 else 100 + comm.rank), serial)
    chosen = train("auto", comm).choice
    assert chosen is not None
    assert chosen.why.startswith("auto: ddp on" if comm.size > 1 else "auto: ")
    lines = comm.all_gather(np.frombuffer(chosen.why.encode(), np.uint8), check=False)
    assert len({line.tobytes() for line in lines}) == 1  # with the figures
    equal(train("scatter-gather:once", comm, batch_size=100), train("serial", pdnn.comm.SELF, batch_size=100))

    want = normalized("serial", pdnn.comm.SELF, False)
    for strategy in ("ddp", "ddp+team:2", "scatter-gather"):
        got = normalized(strategy, comm, True, seed=2 if comm.rank == 0 else 100 + comm.rank)
        equal(got, want)
        np.testing.assert_allclose(got.model.flat_buffers, want.model.flat_buffers, rtol=1e-11)
    states = comm.all_gather(normalized("ddp", comm, False).model.flat_buffers)
    for state in states:
        np.testing.assert_array_equal(state, states[0])
    assert (np.abs(states[0] - want.model.flat_buffers).max() > 1e-6) == (comm.size > 1)

    trainer = train("ddp", comm)
    assert trainer.evaluate(DATA, comm=comm) == trainer.evaluate(DATA) or np.isclose(
        trainer.evaluate(DATA, comm=comm)["loss"], trainer.evaluate(DATA)["loss"], rtol=1e-12
    )

    train("ddp", comm, checkpoint=folder, epochs=1)
    equal(train("ddp", comm, checkpoint=folder, resume=True), serial)

    check_moving_checkpoints(folder / "moving", serial)
    check_reproducible()
    check_averaging(folder / "averaging")
    check_elastic_averaging(folder / "elastic")
    check_hogwild()

    if comm.size > 1:
        for mine, words in [
            ({"batch_size": 9 + comm.rank}, "batch size"),
            ({"epochs": 1 + comm.rank}, "epochs"),
        ]:
            with pytest.raises(ValueError, match=f"rank 1 has {words}"):
                train("ddp", comm, **mine)
        with pytest.raises(ValueError, match=r"rank 1 has layers .*True.*, rank 0 has .*False"):
            normalized("ddp", comm, comm.rank == 1)
        with pytest.raises(ValueError, match=r"ddp\+team:2"):
            train("team:2", comm)
    print(f"rank {comm.rank} of {comm.size}: all equal", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
