"""Checkpoints: resumed equals uninterrupted bit for bit, whenever the process died."""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import pdnn
import processes
from pdnn import models, nn, optim
from pdnn.checkpoint import FILE

X = np.random.default_rng(0).integers(0, 256, (60, 10), dtype=np.uint8)
Y = np.arange(60) % 3


def make(seed: int = 4, momentum: float = 0.9, **options: object) -> pdnn.Trainer:
    hidden = nn.Linear(10, 8), nn.Dropout(0.3), nn.Tanh(), nn.Linear(8, 3)
    model = nn.Sequential(*hidden, dtype="float64", seed=1)
    sgd = optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, seed=seed, strategy="serial", **options)  # type: ignore[arg-type]


def fit(trainer: pdnn.Trainer, epochs: int, batch_size: int = 7, **options: object) -> None:
    data = pdnn.data.Dataset(X, Y, scale=1 / 255)
    trainer.fit(data, epochs, batch_size, verbose=False, **options)  # type: ignore[arg-type]


def test_resumed_equals_uninterrupted_bit_for_bit(tmp_path: Path) -> None:
    whole, first, second = make(), make(), make(seed=99)
    fit(whole, 5)
    fit(first, 2, checkpoint=tmp_path)
    second.model.flat_parameters[:] = 0
    fit(second, 5, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(second.model.flat_parameters, whole.model.flat_parameters)
    assert second.history.history["loss"] == whole.history.history["loss"]
    assert (second.epoch, second.step, second.seed) == (5, 45, 4)


def test_resuming_without_a_checkpoint_starts_anew(tmp_path: Path) -> None:
    trainer = make()
    fit(trainer, 2, checkpoint=tmp_path / "new", resume=True)
    assert trainer.epoch == 2
    fit(trainer, 2, checkpoint=tmp_path / "new", resume=True)  # has been trained already
    assert trainer.epoch == 2


def test_every_says_how_often(tmp_path: Path) -> None:
    trainer, seen = make(), []

    class Look(pdnn.callbacks.Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            twin = make()
            if (tmp_path / FILE).exists():
                twin.load(tmp_path / FILE)
            seen.append(twin.epoch)

    fit(trainer, 5, checkpoint=tmp_path, every=2, callbacks=[Look()])
    assert seen == [0, 0, 2, 2, 4]
    twin = make()
    twin.load(tmp_path / FILE)
    assert twin.epoch == 5


def test_what_does_not_belong_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    trainer = make()
    fit(trainer, 1, checkpoint=tmp_path)
    path = tmp_path / FILE
    with pytest.raises(ValueError, match="momentum"):
        make(momentum=0.5).load(path)
    with pytest.raises(ValueError, match=r"written with batch size 7, this run has 8"):
        fit(make(), 2, 8, checkpoint=tmp_path, resume=True)
    other = models.mlp([10, 4, 3], dtype="float64")
    sgd = optim.SGD(other.parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(ValueError, match="this model needs"):
        pdnn.Trainer(other, nn.CrossEntropyLoss(), sgd).load(path)
    trainer.model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="no checkpoint"):
        make().load(tmp_path / "model")
    whole = path.read_bytes()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        fresh = make()
        before = fresh.model.flat_parameters.copy()
        with pytest.raises(ValueError, match=FILE):
            fit(fresh, 2, checkpoint=tmp_path, resume=True)
        np.testing.assert_array_equal(fresh.model.flat_parameters, before)


CHILD = """
import sys
sys.path[:0] = sys.argv[1], sys.argv[1] + "/.."
import test_checkpoint
trainer = test_checkpoint.make()
print("ready", flush=True)
test_checkpoint.fit(trainer, 3000, checkpoint=sys.argv[2], resume=True)
"""


def test_a_training_killed_at_any_time_leaves_a_checkpoint_that_goes_on(tmp_path: Path) -> None:
    whole = make()
    moments = random.Random(0)
    reached = 0
    for _ in range(6):
        child = processes.start([sys.executable, "-c", CHILD, str(Path(__file__).parent), str(tmp_path)])
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            time.sleep(moments.uniform(0.05, 0.4))
        finally:
            processes.stop(child)  # SIGKILL
        if (tmp_path / FILE).exists():
            trainer = make()
            trainer.load(tmp_path / FILE)
            assert trainer.epoch >= reached
            reached = trainer.epoch
    assert reached > 0
    resumed = make()
    fit(resumed, reached + 2, checkpoint=tmp_path, resume=True)
    fit(whole, reached + 2)
    np.testing.assert_array_equal(resumed.model.flat_parameters, whole.model.flat_parameters)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == [FILE]
