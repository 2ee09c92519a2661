"""Second-order optimizers: steps from formulas, in a Trainer, on ranks, resumed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim
from pdnn.callbacks import Callback
from pdnn.comm import run_threads
from pdnn.data import BlockStream, Dataset, PadCropFlip, Stream
from pdnn.optim import batch_loss

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4))
VALUES = np.sin(X @ RNG.normal(size=(4, 2))) + 0.1 * RNG.normal(size=(60, 2))
CLASSES = RNG.integers(0, 2, 60)
Array = Any

EACH = [optim.LevenbergMarquardt, optim.GaussNewton, optim.NaturalGradient]


def network(dtype: str = "float64") -> nn.Sequential:
    return models.mlp([4, 8, 5, 2], "tanh", dtype=dtype, seed=1)


def trainer(kind: Any, strategy: str = "serial", dtype: str = "float64", **options: Any) -> pdnn.Trainer:
    model = network(dtype)
    return pdnn.Trainer(model, nn.MSELoss(), kind(model.parameters(), **options), strategy=strategy)


def losses(own: pdnn.Trainer, epochs: int = 5, batch_size: int = 60, **options: Any) -> list[float]:
    dtype = np.dtype(own.model.dtype)
    return own.fit(
        (X.astype(dtype), VALUES.astype(dtype)), epochs, batch_size, verbose=False, **options
    ).history["loss"]


def jacobian(model: nn.Sequential, function: Callable[[], Array]) -> Array:
    """Central differences of a vector for the model's parameters, (numbers, parameters)."""
    flat, columns = model.flat_parameters, []
    for at in range(flat.size):
        kept = flat[at]
        flat[at] = kept + 1e-6
        up = function()
        flat[at] = kept - 1e-6
        columns.append((up - function()).ravel() / 2e-6)
        flat[at] = kept
    return np.array(columns).T


# ---- single steps against formulas


@pytest.mark.parametrize("kind", [optim.LevenbergMarquardt, optim.GaussNewton])
def test_probabilities_that_do_not_add_up_to_1_have_no_gauss_newton_matrix(kind: Any) -> None:
    targets = np.full((60, 2), 0.5)
    targets[7] = 1
    model = network()
    own = pdnn.Trainer(model, nn.CrossEntropyLoss(), kind(model.parameters()), strategy="serial")
    before = model.fingerprint()
    with pytest.raises(ValueError, match="the targets of row 7 of the batch add up to 2, and only those"):
        own.fit((X, targets), 1, 60, shuffle=False, verbose=False)
    assert model.fingerprint() == before
    targets[7] /= 2
    weight = np.ones(60)
    weight[7] = 2
    own.fit(Dataset(X, targets, weight=weight), 1, 60, verbose=False)
    assert model.fingerprint() != before


@pytest.mark.parametrize("solver", ["auto", "normal", "kernel", "cg"])
def test_a_gauss_newton_step_is_its_formula(solver: Any) -> None:
    model, criterion = network(), nn.MSELoss()
    j = jacobian(model, lambda: model.predict(X)) / np.sqrt(X.shape[0])  # the mean of both outputs' squares
    g = j.T @ (model.predict(X) - VALUES).ravel() / np.sqrt(X.shape[0])
    before = model.flat_parameters.copy()
    wanted = before - 0.7 * np.linalg.solve(j.T @ j + 0.1 * np.eye(g.size), g)
    optimizer = optim.GaussNewton(model.parameters(), lr=0.7, damping=0.1, line_search_fn=None, solver=solver)
    loss = model.step(X, VALUES, criterion, optimizer)
    assert loss == pytest.approx(np.square(VALUES - forward(model, before)).mean(), rel=1e-12)
    np.testing.assert_allclose(model.flat_parameters, wanted, rtol=0, atol=1e-6 if solver == "cg" else 1e-8)
    assert np.abs(wanted - before).max() > 0.01


def forward(model: nn.Sequential, parameters: Array) -> Array:
    other = network()
    other.flat_parameters[...] = parameters
    return other.predict(X)


