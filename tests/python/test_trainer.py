"""Trainer: what a fit computes, measures, shows and refuses, alone."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import os
import pickle
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import pdnn
import reference
from alarms import Ring, alarm
from ctrl_c import ctrl_c
from pdnn import models, nn, optim, strategies
from pdnn.callbacks import Callback, EarlyStopping, ModelCheckpoint
from pdnn.comm import run_threads
from pdnn.comm.ending import end_the_job_on_errors
from pdnn.data import DataLoader, Dataset, Subset
from pdnn.history import History
from pdnn.progress import Progress, rounded

RNG = np.random.default_rng(0)
X = RNG.integers(0, 256, (53, 12), dtype=np.uint8)
Y = RNG.integers(0, 4, 53)
DATA = Dataset(X, Y, scale=1 / 255, shift=-0.5)


def make(
    strategy: str | strategies.Strategy = "serial", dtype: str = "float64", **options: object
) -> pdnn.Trainer:
    model = models.mlp([12, 9, 4], "sigmoid", dtype=dtype, seed=2)
    sgd = optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy, seed=5, **options)  # type: ignore[arg-type]


def fit(
    trainer: pdnn.Trainer, data: object = DATA, epochs: int = 2, batch_size: int = 10, **options: object
) -> History:
    return trainer.fit(data, epochs, batch_size, verbose=False, **options)  # type: ignore[arg-type]


def test_a_fit_equals_the_oracle_step_by_step() -> None:
    trainer = make()
    parameters = [parameter.data for parameter in trainer.model.parameters()]
    net = reference.Mlp(parameters[::2], parameters[1::2], "sigmoid")
    x, velocity = X / 255 - 0.5, []
    first = net.gradient(x, Y)[0]
    fit(trainer, epochs=3, shuffle=False)
    for _ in range(3):
        reference.sgd_epoch(net, x, Y, np.arange(53), 10, 0.3, 0.9, velocity)
    np.testing.assert_allclose(trainer.model.flat_parameters, net.flat(), rtol=0, atol=1e-13)
    result = trainer.evaluate(DATA)
    outputs = net.outputs(x)[-1]
    assert result["loss"] == pytest.approx(net.gradient(x, Y)[0], rel=1e-12)
    assert result["accuracy"] == (outputs.argmax(axis=1) == Y).mean()
    np.testing.assert_allclose(trainer.predict(DATA), outputs, atol=1e-12)
    np.testing.assert_array_equal(trainer.predict_classes(DATA), outputs.argmax(axis=1))
    assert trainer.history.history["loss"][0] != pytest.approx(first)  # the parameters moved within the epoch


@pytest.mark.parametrize(
    "spec", ["team:2", "team:3", "pool:1", "pool:2/3", "ddp", "ddp+team:2", "scatter-gather", "auto"]
)
@pytest.mark.filterwarnings("ignore:strategy:UserWarning")
def test_every_strategy_equals_serial(spec: str) -> None:
    serial, trainer = make(), make(spec)
    want, got = fit(serial, validation=DATA), fit(trainer, validation=DATA)
    np.testing.assert_allclose(
        trainer.model.flat_parameters, serial.model.flat_parameters, rtol=0, atol=1e-14
    )
    if spec.startswith(("team", "ddp")):
        np.testing.assert_array_equal(trainer.model.flat_parameters, serial.model.flat_parameters)
    for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
        np.testing.assert_allclose(got.history[name], want.history[name], rtol=1e-12)


def test_scattering_once_needs_whole_batches() -> None:
    trainer = make("scatter-gather:once")
    with pytest.raises(ValueError, match="batch_size=53"):
        fit(trainer)
    serial = make()
    fit(trainer, batch_size=100)
    fit(serial, batch_size=100)
    np.testing.assert_allclose(
        trainer.model.flat_parameters, serial.model.flat_parameters, rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [np.uint8, np.float32, np.float64])
def test_samples_of_any_width_are_converted_as_they_are_gathered(width: type, dtype: str) -> None:
    want, got = make(dtype=dtype), make(dtype=dtype)
    fit(want)
    fit(got, Dataset(X.astype(width), Y, scale=1 / 255, shift=-0.5))
    np.testing.assert_allclose(got.model.flat_parameters, want.model.flat_parameters, rtol=1e-5, atol=1e-6)


def test_arrays_subsets_and_strided_rows_give_what_their_copies_give() -> None:
    floats = X / 255 - 0.5
    rows = np.array([5, 3, 3, 50, -1, 8])
    for data, x, y in [
        ((floats, Y), floats, Y),
        (Subset(DATA, rows), floats[rows], Y[rows]),
        (DATA[5:40:3], floats[5:40:3].copy(), Y[5:40:3].copy()),
        (DATA[::-1], floats[::-1].copy(), Y[::-1].copy()),
    ]:
        got, want = make(), make()
        fit(got, data)
        fit(want, (x, y))
        np.testing.assert_allclose(got.model.flat_parameters, want.model.flat_parameters, rtol=0, atol=1e-13)


def test_values_train_too_and_have_no_accuracy() -> None:
    model = models.mlp([12, 9, 2], "tanh", dtype="float64", seed=2)
    targets = RNG.normal(size=(53, 2))
    trainer = pdnn.Trainer(model, nn.MSELoss(), optim.SGD(model.parameters(), lr=0.1), strategy="serial")
    history = fit(
        trainer, Dataset(X, targets, scale=1 / 255), epochs=30, validation=(X[:5] / 255, targets[:5])
    )
    assert set(history.history) == {"loss", "val_loss", "seconds"}
    assert history.history["loss"][-1] < history.history["loss"][0]
    error = trainer.predict(X / 255) - targets
    assert trainer.evaluate((X / 255, targets))["loss"] == pytest.approx((error**2).mean())


def test_binary_classes_have_an_accuracy() -> None:
    labels = (X[:, 0] > 127).astype(np.int64)
    for loss, layers in [(nn.BCELoss(), [nn.Sigmoid()]), (nn.BCEWithLogitsLoss(), [])]:
        model = nn.Sequential(nn.Linear(12, 1), *layers, dtype="float64", seed=2)
        trainer = pdnn.Trainer(model, loss, optim.SGD(model.parameters(), lr=1.0), strategy="serial")
        fit(trainer, Dataset(X, labels, scale=1 / 255, shift=-0.5), epochs=100)
        result = trainer.evaluate(Dataset(X, labels, scale=1 / 255, shift=-0.5))
        assert result["accuracy"] > 0.95
        classes = trainer.predict_classes(X / 255 - 0.5)
        assert (classes == labels).mean() == pytest.approx(result["accuracy"])


def test_a_second_fit_continues() -> None:
    whole, parts = make(), make()
    fit(whole, epochs=3)
    fit(parts, epochs=1)
    history = fit(parts, epochs=2)
    np.testing.assert_array_equal(parts.model.flat_parameters, whole.model.flat_parameters)
    assert history.epochs == parts.epoch == 3
    assert parts.step == 18


def test_shuffling_is_a_function_of_the_seed() -> None:
    one, same, fixed = make(), make(), make()
    fit(one)
    fit(same)
    fit(fixed, shuffle=False)
    np.testing.assert_array_equal(one.model.flat_parameters, same.model.flat_parameters)
    assert (one.model.flat_parameters != fixed.model.flat_parameters).any()


def test_dropout_gives_the_same_bits_for_any_team() -> None:
    results = []
    for threads in (1, 2):
        model = nn.Sequential(nn.Linear(12, 20), nn.Dropout(0.5), nn.Linear(20, 4), seed=1)
        trainer = pdnn.Trainer(
            model,
            nn.CrossEntropyLoss(),
            optim.SGD(model.parameters(), lr=0.1),
            strategy=strategies.Team(threads),
        )
        fit(trainer)
        results.append(model.flat_parameters)
    np.testing.assert_array_equal(*results)


def test_the_gradient_of_the_last_step_is_there_to_see() -> None:
    trainer = make()
    want = trainer.model.gradient(X / 255 - 0.5, Y, trainer.loss)[1]
    fit(trainer, epochs=1, batch_size=53, shuffle=False)
    np.testing.assert_allclose(trainer.model.flat_gradients, want, atol=1e-15)
    assert next(trainer.model.parameters()).grad.shape == (12, 9)


# ---- callbacks, interruptions, progress


def test_early_stopping_stops_and_restores() -> None:
    class Spoil(Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            if epoch == 2:
                self.kept = trainer.model.flat_parameters.copy()
                trainer.optimizer.param_groups[0]["lr"] = 50.0  # from here on it gets worse

    spoil, stopping = Spoil(), EarlyStopping("loss", patience=2)
    trainer = make()
    history = fit(trainer, epochs=50, callbacks=[spoil, stopping])
    assert stopping.best_epoch <= 3
    assert history.epochs == stopping.best_epoch + 1 + 2
    assert stopping.best == min(history.history["loss"])
    if stopping.best_epoch == 2:
        np.testing.assert_array_equal(trainer.model.flat_parameters, spoil.kept)


def test_early_stopping_says_what_it_misses() -> None:
    with pytest.raises(ValueError, match=r'no "val_loss".*validation='):
        fit(make(), callbacks=[EarlyStopping()])


def test_ctrl_c_ends_between_two_steps_and_keeps_the_history() -> None:
    trainer = make()
    interrupted = contextlib.ExitStack()

    class Interrupt(Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            if epoch == 1:
                interrupted.enter_context(ctrl_c(0.2))

    big = Dataset(np.tile(X, (2000, 1)), np.tile(Y, 2000), scale=1 / 255)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupted:
        fit(trainer, big, epochs=10**6, callbacks=[Interrupt()])
    assert time.monotonic() - began < 60
    assert trainer.history.epochs >= 2
    assert np.isfinite(trainer.model.flat_parameters).all()


@pytest.mark.parametrize("strategy", ["serial", "pool:2/4", "hogwild:2"])
def test_during_an_epoch_others_see_the_last_finished_one(strategy: str) -> None:
    model = models.mlp([12, 80, 40, 4], "relu", dtype="float64", seed=2)  # of several panels
    trainer = pdnn.Trainer(
        model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), 0.05), strategy=strategy
    )
    seen: list[np.ndarray] = []

    def looks(data: Dataset) -> int:
        """How many were within an epoch of so many rows."""
        before = model.predict(X / 255)
        seen.clear()
        with alarm(look, 0.05):
            fit(trainer, data, epochs=1, batch_size=4)
        after = model.predict(X / 255)
        during = [outputs for outputs in seen if (outputs == before).all()]
        for outputs in seen[len(during) :]:  # which came when the epoch was over
            np.testing.assert_array_equal(outputs, after)
        return len(during)

    def look(ring: Ring) -> None:
        seen.append(model.predict(X / 255))
        ring(0.05)

    for times in (50, 150, 500, 1500, 5000, 15_000, 50_000):  # until an epoch is far longer than 50 ms
        big = Dataset(np.tile(X, (times, 1)), np.tile(Y, times), scale=1 / 255)
        found = [looks(big) for _ in range(2)]
        if min(found) > 1:
            break
    assert min(found) > 1


@pytest.mark.parametrize("strategy", ["serial", "team:2"])
def test_ctrl_c_ends_evaluation_prediction_and_validation(strategy: str) -> None:
    model = models.mlp([500, 4000, 10], seed=0)
    sgd = optim.SGD(model.parameters(), 0.1)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
    x, y = np.ones((100_000, 500), np.float32), np.zeros(100_000, np.int64)
    before = trainer.predict(x[:3])
    calls: dict[str, Callable[[], object]] = {
        "predict": lambda: trainer.predict(x),
        "evaluate": lambda: trainer.evaluate((x, y)),
        "fit": lambda: trainer.fit((x[:1], y[:1]), 1, 1, validation=(x, y), verbose=False),
    }
    for name, call in calls.items():
        with pytest.raises(KeyboardInterrupt), ctrl_c(0.15) as pressed:
            call()
        assert time.monotonic() - pressed[0] < 2, name
        if name != "fit":
            np.testing.assert_array_equal(trainer.predict(x[:3]), before)
    fit(trainer, (x[:2], y[:2]), 1, validation=(x[:2], y[:2]))
    assert trainer.history.epochs == 1


def test_a_signal_handler_may_predict_while_its_trainer_evaluates() -> None:
    trainer = make()
    big = Dataset(np.tile(X, (30_000, 1)), np.tile(Y, 30_000), scale=1 / 255)
    before, seen = trainer.predict(DATA), []
    with alarm(lambda _: seen.append(trainer.predict(DATA)), 0.01):
        result = trainer.evaluate(big)
    assert len(seen) == 1
    np.testing.assert_array_equal(seen[0], before)
    assert trainer.evaluate(big) == result


def test_progress_is_a_line_an_epoch_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    make().fit(DATA, 2, 10, validation=DATA)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].startswith("epoch 2/2  loss ")
    assert "val_accuracy" in lines[1]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((1e-6, "1.000e-06"), (-1e-6, "-1.000e-06"), (1e30, "1.000e+30"), (0.5, "0.5000")),
        *((0.0, "0.0000"), (math.nan, "nan"), (math.inf, "inf"), (-math.inf, "-inf")),
    ],
)
def test_a_line_of_progress_has_digits_of_a_value_of_any_size(
    value: float, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rounded(value) == text
    Progress(True, 0, 3, 1).end_epoch(0, {"loss": value, "seconds": 1.0})
    assert f"loss {text}  1.00 s" in capsys.readouterr().out


@pytest.mark.parametrize(
    "stream", [None, io.TextIOBase(), object()], ids=["closed", "no terminal", "no file"]
)
def test_a_service_may_have_no_standard_error(stream: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("sys.stdout", None)
    trainer = make()
    trainer.fit(DATA, 2, 10)
    assert trainer.epoch == 2


def test_an_error_of_a_rank_ends_the_job_also_if_it_cannot_be_printed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: list[object] = []
    world = SimpleNamespace(Abort=ended.append)
    mpi = type("MPI", (), {"COMM_WORLD": world, "Is_finalized": staticmethod(lambda: False)})
    native = type("Native", (), {"record_end": ended.append})
    for name in ("sys.excepthook", "threading.excepthook"):
        monkeypatch.setattr(name, lambda *_: None)
    end_the_job_on_errors(mpi, native)
    monkeypatch.setattr("sys.stdout", None)  # closed
    sys.excepthook(KeyError, KeyError(), None)
    assert ended == ["raised KeyError", 1]


def test_the_traceback_that_ends_a_job_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As mpiexec writes, too, when it hears of the end."""
    written: list[str] = []
    world = SimpleNamespace(Abort=lambda _: written.append("the end"))
    mpi = type("MPI", (), {"COMM_WORLD": world, "Is_finalized": lambda: False})
    monkeypatch.setattr("sys.excepthook", sys.__excepthook__)
    monkeypatch.setattr("threading.excepthook", threading.__excepthook__)
    monkeypatch.setattr("sys.stderr", SimpleNamespace(write=written.append, flush=lambda: None))
    end_the_job_on_errors(mpi, type("Native", (), {"record_end": lambda _: None}))

    def fail() -> None:
        raise KeyError("a mistake")

    try:
        fail()
    except KeyError as error:
        sys.excepthook(KeyError, error, error.__traceback__)
    thread = threading.Thread(target=fail, name="worker")
    thread.start()
    thread.join()
    assert [each for each in written if each == "the end"] == written[1::2] and len(written) == 4
    for text in written[::2]:
        assert "Traceback (most recent call last):\n" in text and "\nKeyError: 'a mistake'\n" in text
    assert written[2].startswith("Exception in thread worker:\n")


