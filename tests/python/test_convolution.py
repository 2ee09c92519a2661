"""Layers on images: against PyTorch, with any team, through files; the parallel-SGD exercise's network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import exercises, models, nn
from pdnn.core import core_for

LAYERS: dict[str, Any] = {
    "conv": (lambda: nn.Conv2d(3, 5, 3), lambda t: t.nn.Conv2d(3, 5, 3)),
    "stride and padding": (
        lambda: nn.Conv2d(3, 4, 5, 2, 3, bias=False),
        lambda t: t.nn.Conv2d(3, 4, 5, 2, 3, bias=False),
    ),
    "unequal windows": (
        lambda: nn.Conv2d(3, 4, (3, 2), (1, 2), (2, 0)),
        lambda t: t.nn.Conv2d(3, 4, (3, 2), (1, 2), (2, 0)),
    ),
    "dilation": (
        lambda: nn.Conv2d(3, 4, 3, (2, 1), 2, dilation=(2, 3)),
        lambda t: t.nn.Conv2d(3, 4, 3, (2, 1), 2, dilation=(2, 3)),
    ),
    "groups": (
        lambda: nn.Conv2d(3, 6, (1, 3), 1, 2, 2, 3),
        lambda t: t.nn.Conv2d(3, 6, (1, 3), 1, 2, 2, 3),
    ),
    "each channel": (
        lambda: nn.Conv2d(3, 3, (3, 2), (1, 2), padding=1, groups=3, bias=False),
        lambda t: t.nn.Conv2d(3, 3, (3, 2), (1, 2), padding=1, groups=3, bias=False),
    ),
    "unequal max": (lambda: nn.MaxPool2d((2, 3), (1, 2)), lambda t: t.nn.MaxPool2d((2, 3), (1, 2))),
    "unequal mean": (lambda: nn.AvgPool2d((3, 1)), lambda t: t.nn.AvgPool2d((3, 1))),
    "max": (lambda: nn.MaxPool2d(2), lambda t: t.nn.MaxPool2d(2)),
    "overlapping max": (lambda: nn.MaxPool2d(3, 2), lambda t: t.nn.MaxPool2d(3, 2)),
    "mean": (lambda: nn.AvgPool2d(2), lambda t: t.nn.AvgPool2d(2)),
    "overlapping mean": (lambda: nn.AvgPool2d(3, 1), lambda t: t.nn.AvgPool2d(3, 1)),
    "padded max": (lambda: nn.MaxPool2d(3, 2, 1), lambda t: t.nn.MaxPool2d(3, 2, 1)),
    "padded mean": (lambda: nn.AvgPool2d((3, 2), 1, (1, 0)), lambda t: t.nn.AvgPool2d((3, 2), 1, (1, 0))),
    "global mean": (lambda: nn.AdaptiveAvgPool2d(1), lambda t: t.nn.AdaptiveAvgPool2d(1)),
}


def load_from_torch(model: nn.Sequential, torch_model: Any) -> None:
    """Gives a model PyTorch's parameters, weights transposed."""
    for own, other in zip(model.parameters(), torch_model.parameters(), strict=True):
        values = other.detach().numpy()
        own.data = values.transpose(2, 3, 1, 0) if values.ndim == 4 else values.T


def flat_gradient(torch_model: Any) -> np.ndarray:
    grads = [parameter.grad.numpy() for parameter in torch_model.parameters()]
    return np.concatenate([(g.transpose(2, 3, 1, 0) if g.ndim == 4 else g.T).ravel() for g in grads])


def test_initial_values_depend_on_the_inputs_of_an_output() -> None:
    model = nn.Sequential(nn.Conv2d(8, 100, (2, 3), groups=4), seed=1)
    weight = next(model.parameters()).data
    assert weight.shape == (2, 3, 2, 100)
    bound = 1 / np.sqrt(2 * 3 * 2)
    assert 0.98 * bound < np.abs(weight).max() <= bound and abs(weight.std() - bound / np.sqrt(3)) < 0.01


