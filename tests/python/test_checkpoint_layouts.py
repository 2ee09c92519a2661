"""Checkpoints that move: written within an epoch, by any strategy on any ranks, and resumed by any other."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pdnn
from pdnn import _core, nn, optim
from pdnn.checkpoint import FILE, Content
from pdnn.strategies import DataParallel, Grid, Pipeline, Strategy
from pdnn.training import Position

Array = npt.NDArray[Any]

ROWS, BATCH, EPOCHS = 53, 8, 3  # 7 steps an epoch, the last of 5 rows
X = np.random.default_rng(0).standard_normal((ROWS, 6))
Y = np.arange(ROWS) % 3


@dataclass(frozen=True)
class Layout:
    """A strategy and its ranks; layouts of one class of `bits` give the same bits, "" makes no promise."""

    strategy: str | Strategy
    ranks: int
    bits: str = ""


SERIAL = Layout("serial", 1, "serial")
LAYOUTS = {
    "serial": SERIAL,
    "ddp": Layout(DataParallel(shared_memory=True), 3, "ddp"),
    "pipeline": Layout(Pipeline(2, cut=(3,)), 2, "pipeline"),
    "tp": Layout("tp:2", 2, "tp"),
}
MORE = {
    "team": Layout("team:2", 1, "serial"),
    "pool": Layout("pool:1/3", 1, "pool"),
    "pool:2": Layout("pool:2/3", 1, "pool"),
    "ddp+team": Layout("ddp+team:2", 2),
    "hogwild": Layout("hogwild:1", 1, "serial"),
    "scatter": Layout("scatter-gather", 2, "scatter"),
}
APART = {
    "average:3": Layout("average:3", 2, "average:3"),
    "average:end": Layout("average:end", 2, "average:end"),
    "elastic": Layout("elastic-average:4", 2, "elastic"),
    "codec": Layout("ddp:topk:0.3", 2, "codec"),
    "average by codec": Layout("average:3:topk:0.3", 2, "average by codec"),
}
"""Their ranks have something of their own."""


def make(strategy: str | Strategy, *, norm: bool = False) -> pdnn.Trainer:
    third = nn.BatchNorm1d(8) if norm else nn.Dropout(0.2)
    layers = nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 8), third, nn.Tanh(), nn.Linear(8, 3)
    model = nn.Sequential(*layers, dtype="float64", seed=1)
    sgd = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return pdnn.Trainer(
        model,
        nn.CrossEntropyLoss(),
        sgd,
        strategy=strategy,
        seed=5,
        schedule=optim.lr_scheduler.StepLR(sgd, 5, gamma=0.8),
        schedule_per="step",
    )


def trained(
    layout: Layout, *, norm: bool = False, epochs: int = EPOCHS, **options: Any
) -> list[tuple[Array, Any, int]]:
    """The model, the history and the number of steps on every rank."""

    def train() -> tuple[Array, Any, int]:
        trainer = make(layout.strategy, norm=norm)
        trainer.fit((X, Y), epochs, BATCH, validation=(X, Y), verbose=False, **options)
        model = trainer.model
        return np.concatenate([model.flat_parameters, model.flat_buffers]), trainer.history, trainer.step

    if layout.ranks == 1:
        return [train()]
    return pdnn.run(train, ranks=layout.ranks, backend="threads")


@cache
def whole(layout: Layout, norm: bool = False) -> tuple[Array, Any, int]:
    """Of a training that nobody interrupts."""
    return trained(layout, norm=norm)[0]


def written(layout: Layout, step: int, folder: Path, norm: bool = False) -> Path:
    """A folder with the checkpoint that a training wrote after a step in the middle of its second epoch."""
    got = trained(layout, norm=norm, checkpoint=folder / "all", every=EPOCHS, every_steps=step, keep=2)
    want = whole(layout, norm)
    for model, history, steps in got:  # which its checkpoints did not change
        np.testing.assert_array_equal(model, want[0])
        assert history.history["loss"] == want[1].history["loss"]
        assert steps == want[2]
    (folder / "one").mkdir()
    shutil.copy(folder / "all" / "checkpoint.1.safetensors", folder / "one" / FILE)
    return folder / "one"


def check(first: Layout, second: Layout, step: int, folder: Path, norm: bool = False) -> None:
    """Stopped after a step under one strategy, and gone on under another, is not stopped at all."""
    at = written(first, step, folder, norm)
    exact = bool(first.bits) and first.bits == second.bits
    model, history, steps = whole(second if exact else SERIAL, norm)
    for got, resumed, made in trained(second, norm=norm, checkpoint=at, resume=True):
        assert made == steps
        for name in ("loss", "val_loss"):
            assert resumed.epochs == len(resumed.history[name]) == EPOCHS
            if exact:
                assert resumed.history[name] == history.history[name]
            np.testing.assert_allclose(resumed.history[name], history.history[name], rtol=1e-12)
        if exact:
            np.testing.assert_array_equal(got, model)
        assert np.abs(got - model).max() <= 1e-12 * np.abs(model).max()


@pytest.mark.parametrize("second", LAYOUTS)
@pytest.mark.parametrize("first", LAYOUTS)
def test_a_training_goes_on_under_any_strategy(first: str, second: str, tmp_path: Path) -> None:
    step = random.Random(first + second).randrange(11, 14)
    check(LAYOUTS[first], LAYOUTS[second], step, tmp_path)


@pytest.mark.parametrize(("first", "second"), [("team", "serial"), ("pool", "pool:2"), ("scatter", "team")])
def test_threads_go_on_from_one_another(first: str, second: str, tmp_path: Path) -> None:
    layouts = LAYOUTS | MORE
    check(layouts[first], layouts[second], 12, tmp_path)


@pytest.mark.parametrize("step", [12, 13])  # an average has just been made, or not
@pytest.mark.parametrize("name", APART)
def test_the_same_ranks_get_their_own_back(name: str, step: int, tmp_path: Path) -> None:
    batches_of_ranks = name != "codec"  # a step has one of each rank, so four steps are an epoch
    check(APART[name], APART[name], step - 6 * batches_of_ranks, tmp_path)


@pytest.mark.parametrize("second", ["ddp", "serial"])
def test_running_statistics_of_ranks_go_on(second: str, tmp_path: Path) -> None:
    """Each rank has learned from its own rows; the mean is a model that others can go on with."""
    ddp = LAYOUTS["ddp"]
    if second == "ddp":
        check(ddp, ddp, 12, tmp_path, norm=True)
        return
    at = written(ddp, 12, tmp_path, norm=True)
    content = Content.read(at / FILE)
    ranks = [content.of_rank(rank)["state"] for rank in range(3)]
    assert np.abs(ranks[0] - ranks[1]).max() > 1e-3
    trainer = make("serial", norm=True)
    trainer.load(at / FILE)
    np.testing.assert_allclose(trainer.model.flat_buffers, np.mean(ranks, axis=0), rtol=1e-14)
    trained(SERIAL, norm=True, checkpoint=at, resume=True)


# ---- models of their own are merged


def merged(at: Path) -> tuple[pdnn.Trainer, Content]:
    """A serial trainer with the average of what the ranks had, made from what the file has of each."""
    content = Content.read(at / FILE)
    ranks = [content.of_rank(rank) for rank in range(content.state["layout"]["ranks"])]
    rows = np.array([float(rank["counts"][0]) for rank in ranks])
    weights = rows / rows.sum() if rows.any() else np.ones(len(ranks)) / len(ranks)
    trainer = make("serial")
    for name, into in (
        ("parameters", trainer.model.flat_parameters),
        ("velocity", trainer.optimizer.state_arrays()["velocity"]),
    ):
        into[...] = sum(w * rank[name] for w, rank in zip(weights, ranks, strict=True))
    state = content.state
    trainer.epoch, trainer.step, trainer.seed = state["epoch"], state["step"], state["seed"]
    assert trainer.schedule is not None
    trainer.schedule.step_to(state["step"])
    place = state["position"]
    sums = [_core.EpochSums(own) for own in place["ranks"]]
    added = ("loss", "correct", "rows", "updates")
    numbers = {name: sum(getattr(own, name) for own in sums) for name in added}
    numbers["steps"] = sums[0].steps
    assert numbers["rows"] == place["row"] == 16 * sums[0].steps
    trainer.position = Position(place["row"], place["rows"], True, _core.EpochSums(numbers))
    return trainer, content


@pytest.mark.parametrize(
    ("first", "step"), [("average:3", 6), ("average:3", 7), ("average:end", 6)]
)  # of 4 an epoch; before the end a rank has trained on more rows than the other
@pytest.mark.parametrize("second", ["serial", "ddp"])
def test_a_training_that_averages_goes_on_from_its_average(
    first: str, second: str, step: int, tmp_path: Path
) -> None:
    at = written(APART[first], step, tmp_path)
    want, content = merged(at)
    np.testing.assert_allclose(
        np.concatenate([content.arrays[f"model.{n}"].ravel() for n, _ in want.model.named_parameters()]),
        want.model.flat_parameters,
        rtol=1e-14,
    )
    want.fit((X, Y), EPOCHS - 1, BATCH, verbose=False)
    with pytest.warns(
        UserWarning, match=f"was written by {first}; the models and .* of its 2 ranks are merged"
    ):
        outcomes = trained(LAYOUTS[second], checkpoint=at, resume=True)
    for got, history, steps in outcomes:
        assert steps == want.step
        np.testing.assert_allclose(history.history["loss"][1:], want.history.history["loss"], rtol=1e-12)
        np.testing.assert_allclose(got, want.model.flat_parameters, rtol=0, atol=1e-12)


def test_a_training_goes_on_by_averaging(tmp_path: Path) -> None:
    """Each rank begins with the model and the momentum of one process; then by hand, without dropout."""

    def plain(strategy: str) -> pdnn.Trainer:
        model = pdnn.models.mlp([6, 9, 3], "tanh", dtype="float64", seed=1)
        sgd = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        return pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy, seed=5)

    plain("serial").fit((X, Y), 2, BATCH, checkpoint=tmp_path, every=9, every_steps=10, keep=2, verbose=False)
    shutil.move(tmp_path / "checkpoint.1.safetensors", tmp_path / FILE)

    def resumed() -> tuple[Array, float]:
        trainer = plain("average:3")
        trainer.fit((X, Y), 2, BATCH, checkpoint=tmp_path, resume=True, verbose=False)
        return trainer.model.flat_parameters.copy(), trainer.history.history["loss"][1]

    before = plain("serial")
    before.load(tmp_path / FILE)
    assert before.position is not None and (before.step, before.position.row) == (10, 24)
    ranks = [plain("serial") for _ in range(2)]
    for own in ranks:
        own.model.flat_parameters[...] = before.model.flat_parameters
        own.optimizer.load_state_dict(before.optimizer.state_dict())
    order, trained_on, loss = _core.epoch_order(5, 1, ROWS), np.zeros(2), before.position.sums.loss

    def average() -> None:
        weights = trained_on / trained_on.sum()
        mean = sum(w * own.model.flat_parameters for w, own in zip(weights, ranks, strict=True))
        for own in ranks:
            own.model.flat_parameters[...] = mean
        trained_on[:] = 0

    for step, at in enumerate(range(24, ROWS, 2 * BATCH), 10):
        for rank, rows in enumerate(np.array_split(order[at : at + 2 * BATCH], 2)):
            own = ranks[rank]
            own.optimizer.zero_grad()
            value = own.loss(own.model(X[rows]), Y[rows])
            value.backward()
            own.optimizer.step()
            trained_on[rank] += len(rows)
            loss += value.item() * len(rows)
        if (step + 1) % 3 == 0:
            average()
    if trained_on.any():
        average()
    for model, mean_loss in pdnn.run(resumed, ranks=2, backend="threads"):
        np.testing.assert_allclose(model, ranks[0].model.flat_parameters, rtol=0, atol=1e-12)
        assert mean_loss == pytest.approx(loss / ROWS, rel=1e-12)


@pytest.mark.filterwarnings("ignore:.* are merged:UserWarning")
def test_updates_left_out_before_a_checkpoint_are_counted_once(tmp_path: Path) -> None:
    broken = X.copy()
    broken[[3, 20, 51]] = np.nan

    def fit(strategy: str, **options: Any) -> tuple[list[float], dict[str, float]]:
        model = pdnn.models.mlp([6, 9, 3], "tanh", dtype="float64", seed=1)
        sgd = optim.SGD(model.parameters(), lr=0.0)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy, on_nonfinite="skip")
        trainer.fit((broken, Y), 1, 1, shuffle=False, verbose=False, **options)
        return trainer.history.history["loss"], trainer.history.updates[0]

    (loss,), updates = fit("serial")
    assert updates["skipped"] == 3
    for first, second in ((1, 3), (3, 1), (3, 2)):
        folder = tmp_path / f"{first} {second}"
        settings: dict[str, Any] = {"checkpoint": folder, "every": 9, "every_steps": 10, "keep": 9}
        pdnn.run(fit, "average:2", ranks=first, backend="threads", **settings)
        shutil.move(folder / "checkpoint.1.safetensors", folder / FILE)
        for got, counted in pdnn.run(
            fit, "average:2", ranks=second, backend="threads", checkpoint=folder, resume=True
        ):
            assert got == [pytest.approx(loss, rel=1e-12)]
            assert (counted["count"], counted["skipped"]) == (ROWS - 3, 3)


@pytest.mark.parametrize(("first", "words"), [("elastic", "are merged"), ("codec", "is dropped")])
def test_what_belongs_to_ranks_is_not_lost_in_silence(first: str, words: str, tmp_path: Path) -> None:
    at = written(APART[first], 6, tmp_path)
    with pytest.warns(UserWarning, match=words):
        got = trained(SERIAL, checkpoint=at, resume=True)[0]
    assert got[1].history["loss"][-1] < got[1].history["loss"][0]


# ---- which data, which updates


def test_another_epoch_or_batch_is_refused(tmp_path: Path) -> None:
    at = written(SERIAL, 12, tmp_path)
    with pytest.raises(ValueError, match="written with batch size 8, this run has 9"):
        make("serial").fit((X, Y), 3, 9, checkpoint=at, resume=True, verbose=False)
    trainer = make("serial")
    before = trainer.model.flat_parameters.copy()
    with pytest.raises(ValueError, match="at row 40 of an epoch of 53 rows, shuffle=True, but got 52"):
        trainer.fit((X[1:], Y[1:]), 3, BATCH, checkpoint=at, resume=True, verbose=False)
    np.testing.assert_array_equal(trainer.model.flat_parameters, before)
    assert (trainer.epoch, trainer.step, trainer.position) == (0, 0, None)
    trainer.fit((X[1:], Y[1:]), 1, BATCH, verbose=False)
    assert (trainer.epoch, trainer.step) == (1, 7)
    with pytest.raises(ValueError, match="got 53 rows, shuffle=False"):
        make("serial").fit((X, Y), 3, BATCH, checkpoint=at, resume=True, shuffle=False, verbose=False)


def test_a_loaded_training_finishes_its_epoch(tmp_path: Path) -> None:
    at = written(SERIAL, 12, tmp_path)
    trainer = make("serial")
    trainer.load(at / FILE)
    assert trainer.epoch == 1 and trainer.step == 12
    trainer.fit((X, Y), 2, BATCH, verbose=False)
    np.testing.assert_array_equal(trainer.model.flat_parameters, whole(SERIAL)[0])
    assert trainer.position is None


@pytest.mark.full_length
@pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # more threads than cores
@pytest.mark.parametrize("second", LAYOUTS | MORE)
@pytest.mark.parametrize("first", LAYOUTS | MORE)
def test_from_every_step_to_every_strategy(first: str, second: str, tmp_path: Path) -> None:
    layouts = LAYOUTS | MORE
    for step in (11, 12, 13):
        folder = tmp_path / str(step)
        folder.mkdir()
        check(layouts[first], layouts[second], step, folder)


def test_a_stage_without_parameters_has_nothing_that_a_codec_has_not_sent(tmp_path: Path) -> None:
    """Its rank waited in vain for those that gathered what theirs had not sent."""
    layout = Layout(Grid(pipeline=Pipeline(2, 2, cut=(5,)), data=DataParallel(codec="topk:0.1")), 4)

    def train(epochs: int, resume: bool) -> int:
        layers = nn.Linear(6, 9), nn.Tanh(), nn.Linear(9, 8), nn.Tanh(), nn.Flatten(), nn.Sigmoid()
        model = nn.Sequential(*layers, dtype="float64", seed=1)
        sgd = optim.SGD(model.parameters(), lr=0.1)
        trainer = pdnn.Trainer(model, nn.MSELoss(), sgd, strategy=layout.strategy)
        options: dict[str, Any] = {"checkpoint": tmp_path, "every_steps": 3, "resume": resume}
        return trainer.fit((X, np.zeros((ROWS, 8))), epochs, 16, verbose=False, **options).epochs

    for epochs, resume in ((1, False), (2, True)):
        ended = pdnn.run(train, epochs, resume, ranks=layout.ranks, backend="threads")
        assert ended == [epochs] * layout.ranks