# ---- history


def test_history_is_saved_loaded_and_drawn(tmp_path: Path) -> None:
    history = fit(make(), validation=DATA)
    history.save(tmp_path / "history.json")
    assert set(json.loads((tmp_path / "history.json").read_text())["history"]) == set(history.history)
    loaded = History.load(tmp_path / "history.json")
    assert loaded.history == history.history
    assert json.dumps(loaded.to_dict()) == json.dumps(history.to_dict())
    (tmp_path / "before.png").write_text("a picture")
    with pytest.raises(ValueError, match="is not supported"):
        history.plot(tmp_path / "history.none")
    history.plot(tmp_path / "before")  # without an ending
    assert (tmp_path / "before.png").read_bytes()[1:4] == b"PNG"
    history.plot(opened := io.BytesIO())  # type: ignore[arg-type]
    assert opened.getvalue()[1:4] == b"PNG"
    figure = history.plot(tmp_path / "history.png")
    assert figure._repr_png_()[1:4] == b"PNG"  # type: ignore[attr-defined]  # what a notebook shows
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".json") == [
        "before.png",
        "history.png",
    ]
    assert len(figure.axes) == 2
    assert (tmp_path / "history.png").stat().st_size > 5000
    (tmp_path / "broken").write_text("[1]")
    with pytest.raises(ValueError, match="broken"):
        History.load(tmp_path / "broken")