@pytest.mark.parametrize("name", LAYERS)
def test_layers_equal_torch(name: str) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    torch.manual_seed(1)
    own, other = LAYERS[name]
    first = torch.nn.Conv2d(2, 3, 1)  # below, so that dx counts
    layers = torch.nn.Sequential(first, other(torch), torch.nn.Flatten(), torch.nn.LazyLinear(3)).double()
    x = torch.randn(5, 2, 9, 8, dtype=torch.float64)
    y = torch.arange(5) % 3
    outputs = layers(x)
    torch.nn.functional.cross_entropy(outputs, y).backward()

    features = layers[3].in_features
    model = nn.Sequential(nn.Conv2d(2, 3, 1), own(), nn.Flatten(), nn.Linear(features, 3), dtype="float64")
    load_from_torch(model, layers)
    np.testing.assert_allclose(model.predict(x.numpy()), outputs.detach().numpy(), rtol=0, atol=1e-13)
    gradient = model.gradient(x.numpy(), y.numpy(), nn.CrossEntropyLoss())[1]
    np.testing.assert_allclose(gradient, flat_gradient(layers), rtol=0, atol=1e-13)
    images = nn.Sequential(own(), dtype="float64", seed=2)  # ends in images
    if not list(images.parameters()):
        x = torch.randn(4, 3, 7, 6, dtype=torch.float64)
        np.testing.assert_allclose(images.predict(x.numpy()), other(torch)(x).numpy(), rtol=0, atol=1e-14)


def test_the_parallel_sgd_network_equals_torch_over_twenty_steps() -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    torch.manual_seed(2)
    t = torch.nn
    other = t.Sequential(
        t.Conv2d(1, 16, 5), t.MaxPool2d(2), t.ReLU(),
        t.Conv2d(16, 32, 5), t.MaxPool2d(2), t.ReLU(), t.MaxPool2d(2),
        t.Flatten(), t.Linear(128, 512), t.ReLU(), t.Linear(512, 256), t.Linear(256, 10), t.LogSoftmax(1),
    ).double()  # fmt: skip
    model = exercises.lenet_psgd(dropout=0, dtype="float64")
    load_from_torch(model, other)
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    rng = np.random.default_rng(0)
    for _ in range(20):
        x, y = rng.random((16, 1, 32, 32)), rng.integers(0, 10, 16)
        loss, gradient = model.gradient(x, y, nn.NLLLoss())
        model.flat_parameters[...] -= 0.1 * gradient
        optimizer.zero_grad()
        expected = t.functional.nll_loss(other(torch.from_numpy(x)), torch.from_numpy(y))
        expected.backward()
        optimizer.step()
        assert abs(loss - expected.item()) <= 1e-9
    load_from_torch(reference := exercises.lenet_psgd(dropout=0, dtype="float64"), other)
    assert np.abs(model.flat_parameters - reference.flat_parameters).max() <= 1e-9


def test_the_parallel_sgd_network_is_the_exercise_s() -> None:
    model = exercises.lenet_psgd(seed=1)
    assert model.flat_parameters.size == 213_194
    assert model.output_shape((1, 32, 32)) == (10,)
    weight, bias = model[3].weight.data, model[3].bias.data  # of the second convolution
    bound = 1 / np.sqrt(25 * 16)
    for values in (weight, bias):
        assert 0.8 * bound < np.abs(values).max() <= bound


