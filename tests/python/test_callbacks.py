"""Callbacks that write: a line an epoch, and the best model."""

from __future__ import annotations

import csv
import math
import os
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.callbacks import Callback, CSVLogger, EarlyStopping, ModelCheckpoint, ReduceLROnPlateau
from pdnn.checkpoint import FILE
from pdnn.comm import run_threads
from pdnn.strategies import DataParallel, Strategy

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 3)), RNG.normal(size=(40, 1))


def make(**options: object) -> pdnn.Trainer:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1), dtype="float64", seed=1)
    adam = optim.Adam(model.parameters(), lr=0.01)
    options = {"strategy": "serial", "metrics": ["r2"]} | options
    return pdnn.Trainer(model, nn.MSELoss(), adam, **options)  # type: ignore[arg-type]


def fit(trainer: pdnn.Trainer, epochs: int, *callbacks: Callback) -> None:
    trainer.fit(X, Y, epochs, 10, validation=(X, Y), callbacks=callbacks, verbose=False)


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


class Worsen(Callback):
    """Spoils the model after some epochs."""

    def __init__(self, after: int) -> None:
        self.after = after

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        if epoch + 1 >= self.after:
            trainer.model.flat_parameters[:] += 3
            trainer.model.flat_buffers[:] += 3


def test_a_line_an_epoch_is_in_the_file_when_the_epoch_is_over(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    seen = []

    class Look(Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            seen.append(len(rows(path)))

    trainer = make()
    fit(trainer, 3, CSVLogger(path), Look())
    assert seen == [1, 2, 3]
    assert list(rows(path)[0]) == ["epoch", "loss", "val_loss", "val_r2", "seconds"]
    assert [float(row["val_r2"]) for row in rows(path)] == trainer.history.history["val_r2"]
    fit(trainer, 1, CSVLogger(path, append=True))
    assert [row["epoch"] for row in rows(path)] == ["1", "2", "3", "4"]
    with pytest.raises(ValueError, match=r"has the columns .* this fit has"):
        fit(make(metrics=[]), 1, CSVLogger(path, append=True))
    fit(trainer, 1, CSVLogger(path))
    assert [row["epoch"] for row in rows(path)] == ["5"]


def test_the_line_of_an_epoch_that_is_repeated_is_replaced(tmp_path: Path) -> None:
    logger, trainer = CSVLogger(tmp_path / "log.csv"), make()
    logger.on_train_begin(trainer)
    for epoch, loss in [(0, 5.0), (0, 4.0), (1, 3.0), (1, 2.0), (2, 1.0)]:
        logger.on_epoch_end(trainer, epoch, {"loss": loss})
    lines = [(row["epoch"], row["loss"]) for row in rows(tmp_path / "log.csv")]
    assert lines == [("1", "4.0"), ("2", "2.0"), ("3", "1.0")]


def test_the_best_model_stays_though_later_ones_are_worse(tmp_path: Path) -> None:
    trainer = make()
    best = ModelCheckpoint(tmp_path / "best.safetensors", "val_r2")
    fit(trainer, 6, best, Worsen(3))
    values = trainer.history.history["val_r2"]
    assert best.best_epoch == int(np.argmax(values)) <= 3 and best.best == max(values)
    again = make()
    again.model.load_state_dict(pdnn.load_model(best.path).state_dict())
    assert again.evaluate(X, Y)["r2"] == best.best
    changed = best.path.stat().st_mtime_ns
    later = ModelCheckpoint(best.path, "val_r2")
    fit(trainer, 1, later, Worsen(0))
    assert (later.best, later.best_epoch) == (best.best, best.best_epoch)
    assert best.path.stat().st_mtime_ns == changed


def test_directions(tmp_path: Path) -> None:
    logs = [{"val_f1": value, "loss": value} for value in (math.nan, 1.0, 3.0, 2.0, math.nan)]

    def best(monitor: str, mode: str) -> float | None:
        watching = EarlyStopping(monitor, patience=9, restore_best=False, mode=mode)
        for epoch, each in enumerate(logs):
            watching.on_epoch_end(make(), epoch, each)
        return watching.best

    assert (best("val_f1", "max"), best("val_f1", "auto"), best("loss", "min")) == (3.0, 1.0, 1.0)
    with pytest.raises(ValueError, match='mode "up"'):
        ModelCheckpoint(tmp_path / "x", mode="up")
    with pytest.raises(ValueError, match=r'ModelCheckpoint: no "val_top5" in'):
        fit(make(), 1, ModelCheckpoint(tmp_path / "x", "val_top5"))


class Rates(Callback):
    """Notes the learning rate after each epoch."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        self.seen.append(trainer.optimizer.param_groups[0]["lr"])


def test_learning_rates_fall_on_a_plateau_as_they_do_in_torch() -> None:
    values = [5.0, 4.0, 4.0, 4.0, 3.0, 3.5, math.nan, 3.2, 3.1, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0]
    trainer, expected = make(), []
    torch = pytest.importorskip("torch")
    peer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.01)
    rule = {"factor": 0.5, "cooldown": 2, "min_lr": 0.001}
    # torch reduces when more epochs than its patience were no better.
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(peer, patience=1, threshold=0.0, **rule)
    reducing, rates = ReduceLROnPlateau("loss", patience=2, min_delta=0.0, **rule), Rates()  # type: ignore
    reducing.on_train_begin(trainer)
    for epoch, value in enumerate(values):
        theirs.step(value)
        expected.append(peer.param_groups[0]["lr"])
        reducing.on_epoch_end(trainer, epoch, {"loss": value})
        rates.on_epoch_end(trainer, epoch, {})
    assert rates.seen == expected and len(set(expected)) == 5


def test_the_best_model_of_another_training_is_replaced(tmp_path: Path) -> None:
    path, trainer = tmp_path / "best.safetensors", make()
    fit(make(), 3, ModelCheckpoint(path))
    trainer.model.flat_parameters[:] += 3  # so that its losses are larger
    fit(trainer, 3)
    own = ModelCheckpoint(path)
    fit(trainer, 1, own)
    assert own.best_epoch == 3 and pdnn.load_model(path).fingerprint() == trainer.history.fingerprint


def test_the_least_rate_of_a_plateau_raises_none() -> None:
    trainer, plateau = make(), ReduceLROnPlateau("loss", patience=1, min_lr=0.1)
    plateau.on_train_begin(trainer)
    for epoch in range(3):
        plateau.on_epoch_end(trainer, epoch, {"loss": 1.0})
    assert trainer.rates == [0.01]


def test_a_plateau_goes_on_in_a_resumed_training_and_on_ranks(tmp_path: Path) -> None:
    def trained(parts: list[int], strategy: str = "serial", **options: Any) -> tuple[list[float], str]:
        trainer, rates = make(strategy=strategy, **options), Rates()
        trainer.optimizer.param_groups[0]["lr"] = 0.5
        for epochs in parts:
            fit(trainer, epochs, ReduceLROnPlateau(patience=2, factor=0.25), rates)
        return rates.seen, trainer.history.fingerprint

    whole, fingerprint = trained([12])
    assert len(set(whole)) > 2 and whole[0] == 0.5
    assert trained([5, 1, 6]) == (whole, fingerprint)
    ranks = run_threads(lambda: trained([12], "ddp"), 2)
    assert ranks[0] == ranks[1] and len(set(ranks[0][0])) > 2


def test_a_plateau_over_many_fits_compares_each_epoch_once() -> None:
    """All of the history again in each fit."""
    compared = []

    class Counting(ReduceLROnPlateau):
        def _is_over(self, epoch: int, logs: dict[str, float]) -> bool:
            compared.append(epoch)
            return super()._is_over(epoch, logs)

    def trained(fits: list[int], without: tuple[int, ...] = ()) -> tuple[list[float], str]:
        trainer, plateau, rates = make(), Counting(patience=3, factor=0.5), Rates()
        trainer.optimizer.param_groups[0]["lr"] = 0.5
        for number, epochs in enumerate(fits):
            fit(trainer, epochs, *([] if number in without else [plateau]), rates)
        return rates.seen, trainer.history.fingerprint

    whole = trained([60])
    rates = whole[0]
    assert len(set(rates)) > 5 and compared == list(range(60))
    same = [epoch for epoch in range(1, 60) if rates[epoch] == rates[epoch - 1]]
    for without in ((), (same[5], same[-5])):
        compared.clear()
        assert trained([1] * 60, without) == whole
        assert len(compared) <= 60 * (1 + len(without)) + 1  # the first fit has no history yet


@pytest.mark.parametrize(("strategy", "ranks"), [("serial", 1), ("average:3", 2)])
def test_a_plateau_goes_on_in_another_process(strategy: str, ranks: int, tmp_path: Path) -> None:
    """It counted on, but the learning rates were those of the beginning."""

    def trained(epochs: int, rate: float = 0.5, **options: Any) -> tuple[list[float], str]:
        trainer = make(strategy=strategy)
        trainer.optimizer.param_groups[0]["lr"] = rate
        plateau = ReduceLROnPlateau(patience=2, factor=0.25)
        trainer.fit(X, Y, epochs, 10, validation=(X, Y), callbacks=[plateau], verbose=False, **options)
        return trainer.rates, trainer.history.fingerprint

    def parts(rates: tuple[float, ...]) -> list[tuple[list[float], str]]:
        folder = tmp_path / str(rates)
        each = zip((3, 6, 7, 12), rates, strict=True)
        return [trained(epochs, rate, checkpoint=folder, resume=True) for epochs, rate in each]

    def on_ranks(job: Callable[[], Any]) -> Any:
        return job() if ranks == 1 else run_threads(job, ranks)[0]

    whole = on_ranks(lambda: trained(12))
    assert whole[0][0] < 0.5
    assert on_ranks(lambda: parts((0.5, 0.5, 0.5, 0.5)))[-1] == whole
    again = on_ranks(lambda: parts((0.5, 0.5, 0.5, 3e-9)))[-1][0][0]  # another one that is wanted
    assert 0 < again <= 3e-9


def test_a_plateau_and_a_schedule_are_refused_together() -> None:
    trainer = make()
    trainer.schedule = optim.StepLR(trainer.optimizer, 1)
    with pytest.raises(ValueError, match="the trainer's schedule sets the learning rates"):
        fit(trainer, 1, ReduceLROnPlateau())


@pytest.mark.parametrize("kind", [EarlyStopping, partial(ModelCheckpoint, "best.safetensors")])
def test_a_value_of_validation_without_validation_is_refused_at_once(kind: Callable[[], Callback]) -> None:
    trainer = make()
    with pytest.raises(ValueError, match=r'no "val_loss" without validation='):
        trainer.fit(X, Y, epochs=3, callbacks=[kind()], verbose=False)
    assert trainer.step == 0


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"patience": 0}, ValueError, "EarlyStopping: patience = 0; expected an integer from 1"),
        ({"patience": 1.5}, TypeError, "EarlyStopping: patience is 1.5, expected an integer from 1"),
        ({"min_delta": "a"}, TypeError, "EarlyStopping: min_delta is 'a', expected a number"),
        ({"min_delta": math.nan}, ValueError, "min_delta = nan"),
    ],
)
def test_numbers_are_checked_when_it_is_made(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        EarlyStopping(**options)


@pytest.mark.parametrize("kind", [EarlyStopping, ReduceLROnPlateau, ModelCheckpoint])
def test_what_is_watched_is_a_name(kind: type[Callback]) -> None:
    path = {"path": "best.safetensors"} if kind is ModelCheckpoint else {}
    with pytest.raises(TypeError, match=f"{kind.__name__}: monitor is 5, expected the name of a value"):
        kind(**path, monitor=5)  # type: ignore[call-arg]


def test_a_line_that_was_not_ended_is_not_continued(tmp_path: Path) -> None:
    path, trainer = tmp_path / "log.csv", make()
    fit(trainer, 1, CSVLogger(path))
    path.write_text(path.read_text().rstrip("\n"))
    fit(trainer, 1, CSVLogger(path, append=True))
    assert [row["epoch"] for row in rows(path)] == ["1", "2"]


@pytest.mark.parametrize("kind", [ModelCheckpoint, lambda path: CSVLogger(path, append=True)])
def test_a_file_that_has_no_folder_is_refused_before_the_first_epoch(kind: Any, tmp_path: Path) -> None:
    trainer = make()
    with pytest.raises(FileNotFoundError, match="none"):
        fit(trainer, 1, kind(tmp_path / "none" / "file"))
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        fit(trainer, 1, kind(tmp_path))
    assert trainer.history.epochs == 0


def test_a_line_that_cannot_be_written_is_told_with_the_file(tmp_path: Path) -> None:
    logger, limits = CSVLogger(tmp_path / "log.csv"), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match=f"File too large: '{tmp_path / 'log.csv'}'"):
            logger.on_epoch_end(make(), 0, {"loss": 1.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_file_that_cannot_be_read_again_is_refused_before_the_first_epoch(tmp_path: Path) -> None:
    trainer = make()
    for append in (False, True):
        with pytest.raises(ValueError, match="CSVLogger: /dev/full is no regular file, which alone can be"):
            fit(trainer, 1, CSVLogger("/dev/full", append=append))
        with pytest.raises(IsADirectoryError, match=tmp_path.name):
            fit(trainer, 1, CSVLogger(tmp_path, append=append))
        assert trainer.epoch == 0
    fit(trainer, 2, CSVLogger(os.devnull))
    assert trainer.epoch == 2


def test_early_stopping_restores_running_statistics_too() -> None:
    trainer, stopping = make(), EarlyStopping("val_loss", patience=2)
    fit(trainer, 9, stopping, Worsen(2))
    assert trainer.epoch < 9
    assert trainer.evaluate(X, Y)["loss"] == stopping.best


@pytest.mark.parametrize(
    ("strategy", "ranks"), [("serial", 1), ("average:3", 2), (DataParallel(shared_memory=True), 2)]
)
@pytest.mark.parametrize("restore", [True, False])
def test_early_stopping_goes_on_in_a_resumed_training(
    strategy: str | Strategy, ranks: int, restore: bool, tmp_path: Path
) -> None:
    """It had forgotten the best epoch: a finished training went on, and ended with a worse model."""

    def trained(epochs: int, **options: Any) -> tuple[int, str, int, float | None]:
        trainer = make(strategy=strategy)
        trainer.optimizer.param_groups[0]["lr"] = 0.7
        stopping = EarlyStopping(patience=4, restore_best=restore)
        trainer.fit(X, Y, epochs, 10, validation=(X, Y), callbacks=[stopping], verbose=False, **options)
        return trainer.epoch, trainer.history.fingerprint, stopping.best_epoch, stopping.best

    def parts(folder: Path) -> list[tuple[int, str, int, float | None]]:
        last = trained(60)[0]
        return [trained(epochs, checkpoint=folder, resume=True) for epochs in (*range(1, last, 2), 60, 70)]

    def on_ranks(job: Callable[[], Any]) -> Any:
        return job() if ranks == 1 else run_threads(job, ranks)[0]

    whole = on_ranks(lambda: trained(60))
    assert 5 < whole[0] < 60 and whole[2] == whole[0] - 5
    *_, again, once_more = on_ranks(lambda: parts(tmp_path / "run"))
    assert again == once_more == whole


@pytest.mark.parametrize("files", [0, 1, 2])
def test_a_rate_lowered_by_hand_outlives_saves_and_loads(files: int, tmp_path: Path) -> None:
    """A loaded trainer did not know with which rate it began, so the lowered one was taken for it."""

    def through_a_file(trainer: pdnn.Trainer) -> pdnn.Trainer:
        trainer.save(tmp_path / "trainer")
        other = make()
        other.load(tmp_path / "trainer")
        return other

    def trained(files: int) -> tuple[float, str]:
        trainer = make()
        fit(trainer, 1)
        trainer = through_a_file(trainer) if files > 1 else trainer
        trainer.optimizer.param_groups[0]["lr"] = 0.003
        fit(trainer, 1)
        trainer = through_a_file(trainer) if files > 0 else trainer
        fit(trainer, 1)
        return trainer.optimizer.param_groups[0]["lr"], trainer.model.fingerprint()

    assert trained(files) == trained(0)
    assert trained(files)[0] == 0.003


def scripted(values: list[float]) -> pdnn.Trainer:
    """One whose metric "score" has these values, epoch by epoch."""
    trainer = make(metrics={"score": lambda y, prediction: values[trainer.epoch]})
    return trainer


class Interrupt(Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        if epoch == self.epoch:
            raise KeyboardInterrupt


def test_two_that_compare_one_value_both_go_on_in_a_resumed_training(tmp_path: Path) -> None:
    values = [1.0, 0.95, 0.85, 0.9, 0.91, 0.92, 0.93, 0.94]

    def trained(*callbacks: Callback, **options: Any) -> tuple[list[int], int, str]:
        trainer = scripted(values)
        both = [
            EarlyStopping("val_score", patience=5, mode="min"),
            EarlyStopping("val_score", patience=6, mode="min", min_delta=0.2, restore_best=False),
        ]
        options |= {"validation": (X, Y), "callbacks": [*both, *callbacks], "verbose": False}
        trainer.fit(X, Y, 8, 10, **options)
        return [each.best_epoch for each in both], trainer.epoch, trainer.model.fingerprint()

    whole = trained()
    assert whole[:2] == ([2, 0], 7)
    with pytest.raises(KeyboardInterrupt):
        trained(Interrupt(5), checkpoint=tmp_path)
    assert trained(checkpoint=tmp_path, resume=True) == whole


@pytest.mark.parametrize(
    ("values", "min_delta", "best"),
    [
        ([2.0, 1.5, 1.0, 0.95, 0.89, 0.88], 0.1, 4),  # epoch 3 is no improvement of epoch 2
        ([0.5, 0.9, 0.9, 0.8, 0.4, 0.7], 0.0, 4),
        ([0.5, 0.9, 0.9, 0.8, 0.4, 0.3], 0.0, 5),
    ],
)
def test_a_best_model_outlives_a_resumption_from_before_it(
    values: list[float], min_delta: float, best: int, tmp_path: Path
) -> None:
    kept = ModelCheckpoint(tmp_path / "best", "val_score", "min", min_delta)

    def trained(*callbacks: Callback) -> None:
        own = [ModelCheckpoint(kept.path, "val_score", "min", min_delta), *callbacks]
        options: dict[str, Any] = {"checkpoint": tmp_path / "run", "every": 3, "resume": True}
        scripted(values).fit(X, Y, 6, 10, validation=(X, Y), callbacks=own, verbose=False, **options)

    whole = scripted(values)
    fit(whole, 6, kept)
    assert kept.best_epoch == best
    model = pdnn.load_model(kept.path).fingerprint()
    kept.path.unlink()
    with pytest.raises(KeyboardInterrupt):
        trained(Interrupt(4))
    fourth = pdnn.load_model(kept.path).fingerprint()
    with pytest.raises(KeyboardInterrupt):
        trained(Interrupt(3))  # epoch 3 again
    assert pdnn.load_model(kept.path).fingerprint() == fourth
    trained()
    assert pdnn.load_model(kept.path).fingerprint() == model


def test_a_fit_after_one_that_ended_compares_anew(tmp_path: Path) -> None:
    trainer, stopping = make(), EarlyStopping(patience=2)
    fit(trainer, 9, stopping, Worsen(2))
    first = trainer.epoch
    trainer.save(tmp_path / "file")
    trainer.load(tmp_path / "file")
    fit(trainer, 9, stopping)
    assert trainer.epoch > first and stopping.best_epoch >= first
    watched = make()
    watched.fit(X, Y, 1, 10, validation=(X, Y), callbacks=[stopping], checkpoint=tmp_path, verbose=False)
    fit(watched, 1)
    watched.load(tmp_path / FILE)
    fit(watched, 5)  # which nobody compared
    fit(watched, 1, stopping)
    assert stopping.best_epoch == 6


def test_a_model_that_a_callback_changes_on_one_rank_alone_is_told_on_all() -> None:
    def job() -> None:
        trainer = make(strategy="ddp")
        own = [EarlyStopping("val_loss", patience=2), Worsen(2)] if pdnn.world().rank == 0 else []
        with pytest.raises(ValueError, match=r"fit: rank 1 has model \w{16}, rank 0 has .* same callbacks"):
            fit(trainer, 3, *own)
        assert trainer.epoch == trainer.history.epochs == 2

    run_threads(job, 2)


class Load(Callback):
    """Loads other parameters at a time."""

    def __init__(self, when: str) -> None:
        self.when = when

    def on_train_begin(self, trainer: pdnn.Trainer) -> None:
        self.load(trainer, "begin")

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        self.load(trainer, f"epoch {epoch}")

    def on_train_end(self, trainer: pdnn.Trainer) -> None:
        self.load(trainer, "end")

    def load(self, trainer: pdnn.Trainer, now: str) -> None:
        if now == self.when:
            trainer.model.flat_parameters[:] = 0.01


@pytest.mark.parametrize("when", ["begin", "epoch 0", "end"])
@pytest.mark.parametrize("strategy", ["ddp", "scatter-gather", "hogwild-processes:2", "average:2"])
def test_a_model_that_one_rank_alone_loads_is_told_before_others_are_trained_with_it(
    strategy: str, when: str
) -> None:
    """Ranks that share the parameters went on with a part of each rank's."""

    def job(ranks: tuple[int, ...]) -> str:
        trainer = make(strategy=strategy)
        fit(trainer, 3, *([Load(when)] if pdnn.world().rank in ranks else []))
        return trainer.history.fingerprint

    for rank in range(2):
        with pytest.raises(ValueError, match=r"fit: (rank 1 has model \w{16}, rank 0 has|a callback has ch)"):
            run_threads(lambda rank=rank: job((rank,)), 2)  # type: ignore[misc]
    if when != "epoch 0" or strategy != "average:2":
        first, second = run_threads(lambda: job((0, 1)), 2)
        assert first == second


def test_rank_0_alone_writes(tmp_path: Path) -> None:
    def job() -> float | None:
        best = ModelCheckpoint(tmp_path / "best.safetensors")
        fit(make(strategy="ddp"), 2, CSVLogger(tmp_path / "log.csv"), best)
        return best.best

    first, second = run_threads(job, 2)
    assert first == second == min(float(row["val_loss"]) for row in rows(tmp_path / "log.csv"))
    assert len(rows(tmp_path / "log.csv")) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.safetensors", "log.csv"]


@pytest.mark.parametrize(
    ("callbacks", "message"),
    [
        (CSVLogger("log.csv"), "callbacks is of type CSVLogger, expected a list"),
        ([CSVLogger], "CSVLogger is a class; pass an object of it"),
        ([print], "got builtin_function_or_method, expected an object with on_train_begin"),
    ],
)
def test_what_is_no_callback_is_refused(callbacks: object, message: str, tmp_path: Path) -> None:
    make().fit(X, Y, checkpoint=tmp_path)
    trainer = make()
    with pytest.raises(TypeError, match=message):
        trainer.fit(X, Y, callbacks=callbacks, checkpoint=tmp_path, resume=True)  # type: ignore[arg-type]
    assert trainer.epoch == 0, "nothing was resumed"


def test_a_value_that_is_no_number_from_the_first_epoch_on_does_not_improve(tmp_path: Path) -> None:
    def nan(y: np.ndarray, prediction: np.ndarray) -> float:
        return math.nan

    trainer, kept = make(metrics={"broken": nan}), ModelCheckpoint(tmp_path / "best", "val_broken")
    fit(trainer, 30, EarlyStopping("val_broken", patience=2), kept)
    assert trainer.history.epochs == 3
    assert kept.best_epoch == 0


def test_the_fingerprint_is_that_of_the_parameters_that_were_put_back() -> None:
    trainer = make()
    fit(trainer, 5, Worsen(2), EarlyStopping(patience=1))
    assert trainer.history.fingerprint == trainer.model.fingerprint()


@pytest.mark.parametrize("name", ["on_epoch_begin", "on_batch_end", "on_train_start"])
def test_a_hook_that_fit_does_not_call_is_refused(name: str) -> None:
    with pytest.raises(
        TypeError, match=f"Own: fit does not call {name}, but only on_train_begin, on_epoch_end"
    ):
        type("Own", (Callback,), {name: lambda self, *arguments: None})
    type("Own", (Callback,), {"on_improvement": lambda self: None})


def test_a_best_model_is_that_of_the_file(tmp_path: Path) -> None:
    """A file of another training, or a better epoch before the callback, counted as written."""
    path, rng = tmp_path / "best.safetensors", np.random.default_rng(0)
    x, y = rng.normal(size=(40, 8)), rng.integers(0, 3, 40)
    nn.Sequential(nn.Linear(8, 5), nn.Linear(5, 3)).save(path)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 3), dtype="float64", seed=0)
    sgd = optim.SGD(model.parameters(), lr=0.1)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="serial")
    trainer.fit(x, y, epochs=20, batch_size=8, verbose=False)
    sgd.param_groups[0]["lr"] = 3.0
    for _ in range(2):
        best = ModelCheckpoint(path, "val_loss")
        trainer.fit(x, y, epochs=2, batch_size=8, validation=(x, y), callbacks=[best], verbose=False)
        kept = pdnn.load_model(path)
        assert next(iter(kept.parameters())).shape == (8, 16) and best.best_epoch >= 20
        other = pdnn.Trainer(
            kept, nn.CrossEntropyLoss(), optim.SGD(kept.parameters(), lr=1), strategy="serial"
        )
        assert other.evaluate(x, y)["loss"] == best.best
        trainer.fit(x, y, epochs=3, batch_size=8, validation=(x, y), verbose=False)
    ModelCheckpoint(tmp_path / "x{1}" / "m")
    with pytest.raises(ValueError, match="it keeps one file, the best"):
        ModelCheckpoint("m-{epoch:02d}.h5")