def test_a_picture_that_cannot_be_written_is_told_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = pytest.importorskip("matplotlib.figure", reason="draws")

    def full(*_: object, **more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(figures.Figure, "savefig", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*history\.png'"):
        fit(make()).plot("history.png")
    with pytest.raises(OSError, match=r"No space left on device: '.*schedule\.png'"):
        strategies.schedule("gpipe", 2, 2).plot("schedule.png")


def test_every_list_of_a_history_has_a_value_for_each_epoch(tmp_path: Path) -> None:
    """Those of validation were shorter: they could not be drawn, and callbacks counted other epochs."""
    trainer = make()
    fit(trainer, epochs=2)
    fit(trainer, epochs=2, validation=DATA)
    found = fit(trainer, epochs=1).history
    assert {len(values) for values in found.values()} == {5}
    assert np.flatnonzero(np.isfinite(found["val_loss"])).tolist() == [2, 3]
    best = ModelCheckpoint(tmp_path / "best", "val_loss")
    trainer.model.save(best.path)
    fit(trainer, epochs=1, validation=DATA, callbacks=[best])
    assert best.best_epoch == np.nanargmin(trainer.history.history["val_loss"])
    trainer.history.plot(tmp_path / "history.png")


def test_phases_account_for_the_seconds() -> None:
    trainer = make("pool:2/3")
    history = fit(trainer, Dataset(np.tile(X, (50, 1)), np.tile(Y, 50), scale=1 / 255))
    for seconds, phases in zip(history.history["seconds"], history.phases, strict=True):
        assert 0 < phases["gradient"] <= seconds


# ---- refusals


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"epochs": -1}, ValueError, "fit: epochs = -1; expected an integer from 0"),
        ({"batch_size": 0}, ValueError, "batch_size = 0"),
        ({"data": DATA[:0]}, ValueError, "no rows"),
        ({"data": [1, 2]}, TypeError, "expected a Dataset"),
        ({"data": Dataset(X[:, :5], Y)}, ValueError, "5 features, this layer takes 12"),
        ({"data": Dataset(X, Y + 1)}, ValueError, "train: label 4 of row .* outside 0 … 3"),
        ({"validation": Dataset(X, Y + 1)}, ValueError, "validation: label 4"),
        ({"validation": (X, Y)}, ValueError, r"validation: x has integers as they are, .* scale=0\.003921"),
        ({"data": (X, Y * 1.0)}, ValueError, r"expected integer .*floats \(n, 4\); pass y\.astype\(int\)"),
        ({"data": (X, np.where(Y, Y, np.nan))}, ValueError, r"; row \d+ is nan: fill it, or leave it out"),
        ({"data": (X, Y + 0.5)}, ValueError, r"floats \(n, 4\)$"),
        ({"data": (X, Y, np.ones(53))}, TypeError, "got tuple of 3, expected a Dataset, which takes weight="),
        ({"every_seconds": 1}, ValueError, "every_seconds= needs checkpoint="),
        ({"checkpoint": "x", "every_steps": 0}, ValueError, "every_steps = 0; expected an integer from 1"),
        (
            {"checkpoint": "x", "every_seconds": -1},
            ValueError,
            "every_seconds = -1; expected a number from 0",
        ),
        ({"resume": True}, ValueError, "needs checkpoint"),
        ({"every": 2}, ValueError, "every= needs checkpoint="),
        ({"keep": 3}, ValueError, "keep= needs checkpoint="),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_lost(
    change: dict[str, object], kind: type[Exception], words: str
) -> None:
    trainer = make()
    before = trainer.model.flat_parameters.copy()
    with pytest.raises(kind, match=words):
        fit(trainer, **change)  # type: ignore[arg-type]
    np.testing.assert_array_equal(trainer.model.flat_parameters, before)
    assert trainer.epoch == 0


