"""A step with NaN or infinity in its loss or gradient is undone and told of, left out, or made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.data import Dataset
from pdnn.data.source import source_of
from pdnn.nonfinite import tell_nonfinite
from pdnn.strategies import DataParallel

pytestmark = pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # more threads than cores

INPUTS, CLASSES, ROWS, BATCH, BAD = 6, 3, 40, 5, 27
STEP = BAD // BATCH
RNG = np.random.default_rng(4)
X, Y = RNG.random((ROWS, INPUTS), dtype=np.float32), RNG.integers(0, CLASSES, ROWS)
BROKEN = X.copy()
BROKEN[BAD, 1] = np.nan
RULES: dict[str, Any] = {
    "sgd": lambda parameters: optim.SGD(parameters, lr=0.2, momentum=0.9),
    "adam": lambda parameters: optim.Adam(parameters, lr=0.02),
    "rmsprop": lambda parameters: optim.RMSprop(parameters, lr=0.02),
    "lion": lambda parameters: optim.Lion(parameters, lr=0.02),
}


def trainer_of(strategy: Any, rule: str = "sgd", **arguments: Any) -> pdnn.Trainer:
    layers = (nn.Linear(INPUTS, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, CLASSES))
    if str(strategy).startswith(("pipeline", "tp")):
        layers = (*layers[:1], *layers[2:])
    model = nn.Sequential(*layers, seed=2)
    optimizer = RULES[rule](model.parameters())
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy=strategy, **arguments)


def state(trainer: pdnn.Trainer) -> list[Any]:
    """All that steps change, as copies."""
    model, optimizer = trainer.model, trainer.optimizer.core
    arrays = (model.flat_parameters, model.flat_buffers, *optimizer.state)
    return [*(np.array(array) for array in arrays), optimizer.steps]


def fit(strategy: Any, rule: str, x: Any, y: Any = Y, **arguments: Any) -> tuple[str, list[Any], Any]:
    """What a rank was told, what it has, and the epoch's updates."""
    trainer = trainer_of(strategy, rule, **arguments)
    told = ""
    try:
        trainer.fit(Dataset(x, y), 1, BATCH, shuffle=False, verbose=False)
    except FloatingPointError as error:
        told = str(error)
    return told, state(trainer), trainer.history.updates


def same(one: list[Any], other: list[Any]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("strategy", ["serial", "team:2", "pool:2/3", "hogwild:1"])
def test_the_step_is_undone_and_told(strategy: str, rule: str) -> None:
    told, has, _ = fit(strategy, rule, BROKEN)
    assert told.startswith(
        f"fit: step {STEP} of the training, in epoch 0, counted from 0: the loss is NaN or infinite"
    )
    before = STEP * BATCH
    assert same(has, fit(strategy, rule, X[:before], Y[:before])[1])
    assert np.isfinite(has[0]).all()


def test_a_row_with_such_a_number_is_named() -> None:
    assert f". Row {BAD} of x has nan in column 1: fill it" in fit("serial", "sgd", BROKEN)[0]
    shares = np.eye(CLASSES)[Y]
    shares[3, 2] = np.inf
    assert ". Row 3 of y has inf in column 2: fill it" in fit("serial", "sgd", X, shares)[0]
    part = Dataset(BROKEN, Y)[np.arange(9, ROWS)]
    with pytest.raises(FloatingPointError, match=f"Row {BAD} of x has nan in column 1"):
        trainer_of("serial").fit(part, verbose=False)
    photos, model = BROKEN.reshape(ROWS, 1, 2, 3), nn.Sequential(nn.Flatten(), nn.Linear(INPUTS, CLASSES))
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=1.0))
    with pytest.raises(FloatingPointError, match=rf"Row {BAD} of x has nan in place \(0, 0, 1\)"):
        trainer.fit(photos, Y, verbose=False)
    model = nn.Sequential(nn.Linear(INPUTS, 1), seed=0)
    trainer = pdnn.Trainer(model, nn.MSELoss(), optim.SGD(model.parameters(), lr=1e30))
    with pytest.raises(FloatingPointError, match="Look for such values in the data, lower the learning rate"):
        trainer.fit(X, X[:, 0], batch_size=BATCH, verbose=False)


