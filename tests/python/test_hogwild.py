"""Hogwild through the Trainer: workers of one process, and ranks that share memory."""

from __future__ import annotations

import json
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from alarms import Ring, alarm
from ctrl_c import ctrl_c
from pdnn import nn, optim
from pdnn.data import Dataset

RNG = np.random.default_rng(0)
CENTERS = RNG.normal(size=(4, 12))
Y = RNG.integers(0, 4, 203)
DATA = Dataset(CENTERS[Y] + 0.7 * RNG.normal(size=(203, 12)), Y)


def make(strategy: str, momentum: float = 0.5, norm: bool = True, **options: Any) -> pdnn.Trainer:
    layers = [nn.Linear(12, 9), nn.BatchNorm1d(9) if norm else nn.Dropout(0.2), nn.Tanh(), nn.Linear(9, 4)]
    model = nn.Sequential(*layers, dtype="float64", seed=2)
    sgd = optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy, **options)


def values(trainer: pdnn.Trainer) -> Any:
    return np.concatenate([trainer.model.flat_parameters, trainer.model.flat_buffers])


@pytest.mark.parametrize("spec", ["hogwild:1", "hogwild-processes:1"])
def test_one_worker_is_serial_bit_for_bit(spec: str) -> None:
    for norm in (True, False):
        for options in ({}, {"clip_norm": 0.5}):
            serial, hogwild = make("serial", norm=norm, **options), make(spec, norm=norm, **options)
            for trainer in (serial, hogwild):
                for epochs in (2, 1):  # momentum goes on in the second fit
                    trainer.fit(DATA, epochs, 10, validation=DATA, verbose=False)
            np.testing.assert_array_equal(values(hogwild), values(serial))
            for name in ("loss", "accuracy", "val_loss"):
                assert hogwild.history.history[name] == serial.history.history[name]
            assert [u["max_staleness"] for u in hogwild.history.updates] == [0, 0, 0]


def test_a_schedule_by_steps_follows_the_batches() -> None:
    def scheduled(strategy: str) -> pdnn.Trainer:
        model = pdnn.models.mlp([12, 9, 4], dtype="float64", seed=2)
        sgd = optim.SGD(model.parameters(), lr=0.1)
        schedule = optim.LinearLR(sgd, 1.0, 0.1, 40)
        loss = nn.CrossEntropyLoss()
        trainer = pdnn.Trainer(model, loss, sgd, strategy=strategy, schedule=schedule, schedule_per="step")
        trainer.fit(DATA, 2, 10, verbose=False)
        return trainer

    want, one, two = scheduled("serial"), scheduled("hogwild:1"), scheduled("hogwild:2")
    np.testing.assert_array_equal(one.model.flat_parameters, want.model.flat_parameters)
    for trainer in (one, two):
        assert trainer.optimizer.param_groups[0]["lr"] == want.optimizer.param_groups[0]["lr"]
        assert trainer.step == want.step == 42


def test_workers_learn_and_report_updates_and_staleness() -> None:
    serial = make("serial").fit(DATA, 8, 10, verbose=False)
    trainer = make("hogwild:3")
    history = trainer.fit(DATA, 8, 10, validation=DATA, verbose=False)
    assert history.history["val_accuracy"][-1] > 0.85
    assert history.history["loss"][-1] < 0.5 * serial.history["loss"][0]
    for updates, seconds in zip(history.updates, history.history["seconds"], strict=True):
        assert updates["count"] == 21
        assert updates["per_second"] == pytest.approx(21 / seconds)
        assert 0 <= updates["mean_staleness"] <= updates["max_staleness"] <= 20
    assert trainer.step == 8 * 21