def test_integers_are_evaluated_with_the_scale_that_they_were_trained_with() -> None:
    trainer = make()
    trainer.evaluate(X, Y)  # a model that is loaded does not know
    fit(trainer, epochs=1)
    with pytest.raises(ValueError, match=r"evaluate: x has integers as they are.* shift=-0\.5; pass Dataset"):
        trainer.evaluate(X, Y)
    trainer.evaluate(DATA)
    trainer.evaluate(X.astype(np.float64), Y)
    fit(trainer, data=(X, Y), epochs=1, validation=(X, Y))
    trainer.evaluate(X, Y)
    fit(trainer, data=(X, Y), epochs=1, validation=DATA)


def test_a_fit_that_is_refused_leaves_the_scale_of_the_one_before(tmp_path: Path) -> None:
    make().fit(DATA, 1, 16, checkpoint=tmp_path, verbose=False)
    trainer = make()
    trainer.fit((X, Y), 1, 8, verbose=False)
    with pytest.raises(ValueError, match="batch size 16"):
        trainer.fit(DATA, 1, 8, checkpoint=tmp_path, resume=True, verbose=False)
    trainer.evaluate(X, Y)
    assert trainer.predict(X).shape == (len(X), 4)


def test_wrong_kinds_are_refused() -> None:
    model = models.mlp([2, 2])
    sgd = optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match=r"nn\.Sequential"):
        pdnn.Trainer(nn.Linear(2, 2), nn.MSELoss(), sgd)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the optimizer came before the loss"):
        pdnn.Trainer(model, sgd, nn.CrossEntropyLoss())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="loss is of type str"):
        pdnn.Trainer(model, "mse", sgd)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="optimizer is of type float"):
        pdnn.Trainer(model, nn.MSELoss(), 0.1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"uint8.*Dataset"):
        make().predict(X)