def test_a_natural_gradient_is_its_formula() -> None:
    model, criterion = network(), nn.CrossEntropyLoss()
    rows = [model.gradient(X[i : i + 1], CLASSES[i : i + 1], criterion)[1].copy() for i in range(len(X))]
    fisher, g = np.mean([np.outer(row, row) for row in rows], 0), np.mean(rows, 0)
    wanted = model.flat_parameters - 0.5 * np.linalg.solve(fisher + 0.01 * np.eye(g.size), g)
    optimizer = optim.NaturalGradient(model.parameters(), lr=0.5, damping=0.01)
    model.step(X, CLASSES, criterion, optimizer)
    np.testing.assert_allclose(model.flat_parameters, wanted, rtol=0, atol=1e-11)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_natural_gradient_takes_what_smoothing_gives_rows_of_a_class_of_weight_0(reduction: str) -> None:
    """F = Σ g gᵀ / w over rows with the gradients g and the factors w = (1 − s) w_c + s / 2 Σ w."""
    weight, smoothing = [0.0, 3.0], 0.2
    criterion = nn.CrossEntropyLoss(reduction, weight=weight, label_smoothing=smoothing)
    alone = nn.CrossEntropyLoss("sum", weight=weight, label_smoothing=smoothing)
    model = network()
    rows = [model.gradient(X[i : i + 1], CLASSES[i : i + 1], alone)[1].copy() for i in range(len(X))]
    factors = ((1 - smoothing) * np.array(weight) + smoothing / 2 * sum(weight))[CLASSES]
    whole = 1.0 if reduction == "sum" else np.array(weight)[CLASSES].sum()
    fisher = sum(np.outer(row, row) / factor for row, factor in zip(rows, factors, strict=True)) / whole
    wanted = model.flat_parameters - 0.5 * np.linalg.solve(
        fisher + 0.01 * np.eye(len(rows[0])), sum(rows) / whole
    )
    optimizer = optim.NaturalGradient(model.parameters(), lr=0.5, damping=0.01)
    model.step(X, CLASSES, criterion, optimizer)
    np.testing.assert_allclose(model.flat_parameters, wanted, rtol=0, atol=1e-9)


@pytest.mark.parametrize("criterion", [nn.MSELoss(), nn.MSELoss("sum"), nn.CrossEntropyLoss()], ids=repr)
def test_levenberg_marquardt_follows_nielsens_rule(criterion: nn.Loss) -> None:
    """Its dampings and losses, step by step, from gradients and finite differences."""
    model = network()
    y = CLASSES if isinstance(criterion, nn.CrossEntropyLoss) else VALUES
    optimizer = optim.LevenbergMarquardt(model.parameters(), tau=1e-2)
    damping, growth, kept = 0.0, 2.0, network()
    for _ in range(4):
        flat = kept.flat_parameters
        loss, gradient = kept.gradient(X, y, criterion)
        j, out = jacobian(kept, lambda: kept.predict(X)), kept.predict(X)
        if y is CLASSES:
            p = np.exp(out) / np.exp(out).sum(1, keepdims=True)
            h = np.einsum("ik,kl->ikl", p, np.eye(2)) - np.einsum("ik,il->ikl", p, p)
        else:
            h = np.broadcast_to(2 * np.eye(2), (60, 2, 2)) / (2 if criterion.reduction == "mean" else 1)
        h = h if criterion.reduction == "sum" else h / 60
        j = j.reshape(60, 2, -1)
        b = np.einsum("ikp,ikl,ilq->pq", j, h, j)
        damping = damping or 1e-2 * b.diagonal().max()
        while True:
            d = -np.linalg.solve(b + damping * np.eye(len(b)), gradient)
            before = flat.copy()
            flat += d
            ratio = (loss - kept.gradient(X, y, criterion)[0]) / (d @ (damping * d - gradient) / 2)
            if ratio > 0:
                damping, growth = damping * max(1 / 3, 1 - (2 * ratio - 1) ** 3), 2.0
                break
            flat[...] = before
            damping, growth = damping * growth, growth * 2
        assert model.step(X, y, criterion, optimizer) == pytest.approx(loss, rel=1e-6)
        assert optimizer.state_arrays()["damping"][0] == pytest.approx(damping, rel=1e-3)
        np.testing.assert_allclose(model.flat_parameters, flat, rtol=0, atol=1e-4)


