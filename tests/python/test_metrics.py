"""Metrics beside the loss: their values, over ranks and strategies, where they appear, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import metrics, models, nn, optim
from pdnn.comm import run_threads
from pdnn.data import Dataset
from pdnn.history import History

RNG = np.random.default_rng(0)
X = RNG.normal(size=(61, 4))
Y = np.tanh(X @ RNG.normal(size=(4, 2))) + np.array([3.0, 0.0])
LABELS = RNG.integers(0, 7, 61)


def trainer(loss: nn.Loss, outputs: int, strategy: str = "serial", **options: object) -> pdnn.Trainer:
    model = models.mlp([4, 6, outputs], "tanh", dtype="float64", seed=1)
    adam = optim.Adam(model.parameters(), lr=0.01)
    return pdnn.Trainer(model, loss, adam, strategy=strategy, **options)  # type: ignore[arg-type]


def test_metrics_are_over_all_rows_and_as_defined() -> None:
    made = trainer(nn.MSELoss(), 2)
    p = made.predict(X)
    got = made.evaluate(X, Y, metrics=["r2", "mae", "mse", "rmse"])
    assert got["mae"] == pytest.approx(np.abs(Y - p).mean(), rel=1e-12)
    assert got["mse"] == pytest.approx(((Y - p) ** 2).mean(), rel=1e-12)
    assert got["rmse"] == pytest.approx(got["mse"] ** 0.5, rel=1e-12)
    each = 1 - ((Y - p) ** 2).sum(axis=0) / ((Y - Y.mean(axis=0)) ** 2).sum(axis=0)
    assert got["r2"] == pytest.approx(each.mean(), rel=1e-12)
    assert list(made.evaluate(X, Y)) == ["loss"]


def test_metrics_are_of_the_outputs_that_the_loss_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row went through the network twice."""
    made = trainer(nn.MSELoss(), 2)
    want = made.evaluate(X, Y, metrics=["mae"])
    monkeypatch.delattr(pdnn._core.float64.Evaluator, "predict")
    assert made.evaluate(X, Y, metrics=["mae"]) == want
    with pytest.raises(AttributeError):
        made.predict(X)


def test_metrics_of_classes() -> None:
    made = trainer(nn.CrossEntropyLoss(), 7, metrics=["top3", "accuracy", "top1"])
    p = made.predict(X)
    got = made.evaluate(X, LABELS)
    assert list(got) == ["loss", "accuracy", "top3", "top1"]
    assert got["top1"] == got["accuracy"] == (p.argmax(axis=1) == LABELS).mean()
    best = np.argsort(-p, axis=1)[:, :3]
    assert got["top3"] == (best == LABELS[:, np.newaxis]).any(axis=1).mean()
    binary = trainer(nn.BCEWithLogitsLoss(), 1)
    values, labels = (LABELS % 2).astype(float), LABELS % 2
    by_values = binary.evaluate(X, values, metrics=["accuracy"])
    assert by_values["accuracy"] == binary.evaluate(X, labels)["accuracy"]


def test_accuracy_is_of_one_label_a_row() -> None:
    made, one_hot = trainer(nn.MSELoss(), 7, metrics=["accuracy"]), np.eye(7)[LABELS]
    right = (made.predict(X).argmax(axis=1) == LABELS).mean()
    rounded = np.float32((9 * one_hot + np.arange(7)) / 30)
    for y in (one_hot, 2 * one_hot - 1, 0.9 * one_hot + 0.1 / 7, rounded):
        assert made.evaluate(X, y)["accuracy"] == right
    several, numbers = one_hot.copy(), np.repeat(Y, [6, 1], axis=1)
    several[3] = 1
    for y, row in ((several, "row 3 "), (numbers, "row 0 ")):
        with pytest.raises(ValueError, match=row + r"of y, \[.*\], has neither one label nor probabilities"):
            made.evaluate(X, y)


def test_what_is_not_a_number_is_never_right() -> None:
    y, p = np.array([0, 1]), np.array([[np.nan, 0, 0], [np.nan, 1, 0]])
    assert metrics.top_k(y, p, k=2) == 0.5
    assert metrics.accuracy(y, p) == 0
    assert metrics.accuracy(y, p[:, :1]) == 0
    assert np.isnan(metrics.r2(np.array([[0.0], [1.0]]), np.array([[np.nan], [0.0]])))