def test_what_a_trainer_has_checked_is_fixed() -> None:
    trainer = make()
    for name in ("model", "loss", "optimizer", "strategy", "schedule_per", "on_nonfinite", "metrics"):
        before = getattr(trainer, name)
        with pytest.raises(AttributeError, match=f"Trainer: {name} is fixed; make a new Trainer"):
            setattr(trainer, name, before)
    trainer.clip_norm = 1e-6  # which each fit takes anew
    before = trainer.model.flat_parameters.copy()
    fit(trainer)
    assert 0 < np.abs(trainer.model.flat_parameters - before).max() < 1e-5


def test_a_prediction_takes_floats_of_any_width() -> None:
    trainer = make()
    np.testing.assert_allclose(trainer.predict(X.astype(np.float32)), trainer.predict(X.astype(np.float64)))


def test_no_rows_have_no_predictions_and_no_loss() -> None:
    trainer = make()
    none, classes = np.zeros((0, 12), np.float32), np.zeros(0, np.int64)
    for rows in (none, DATA[:0], Subset(DATA, [])):
        assert trainer.predict(rows).shape == (0, 4)
        assert trainer.predict_classes(rows).shape == (0,)
    for data in ((none, classes), DATA[:0], Subset(DATA, [])):
        with pytest.raises(ValueError, match="evaluate: the data have no rows"):
            trainer.evaluate(data)
    with pytest.raises(ValueError, match="fit: the training data have no rows"):
        fit(trainer, (none, classes))
    with pytest.raises(ValueError, match="fit: the validation data have no rows"):
        fit(trainer, validation=(none, classes))
    with pytest.raises(ValueError, match="5 features, this layer takes 12"):
        trainer.predict(none[:, :5])