@pytest.mark.parametrize("solver", ["auto", "kernel", "cg"])
def test_a_linear_regression_takes_a_few_steps(solver: Any) -> None:
    model = nn.Sequential(nn.Linear(4, 2), dtype="float64", seed=1)
    optimizer = optim.LevenbergMarquardt(model.parameters(), solver=solver)
    for _ in range(12):
        model.step(X, VALUES, nn.MSELoss(), optimizer)
    wanted = np.linalg.lstsq(np.c_[X, np.ones(60)], VALUES, rcond=None)[0]
    np.testing.assert_allclose(model.flat_parameters, wanted.ravel(), rtol=0, atol=1e-7)


def test_weight_decay_and_parameters_left_out() -> None:
    """With a penalty the minimum is that of ridge regression; what is in no group stays."""
    model = nn.Sequential(nn.Linear(4, 2), dtype="float64", seed=1)
    weight, bias = model.parameters()
    bias.data[...] = 0
    optimizer = optim.GaussNewton([{"params": [weight], "weight_decay": 0.3}], damping=1e-9)
    for _ in range(3):
        model.step(X, VALUES, nn.MSELoss("batchmean"), optimizer)
    wanted = np.linalg.solve(X.T @ X / 30 + 0.3 * np.eye(4), X.T @ VALUES / 30)
    np.testing.assert_allclose(np.asarray(weight), wanted, atol=1e-7)
    assert (np.asarray(bias) == 0).all()


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_loss_of_a_step_has_the_penalty(dtype: str) -> None:
    values = []
    for decay in (0.0, 0.3):
        model = network(dtype)
        penalty = decay / 2 * np.square(model.flat_parameters, dtype=np.float64).sum()
        rule = optim.GaussNewton(model.parameters(), weight_decay=decay)
        values.append(model.step(X.astype(dtype), VALUES.astype(dtype), nn.MSELoss(), rule) - penalty)
    assert values[0] == pytest.approx(values[1], rel=1e-12)


def test_with_weight_decay_few_rows_are_not_solved_without_it() -> None:
    models = []
    for solver in ("auto", "normal"):
        models.append(network())
        rule = optim.GaussNewton(models[-1].parameters(), weight_decay=0.3, solver=solver)
        models[-1].step(X[:3], VALUES[:3], nn.MSELoss(), rule)
    np.testing.assert_array_equal(*(model.flat_parameters for model in models))


def test_the_first_damping_counts_the_weight_decay(monkeypatch: pytest.MonkeyPatch) -> None:
    solve, dampings = batch_loss.BatchLoss.solve, list[float]()

    def noted(batch: batch_loss.BatchLoss, damping: float, *rest: Any) -> Array:
        dampings.append(damping)
        return solve(batch, damping, *rest)

    monkeypatch.setattr(batch_loss.BatchLoss, "solve", noted)
    firsts = []
    for decay in (0.0, 50.0):
        dampings.clear()
        model = network()
        rule = optim.LevenbergMarquardt(model.parameters(), tau=0.5, weight_decay=decay)
        model.step(X, VALUES, nn.MSELoss(), rule)
        firsts.append(dampings[0])
    assert firsts[1] - firsts[0] == pytest.approx(25)


# ---- in a Trainer


@pytest.mark.parametrize("kind", EACH)
def test_a_trainer_makes_the_steps_by_hand(kind: Any) -> None:
    own, by_hand = trainer(kind), network()
    optimizer = kind(by_hand.parameters())
    seen = losses(own, shuffle=False)
    mine = [by_hand.step(X, VALUES, nn.MSELoss(), optimizer) for _ in range(5)]
    np.testing.assert_allclose(seen, mine, rtol=1e-14)
    np.testing.assert_array_equal(own.model.flat_parameters, by_hand.flat_parameters)
    assert seen == sorted(seen, reverse=True)
    assert own.step == own.optimizer.core.steps == 5