@pytest.mark.parametrize(("loss", "threshold"), [(nn.BCEWithLogitsLoss(), 0.0), (nn.MSELoss(), 0.5)])
def test_an_output_at_the_threshold_is_of_class_0(loss: nn.Loss, threshold: float) -> None:
    made = trainer(loss, 1, metrics=["accuracy"])
    made.model.flat_parameters[...] = 0
    made.model.flat_parameters[-1] = threshold  # the last bias
    assert made.evaluate(X, np.zeros(61))["accuracy"] == 1
    assert not made.predict_classes(X).any()


def test_squares_of_float32_are_float64() -> None:
    y, p = np.array([[0.0], [1e20]], np.float32), np.zeros((2, 1), np.float32)
    assert metrics.mse(y, p) == pytest.approx(5e39, rel=1e-6)
    assert metrics.r2(y, p) == pytest.approx(-1, rel=1e-6)


@pytest.mark.parametrize("outputs", [1, 3])
def test_what_is_not_a_number_has_no_class(outputs: int) -> None:
    made = trainer(nn.BCEWithLogitsLoss(), outputs)
    rows = X[:5].copy()
    assert len(made.predict_classes(rows)) == 5
    rows[2, 1] = np.nan
    with pytest.raises(ValueError, match="predict_classes: row 2 has outputs that are NaN, and so no class"):
        made.predict_classes(rows)


def test_r2_of_equal_targets_is_that_of_scikit_learn() -> None:
    y = np.array([[1.0, 1.0], [1.0, 2.0]])
    assert metrics.r2(y, y) == 1
    assert metrics.r2(y, y + 1) == np.mean([0, 1 - 2 / 0.5])


def test_r2_of_equal_targets_does_not_depend_on_the_rounding_of_their_mean() -> None:
    y = np.full((3, 1), 0.1)
    assert y.mean() != 0.1
    assert (metrics.r2(y, y), metrics.r2(y, y + 1)) == (1, 0)
    other, weight = np.append(y, [[9]], axis=0), np.array([0.6, 0.7, 0.9, 0])
    assert (metrics.r2(other, other, weight), metrics.r2(other, other + 1, weight)) == (1, 0)


def test_r2_of_rows_without_weight_is_0() -> None:
    assert metrics.r2(Y, Y + 1, np.zeros(len(Y))) == 0
    assert trainer(nn.MSELoss(), 2).evaluate(Dataset(X, Y, weight=np.zeros(61)), metrics=["r2"])["r2"] == 0


def test_a_function_may_change_what_it_gets() -> None:
    def bad(y: metrics.Array, prediction: metrics.Array) -> float:
        y[:], prediction[:] = 0, 0
        return 0.0

    y, prediction = np.array([[1.0], [2.0]]), np.array([[1.0], [4.0]])
    values = metrics.measure(metrics.named([bad, "mae"]), y, prediction)
    assert values == {"bad": 0.0, "mae": 1.0}
    assert y.sum() == 3


def test_rows_count_their_weights_as_if_they_came_so_often() -> None:
    weight = RNG.integers(0, 4, 61)
    often = np.repeat(np.arange(61), weight)
    for loss, y, names in (
        (nn.MSELoss(), Y, ["r2", "mae", "mse", "rmse"]),
        (nn.CrossEntropyLoss(), LABELS, ["accuracy", "top3"]),
        (nn.MSELoss(), np.eye(7)[LABELS], ["accuracy"]),
    ):
        made = trainer(loss, 2 if y is Y else 7, metrics=names)
        got = made.evaluate(Dataset(X, y, weight=weight))
        for name, value in made.evaluate(X[often], y[often]).items():
            assert got[name] == pytest.approx(value, rel=1e-12), name
            assert value != made.evaluate(X, y)[name]
        values = np.array(y, float)
        values[weight == 0] = np.nan
        if y is not LABELS:  # labels that are none, of rows that count 0
            assert made.evaluate(Dataset(X, values, weight=weight)) == got
    nothing = trainer(nn.MSELoss(), 2).evaluate(Dataset(X, Y, weight=np.zeros(61)), metrics=["mae", spread])
    assert nothing["mae"] == 0 and nothing["spread"] > 61