@pytest.mark.parametrize("spec", ["serial", "team:2"])
def test_any_number_of_threads_predict_and_evaluate_at_once(spec: str) -> None:
    model = models.mlp([64, 256, 256, 10], seed=1)
    trainer = pdnn.Trainer(
        model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1), strategy=spec, seed=5
    )
    data = [
        Dataset(RNG.standard_normal((300 - 40 * i, 64)).astype(np.float32), np.arange(300 - 40 * i) % 10)
        for i in range(4)
    ]
    want = [(trainer.predict(each), trainer.evaluate(each)) for each in data]
    wrong: list[int] = []

    def work(i: int) -> None:
        for _ in range(30):
            outputs, result = trainer.predict(data[i]), trainer.evaluate(data[i])
            if not np.array_equal(outputs, want[i][0]) or result != want[i][1]:
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


@pytest.mark.filterwarnings("ignore:strategy:UserWarning")
def test_samples_of_many_shapes_share_one_team() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), seed=1)
    trainer = pdnn.Trainer(model, nn.MSELoss(), optim.SGD(model.parameters(), lr=0.1), strategy="team:3")
    trainer.predict(np.zeros((1, 2, 5, 5), np.float32))
    threads = len(os.listdir("/proc/self/task"))
    for height in range(5, 30):
        image = RNG.standard_normal((1, 2, height, 5)).astype(np.float32)
        np.testing.assert_allclose(trainer.predict(image), model.predict(image), rtol=1e-6)
    assert len(os.listdir("/proc/self/task")) <= threads  # those of an earlier test may end


