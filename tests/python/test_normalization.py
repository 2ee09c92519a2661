"""Normalization against its equations; its running statistics in training, files and copies."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim

RNG = np.random.default_rng(0)
X, Y = RNG.normal(2, 3, (61, 10)), RNG.integers(0, 3, 61)


def make(**options: Any) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(10, 8), nn.BatchNorm1d(8, **options), nn.ReLU(), nn.Linear(8, 3), dtype="float64", seed=1
    )


def trained(strategy: str = "serial", epochs: int = 2, **options: Any) -> pdnn.Trainer:
    model = make(**options)
    sgd = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
    trainer.fit((X, Y), epochs, 16, verbose=False)
    return trainer


def test_running_statistics_are_buffers_under_torchs_names() -> None:
    model = make()
    assert [name for name, _ in model.named_buffers()] == ["1.running_mean", "1.running_var"]
    assert list(model.state_dict()) == [
        "0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "3.weight", "3.bias",
    ]  # fmt: skip
    np.testing.assert_array_equal(model.flat_buffers, [0] * 8 + [1] * 8)
    np.testing.assert_array_equal(model.state_dict()["1.weight"], np.ones(8))


def test_evaluation_uses_the_running_statistics_and_training_moves_them() -> None:
    trainer = trained()
    norm, model = trainer.model[1], trainer.model
    assert isinstance(norm, nn.BatchNorm1d)
    assert (norm.running_mean.data != 0).all()
    state = model.state_dict()
    hidden = X @ state["0.weight"] + state["0.bias"]
    hidden = (hidden - state["1.running_mean"]) / np.sqrt(state["1.running_var"] + 1e-5)
    hidden = np.maximum(hidden * state["1.weight"] + state["1.bias"], 0)
    np.testing.assert_allclose(model.predict(X), hidden @ state["3.weight"] + state["3.bias"], rtol=1e-12)
    np.testing.assert_allclose(trainer.predict(X), model.predict(X), rtol=1e-12)


def test_gradients_leave_the_running_statistics_alone() -> None:
    model = make()
    before = model.flat_buffers.copy()
    model.gradient(X, Y, nn.CrossEntropyLoss())
    model.predict(X)
    np.testing.assert_array_equal(model.flat_buffers, before)


@pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # fewer cores than threads
@pytest.mark.parametrize("strategy", ["team:2", "team:3"])
def test_a_team_gives_the_bits_of_one_thread(strategy: str) -> None:
    one, team = trained().model, trained(strategy).model
    np.testing.assert_array_equal(team.flat_parameters, one.flat_parameters)
    np.testing.assert_array_equal(team.flat_buffers, one.flat_buffers)


def test_a_pool_gives_the_same_bits_for_any_number_of_workers() -> None:
    one = trained("pool:1/3").model
    for workers in (2, 5):
        many = trained(f"pool:{workers}/3").model
        np.testing.assert_array_equal(many.flat_parameters, one.flat_parameters)
        np.testing.assert_array_equal(many.flat_buffers, one.flat_buffers)
    assert (one.flat_buffers != trained().model.flat_buffers).all()  # pieces are normalized by themselves


def test_a_pool_synchronizes_over_leaves_of_a_batch() -> None:
    pool, serial = (trained(strategy, sync=True).model for strategy in ("pool:2/3", "serial/3"))
    assert pool.fingerprint() == serial.fingerprint()
    np.testing.assert_array_equal(pool.flat_buffers, serial.flat_buffers)
    with pytest.raises(ValueError, match=r"sync=True needs the whole batch.*use a team"):
        trained("average:2+pool:2/3", sync=True)  # whose pieces are no leaves
    synchronized = trained(sync=True).model  # alone: the batch is whole
    np.testing.assert_array_equal(synchronized.flat_buffers, trained().model.flat_buffers)


def test_copies_and_files_hold_the_running_statistics(tmp_path: Path) -> None:
    model = trained().model
    model.save(tmp_path / "model")
    loaded = make()
    loaded.load(tmp_path / "model")
    for twin in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        loaded,
        pdnn.models.load_model(tmp_path / "model"),
    ):
        np.testing.assert_array_equal(twin.flat_buffers, model.flat_buffers)
        np.testing.assert_array_equal(twin.predict(X), model.predict(X))


def test_a_resumed_training_has_the_bits_of_an_uninterrupted_one(tmp_path: Path) -> None:
    whole, first = trained(epochs=4), trained(epochs=2)
    first.save(tmp_path / "state")
    second = trained(epochs=0)
    second.load(tmp_path / "state")
    second.fit((X, Y), 2, 16, verbose=False)
    np.testing.assert_array_equal(second.model.flat_parameters, whole.model.flat_parameters)
    np.testing.assert_array_equal(second.model.flat_buffers, whole.model.flat_buffers)


def test_a_momentum_of_1_takes_the_variance_of_the_batch() -> None:
    """Small beside the 1 that was there, it was rounded to its last bits."""
    model = nn.Sequential(nn.BatchNorm1d(3, momentum=1), nn.Linear(3, 1), seed=1)
    x = (1e-5 * RNG.standard_normal((50, 3))).astype(np.float32)
    model.step(x, np.zeros((50, 1), np.float32), nn.MSELoss(), optim.SGD(model.parameters(), lr=0.1))
    norm = model[0]
    assert isinstance(norm, nn.BatchNorm1d)
    assert norm.running_var.data == pytest.approx(x.var(0, ddof=1), rel=1e-5)


def test_a_long_row_is_normalized_around_its_mean() -> None:
    x = (1e6 + RNG.standard_normal((2, 100_000))).astype(np.float32)
    exact = x - x.mean(1, np.float64, keepdims=True)
    exact /= np.sqrt((exact**2).mean(1, keepdims=True) + 1e-5)
    assert np.abs(nn.Sequential(nn.LayerNorm(100_000)).predict(x) - exact).max() < 0.1


def test_arguments_are_checked() -> None:
    for arguments, words in [((0,), "num_features = 0"), ((3, 0.0), "eps"), ((3, 1e-5, 1.5), "momentum")]:
        with pytest.raises(ValueError, match=f"BatchNorm2d: .*{words}"):
            nn.BatchNorm2d(*arguments)
    with pytest.raises(ValueError, match=r"BatchNorm1d: input samples are 10x2x2.*BatchNorm2d"):
        nn.Sequential(nn.BatchNorm1d(10)).output_shape((10, 2, 2))


@pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # fewer cores than threads
def test_resnet9_has_the_same_bits_for_any_team() -> None:
    rng = np.random.default_rng(2)
    data = rng.normal(size=(40, 3, 32, 32)), rng.integers(0, 10, 40)

    def run(strategy: str) -> nn.Sequential:
        model = pdnn.models.ResNet9(dtype="float64", seed=1)
        adam = optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-3)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), adam, strategy=strategy)
        trainer.fit(data, 1, 16, verbose=False)
        return model

    one = run("serial")
    for strategy in ("team:2", "team:3"):
        team = run(strategy)
        np.testing.assert_array_equal(team.flat_parameters, one.flat_parameters)
        np.testing.assert_array_equal(team.flat_buffers, one.flat_buffers)


def test_a_residual_around_a_module_of_ones_own_is_added_in_python() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: Any) -> Any:
            return self.linear(self.linear(x))

    model = nn.Residual(Twice())
    x = np.ones((2, 3), np.float32)
    weight, bias = (parameter.data for parameter in model.parameters())
    np.testing.assert_allclose(model(x).data, x + (x @ weight + bias) @ weight + bias, rtol=1e-5)
    with pytest.raises(TypeError, match="fn is of type int"):
        nn.Residual(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [0, (), (3, 4), [-1], 2**63])
def test_a_layer_norm_is_over_one_number_of_features(shape: Any) -> None:
    with pytest.raises(
        ValueError, match=r"LayerNorm: normalized_shape .*; expected (the features of|an integer from 1)"
    ):
        nn.LayerNorm(shape)