def spread(y: np.ndarray, prediction: np.ndarray) -> float:
    """No mean of means: depends on all rows at once."""
    return np.median(np.abs(y - prediction)) + len(y)


@pytest.mark.parametrize("strategy", ["ddp", "average:3", "tp:3", "pipeline:3"])
def test_ranks_measure_all_rows_together(strategy: str) -> None:
    def fit() -> tuple[History, dict[str, float]]:
        made = trainer(nn.MSELoss(), 2, strategy, metrics=["r2", spread])
        made.fit(X, Y, 2, 20, validation=(X[:50], Y[:50]), verbose=False)
        return made.history, made.evaluate(X[:50], Y[:50])

    for history, alone in run_threads(fit, 3):
        assert history.history["val_r2"][-1] == pytest.approx(alone["r2"], rel=1e-9)
        assert history.history["val_spread"][-1] == pytest.approx(alone["spread"], rel=1e-9)
        assert alone["spread"] > 50


def test_fewer_rows_than_ranks_and_other_metrics_on_them() -> None:
    data = Dataset(X[:2], Y[:2], weight=[1, 3])

    def evaluate() -> tuple[float, float]:
        made = trainer(nn.MSELoss(), 2, comm=pdnn.comm.SELF)
        got = made.evaluate(data, metrics={"m": spread, "e": metrics.mae}, comm=pdnn.world())
        return got["m"], got["e"]

    values = run_threads(evaluate, 3)
    alone = trainer(nn.MSELoss(), 2).evaluate(data, metrics=["mae"])["mae"]
    assert values == [values[0]] * 3 and values[0][0] > 2 and values[0][1] == pytest.approx(alone)


def test_ranks_that_evaluate_other_data_are_told() -> None:
    def evaluate(change: float, rows: int) -> None:
        made, rank = trainer(nn.MSELoss(), 2, comm=pdnn.comm.SELF), pdnn.world().rank
        made.evaluate(X[: 50 + rows * rank] + change * rank, Y[: 50 + rows * rank], comm=pdnn.world())

    with pytest.raises(ValueError, match="evaluate: rank 1 has rows 57, rank 0 has 50; all ranks must pass"):
        run_threads(lambda: evaluate(0, 7), 2)
    with pytest.raises(ValueError, match="evaluate: rank 1 has data with the digest"):
        run_threads(lambda: evaluate(1, 0), 2)
    run_threads(lambda: evaluate(0, 0), 2)


def test_ranks_with_other_metrics_are_told() -> None:
    def fit() -> None:
        made = trainer(nn.MSELoss(), 2, "ddp", metrics=["r2", "mae"][: 1 + pdnn.world().rank])
        made.fit(X, Y, 1, verbose=False)

    with pytest.raises(ValueError, match="metrics"):
        run_threads(fit, 2)


def test_a_name_is_drawn_as_it_is(tmp_path: Path) -> None:
    made = trainer(nn.MSELoss(), 2, metrics={r"$\frac{$": spread, "$a$": spread})
    figure = made.fit(X, Y, 1, validation=(X, Y), verbose=False).plot(tmp_path / "history.png")
    assert [axes.get_ylabel() for axes in figure.axes[1:]] == [r"$\frac{$", "$a$"]


def test_metrics_are_shown_and_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    made = trainer(nn.MSELoss(), 2, metrics=["r2", spread])
    history = made.fit(X, Y, 1, validation=(X, Y))
    assert "val_r2 " in (out := capsys.readouterr().out) and "val_spread " in out
    titles = [axes.get_ylabel() for axes in history.plot().axes]
    assert titles == ["loss", "r2", "spread"]


def test_a_function_is_named_beside_others() -> None:
    made = trainer(nn.MSELoss(), 2, metrics=["mae", {"worst": lambda y, p: abs(y - p).max()}, spread])
    assert list(made.evaluate(X, Y)) == ["loss", "mae", "worst", "spread"]