class FitsWithin(Callback):
    """Calls fit within a fit, in the same thread or another one, of the trainer or of a second one."""

    def __init__(self, by_thread: bool, of_another: bool) -> None:
        self.by_thread, self.of_another = by_thread, of_another
        self.errors: list[str] = []

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        if self.by_thread:
            thread = threading.Thread(target=self.fit, args=(trainer,), daemon=True)
            thread.start()
            thread.join(60)
        else:
            self.fit(trainer)

    def fit(self, trainer: pdnn.Trainer) -> None:
        if self.of_another:
            trainer = pdnn.Trainer(trainer.model, trainer.loss, trainer.optimizer)
        with pytest.raises(ValueError, match="fit: the model is within a fit") as error:
            fit(trainer)
        self.errors.append(str(error.value))


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, pickle.dumps])
def test_a_trainer_is_not_copied_and_says_what_to_do(copied: Callable[[object], object]) -> None:
    trainer = make()
    with pytest.raises(TypeError, match=r"Trainer: .* neither copied nor pickled.*trainer\.save.*deepcopy"):
        copied(trainer)
    model, optimizer = copy.deepcopy((trainer.model, trainer.optimizer))
    assert model is not trainer.model and next(optimizer.parameters()) is next(model.parameters())


@pytest.mark.parametrize("of_another", [False, True])
@pytest.mark.parametrize("by_thread", [False, True])
def test_a_fit_within_a_fit_is_refused(by_thread: bool, of_another: bool) -> None:
    alone, trainer, within = make(), make(), FitsWithin(by_thread, of_another)
    fit(trainer, epochs=3, callbacks=[within])
    assert trainer.epoch == len(within.errors) == 3
    with pytest.raises(ValueError, match="no rows"):
        fit(trainer, validation=Subset(DATA, []))
    fit(trainer, epochs=1)  # after an error, too
    fit(alone, epochs=4)
    assert trainer.model.fingerprint() == alone.model.fingerprint()


def test_what_may_change_between_fits_is_checked_as_at_first() -> None:
    one, other = make(), make()
    one.schedule = optim.StepLR(other.optimizer, 1)
    with pytest.raises(ValueError, match="of another optimizer"):
        fit(one)
    other.clip_norm, other.clip_value = 1.0, 1.0
    with pytest.raises(ValueError, match="clip_norm and clip_value"):
        fit(other)


def test_a_trainer_of_no_rank_is_refused_by_ranks() -> None:
    """Each trained the one model, one after the other."""
    model = nn.Sequential(nn.Linear(2, 1), seed=0)
    sgd = optim.SGD(model.parameters(), lr=0.1)
    outside = pdnn.Trainer(model, nn.MSELoss(), sgd)
    with pytest.raises(ValueError, match="made outside the ranks that call it"):
        run_threads(lambda: outside.fit(np.ones((4, 2)), np.ones(4), epochs=1, verbose=False), 2)
    run_threads(lambda: outside.fit(np.ones((4, 2)), np.ones(4), epochs=1, verbose=False), 1)
    assert repr(outside).startswith("Trainer(MSELoss, SGD, strategy ") and repr(outside).endswith(
        ", 1 epochs)"
    )


def test_a_loader_is_told_to_be_taken_apart() -> None:
    model = nn.Sequential(nn.Linear(2, 1), seed=0)
    trainer = pdnn.Trainer(model, nn.MSELoss(), optim.SGD(model.parameters(), lr=0.1))
    loader = DataLoader(Dataset(np.ones((4, 2)), np.ones(4)), 2)
    assert repr(loader).endswith(", batch_size=2, shuffle=False)")
    with pytest.raises(TypeError, match=r"got DataLoader, .*; pass its \.dataset"):
        trainer.fit(loader, epochs=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="shuffle is 'no', expected True or False"):
        DataLoader(loader.dataset, 2, shuffle="no")  # type: ignore[arg-type]