def test_the_parallel_sgd_network_has_the_same_bits_for_any_team() -> None:
    rng = np.random.default_rng(3)
    data = pdnn.data.Dataset(
        rng.integers(0, 256, (37, 1, 32, 32), np.uint8), rng.integers(0, 10, 37), 1 / 255
    )

    def trained(strategy: str) -> np.ndarray:
        network = exercises.lenet_psgd(seed=5)
        optimizer = pdnn.optim.SGD(network.parameters(), lr=0.1)
        pdnn.Trainer(network, nn.NLLLoss(), optimizer, strategy=strategy, seed=6).fit(
            data, epochs=2, batch_size=18, verbose=False
        )
        return network.flat_parameters

    serial = trained("serial")
    for strategy in ("team:1", "team:2", "team:3"):
        np.testing.assert_array_equal(trained(strategy), serial)


def color_network(seed: int = 3) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 9, 3, 2, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(9, 6, 3, padding=1), nn.Tanh(),
        nn.AvgPool2d(2), nn.Dropout(0.2), nn.Flatten(), nn.Linear(24, 4), dtype="float64", seed=seed,
    )  # fmt: skip


@pytest.mark.parametrize("dtype", ["uint8", "float64"])
def test_training_on_images_equals_steps_by_hand_for_any_team(dtype: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.integers(0, 255, (22, 3, 17, 16)).astype(dtype)
    y = rng.integers(0, 4, 22)

    def trained(strategy: str, network: nn.Sequential) -> np.ndarray:
        data = pdnn.data.Dataset(x, y, scale=1 / 255)
        optimizer = pdnn.optim.SGD(network.parameters(), lr=0.5)
        trainer = pdnn.Trainer(network, nn.CrossEntropyLoss(), optimizer, strategy=strategy, seed=4)
        trainer.fit(data, epochs=2, batch_size=7, verbose=False)
        return network.flat_parameters

    serial = trained("serial", color_network())
    for strategy in ("team:2", "team:3"):
        np.testing.assert_array_equal(trained(strategy, color_network()), serial)

    network = color_network()
    network[6].p = 0.0
    by_hand = color_network()
    by_hand[6].p = 0.0
    data = pdnn.data.Dataset(x, y, scale=1 / 255)
    optimizer = pdnn.optim.SGD(network.parameters(), lr=0.5)
    pdnn.Trainer(network, nn.CrossEntropyLoss(), optimizer).fit(
        data, epochs=1, batch_size=11, shuffle=False, verbose=False
    )
    for rows in (slice(0, 11), slice(11, 22)):
        batch = np.ascontiguousarray(x[rows]) * (1 / 255)
        by_hand.flat_parameters[...] -= 0.5 * by_hand.gradient(batch, y[rows], nn.CrossEntropyLoss())[1]
    np.testing.assert_allclose(network.flat_parameters, by_hand.flat_parameters, rtol=0, atol=1e-13)


def test_layers_called_one_by_one_equal_their_network() -> None:
    network = color_network()
    network[6].p = 0.0
    rng = np.random.default_rng(5)
    x, y = rng.random((3, 3, 17, 16)), rng.integers(0, 4, 3)
    criterion = nn.CrossEntropyLoss()
    gradient = network.gradient(x, y, criterion)[1]
    outputs: Any = x
    for layer in network:
        outputs = layer(outputs)
    criterion(outputs, y).backward()
    np.testing.assert_allclose(network.flat_gradients, gradient, rtol=0, atol=1e-14)
    np.testing.assert_allclose(network(x).data, outputs.data, rtol=0, atol=1e-14)


def test_convolutional_models_come_back_from_files(tmp_path: Path) -> None:
    model = color_network()
    model.save(tmp_path / "model.safetensors")
    again = models.load_model(tmp_path / "model.safetensors")
    assert repr(again) == repr(model)
    x = np.random.default_rng(0).random((3, 3, 17, 16))
    np.testing.assert_array_equal(again.eval().predict(x), model.eval().predict(x))
    assert model.predict(x[:0]).shape == (0, 4)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_convolution_of_arrays_equals_its_definition(dtype: str) -> None:
    core = core_for(dtype)
    rng = np.random.default_rng(0)
    x, w, b = (rng.random(shape).astype(dtype) for shape in ((2, 6, 5, 3), (3, 3, 3, 4), (4,)))
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::2, ::2]  # n p q c i j
    y = np.einsum("npqcij,ijco->npqo", windows, w) + b
    close = {"rtol": 1e-6 if dtype == "float32" else 1e-13}
    np.testing.assert_allclose(core.conv2d(x, w, b, stride=2, padding=1, threads=2), y, **close)
    dy = rng.random(y.shape).astype(dtype)
    dx, dw, db = core.conv2d_backward(x, w, dy, stride=2, padding=1, threads=2)
    np.testing.assert_allclose(dw, np.einsum("npqcij,npqo->ijco", windows, dy), **close)
    np.testing.assert_allclose(db, dy.sum((0, 1, 2)), **close)
    np.testing.assert_allclose((dx * x).sum(), (dw * w).sum(), **close)  # both are Σ y ∘ dy without b
    assert core.conv2d_backward(x, w, dy, stride=2, padding=1, dw=False)[1:] == (None, None)
    with pytest.raises(ValueError, match="which is not the shape of y"):
        core.conv2d_backward(x, w, dy)
    with pytest.raises(ValueError, match=r"expected \(n, height, width, inputs\)"):
        core.conv2d(x, w[..., :2, :].copy())


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="Conv2d: in_channels = 0; expected an integer from 1"):
        nn.Conv2d(0, 2, 3)
    with pytest.raises(ValueError, match="Conv2d: stride 0; expected a whole number from 1, or 2 of them"):
        nn.Conv2d(1, 2, 3, 0)
    with pytest.raises(ValueError, match=r"kernel_size \(3, 0\); expected"):
        nn.Conv2d(1, 2, (3, 0))
    with pytest.raises(ValueError, match="padding 'same'; expected a whole number from 0"):
        nn.Conv2d(1, 2, 3, padding="same")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"dilation \(1, 1, 1\); expected"):
        nn.Conv2d(1, 2, 3, dilation=(1, 1, 1))
    for number in (2**31, 2**62, 2**70):  # whose products with the kernel would not fit
        with pytest.raises(ValueError, match=r"dilation \d+; expected a whole number from 1 to 2\*\*31 - 1"):
            nn.Conv2d(1, 2, 5, dilation=number)
    with pytest.raises(ValueError, match="kernel 3 does not fit"):
        nn.Sequential(nn.Conv2d(1, 2, 3, dilation=2**31 - 1)).output_shape((1, 8, 8))
    with pytest.raises(ValueError, match="all below 2"):
        core_for("float32").conv2d(
            np.ones((1, 8, 8, 1), "float32"), np.ones((3, 3, 1, 1), "float32"), padding=2**62
        )
    with pytest.raises(ValueError, match="3 groups; must divide 6 input and 4 output channels"):
        nn.Conv2d(6, 4, 3, groups=3)
    with pytest.raises(ValueError, match="at most 256 elements"):
        nn.MaxPool2d((17, 16))
    with pytest.raises(ValueError, match=r"AvgPool2d: padding 2 of windows of \(5, 3\); at most half"):
        nn.AvgPool2d((5, 3), padding=2)
    assert nn.AvgPool2d(3).config() == {"kernel_size": 3, "stride": 3}  # as before there was any
    assert nn.AvgPool2d(3, padding=(1, 0)).config()["padding"] == (1, 0)
    with pytest.raises(ValueError, match="only 1 is supported"):
        nn.AdaptiveAvgPool2d(2)
    network = nn.Sequential(nn.Conv2d(2, 3, 3))
    with pytest.raises(ValueError, match="input 3x5x5 has 3 channels, this layer takes 2"):
        network.output_shape((3, 5, 5))
    with pytest.raises(ValueError, match="kernel 3 does not fit input 2x2x9"):
        network.output_shape((2, 2, 9))
    with pytest.raises(ValueError, match=r"takes images \(channels, height, width\)"):
        network.output_shape((50,))
