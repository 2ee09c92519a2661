"""Numbers too small to be normal: 0 in every computation of pdnn, and what they are in NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim

STRATEGIES = {
    "serial": 1,
    "team:2": 1,
    "pool:2": 1,
    "hogwild:2": 1,
    "ddp": 2,
    "average:2": 2,
    "average:2:int8": 2,
    "elastic-average:2": 2,
    "hogwild-processes:2": 2,
    "scatter-gather": 2,
    "tp:2": 2,
    "pipeline:2": 2,
}
"""How many ranks."""

SMALL = {"float32": 1e-40, "float64": 1e-310}


def weight(model: Any) -> Any:
    """The first layer's weights, (inputs, outputs)."""
    return next(iter(model.parameters())).data


def model_with_small_weights(dtype: str) -> Any:
    """Two layers, whose first input always is 0 and has weights that are subnormal."""
    model = pdnn.models.mlp([4, 8, 3], dtype=dtype, seed=1)
    weight(model)[0] = SMALL[dtype]
    assert (weight(model)[0] > 0).all()
    return model


def rows(dtype: str) -> tuple[Any, Any]:
    rng = np.random.default_rng(2)
    x = rng.random((64, 4)).astype(dtype)
    x[:, 0] = 0
    return x, rng.integers(0, 3, 64)


@pytest.fixture(autouse=True)
def numpy_keeps_them() -> Any:
    yield
    for dtype, value in SMALL.items():
        assert np.array([value], dtype)[0] * np.array([0.5], dtype)[0] > 0


def small_weights_after_fit(strategy: str, dtype: str) -> Any:
    model = model_with_small_weights(dtype)
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy=strategy)
    trainer.fit(pdnn.data.Dataset(*rows(dtype)), epochs=1, batch_size=16, verbose=False)
    return weight(model)[0].copy()


@pytest.mark.parametrize("dtype", SMALL)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_update_leaves_none(strategy: str, dtype: str) -> None:
    ranks = STRATEGIES[strategy]
    for small in pdnn.run(small_weights_after_fit, strategy, dtype, ranks=ranks, backend="threads"):
        assert (small == 0).all()


@pytest.mark.parametrize("dtype", SMALL)
def test_a_step_by_hand_leaves_none(dtype: str) -> None:
    x, y = rows(dtype)
    model = model_with_small_weights(dtype)
    optimizer = optim.Adam(model.parameters(), weight_decay=1e-4)
    model.step(x, y, nn.CrossEntropyLoss(), optimizer)
    assert (weight(model)[0] == 0).all()
    weight(model)[0] = SMALL[dtype]
    for parameter in model.parameters():
        parameter.grad[:] = 0
    optimizer.step()
    assert (weight(model)[0] == 0).all()


@pytest.mark.parametrize("dtype", SMALL)
def test_predictions_and_layers_take_them_as_zero(dtype: str) -> None:
    model = nn.Sequential(nn.Linear(4, 3, bias=False), dtype=dtype)
    weight(model)[:] = SMALL[dtype]
    x = np.full((2, 4), 1e3, dtype)
    assert (model(x).numpy() == 0).all()
    assert (model.predict(x) == 0).all()


@pytest.mark.parametrize("strategy", ["average:1", "average:end"])
def test_averages_that_are_subnormal_are_zero(strategy: str) -> None:
    def job() -> float:
        model = nn.Sequential(nn.Linear(2, 1, bias=False), seed=0)
        model.flat_parameters[:] = 0
        sgd = optim.SGD(model.parameters(), lr=0.5)
        x = np.zeros((8, 2), np.float32)
        x[:2, 0] = 1.5e-38
        trainer = pdnn.Trainer(model, nn.MSELoss(), sgd, strategy=strategy)
        trainer.fit(x, np.ones(8, np.float32), epochs=1, batch_size=4, shuffle=False, verbose=False)
        return float(np.abs(model.flat_parameters).max())

    assert pdnn.run(job, ranks=2, backend="threads") == [0, 0]
