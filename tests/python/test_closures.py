"""LBFGS in a Trainer: the steps by hand, under every strategy that gives a gradient, resumed."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim
from pdnn.closures import ClosureEpochs
from pdnn.comm import run_threads
from pdnn.data import BlockStream, Dataset
from pdnn.data.source import source_of
from pdnn.progress import Progress

RNG = np.random.default_rng(0)
X = RNG.normal(size=(90, 6))
Y = RNG.integers(0, 3, 90)
VALUES = np.sin(X[:, :3])


def network(dtype: str = "float64") -> nn.Sequential:
    return models.mlp([6, 9, 8, 3], "tanh", dtype=dtype, seed=1)


def trainer(model: nn.Sequential, strategy: str = "serial", **options: Any) -> pdnn.Trainer:
    numbers = {"max_iter": 4, "history_size": 5, "line_search_fn": "strong_wolfe", "weight_decay": 0.01}
    optimizer = optim.LBFGS(model.parameters(), **(numbers | options))
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy=strategy)


def losses(own: pdnn.Trainer, epochs: int = 5, batch_size: int = 90, **options: Any) -> Any:
    return own.fit((X, Y), epochs, batch_size, verbose=False, **options).history["loss"]


def test_a_trainer_makes_the_steps_by_hand() -> None:
    static, by_hand = network(), network()
    own = trainer(static)
    seen = losses(own, shuffle=False)
    optimizer = optim.LBFGS(
        by_hand.parameters(), max_iter=4, history_size=5, line_search_fn="strong_wolfe", weight_decay=0.01
    )
    criterion = nn.CrossEntropyLoss()
    mine = [
        optimizer.step(lambda: by_hand.gradient(X, Y, criterion, out=by_hand.flat_gradients)[0])
        for _ in range(5)
    ]
    np.testing.assert_allclose(seen, mine, rtol=1e-12)
    np.testing.assert_allclose(static.flat_parameters, by_hand.flat_parameters, rtol=0, atol=1e-9)
    assert seen == sorted(seen, reverse=True)
    assert own.step == 5 < own.optimizer.core.steps == optimizer.core.steps


@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [
        ("team:2", 1),
        ("pool:2", 1),
        ("ddp", 2),
        ("ddp/8", 3),
        ("ddp+team:2", 2),
        ("pipeline:2", 2),
        ("tp:2", 2),
        ("tp:2 x ddp", 4),
    ],
)
def test_every_strategy_goes_the_same_way(strategy: str, ranks: int) -> None:
    def work() -> tuple[bytes, list[float], float]:
        model = network()
        seen = losses(trainer(model, strategy), shuffle=False)
        return model.flat_parameters.tobytes(), seen, float(np.abs(model.flat_parameters).max())

    model = network()
    wanted = losses(trainer(model), shuffle=False)
    results = run_threads(work, ranks) if ranks > 1 else [work()]
    assert len({bits for bits, *_ in results}) == 1, "ranks differ"
    np.testing.assert_allclose(results[0][1], wanted, rtol=1e-9)
    np.testing.assert_allclose(np.frombuffer(results[0][0]), model.flat_parameters, rtol=0, atol=1e-7)


@pytest.mark.parametrize("reduction", ["mean", "sum", "batchmean"])
@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_the_loss_belongs_to_the_gradient(reduction: str, search: str | None) -> None:
    """A linear regression ends where least squares do, for every reduction."""
    model = nn.Sequential(nn.Linear(6, 3), dtype="float64", seed=1)
    optimizer = optim.LBFGS(
        model.parameters(), max_iter=60, tolerance_grad=1e-10, tolerance_change=0, line_search_fn=search
    )
    own = pdnn.Trainer(model, nn.MSELoss(reduction), optimizer, strategy="serial")
    own.fit((X, VALUES), 1, 90, verbose=False)
    wanted = np.linalg.lstsq(np.c_[X, np.ones(90)], VALUES, rcond=None)[0]
    np.testing.assert_allclose(model.flat_parameters, wanted.ravel(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("within", [False, True])
def test_batches_and_checkpoints_resume_bit_for_bit(within: bool, tmp_path: Path) -> None:
    whole, second = trainer(network("float32")), trainer(network("float32"))
    losses(whole, 4, 45)
    losses(trainer(network("float32")), 2, 45, checkpoint=tmp_path, every=9, every_steps=3, keep=2)
    if within:  # the one of step 3, in the middle of an epoch
        second.load(tmp_path / "checkpoint.1.safetensors")
        assert second.position is not None and second.step == 3
        losses(second, 3, 45)
    else:
        losses(second, 4, 45, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(second.model.flat_parameters, whole.model.flat_parameters)
    assert second.step == whole.step == 8
    assert second.optimizer.core.steps == whole.optimizer.core.steps
    for name in ("loss", "accuracy"):
        assert second.history.history[name] == whole.history.history[name]


def test_a_signal_stops_between_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, stopped = trainer(network()), trainer(network())
    losses(whole, 2, 9)

    def at_step(_: Progress, step: int, loss: float) -> None:
        if step == 4:
            signal.raise_signal(signal.SIGTERM)

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "at_step", at_step)
        with pytest.raises(SystemExit, match="143"):
            losses(stopped, 2, 9, checkpoint=tmp_path)
    assert stopped.step == 4
    losses(stopped, 2, 9)
    np.testing.assert_array_equal(stopped.model.flat_parameters, whole.model.flat_parameters)


def test_a_schedule_sets_the_length() -> None:
    model = network()
    optimizer = optim.LBFGS(model.parameters(), lr=0.5, max_iter=2)
    schedule = optim.StepLR(optimizer, 2, 0.1)
    own = pdnn.Trainer(
        model, nn.CrossEntropyLoss(), optimizer, strategy="serial", schedule=schedule, schedule_per="step"
    )
    own.fit((X, Y), 2, 45, verbose=False)
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 0.1**2)


def test_dropout_masks_are_those_of_the_step() -> None:
    """A loss with other masks at each evaluation would let no search succeed."""
    model = nn.Sequential(
        nn.Linear(6, 20), nn.Tanh(), nn.Dropout(0.5), nn.Linear(20, 3), dtype="float64", seed=1
    )
    own = trainer(model, max_iter=40)
    losses(own, 1)
    kept = own.optimizer.state_arrays()["counts"]
    assert kept[0] == 40 and kept[1] == 39


def test_validation_and_statistics_are_as_ever() -> None:
    model = nn.Sequential(nn.Linear(6, 9), nn.BatchNorm1d(9), nn.Tanh(), nn.Linear(9, 3), seed=1)
    history = trainer(model).fit((X, Y), 3, 90, validation=(X, Y), verbose=False)
    assert history.history["val_loss"][-1] < history.history["loss"][0]
    assert [each["count"] for each in history.updates] == [1, 1, 1]
    assert np.isfinite(model.flat_buffers).all()


def test_rows_count_their_weights() -> None:
    counts = np.arange(len(X)) % 3
    weighed, repeated = network(), network()
    trainer(weighed).fit(Dataset(X, Y, weight=counts), 1, len(X), verbose=False)
    rows = np.repeat(np.arange(len(X)), counts)
    trainer(repeated).fit(Dataset(X[rows], Y[rows]), 1, len(rows), verbose=False)
    assert np.abs(weighed.flat_parameters - network().flat_parameters).max() > 0.01
    np.testing.assert_allclose(weighed.flat_parameters, repeated.flat_parameters, atol=1e-9)


def test_a_loss_that_is_not_finite_ends_a_fit_on_all_ranks() -> None:
    def work() -> str:
        model = network()
        own = trainer(model, "ddp")
        with pytest.raises(
            FloatingPointError, match=r"LBFGS: the loss is nan.*Row \d+ of x has nan"
        ) as error:
            own.fit((np.where(X > 2, np.nan, X), Y), 1, 90, verbose=False)
        assert (model.flat_parameters == network().flat_parameters).all()
        return str(error.value)

    assert len(set(run_threads(work, 2))) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "ddp:int8"}, '"ddp:int8" does not give every rank'),
        ({"strategy": "ddp:sum"}, "does not give every rank"),
        ({"strategy": "average:8"}, "does not give every rank"),
        ({"strategy": "pipeline:1:int8"}, "does not give every rank"),
        ({"strategy": "hogwild:2"}, "does not give every rank"),
        ({"strategy": "scatter-gather"}, "does not give every rank"),
        ({"clip_norm": 1.0}, "leave clip_norm"),
        ({"on_nonfinite": "skip"}, 'on_nonfinite="skip"'),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], message: str) -> None:
    model = network()
    with pytest.raises(ValueError, match=message):
        pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.LBFGS(model.parameters()), **options)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("batch_size", [90, 25])
def test_blocks_train_as_the_same_rows_in_memory(batch_size: int, shuffle: bool) -> None:
    """Windows of 4 blocks of 7 rows; one window holds all, if rows are mixed."""
    rows = range(0, 90, 7)

    def blocks(epoch: int) -> Any:
        for at in rows:
            yield X[at : at + 7], Y[at : at + 7]

    in_memory, in_blocks = trainer(network()), trainer(network())
    stream = BlockStream(blocks, 90, window=len(rows) if shuffle else 4)
    got = in_blocks.fit(stream, 3, batch_size, shuffle=shuffle, verbose=False).history["loss"]
    for epoch in range(3):
        (part,) = BlockStream(blocks, 90, window=len(rows)).parts(epoch, 0, 0, 90, shuffle)
        order = part.order
        in_memory.fit((X[order], Y[order]), 1, batch_size, shuffle=False, verbose=False)
    assert got == in_memory.history.history["loss"]
    np.testing.assert_array_equal(in_blocks.model.flat_parameters, in_memory.model.flat_parameters)


def test_an_epoch_may_pause_after_each_step() -> None:
    model = nn.Sequential(nn.Linear(3, 2), seed=1)
    trainer = pdnn.Trainer(model, nn.MSELoss(), optim.LBFGS(model.parameters()), strategy="serial")
    data = Dataset(np.random.default_rng(0).normal(size=(20, 3)), np.ones((20, 2)))
    source = source_of("train", data, model, trainer.loss, None)
    epochs = ClosureEpochs(trainer, source, 4, shuffle=False, augment=None, timeline=False)
    epochs.run(lambda _: False, seconds=0.0)
    assert (trainer.step, epochs.complete) == (1, False)
    epochs.run(lambda _: True)
    assert trainer.step == 2
    epochs.run(lambda _: False, most_steps=1)
    assert trainer.step == 3
    epochs.run(lambda _: False)
    assert (trainer.step, epochs.complete) == (5, True)