@pytest.mark.parametrize(
    ("strategy", "ranks", "kind"),
    [
        ("team:2", 1, optim.LevenbergMarquardt),
        ("pool:2", 1, optim.GaussNewton),
        ("ddp", 2, optim.LevenbergMarquardt),
        ("ddp", 3, optim.LevenbergMarquardt),
        ("ddp", 2, optim.GaussNewton),
        ("ddp", 3, optim.NaturalGradient),
        ("ddp/8", 2, optim.LevenbergMarquardt),
        ("ddp+team:2", 2, optim.LevenbergMarquardt),
    ],
)
def test_neither_ranks_nor_threads_change_a_bit(strategy: str, ranks: int, kind: Any) -> None:
    def work() -> tuple[str, list[float]]:
        own = trainer(kind, strategy)
        seen = losses(own, 3, 25)
        return own.model.fingerprint(), seen

    alone = trainer(kind)
    seen = losses(alone, 3, 25)
    wanted = alone.model.fingerprint(), seen
    results = run_threads(work, ranks) if ranks > 1 else [work()]
    assert results == [wanted] * ranks


def test_conjugate_gradients_on_ranks_have_the_same_bits() -> None:
    def work() -> list[float]:
        return losses(trainer(optim.GaussNewton, "ddp", damping=0.1, solver="cg"), 2, 60)

    assert run_threads(work, 3) == [losses(trainer(optim.GaussNewton, damping=0.1, solver="cg"), 2, 60)] * 3


def test_a_float32_model_descends_as_one_of_float64() -> None:
    single, double = (trainer(optim.LevenbergMarquardt, dtype=each) for each in ("float32", "float64"))
    np.testing.assert_allclose(losses(single, 6, 60), losses(double, 6, 60), rtol=1e-4)
    assert single.model.flat_parameters.dtype == np.float32


@pytest.mark.parametrize("kind", EACH)
def test_rows_count_their_weights(kind: Any) -> None:
    counts = np.arange(60) % 3
    rows = np.repeat(np.arange(60), counts)
    weighed, repeated = trainer(kind), trainer(kind)
    weighed.fit(Dataset(X, VALUES, weight=counts), 3, 60, verbose=False)
    repeated.fit(Dataset(X[rows], VALUES[rows]), 3, len(rows), verbose=False)
    np.testing.assert_allclose(
        weighed.model.flat_parameters, repeated.model.flat_parameters, rtol=0, atol=1e-9
    )
    assert np.abs(weighed.model.flat_parameters - network().flat_parameters).max() > 0.01


def test_a_batch_without_weight_moves_nothing() -> None:
    own = trainer(optim.LevenbergMarquardt)
    own.fit(Dataset(X, VALUES, weight=np.zeros(60)), 1, 60, verbose=False)
    np.testing.assert_array_equal(own.model.flat_parameters, network().flat_parameters)