@pytest.mark.parametrize(
    ("wrong", "error", "words"),
    [
        ("r2", TypeError, r"pass \['r2'\]"),
        (spread, TypeError, r"metrics is of type function, expected a list; pass \[spread\]"),
        (["r3"], ValueError, "'r3' names no metric; expected accuracy, mae"),
        (["top0"], ValueError, "names no metric"),
        ([lambda y, p: 0.0], ValueError, "no name; pass"),
        ([3], TypeError, "metrics: got 3; expected accuracy, .*, or a function"),
        ({1: spread}, TypeError, "the name 1 is of type int, expected a str"),
        ({"mine": 3}, TypeError, "'mine' is of type int, expected a function"),
        ({"loss": spread}, ValueError, "every history has"),
        (["r2", {"mine": 3}], TypeError, "'mine' is of type int, expected a function"),
        ([spread, {"spread": metrics.mae}], ValueError, 'two are named "spread"; pass {"another name": '),
    ],
)
def test_wrong_metrics_are_refused(wrong: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        trainer(nn.MSELoss(), 2, metrics=wrong)


def test_metrics_that_do_not_fit_say_so() -> None:
    classifier = trainer(nn.CrossEntropyLoss(), 7)
    with pytest.raises(ValueError, match="r2 compares numbers, and here are labels"):
        classifier.evaluate(X, LABELS, metrics=["r2"])
    with pytest.raises(ValueError, match="top9 of a model with 7 outputs"):
        classifier.evaluate(X, LABELS, metrics=["top9"])
    with pytest.raises(TypeError, match=r'"each" returned an array of shape \(61,\)'):
        classifier.evaluate(X, LABELS, metrics={"each": lambda y, p: y})
    for value in (None, "much"):
        with pytest.raises(TypeError, match=f'"wrong" returned {value!r}, expected a number'):
            classifier.evaluate(X, LABELS, metrics={"wrong": lambda y, p, value=value: value})
    with pytest.raises(ValueError, match=r"top1 compares the outputs of classes, and .* one output"):
        trainer(nn.BCEWithLogitsLoss(), 1).evaluate(X, LABELS % 2, metrics=["top1"])
    single = trainer(nn.MSELoss(), 1)
    with pytest.raises(ValueError, match="numbers beside 0 and 1"):
        single.evaluate(X, Y[:, 0], metrics=["accuracy"])


def test_a_name_does_not_replace_a_function() -> None:
    with pytest.raises(ValueError, match='two are named "mae"'):
        metrics.named([{"mae": lambda y, prediction: 1.0}, "mae"])
    assert list(metrics.named(["mae", "top5", "mae", metrics.mae, "top5"])) == ["mae", "top5"]


@pytest.mark.parametrize(
    ("loss", "mean"),
    [
        (nn.PoissonNLLLoss(), np.exp),
        (nn.PoissonNLLLoss(log_input=False), lambda outputs: outputs),
        (nn.BCEWithLogitsLoss(), lambda outputs: 1 / (1 + np.exp(-outputs))),
        (nn.CrossEntropyLoss(), lambda outputs: np.exp(outputs) / np.exp(outputs).sum(axis=1, keepdims=True)),
        (nn.MSELoss(), lambda outputs: outputs),
    ],
)
def test_numbers_are_compared_with_what_targets_are_expected_to_be(
    loss: nn.Loss, mean: Callable[[Any], Any]
) -> None:
    """Not with their logarithms or logits."""
    rng = np.random.default_rng(3)
    x, y = rng.standard_normal((40, 4)), rng.random((40, 3)) + 0.1
    y /= y.sum(axis=1, keepdims=True)
    model = pdnn.models.mlp([4, 3], dtype="float64", seed=1)
    trainer = pdnn.Trainer(model, loss, optim.SGD(model.parameters(), lr=0.1), strategy="serial")
    predicted = mean(model.predict(x))
    found = trainer.evaluate((x, y), metrics=["mse", "mae", {"raw": lambda y, outputs: outputs.sum()}])
    assert found["mse"] == pytest.approx(((predicted - y) ** 2).mean(), rel=1e-12)
    assert found["mae"] == pytest.approx(np.abs(predicted - y).mean(), rel=1e-12)
    assert found["raw"] == pytest.approx(model.predict(x).sum())


def test_rates_of_outputs_that_are_far_too_large_are_infinite() -> None:
    y, outputs = np.ones((2, 1)), np.array([[1e4], [0.0]])
    found = metrics.measure({"mae": metrics.mae}, y, outputs, expected=nn.PoissonNLLLoss().expected)
    assert found["mae"] == np.inf  # warnings are errors