@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [
        (DataParallel(shared_memory=True), 2),
        (DataParallel(shared_memory=True), 3),
        (DataParallel(shared_memory=False), 2),
        ("ddp:int8", 2),
        ("ddp:topk:0.3", 2),
        ("ddp+pool:2/2", 2),
        ("scatter-gather", 3),
        ("pipeline:2/2", 2),
        ("tp:2", 2),
    ],
    ids=str,
)
@pytest.mark.parametrize("rule", ["sgd", "adam"])
def test_ranks_that_step_together_are_told_alike(strategy: Any, ranks: int, rule: str) -> None:
    before = STEP * BATCH
    broken = pdnn.run(fit, strategy, rule, BROKEN, ranks=ranks, backend="threads")
    plain = pdnn.run(fit, strategy, rule, X[:before], Y[:before], ranks=ranks, backend="threads")
    for (told, has, _), (silent, wanted, _) in zip(broken, plain, strict=True):
        assert told.startswith(
            f"fit: step {STEP} of the training, in epoch 0, counted from 0: the loss is NaN or infinite"
        )
        assert not silent and same(has, wanted)


@pytest.mark.parametrize(
    "strategy", ["average:2", "average:3", "average:1", "elastic-average:2", "average:end"]
)
def test_ranks_that_train_apart_hear_whose_step_it_was(strategy: str) -> None:
    found = pdnn.run(fit, strategy, "adam", BROKEN, ranks=2, backend="threads")
    for told, has, _ in found:
        assert "of rank 1: the loss is NaN or infinite" in told  # rows 25 to 29 are its own
        assert all(np.isfinite(array).all() for array in has)
    assert np.array_equal(found[0][1][0], found[1][1][0])  # the ranks have one model again


@pytest.mark.parametrize("strategy", ["hogwild:2", "hogwild-processes:2"])
def test_hogwild_keeps_its_parameters_finite(strategy: str) -> None:
    ranks = 2 if "processes" in strategy else 1
    for told, has, _ in pdnn.run(fit, strategy, "sgd", BROKEN, ranks=ranks, backend="threads"):
        assert f"step {STEP}" in told and np.isfinite(has[0]).all()


@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [
        ("serial", 1),
        ("pool:2/3", 1),
        (DataParallel(shared_memory=True), 2),
        (DataParallel(shared_memory=False), 2),
        ("ddp:int8", 2),
        ("scatter-gather", 2),
        ("tp:2", 2),
        ("hogwild:1", 1),
    ],
    ids=str,
)
def test_skipping_is_training_without_these_rows(strategy: Any, ranks: int) -> None:
    left = [row for row in range(ROWS) if row // BATCH != STEP]
    skipping = pdnn.run(fit, strategy, "adam", BROKEN, on_nonfinite="skip", ranks=ranks, backend="threads")
    plain = pdnn.run(fit, strategy, "adam", X[left], Y[left], ranks=ranks, backend="threads")
    for (told, has, updates), (_, wanted, _) in zip(skipping, plain, strict=True):
        assert not told and same(has, wanted)
        assert updates[0]["skipped"] == 1 and updates[0]["count"] == ROWS / BATCH - 1


def test_averaging_skips_a_rank_s_own_update() -> None:
    for told, has, updates in pdnn.run(
        fit, "average:2", "adam", BROKEN, on_nonfinite="skip", ranks=2, backend="threads"
    ):
        assert not told and updates[0]["skipped"] == 1
        assert all(np.isfinite(array).all() for array in has)


def test_ignoring_makes_the_update() -> None:
    told, has, updates = fit("serial", "sgd", BROKEN, on_nonfinite="ignore")
    assert not told and np.isnan(has[0]).all() and "skipped" not in updates[0]


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [
        ("serial", 1),
        ("pool:2/2", 1),
        ("hogwild:1", 1),
        (DataParallel(shared_memory=True), 2),
        (DataParallel(shared_memory=False), 2),
        ("ddp:int8", 2),
        ("scatter-gather", 2),
        ("average:2", 2),
        ("pipeline:2", 2),
    ],
    ids=str,
)
def test_a_gradient_overflows_while_the_loss_is_finite(strategy: Any, ranks: int, rule: str) -> None:
    """The gradient of the first weight is x · 2 (y − target) = 1e30 · 1e10."""

    def overflow() -> tuple[str, list[Any], list[Any]]:
        model = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 1), seed=1)
        model.flat_parameters[:] = 0
        dict(model.named_parameters())["1.weight"].data[:] = 1e-3
        trainer = pdnn.Trainer(
            model, nn.MSELoss(), RULES[rule](model.parameters()), strategy=strategy, on_nonfinite="raise"
        )
        x, y = np.full((10, 1), 1.0, np.float32), np.full((10, 1), 1.0, np.float32)
        x[7], y[7] = 1e30, 1e15
        began = state(trainer)
        with pytest.raises(FloatingPointError) as caught:
            trainer.fit(Dataset(x, y), 1, 10, shuffle=False, verbose=False)
        return str(caught.value), began, state(trainer)

    for told, began, ended in pdnn.run(overflow, ranks=ranks, backend="threads"):
        assert "step 0" in told
        if strategy != "ddp:int8":
            assert 'the gradient of "0.weight", or the update made of it, is NaN or infinite' in told
        assert same(ended, began) or (strategy == "average:2" and np.isfinite(ended[0]).all())