def test_ranks_share_one_model() -> None:
    def train() -> Any:
        trainer = make("hogwild-processes:3")
        trainer.model.flat_parameters[:] += pdnn.world().rank  # rank 0's count
        history = trainer.fit(DATA, 8, 10, validation=DATA, verbose=False)
        return values(trainer), history.history, history.updates, trainer.evaluate(DATA)

    ranks = pdnn.run(train, ranks=3, backend="threads")
    for model, history, updates, result in ranks:
        np.testing.assert_array_equal(model, ranks[0][0])
        for name in ("loss", "accuracy", "val_loss"):
            assert history[name] == ranks[0][1][name]
        assert result["accuracy"] > 0.85
        assert [epoch["count"] for epoch in updates] == [21] * 8
        assert [epoch["max_staleness"] for epoch in updates] == [
            epoch["max_staleness"] for epoch in ranks[0][2]
        ]


def test_a_checkpoint_goes_on(tmp_path: Path) -> None:
    whole, first, second = make("hogwild:1"), make("hogwild:1"), make("hogwild:1")
    whole.fit(DATA, 4, 10, verbose=False)
    first.fit(DATA, 2, 10, verbose=False, checkpoint=tmp_path)
    second.fit(DATA, 4, 10, verbose=False, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(values(second), values(whole))
    assert second.history.updates[0].keys() == {"count", "per_second", "mean_staleness", "max_staleness"}


def test_ctrl_c_ends_all_workers_between_two_updates() -> None:
    trainer = make("hogwild:2")
    threads = threading.active_count()
    with pytest.raises(KeyboardInterrupt), ctrl_c(0.5):
        trainer.fit(DATA, 10**9, 1, verbose=False)
    assert threading.active_count() == threads
    assert np.isfinite(trainer.model.flat_parameters).all()
    trainer.fit(DATA, 1, 10, verbose=False)


def test_what_all_workers_have_done_is_kept_when_an_epoch_ends_by_an_error() -> None:
    """Every update moves the bias by 1, and one worker goes on to the end while the caller is interrupted."""
    rows = 1_000_000
    model = nn.Sequential(nn.Linear(1, 1), dtype="float64", seed=0)
    model.flat_parameters[...] = 0
    sgd = optim.SGD(model.parameters(), lr=1.0)
    trainer = pdnn.Trainer(model, nn.L1Loss(), sgd, strategy="hogwild:2")
    data = Dataset(np.zeros((rows, 1)), np.full((rows, 1), 1e9))

    def computes() -> bool:
        """Whether another thread does so now."""
        spent = time.process_time()
        time.sleep(0.1)
        return time.process_time() - spent > 0.005

    def interrupt(ring: Ring) -> None:
        if not any(frame.name == "_run_part" for frame in traceback.extract_stack()) or not computes():
            ring(0.01)  # the epoch has not begun
            return
        while any(computes() for _ in range(5)):  # a busy machine may not let it, for a while
            pass
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), alarm(interrupt, 0.01):
        trainer.fit(data, 1, 1, shuffle=False, verbose=False)
    assert model.flat_parameters[1] > 0.8 * rows  # without locks a few are lost


def test_layers_that_synchronize_are_refused() -> None:
    model = nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4, sync=True), seed=0)
    sgd = optim.SGD(model.parameters(), lr=0.1)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="hogwild:2")
    with pytest.raises(ValueError, match=r"Hogwild: a layer with sync=True .*; use data parallel"):
        trainer.fit(DATA, 1, verbose=False)


def test_the_command_line_takes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pdnn.cli import main

    np.savez(tmp_path / "data.npz", x_train=DATA.x, y_train=DATA.y, x_test=DATA.x, y_test=DATA.y)
    words = [
        "train",
        "--data",
        f"npz:{tmp_path}/data.npz",
        "--model",
        "mlp:12-9-4",
        "--quiet",
        "--epochs",
        "2",
    ]
    history = tmp_path / "history.json"
    assert main([*words, "--batch-size", "10", "--strategy", "hogwild:2", "--json", str(history)]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert [epoch["count"] for epoch in json.loads(history.read_text())["updates"]] == [21, 21]