@pytest.mark.parametrize("kind", EACH)
@pytest.mark.parametrize("within", [False, True])
def test_checkpoints_resume_bit_for_bit(kind: Any, within: bool, tmp_path: Path) -> None:
    whole, second = trainer(kind), trainer(kind)
    losses(whole, 4, 20)
    losses(trainer(kind), 2, 20, checkpoint=tmp_path, every=9, every_steps=4, keep=2)
    if within:  # in the middle of an epoch
        second.load(tmp_path / "checkpoint.1.safetensors")
        assert second.position is not None
        losses(second, 3, 20)
    else:
        losses(second, 4, 20, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(second.model.flat_parameters, whole.model.flat_parameters)
    assert second.history.history["loss"] == whole.history.history["loss"]
    assert second.optimizer.core.steps == whole.optimizer.core.steps == 12


def test_a_state_dict_carries_the_damping() -> None:
    model, other = network(), network()
    first, second = optim.LevenbergMarquardt(model.parameters()), optim.LevenbergMarquardt(other.parameters())
    for _ in range(2):
        model.step(X, VALUES, nn.MSELoss(), first)
    other.flat_parameters[...] = model.flat_parameters
    second.load_state_dict(first.state_dict())
    assert first.state_dict()["state"]["damping"][0] > 0
    model.step(X, VALUES, nn.MSELoss(), first)
    other.step(X, VALUES, nn.MSELoss(), second)
    np.testing.assert_array_equal(model.flat_parameters, other.flat_parameters)


@pytest.mark.parametrize("seed", range(10))  # rounding makes some of the matrices indefinite
def test_no_damping_is_too_low_for_another_batch(seed: int) -> None:
    """It was, after hundreds of steps that fitted exactly: columns in proportion were not learned."""
    model = nn.Sequential(nn.Linear(3, 1), dtype="float64", seed=1)
    rule = optim.LevenbergMarquardt(model.parameters(), solver="normal")
    rule.load_state_dict(rule.state_dict() | {"state": {"damping": np.array([2.2e-308, 2])}})
    x = np.random.default_rng(seed).normal(size=(20, 1)) * [1, 2, 3]
    assert min(model.step(x, x[:, :1] + 1, nn.MSELoss(), rule) for _ in range(8)) < 1e-20


def test_the_largest_systems_are_left_to_conjugate_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a limit below both sizes "auto" takes them."""
    monkeypatch.setattr(batch_loss, "DIRECT", 10)
    auto, named = trainer(optim.GaussNewton), trainer(optim.GaussNewton, solver="cg")
    assert losses(auto, 2) == losses(named, 2)


@pytest.mark.parametrize("kind", [optim.LevenbergMarquardt, optim.GaussNewton])
def test_parameters_stay_if_the_loss_does_not_fall(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    loss, model = batch_loss.BatchLoss.loss, network()
    monkeypatch.setattr(batch_loss.BatchLoss, "loss", lambda batch: 0 * loss(batch) + 1)
    before = model.flat_parameters.copy()
    assert model.step(X, VALUES, nn.MSELoss(), kind(model.parameters())) == 1
    np.testing.assert_array_equal(model.flat_parameters, before)


def test_a_step_after_failed_tries_takes_the_growth_back(monkeypatch: pytest.MonkeyPatch) -> None:
    loss, model, losses = batch_loss.BatchLoss.loss, network(), list[float]()

    def fails_twice(batch: batch_loss.BatchLoss) -> float:
        losses.append(loss(batch) + 9 * (len(losses) in (1, 2)))
        return losses[-1]

    monkeypatch.setattr(batch_loss.BatchLoss, "loss", fails_twice)
    rule = optim.LevenbergMarquardt(model.parameters())
    model.step(X, VALUES, nn.MSELoss(), rule)
    assert len(losses) == 4 and rule.state_dict()["state"]["damping"][1] == 2


# ---- what does not fit


def test_a_minimum_is_left_as_it_is() -> None:
    model = nn.Sequential(nn.Linear(4, 2), dtype="float64", seed=1)
    optimizer = optim.LevenbergMarquardt(model.parameters())
    target = model.predict(X)
    assert model.step(X, target, nn.MSELoss(), optimizer) == 0
    np.testing.assert_array_equal(model.predict(X), target)


@pytest.mark.parametrize("kind", EACH)
def test_numbers_that_are_not_finite_end_a_fit_on_all_ranks(kind: Any) -> None:
    def work() -> str:
        own = trainer(kind, "ddp")
        with pytest.raises(
            FloatingPointError,
            match=rf"step 0 of .*, counted from 0: {kind.__name__}: the loss is nan.*Row \d+ of x has nan",
        ) as error:
            own.fit((np.where(X > 2, np.nan, X), VALUES), 1, 60, verbose=False)
        assert (own.model.flat_parameters == network().flat_parameters).all()
        return str(error.value)

    assert len(set(run_threads(work, 2))) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "ddp:int8"}, '"ddp:int8" does not give every rank'),
        ({"strategy": "average:8"}, "does not give every rank"),
        ({"strategy": "hogwild:2"}, "does not give every rank"),
        ({"strategy": "fastest"}, '"fastest" goes by the times of gradients'),
        ({"clip_norm": 1.0}, "leave clip_norm"),
        ({"on_nonfinite": "skip"}, 'on_nonfinite="skip"'),
    ],
)
def test_what_does_not_fit_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    model = network()
    optimizer = optim.LevenbergMarquardt(model.parameters())
    with pytest.raises(ValueError, match=message):
        pdnn.Trainer(model, nn.MSELoss(), optimizer, **options)


def test_strategies_that_divide_the_network_are_refused_at_once() -> None:
    def work() -> None:
        for strategy in ("pipeline:2", "tp:2"):
            model = network()
            with pytest.raises(
                ValueError, match='divides the network, of which it needs all; "ddp" does not'
            ):
                pdnn.Trainer(model, nn.MSELoss(), optim.GaussNewton(model.parameters()), strategy=strategy)

    run_threads(work, 2)


@pytest.mark.parametrize(
    ("layers", "criterion", "dtype", "message"),
    [
        ([nn.Linear(4, 2), nn.Dropout(0.5)], nn.MSELoss(), "float64", "layer 1 is a Dropout.*optim.LBFGS"),
        ([nn.Linear(4, 2), nn.BatchNorm1d(2)], nn.MSELoss(), "float64", "layer 1 is a BatchNorm"),
        ([nn.Linear(4, 2)], nn.L1Loss(), "float64", "L1Loss has no Gauss-Newton matrix"),
        ([nn.Linear(4, 2)], nn.CrossEntropyLoss(weight=[1, 2]), "float64", "no weights of classes"),
        ([nn.Linear(4, 2)], nn.MSELoss(), "bfloat16", "bfloat16 model"),
    ],
)
def test_models_and_losses_are_refused_by_name(
    layers: list[nn.Module], criterion: nn.Loss, dtype: str, message: str
) -> None:
    model = nn.Sequential(*layers, dtype=dtype, seed=1)
    y = CLASSES if isinstance(criterion, nn.CrossEntropyLoss) else VALUES.astype(np.float32)
    own = pdnn.Trainer(model, criterion, optim.GaussNewton(model.parameters()), strategy="serial")
    with pytest.raises(ValueError, match=f"GaussNewton: .*{message}"):
        own.fit((X.astype(np.float32), y), 1, 60, verbose=False)


def test_streams_of_rows_are_taken_and_those_of_blocks_refused() -> None:
    stream, whole = (trainer(optim.GaussNewton) for _ in range(2))
    for own, data in ((stream, Stream(X, VALUES, block=7)), (whole, Dataset(X, VALUES))):
        own.fit(data, 2, 60, shuffle=False, verbose=False)
    np.testing.assert_array_equal(stream.model.flat_parameters, whole.model.flat_parameters)
    with pytest.raises(ValueError, match="GaussNewton takes rows in memory as they are, got a BlockStream"):
        whole.fit(BlockStream(lambda epoch: [(X, VALUES)], 60), 1, 60, verbose=False)


def test_augmented_images_are_refused() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2), seed=1)
    own = pdnn.Trainer(model, nn.MSELoss(), optim.GaussNewton(model.parameters()), strategy="serial")
    images = RNG.normal(size=(8, 3, 2, 2)).astype(np.float32)
    with pytest.raises(
        ValueError, match="GaussNewton takes rows in memory as they are, got augmented images"
    ):
        own.fit((images, VALUES[:8].astype(np.float32)), 1, 8, augment=PadCropFlip(1), verbose=False)


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (optim.GaussNewton, {"damping": 0}, "damping = 0; expected a number above 0"),
        (
            optim.NaturalGradient,
            {"damping": "a"},
            "NaturalGradient: damping is 'a', expected a number above 0",
        ),
        (optim.LevenbergMarquardt, {"tau": "a"}, "LevenbergMarquardt: tau is 'a', expected a number above 0"),
        (optim.NaturalGradient, {"lr": -1}, "lr = -1"),
        (optim.LevenbergMarquardt, {"tau": 0}, "tau = 0"),
        (optim.LevenbergMarquardt, {"solver": "qr"}, "solver='qr'"),
        (optim.LevenbergMarquardt, {"solver": "kernel", "weight_decay": 0.1}, "takes no weight_decay"),
        (optim.GaussNewton, {"line_search_fn": "wolfe"}, "line_search_fn='wolfe'"),
    ],
)
def test_numbers_are_checked(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        kind(network().parameters(), **options)


def test_a_learning_rate_has_no_place_in_levenberg_marquardt() -> None:
    model = network()
    optimizer = optim.LevenbergMarquardt(model.parameters())
    optimizer.param_groups[0]["lr"] = 0.1
    with pytest.raises(ValueError, match="its damping sets the length"):
        optim.LevenbergMarquardt([{"params": [*model.parameters()], "lr": 0.1}])
    with pytest.raises(ValueError, match="its damping sets the length"):
        model.step(X, VALUES, nn.MSELoss(), optimizer)


@pytest.mark.parametrize("kind", EACH)
def test_a_weight_decay_that_the_solver_leaves_out_is_refused_later_too(kind: Any) -> None:
    own = trainer(kind, solver="kernel")
    losses(own, 1)
    own.optimizer.param_groups[0]["weight_decay"] = 0.1
    before = own.model.fingerprint()
    with pytest.raises(ValueError, match=f'{kind.__name__}: solver="kernel" takes no weight_decay'):
        losses(own, 1)
    with pytest.raises(ValueError, match="takes no weight_decay"):
        own.model.step(X, VALUES, nn.MSELoss(), own.optimizer)
    assert own.model.fingerprint() == before


class Decay(Callback):
    """Changes the weight decay after the first epoch."""

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        trainer.optimizer.param_groups[0]["weight_decay"] = 0.5


@pytest.mark.parametrize("kind", EACH)
def test_a_weight_decay_that_a_callback_changes_counts_from_the_next_step(kind: Any) -> None:
    once, twice = trainer(kind), trainer(kind)
    losses(once, 2, callbacks=[Decay()])
    losses(twice, 1)
    twice.optimizer.param_groups[0]["weight_decay"] = 0.5
    losses(twice, 1)
    np.testing.assert_array_equal(once.model.flat_parameters, twice.model.flat_parameters)


@pytest.mark.parametrize("kind", EACH)
def test_a_gradient_alone_makes_no_step(kind: Any) -> None:
    model = network()
    optimizer = kind(model.parameters())
    nn.MSELoss()(model(X), VALUES).backward()
    for arguments in ([], [lambda: None]):
        with pytest.raises(TypeError, match=r"needs the rows of a batch.*call model.step\(x, y, criterion"):
            optimizer.step(*arguments)


def hooked(model: nn.Sequential) -> None:
    next(model.parameters()).register_hook(lambda gradient: None)


REFUSED: dict[str, tuple[Any, Any, Callable[[nn.Sequential], object], type[Exception], str]] = {
    "masked": (np.ma.masked_array(X, X > 1), VALUES, lambda model: None, ValueError, "masked"),
    "integers": (X.astype(int), VALUES, lambda model: None, TypeError, "int64"),
    "list": (X.tolist(), VALUES, lambda model: None, TypeError, "array"),
    "rows": (X, VALUES[:50], lambda model: None, ValueError, "60 rows"),
    "hooks": (X, VALUES, hooked, ValueError, "hooks"),
    "modes": (X, VALUES, lambda model: model[0].eval(), ValueError, "evaluation mode"),
}


@pytest.mark.parametrize("kind", EACH)
@pytest.mark.parametrize("case", REFUSED)
def test_a_single_step_refuses_what_every_step_does(case: str, kind: Any) -> None:
    x, y, change, error, told = REFUSED[case]
    for make in (kind, lambda parameters: optim.SGD(parameters, lr=0.1)):
        model = network()
        rule = make(model.parameters())
        change(model)
        before = model.flat_parameters.copy()
        with pytest.raises(error, match=told):
            model.step(x, y, nn.MSELoss(), rule)
        np.testing.assert_array_equal(model.flat_parameters, before)


@pytest.mark.parametrize("size", [100.0, 200.0, 300.0, 370.0])
def test_levenberg_marquardt_stays_where_no_step_promises_anything(size: float) -> None:
    model = nn.Sequential(nn.Linear(1, 2, bias=False), dtype="float64")
    optimizer = optim.LevenbergMarquardt(model.parameters())
    next(model.parameters()).data = np.array([[size, -size]])
    model.step(np.array([[1.0], [-1.0]]), np.array([0, 1]), nn.CrossEntropyLoss(), optimizer)
    assert np.isfinite(next(model.parameters()).data).all()