@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [
        ("serial", 1),
        ("pool:2/2", 1),
        ("hogwild:1", 1),
        ("hogwild:2", 1),
        (DataParallel(shared_memory=True), 2),
        (DataParallel(shared_memory=False), 2),
        ("scatter-gather", 2),
        ("average:2", 2),
    ],
    ids=str,
)
def test_an_infinite_gradient_of_a_parameter_that_is_not_trained_spoils_nothing(
    strategy: Any, ranks: int
) -> None:
    """The gradient of the weight is x · 2 (y − target) = 1e30 · 2e15; that of the bias is finite."""

    def overflow() -> tuple[Any, Any]:
        model = nn.Sequential(nn.Linear(1, 1), seed=1)
        model.flat_parameters[:] = 0
        weight, bias = model.parameters()
        trainer = pdnn.Trainer(model, nn.MSELoss(), optim.SGD([bias], lr=1e-16), strategy=strategy)
        x, y = np.full((8, 1), 1e30, np.float32), np.full((8, 1), -1e15, np.float32)
        trainer.fit(Dataset(x, y), 1, 4, shuffle=False, verbose=False)
        return weight.data.item(), bias.data.item()

    for weight, bias in pdnn.run(overflow, ranks=ranks, backend="threads"):
        assert weight == 0 and -0.5 < bias < -0.1


def test_many_steps_and_many_bad_ones() -> None:
    """Longer than a window, in which steps are undone together; dropout's masks belong to steps."""
    rows = 3000
    x, y = RNG.random((rows, INPUTS), dtype=np.float32), RNG.integers(0, CLASSES, rows)
    bad = (0, 1, 700, 1501, 2999)
    x[bad, 2] = np.inf
    trainer = trainer_of("serial", "adam", on_nonfinite="skip")
    history = trainer.fit(Dataset(x, y), 1, 2, shuffle=False, verbose=False)
    assert history.updates[0]["skipped"] == 4 and history.updates[0]["count"] == rows / 2 - 4
    left = [row for row in range(rows) if row // 2 not in {row // 2 for row in bad}]
    plain = trainer_of("serial", "adam")
    plain.fit(Dataset(x[left], y[left]), 1, 2, shuffle=False, verbose=False)
    assert same(state(trainer), state(plain))
    assert history.history["loss"] == pytest.approx(plain.history.history["loss"])


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(ValueError, match="on_nonfinite='warn'; expected one of 'raise', 'skip', 'ignore'"):
        trainer_of("serial", on_nonfinite="warn")


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1)])
@pytest.mark.parametrize("strategy", ["serial", "team:2"])
def test_outputs_that_are_nan_are_not_right(strategy: str, loss: nn.Loss) -> None:
    model = nn.Sequential(nn.Linear(INPUTS, CLASSES), seed=2)
    trainer = pdnn.Trainer(model, loss, optim.SGD(model.parameters(), lr=0.1), strategy=strategy)
    whole = trainer.evaluate((X, Y))["accuracy"]
    right = float(np.argmax(model.predict(X[BAD : BAD + 1])) == Y[BAD])
    broken = trainer.evaluate((BROKEN, Y))
    assert np.isnan(broken["loss"])
    assert broken["accuracy"] == pytest.approx(whole - right / ROWS)
    zeros = np.zeros(ROWS, np.int64)
    assert trainer.evaluate((np.full_like(X, np.nan), zeros))["accuracy"] == 0


