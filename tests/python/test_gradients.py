"""Every layer with every loss: `model.gradient` against finite differences and against the NumPy oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import reference
from pdnn import models, nn

TOLERANCE = 1e-7
ROWS, INPUTS, OUTPUTS = 4, 6, 3

LAYERS = {
    "linear": lambda: [nn.Linear(INPUTS, OUTPUTS)],
    "no bias": lambda: [nn.Linear(INPUTS, OUTPUTS, bias=False)],
    "sigmoid": lambda: [nn.Linear(INPUTS, 5), nn.Sigmoid(), nn.Linear(5, OUTPUTS)],
    "tanh": lambda: [nn.Linear(INPUTS, 5), nn.Tanh(), nn.Linear(5, OUTPUTS)],
    "relu": lambda: [nn.Linear(INPUTS, 5), nn.ReLU(), nn.Linear(5, OUTPUTS)],
    "flatten": lambda: [nn.Flatten(), nn.Linear(INPUTS, OUTPUTS)],
    "convolution": lambda: [
        nn.Conv2d(2, 3, 2, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(6, OUTPUTS),
    ],
    "convolution in groups": lambda: [
        nn.Conv2d(2, 4, (2, 1), (2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
        nn.Tanh(),
        nn.Conv2d(4, 4, 2, groups=4),
        nn.Flatten(),
        nn.Linear(4, OUTPUTS),
    ],
    "lines": lambda: [nn.Conv1d(2, 3, 2, padding=1), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(6, OUTPUTS)],
    "transpose": lambda: [
        nn.Transpose(),
        nn.Conv1d(3, 2, 2, padding=1),
        nn.Transpose(),
        nn.Flatten(),
        nn.Linear(6, OUTPUTS),
    ],
    "dropout": lambda: [nn.Linear(INPUTS, 8), nn.Dropout(0.3), nn.Linear(8, OUTPUTS)],
    "batch norm": lambda: [
        nn.Linear(INPUTS, 5),
        nn.BatchNorm1d(5, eps=0.5),
        nn.ReLU(),
        nn.Linear(5, OUTPUTS),
    ],
    "leaky relu": lambda: [nn.Linear(INPUTS, 5), nn.LeakyReLU(0.2), nn.Linear(5, OUTPUTS)],
    "gelu": lambda: [nn.Linear(INPUTS, 5), nn.GELU(), nn.Linear(5, OUTPUTS)],
    "silu": lambda: [nn.Linear(INPUTS, 5), nn.SiLU(), nn.Linear(5, OUTPUTS)],
    "elu": lambda: [nn.Linear(INPUTS, 5), nn.ELU(0.6), nn.Linear(5, OUTPUTS)],
    "softplus": lambda: [nn.Linear(INPUTS, 5), nn.Softplus(1.5, 3.0), nn.Linear(5, OUTPUTS)],
    "layer norm": lambda: [nn.Linear(INPUTS, 5), nn.LayerNorm(5, eps=0.1), nn.Linear(5, OUTPUTS)],
    "pooling": lambda: [
        nn.BatchNorm2d(2, eps=0.5),
        nn.AvgPool2d((2, 1), 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2, OUTPUTS),
    ],
    "pooling of lines": lambda: [
        nn.AvgPool1d(2, 1),
        nn.Sigmoid(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(2, OUTPUTS),
    ],
    "residual": lambda: [
        nn.Residual(nn.Sequential(nn.Linear(INPUTS, INPUTS), nn.ReLU())),
        nn.Linear(INPUTS, OUTPUTS),
    ],
    "inner": lambda: [nn.Sequential(nn.Linear(INPUTS, 5), nn.Tanh()), nn.Linear(5, OUTPUTS)],
}
#: Each with the layers that give it the outputs it wants, and whether it takes classes, values, or both.
LOSSES = {
    "cross entropy": (nn.CrossEntropyLoss, [], ("classes", "values")),
    "nll": (nn.NLLLoss, [nn.LogSoftmax], ("classes",)),
    "bce": (nn.BCELoss, [nn.Sigmoid], ("classes", "values")),
    "bce of softmax": (nn.BCELoss, [nn.Softmax], ("values",)),
    "bce with logits": (nn.BCEWithLogitsLoss, [], ("classes", "values")),
    "mse": (nn.MSELoss, [], ("values",)),
}


#: Whose samples are indices (test_embedding.py), of extensions (test_custom_layer.py), of ranks.
LAYERS_ELSEWHERE = {"Embedding", "CustomLayer", "ColumnParallelLinear", "RowParallelLinear"}


def test_every_layer_is_in_some_network() -> None:
    kinds = [kind for name in nn.__all__ if isinstance(kind := getattr(nn, name), type)]
    layers = {
        kind.__name__ for kind in kinds if issubclass(kind, nn.Module) and kind.build is not nn.Module.build
    }
    here = {type(part).__name__ for make in LAYERS.values() for part in nn.Sequential(*make()).modules()}
    here |= {layer.__name__ for _, last, _ in LOSSES.values() for layer in last}
    assert here | LAYERS_ELSEWHERE == layers


def error(model: nn.Sequential, x: np.ndarray, y: np.ndarray, loss: nn.Loss, gradient: np.ndarray) -> float:
    """‖a − n‖ / (‖a‖ + ‖n‖) between a gradient and central differences."""
    flat, numeric, h = model.flat_parameters, np.empty_like(gradient), 1e-5
    for i in range(flat.size):
        value = flat[i]
        flat[i] = value + h
        above = model.gradient(x, y, loss, seed=1)[0]
        flat[i] = value - h
        below = model.gradient(x, y, loss, seed=1)[0]
        flat[i] = value
        numeric[i] = (above - below) / (2 * h)
    return float(np.linalg.norm(gradient - numeric) / (np.linalg.norm(gradient) + np.linalg.norm(numeric)))


def batch(layers: str, kind: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = {
        "flatten": (2, 3),
        "convolution": (2, 3, 1),
        "pooling": (2, 3, 1),
        "pooling of lines": (2, 3),
        "lines": (2, 3),
        "transpose": (2, 3),
        "convolution in groups": (2, 3, 2),
    }
    shape = ROWS, *shapes.get(layers, (INPUTS,))
    y = rng.integers(0, OUTPUTS, ROWS) if kind == "classes" else rng.dirichlet(np.ones(OUTPUTS), ROWS)
    return rng.normal(size=shape), y


@pytest.mark.parametrize("reduction", ["mean", "sum", "batchmean"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("layers", LAYERS)
def test_gradient_matches_finite_differences(layers: str, loss: str, reduction: str) -> None:
    kind, last, targets = LOSSES[loss]
    for target in targets:
        model = nn.Sequential(*LAYERS[layers](), *(layer() for layer in last), dtype="float64", seed=5)
        x, y = batch(layers, target)
        criterion = kind(reduction)
        gradient = model.gradient(x, y, criterion, seed=1)[1]
        assert error(model, x, y, criterion, gradient) <= TOLERANCE


def test_the_check_catches_wrong_gradients() -> None:
    model = nn.Sequential(*LAYERS["tanh"](), dtype="float64", seed=5)
    x, y = batch("tanh", "classes")
    criterion = nn.CrossEntropyLoss()
    gradient = model.gradient(x, y, criterion)[1]
    bias = gradient.copy()
    bias[INPUTS * 5] *= 1.001  # one element of a bias, a thousandth off
    assert error(model, x, y, criterion, bias) > TOLERANCE
    assert error(model, x, y, criterion, gradient * 4) > TOLERANCE  # summed where the mean was due
    other = model.gradient(x, y, nn.CrossEntropyLoss("sum"))[1]
    assert error(model, x, y, criterion, other) > TOLERANCE


@given(
    sizes=st.builds(
        lambda sizes, classes: [*sizes, classes],
        st.lists(st.integers(1, 40), min_size=1, max_size=3),
        st.integers(2, 40),
    ),
    rows=st.integers(1, 50),
    activation=st.sampled_from(sorted(reference.ACTIVATIONS)),
)
@settings(max_examples=40)
def test_any_network_equals_the_oracle(sizes: list[int], rows: int, activation: str) -> None:
    model = models.mlp(sizes, activation, dtype="float64", seed=1)
    parameters = [parameter.data for parameter in model.parameters()]
    net = reference.Mlp(parameters[::2], parameters[1::2], activation)
    rng = np.random.default_rng(rows)
    x, labels = rng.normal(size=(rows, sizes[0])), rng.integers(0, sizes[-1], rows)
    loss, grads = net.gradient(x, labels)
    value, gradient = model.gradient(x, labels, nn.CrossEntropyLoss())
    np.testing.assert_allclose(model.predict(x), net.outputs(x)[-1], rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(value, loss, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(gradient, net.flat(grads), rtol=1e-10, atol=1e-14)


def test_float32_agrees_with_float64_to_its_precision() -> None:
    exact = models.mlp([20, 30, 4], "tanh", dtype="float64", seed=1)
    single = models.mlp([20, 30, 4], "tanh", dtype="float32", seed=1)
    x, y = np.random.default_rng(0).normal(size=(50, 20)), np.arange(50) % 4
    want = exact.gradient(x, y, nn.CrossEntropyLoss())[1]
    got = single.gradient(x.astype(np.float32), y, nn.CrossEntropyLoss())[1]
    assert np.abs(got - want).max() <= 1e-6 * np.abs(want).max() * 10


def test_gradients_run_side_by_side_without_touching_the_model() -> None:
    from multiprocessing.pool import ThreadPool

    model = models.mlp([30, 20, 5], "sigmoid", dtype="float64", seed=1)
    before = model.flat_parameters.copy()
    rng = np.random.default_rng(0)
    batches = [(rng.normal(size=(n, 30)), rng.integers(0, 5, n)) for n in (1, 7, 20, 0, 33, 8)]
    criterion = nn.CrossEntropyLoss()
    want = [model.gradient(*rows, criterion) for rows in batches]
    with ThreadPool(4) as pool:
        got = pool.map(lambda rows: model.gradient(*rows, criterion), batches * 10)
    for (loss, gradient), (one_loss, one_gradient) in zip(got, want * 10, strict=True):
        assert loss == one_loss
        np.testing.assert_array_equal(gradient, one_gradient)
    np.testing.assert_array_equal(model.flat_parameters, before)
    assert want[3][0] == 0  # no rows, no loss
    assert not want[3][1].any()
