"""Weights of rows: one of weight 2 is that row twice, one of weight 0 is not there, under every strategy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim
from pdnn.checkpoint.content import Content
from pdnn.checkpoint.folder import FILE
from pdnn.comm import run_threads
from pdnn.data import DataLoader, Dataset, Subset, train_test_split
from pdnn.strategies import DataParallel, Strategy

pytestmark = pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # more threads than cores

RNG = np.random.default_rng(5)
ROWS = 13
X, Y = RNG.standard_normal((ROWS, 6)), RNG.integers(0, 3, ROWS)
WEIGHT = np.array([2, 0, 1, 3, 1, 0, 0, 2, 1, 1, 4, 0, 2])

LOSSES = [nn.CrossEntropyLoss(), nn.MSELoss("batchmean"), nn.BCEWithLogitsLoss("sum")]
#: Those whose update is that of the whole batch, and on how many ranks.
ALIKE: list[tuple[str | Strategy, int]] = [
    ("serial", 1),
    ("serial/8", 1),
    ("team:2", 1),
    ("pool:2/3", 1),
    ("pool:2/8", 1),
    ("hogwild:1", 1),
    ("ddp", 2),
    ("ddp/8", 3),
    ("ddp+pool:2/8", 2),
    (DataParallel(shared_memory=True), 3),
    (DataParallel(shared_memory=False), 3),
    ("scatter-gather", 3),
    ("tp:2", 2),
    ("pipeline:2/3", 2),
    ("pipeline:3/8:gpipe", 3),
    ("pipeline:2/2 x ddp", 4),
    ("pipeline:2 x ddp/8", 4),
]
#: Also those, if every step takes all rows and the loss is a mean.
WITH_ALL_ROWS: list[tuple[str | Strategy, int]] = [("scatter-gather:once", 2), ("average:1", 3)]
#: Those whose ranks or workers have batches of their own.
OTHERS: list[tuple[str | Strategy, int]] = [
    ("ddp:sum", 2),
    ("ddp:fp16", 2),
    ("average:1", 2),
    ("average:2", 3),
    ("average:end:fp16", 2),
    ("elastic-average:1", 3),
    ("hogwild:2", 1),
]


def fit(
    data: Dataset,
    strategy: str | Strategy = "serial",
    ranks: int = 1,
    loss: nn.Loss | None = None,
    epochs: int = 3,
    dtype: str = "float64",
    adam: bool = False,
    **options: Any,
) -> pdnn.Trainer:
    """A trainer after some epochs, by default of one batch each; that of the last rank."""
    criterion = nn.CrossEntropyLoss() if loss is None else loss

    def job() -> pdnn.Trainer:
        model = models.mlp([6, 8, 5, 3], "tanh", dtype=dtype, seed=3)
        sgd: Any = optim.Adam(model.parameters()) if adam else optim.SGD(model.parameters(), lr=0.5)
        trainer = pdnn.Trainer(model, criterion, sgd, strategy=strategy)
        settings = {"batch_size": len(data), "shuffle": False, "verbose": False} | options
        trainer.fit(data, epochs=epochs, **settings)
        return trainer

    return run_threads(job, ranks)[-1]


def same(got: pdnn.Trainer, want: pdnn.Trainer, tolerance: float = 1e-12) -> None:
    a, b = got.model.flat_parameters, want.model.flat_parameters
    assert np.abs(a - b).max() <= tolerance * np.abs(b).max()
    for name in ("loss", "accuracy"):
        if name in want.history.history:
            np.testing.assert_allclose(
                got.history.history[name], want.history.history[name], rtol=max(tolerance, 1e-12)
            )


@pytest.mark.parametrize(
    ("strategy", "ranks", "loss"),
    [
        (*each, loss)
        for loss in LOSSES
        for each in ALIKE + WITH_ALL_ROWS
        if (each[0], loss.reduction) != ("average:1", "sum")  # the loss is no mean
    ],
)
def test_a_weight_is_a_number_of_rows(strategy: str | Strategy, ranks: int, loss: nn.Loss) -> None:
    y = Y if loss.takes_classes else np.eye(3)[Y]
    want = fit(Dataset(np.repeat(X, WEIGHT, 0), np.repeat(y, WEIGHT, 0)), loss=loss)
    weighted = Dataset(X, y, weight=WEIGHT)
    got = fit(weighted, strategy, ranks, loss)
    same(got, want)
    assert got.history.updates[0]["count"] == (ranks if strategy == "average:1" else 1)
    value = want.evaluate((np.repeat(X, WEIGHT, 0), np.repeat(y, WEIGHT, 0)))
    for name, number in got.evaluate(weighted).items():
        assert number == pytest.approx(value[name], rel=1e-12)


SIZES = [1e-40, 1e-38, 1e30, 1e36, 1e38, 1e39]  # the least and the largest are no float32


@pytest.mark.parametrize("loss", [*LOSSES[:2], nn.CrossEntropyLoss(label_smoothing=0.1)], ids=repr)
@pytest.mark.parametrize("size", SIZES)
def test_equal_weights_of_any_size_are_those_of_1(loss: nn.Loss, size: float) -> None:
    x, y = X.astype(np.float32), Y if loss.takes_classes else np.eye(3)[Y]
    want, got = (
        fit(Dataset(x, y, weight=weight), loss=loss, dtype="float32").history.history["loss"]
        for weight in (np.ones(ROWS), np.full(ROWS, size))
    )
    assert got == pytest.approx(want, rel=1e-5)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("of_rows", [None, 1.0, 1e-38, 1e38])
@pytest.mark.parametrize("size", SIZES)
def test_equal_weights_of_classes_of_any_size_are_those_of_1(
    smoothing: float, of_rows: float | None, size: float
) -> None:
    data = Dataset(X.astype(np.float32), Y, weight=None if of_rows is None else np.full(ROWS, of_rows))
    want, got = (
        fit(data, loss=nn.CrossEntropyLoss(label_smoothing=smoothing, weight=weight), dtype="float32")
        for weight in ([1.0] * 3, [size] * 3)
    )
    assert got.history.history["loss"] == pytest.approx(want.history.history["loss"], rel=1e-5)


@pytest.mark.parametrize(("strategy", "ranks"), ALIKE + OTHERS)
def test_weights_of_1_change_no_bit(strategy: str | Strategy, ranks: int) -> None:
    if strategy == "hogwild:2":
        pytest.skip("whose bits depend on time")
    settings = {"batch_size": 5, "shuffle": True, "adam": True}
    want = fit(Dataset(X, Y), strategy, ranks, **settings)
    got = fit(Dataset(X, Y, weight=np.ones(ROWS)), strategy, ranks, **settings)
    np.testing.assert_array_equal(got.model.flat_parameters, want.model.flat_parameters)
    assert got.history.history["loss"] == want.history.history["loss"]


@pytest.mark.parametrize(("strategy", "ranks"), ALIKE + OTHERS)
@pytest.mark.parametrize("on_nonfinite", ["raise", "ignore"])
def test_weights_of_0_make_no_update(strategy: str | Strategy, ranks: int, on_nonfinite: str) -> None:
    def job() -> pdnn.Trainer:
        model = models.mlp([6, 4, 4, 3], seed=3)
        before = model.flat_parameters.copy()
        rule = optim.Adam(model.parameters(), weight_decay=0.1)
        trainer = pdnn.Trainer(
            model, nn.CrossEntropyLoss(), rule, strategy=strategy, on_nonfinite=on_nonfinite
        )
        none = Dataset(X, Y, weight=np.zeros(ROWS))
        trainer.fit(none, epochs=2, batch_size=5, validation=none, verbose=False)
        np.testing.assert_array_equal(model.flat_parameters, before)
        assert rule.core.steps == 0
        return trainer

    for trainer in run_threads(job, ranks):
        assert trainer.epoch == 2 and trainer.step > 0
        for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
            assert trainer.history.history[name] == [0, 0]
        assert [each["count"] for each in trainer.history.updates] == [0, 0]


@pytest.mark.parametrize(("strategy", "ranks"), [each for each in ALIKE + OTHERS if each[0] != "hogwild:2"])
def test_the_gradient_of_a_last_batch_without_weight_is_0(strategy: str | Strategy, ranks: int) -> None:
    x, y, weight = RNG.standard_normal((36, 6)), RNG.integers(0, 3, 36), np.repeat([1.0, 1, 0], 12)

    def job() -> None:
        model = models.mlp([6, 4, 4, 3], seed=3)
        sgd = optim.SGD(model.parameters(), lr=0.1)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
        for weights in (np.ones(36), weight):
            trainer.fit(Dataset(x, y, weight=weights), batch_size=4, shuffle=False, verbose=False)
            assert model.flat_gradients.any() == (weights[-1] > 0)

    run_threads(job, ranks)


@pytest.mark.parametrize("kind", ["LBFGS", "LevenbergMarquardt", "GaussNewton", "NaturalGradient"])
def test_weights_of_0_make_no_update_by_several_evaluations(kind: str) -> None:
    model = models.mlp([6, 4, 3], "tanh", dtype="float64", seed=3)
    before = model.flat_parameters.copy()
    rule = getattr(optim, kind)(model.parameters(), weight_decay=0.1)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), rule, strategy="serial")
    history = trainer.fit(Dataset(X, Y, weight=np.zeros(ROWS)), epochs=2, batch_size=5, verbose=False)
    if kind != "LBFGS":
        assert model.step(X, Y, nn.CrossEntropyLoss(), rule, weight=np.zeros(ROWS)) == 0
    np.testing.assert_array_equal(model.flat_parameters, before)
    assert rule.core.steps == 0 and trainer.step == 6
    assert history.history["loss"] == [0, 0] and [each["count"] for each in history.updates] == [0, 0]


def test_a_step_without_weight_leaves_running_statistics() -> None:
    model = nn.Sequential(nn.BatchNorm1d(6, sync=True), nn.Linear(6, 3), dtype="float64", seed=1)
    before = model.flat_buffers.copy()
    rule = optim.SGD(model.parameters(), lr=0.1)
    assert model.step(X, Y, nn.CrossEntropyLoss(), rule, weight=np.zeros(ROWS)) == 0
    np.testing.assert_array_equal(model.flat_buffers, before)


@pytest.mark.parametrize(("strategy", "ranks"), ALIKE)
def test_a_batch_without_weight_is_not_there(strategy: str | Strategy, ranks: int) -> None:
    weight = np.repeat([1.0, 0, 0.3, 0, 2], 4)
    x, y = RNG.standard_normal((20, 6)), RNG.integers(0, 3, 20)
    some = weight > 0
    want = fit(Dataset(x[some], y[some], weight=weight[some]), epochs=2, batch_size=4, adam=True)
    got = fit(Dataset(x, y, weight=weight), strategy, ranks, epochs=2, batch_size=4, adam=True)
    same(got, want, 1e-10)  # Adam divides by roots of tiny squares
    assert got.step == 10 and got.history.updates[0]["count"] == 3


@pytest.mark.parametrize(("strategy", "ranks"), ALIKE)
def test_mini_batches_divide_by_the_weight_of_all_ranks(strategy: str | Strategy, ranks: int) -> None:
    data = Dataset(X, Y, weight=RNG.exponential(size=ROWS))
    same(fit(data, strategy, ranks, batch_size=5), fit(data, batch_size=5))


def test_a_sum_of_means_divides_by_the_weight_of_each_rank() -> None:
    weight = RNG.exponential(size=ROWS)
    model = models.mlp([6, 8, 5, 3], "tanh", dtype="float64", seed=3)
    parts = [slice(0, 7), slice(7, ROWS)]
    loss = nn.CrossEntropyLoss()
    gradients = [model.gradient(X[part], Y[part], loss, weight=weight[part])[1] for part in parts]
    got = fit(Dataset(X, Y, weight=weight), "ddp:sum", 2, epochs=1).model.flat_parameters
    np.testing.assert_allclose(got, model.flat_parameters - 0.5 * sum(gradients), atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_every_way_to_a_step_takes_weights(dtype: str) -> None:
    width = "float64" if dtype == "float64" else "float32"
    x, weight, loss = X.astype(width), RNG.exponential(size=ROWS), nn.CrossEntropyLoss()
    want = fit(Dataset(x, Y, weight=weight), epochs=1, dtype=dtype)
    for y in (Y, Y.astype(np.uint8)):  # read in place, and converted
        model = models.mlp([6, 8, 5, 3], "tanh", dtype=dtype, seed=3)
        rule = optim.SGD(model.parameters(), lr=0.5)
        value, gradient = model.gradient(x, y, loss, weight=weight)
        by_hand = loss(model(x), y, weight=weight)
        by_hand.backward()
        np.testing.assert_allclose(model.flat_gradients, gradient, rtol=1e-5, atol=1e-7)
        for again in range(2):
            expected = loss(nn.Sequential.predict(model, x), y, weight).item()
            assert model.step(x, y, loss, rule, weight=weight) == pytest.approx(expected, rel=1e-6)
            if again == 0:
                np.testing.assert_array_equal(model.flat_parameters, want.model.flat_parameters)
                assert by_hand.item() == pytest.approx(value, rel=1e-6)
        before = model.flat_parameters.copy()
        assert model.step(x, y, loss, rule, weight=np.zeros(ROWS)) == 0
        np.testing.assert_array_equal(model.flat_parameters, before)
        assert not model.flat_gradients.any()


def test_ranks_by_hand_weigh_their_gradients_by_the_weights_of_their_rows() -> None:
    weight = RNG.exponential(size=ROWS)

    def job() -> Any:
        model = models.mlp([6, 8, 5, 3], "tanh", dtype="float64", seed=3)
        rule = pdnn.ddp.DistributedOptimizer(optim.SGD(model.parameters(), lr=0.5))
        mine = slice(0, 4) if pdnn.world().rank == 0 else slice(4, ROWS)
        rule.zero_grad()
        nn.CrossEntropyLoss()(model(X[mine]), Y[mine], weight[mine]).backward()
        rule.step()
        return model.flat_parameters

    want = fit(Dataset(X, Y, weight=weight), epochs=1).model.flat_parameters
    for got in run_threads(job, 2):
        np.testing.assert_allclose(got, want, atol=1e-14)


def test_training_goes_on_in_an_epoch_with_weights(tmp_path: Path) -> None:
    data = Dataset(X, Y, weight=RNG.exponential(size=ROWS))
    for strategy in ("average:end", "ddp"):
        settings: dict[str, Any] = {"batch_size": 4, "shuffle": True}
        folder = tmp_path / strategy.replace(":", "-")
        often: dict[str, Any] = {"every": 9, "every_steps": 3, "keep": 2}
        want = fit(data, strategy, 2, epochs=2, checkpoint=folder, **often, **settings)
        (folder / "checkpoint.1.safetensors").replace(folder / FILE)  # the one within the second epoch
        assert Content.read(folder / FILE).state["position"] is not None
        got = fit(data, strategy, 2, epochs=2, checkpoint=folder, resume=True, **settings)
        np.testing.assert_array_equal(got.model.flat_parameters, want.model.flat_parameters)
        assert got.history.history["loss"] == want.history.history["loss"]


# ---- data sets


@pytest.mark.parametrize(
    ("weight", "error", "words"),
    [
        (np.ones(ROWS - 1), ValueError, r"Dataset: weight has shape \(12,\), expected \(13,\)"),
        (np.ones((ROWS, 1)), ValueError, r"weight has shape \(13, 1\)"),
        (1.0, ValueError, r"weight has shape \(\)"),
        (-np.eye(ROWS)[3], ValueError, "weight -1.0 of row 3; expected finite numbers, 0 or more"),
        (np.where(np.arange(ROWS) == 2, np.nan, 1), ValueError, "weight nan of row 2"),
        (np.where(np.arange(ROWS) == 2, np.inf, 1), ValueError, "weight inf of row 2"),
        (["a"] * ROWS, TypeError, "weight has dtype <U1"),
    ],
)
def test_weights_that_are_none_are_refused(weight: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        Dataset(X, Y, weight=weight)


def test_parts_of_a_data_set_keep_its_weights() -> None:
    data = Dataset(X, Y, weight=WEIGHT)
    assert repr(data) == "Dataset(13 samples of 6, float64, labels int64, weighted)"
    assert data.weight is not None and data.weight.dtype == np.float64
    assert data[3][2] == 3 and len(Dataset(X, Y)[3]) == 2
    np.testing.assert_array_equal(data[4:9].weight, WEIGHT[4:9])
    rows = np.array([5, 0, 0, -1])
    part = Subset(data, rows)
    np.testing.assert_array_equal(part.weight, WEIGHT[rows])
    np.testing.assert_array_equal(part[1:3].weight, WEIGHT[[0, 0]])
    assert Subset(Dataset(X, Y), rows).weight is None
    for half in train_test_split(data, 0.4):
        np.testing.assert_array_equal(half.weight, WEIGHT[half.indices])
    same(fit(part, batch_size=4), fit(Dataset(X[rows], Y[rows], weight=WEIGHT[rows]), batch_size=4))


def test_a_loader_hands_out_weights() -> None:
    seen = 0
    for x, y, weight in DataLoader(Dataset(X, Y, weight=WEIGHT), 4, shuffle=True, dtype="float64"):
        for row in range(len(x)):
            (number,) = np.flatnonzero((x[row] == X).all(axis=1))
            assert (y[row], weight[row]) == (Y[number], WEIGHT[number])
            seen += 1
    assert seen == ROWS
    assert all(len(batch) == 2 for batch in DataLoader(Dataset(X, Y), 4))


def test_ranks_of_which_one_has_no_weights_are_told() -> None:
    def job() -> None:
        weight = np.ones(ROWS) if pdnn.world().rank == 0 else None
        model = models.mlp([6, 3], seed=1)
        sgd = optim.SGD(model.parameters(), lr=0.1)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="ddp")
        trainer.fit(Dataset(X, Y, weight=weight), verbose=False)

    with pytest.raises(ValueError, match="row weights"):
        run_threads(job, 2)


@pytest.mark.parametrize("size", SIZES)
def test_an_evaluation_takes_weights_of_classes_of_any_size(size: float) -> None:
    data = Dataset(X.astype(np.float32), Y)
    want, got = (
        fit(
            data,
            loss=nn.CrossEntropyLoss(label_smoothing=0.1, weight=weight),
            dtype="float32",
            validation=data,
        ).history.history["val_loss"]
        for weight in ([1.0] * 3, [size] * 3)
    )
    assert got == pytest.approx(want, rel=1e-5)