@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [
        (DataParallel(shared_memory=True), 2),
        (DataParallel(shared_memory=False), 3),
        ("ddp/8", 2),
        ("ddp+pool:2", 2),
        ("ddp:bf16", 2),
        ("scatter-gather", 2),
        ("pipeline:2 x ddp", 4),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # more threads than cores
def test_a_sum_of_losses_that_no_float_holds_is_finite_on_ranks_too(strategy: Any, ranks: int) -> None:
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)

    def job(strategy: Any, y: float) -> tuple[list[float], dict[str, float]]:
        told = "raise" if np.isfinite(y) else "ignore"
        model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1), seed=1)
        sgd = optim.SGD(model.parameters(), lr=1e-25)
        trainer = pdnn.Trainer(model, nn.MSELoss(), sgd, strategy=strategy, on_nonfinite=told)
        target = np.full((20, 1), y, np.float32)
        history = trainer.fit(x, target, batch_size=10, verbose=False)
        return history.history["loss"], history.updates[0]

    for y in (1e19, 3e20, np.inf):
        (want, _), (got, updates) = (
            job("serial", y),
            pdnn.run(job, strategy, y, ranks=ranks, backend="threads")[0],
        )
        assert got == pytest.approx(want, rel=1e-6, nan_ok=True) and updates["count"] == 2


@pytest.mark.parametrize(
    ("strategy", "ranks"), [("serial", 1), ("team:2", 1), ("pool:2/3", 1), ("hogwild:1", 1), ("ddp", 2)]
)
@pytest.mark.parametrize("per", ["epoch", "step"])
@pytest.mark.parametrize("row", [7, 19])
def test_a_step_that_is_undone_does_not_count(strategy: str, ranks: int, per: str, row: int) -> None:
    """Where it ended an epoch, the schedule went on."""

    def job() -> None:
        x = np.random.default_rng(0).standard_normal((20, 4)).astype("float32")
        x[row] = np.nan
        model = nn.Sequential(nn.Linear(4, 3), seed=1)
        sgd = optim.SGD(model.parameters(), lr=0.1)
        schedule = optim.ExponentialLR(sgd, 0.5)
        trainer = pdnn.Trainer(
            model, nn.CrossEntropyLoss(), sgd, strategy=strategy, schedule=schedule, schedule_per=per
        )
        with pytest.raises(FloatingPointError):
            trainer.fit(x, np.zeros(20, int), batch_size=5, shuffle=False, verbose=False)
        steps = row // 5
        assert (trainer.step, trainer.epoch, sgd.core.steps) == (steps, 0, steps)
        assert schedule.last_epoch == (steps if per == "step" else 0)

    pdnn.run(job, ranks=ranks, backend="threads")


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("rule", [lambda own: optim.LBFGS(own, max_iter=2), optim.GaussNewton])
def test_an_optimizer_of_many_evaluations_keeps_the_steps_before(rule: Any, ranks: int) -> None:
    def job() -> None:
        x = np.random.default_rng(0).standard_normal((20, 4))
        x[12] = np.nan
        model = nn.Sequential(nn.Linear(4, 3), dtype="float64", seed=1)
        own = rule(model.parameters())
        trainer = pdnn.Trainer(
            model, nn.CrossEntropyLoss(), own, schedule=optim.ExponentialLR(own, 0.5), schedule_per="step"
        )
        with pytest.raises(FloatingPointError, match="step 2 of the training"):
            trainer.fit(x, np.arange(20) % 3, batch_size=5, shuffle=False, verbose=False)
        assert trainer.schedule is not None
        assert (trainer.step, trainer.epoch, trainer.schedule.last_epoch) == (2, 0, 2)
        assert own.param_groups[0]["lr"] == pytest.approx(0.25)

    pdnn.run(job, ranks=ranks, backend="threads")


@pytest.mark.parametrize(
    ("element", "name"), [(0, "0.weight"), (5, "0.weight"), (6, "0.bias"), (8, "1.weight"), (10, "1.bias")]
)
def test_the_parameter_of_an_element_is_named(element: int, name: str) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1), seed=1)
    trainer = pdnn.Trainer(model, nn.MSELoss(), optim.SGD(model.parameters(), lr=0.1), strategy="serial")
    source = source_of("train", Dataset(np.zeros((4, 3)), np.zeros((4, 1))), model, trainer.loss, None)
    assert f'the gradient of "{name}", or' in tell_nonfinite(trainer, source, 1, 0, element, -1)
    assert "counted from 0 of rank 0: the gradient" in tell_nonfinite(trainer, source, 2, 0, element, 0)


def test_an_epoch_without_a_step_has_no_loss() -> None:
    model = nn.Sequential(nn.Linear(3, 2), seed=1)
    sgd = optim.SGD(model.parameters(), lr=0.1)
    trainer = pdnn.Trainer(model, nn.MSELoss(), sgd, strategy="serial", on_nonfinite="skip")
    history = trainer.fit(np.full((4, 3), np.inf), np.zeros((4, 2)), 1, 2, verbose=False)
    assert np.isnan(history.history["loss"]).all() and history.updates[0]["skipped"] == 2
