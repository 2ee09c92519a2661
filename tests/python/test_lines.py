"""Layers on lines, (n, channels, length): against PyTorch, one by one, under strategies, through files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim
from pdnn.data import Dataset

#: Each built from pdnn.nn or torch.nn.
LINES: dict[str, Any] = {
    "conv": lambda m: [m.Conv1d(3, 5, 3), m.ReLU(), m.Conv1d(5, 4, 2)],
    "windows": lambda m: [m.Conv1d(3, 6, 3, 2, 2, 2, 3, bias=False), m.Tanh(), m.Conv1d(6, 6, 2, groups=6)],
    "pools": lambda m: [m.Conv1d(3, 4, 3, padding=1), m.MaxPool1d(2), m.ReLU(), m.AvgPool1d(3, 1)],
    "overlapping": lambda m: [m.Conv1d(3, 4, 1), m.AvgPool1d(3, 2), m.MaxPool1d(3, 1)],
    "padded": lambda m: [m.MaxPool1d(3, 2, 1), m.Conv1d(3, 4, 1), m.AvgPool1d(4, 1, padding=2)],
    "norm": lambda m: [m.BatchNorm1d(3), m.Conv1d(3, 4, 3), m.BatchNorm1d(4), m.AdaptiveAvgPool1d(1)],
}


def torch_line(name: str) -> tuple[Any, Any, Any]:
    """A network of PyTorch with random statistics, five rows for it, and their classes."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    torch.manual_seed(1)
    network = torch.nn.Sequential(*LINES[name](torch.nn), torch.nn.Flatten(), torch.nn.LazyLinear(3)).double()
    x, y = torch.randn(5, 3, 11, dtype=torch.float64), torch.arange(5) % 3
    network(x)
    for layer in network.modules():
        if isinstance(layer, torch.nn.BatchNorm1d):
            layer.running_mean.normal_(), layer.running_var.uniform_(0.5, 2)
    return network, x, y


def own_line(name: str, features: int, seed: int = 1) -> nn.Sequential:
    return nn.Sequential(*LINES[name](nn), nn.Flatten(), nn.Linear(features, 3), dtype="float64", seed=seed)


@pytest.mark.parametrize("name", LINES)
def test_lines_equal_torch(name: str) -> None:
    theirs, x, y = torch_line(name)
    model = own_line(name, theirs[-1].in_features)
    state = {name: tensor.detach().numpy() for name, tensor in theirs.state_dict().items()}
    model.load_state_dict(state, format="torch")
    for key, array in model.state_dict(format="torch").items():
        np.testing.assert_array_equal(array, state[key])
    model.eval(), theirs.eval()
    np.testing.assert_allclose(model.predict(x.numpy()), theirs(x).detach().numpy(), rtol=0, atol=1e-13)

    model.train(), theirs.train()
    torch = pytest.importorskip("torch")
    loss = torch.nn.functional.cross_entropy(theirs(x), y)
    loss.backward()
    want = [p.grad.numpy().transpose(range(p.ndim)[::-1]).ravel() for p in theirs.parameters()]
    value, gradient = model.gradient(x.numpy(), y.numpy(), nn.CrossEntropyLoss())
    assert abs(value - loss.item()) <= 1e-13
    np.testing.assert_allclose(gradient, np.concatenate(want), rtol=0, atol=1e-13)

    outputs: Any = x.numpy()
    for layer in model:
        outputs = layer(outputs)
    nn.CrossEntropyLoss()(outputs, y.numpy()).backward()
    np.testing.assert_allclose(model.flat_gradients, gradient, rtol=0, atol=1e-13)


def test_twenty_steps_equal_torch() -> None:
    theirs, x, y = torch_line("norm")
    model = own_line("norm", theirs[-1].in_features)
    before = {name: tensor.numpy() for name, tensor in theirs.state_dict().items()}
    model.load_state_dict(before, format="torch")
    torch = pytest.importorskip("torch")
    optimizer, own = torch.optim.SGD(theirs.parameters(), lr=0.1), optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(theirs(x), y).backward()
        optimizer.step()
        model.step(x.numpy(), y.numpy(), nn.CrossEntropyLoss(), own)
    after = {name: tensor.numpy() for name, tensor in theirs.state_dict().items()}
    for name, array in model.state_dict(format="torch").items():
        np.testing.assert_allclose(array, after[name], rtol=0, atol=1e-12)


def test_outputs_that_are_lines_have_their_channels_first() -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 2), seed=1)
    x = np.arange(12, dtype=np.float32).reshape(1, 2, 6)
    weight, bias = (part.data for part in model.parameters())
    want = np.stack([np.einsum("ci,ico->o", x[0, :, p : p + 2], weight) + bias for p in range(5)], axis=1)
    np.testing.assert_allclose(model.predict(x)[0], want, rtol=1e-5)
    np.testing.assert_allclose(model(x).numpy()[0], want, rtol=1e-5)


def line_network(dtype: str) -> nn.Sequential:
    layers = [nn.Conv1d(2, 5, 3, 2, 1), nn.ReLU(), nn.MaxPool1d(2), nn.Conv1d(5, 4, 2), nn.Tanh()]
    return nn.Sequential(*layers, nn.AvgPool1d(2), nn.Flatten(), nn.Linear(8, 3), dtype=dtype, seed=3)


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_the_same_bits_on_any_layout(dtype: str) -> None:
    rng = np.random.default_rng(4)
    data = Dataset(rng.integers(0, 256, (45, 2, 21), np.uint8), rng.integers(0, 3, 45), 1 / 255)

    def trained(strategy: str, ranks: int) -> str:
        def job() -> str:
            model = line_network(dtype)
            optimizer = optim.Adam(model.parameters())
            trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy=strategy)
            return str(trainer.fit(data, 2, 16, verbose=False).fingerprint)

        return str(job() if ranks == 1 else pdnn.run(job, ranks=ranks, backend="threads")[0])

    serial = trained("serial/8", 1)
    for strategy, ranks in [("team:3/8", 1), ("pool:2/8", 1), ("ddp/8", 3), ("pipeline:2/8", 2)]:
        assert trained(strategy, ranks) == serial, strategy


def test_lines_come_back_from_files(tmp_path: Path) -> None:
    model = line_network("float64")
    model.save(tmp_path / "line.safetensors")
    again = models.load_model(tmp_path / "line.safetensors")
    assert repr(again) == repr(model) and again.fingerprint() == model.fingerprint()
    rows = {row.name: row for row in model.summary((2, 21)).rows}
    assert rows["0"].output == (5, 11) and rows["0"].flops == 2 * 5 * 2 * 3 * 11
    assert rows["5"].output == (4, 2)


def test_mistakes_are_named() -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 3), nn.MaxPool1d(2))
    for sample in ((2, 6, 1), (6,)):
        with pytest.raises(ValueError, match=r"Conv1d: .* takes lines \(channels, length\)"):
            model.output_shape(sample)
    with pytest.raises(ValueError, match="kernel 3 does not fit input 2x2 with padding 0; add padding"):
        model.output_shape((2, 2))
    with pytest.raises(ValueError, match="input 3x5 has 3 channels, this layer takes 2"):
        model.output_shape((3, 5))
    with pytest.raises(ValueError, match=r"MaxPool1d: .* takes lines"):
        nn.Sequential(nn.MaxPool1d(2)).output_shape((2, 4, 4))
    with pytest.raises(ValueError, match=r"Conv1d: kernel_size \(3, 3\); expected a whole number from 1$"):
        nn.Conv1d(2, 3, (3, 3))
    with pytest.raises(ValueError, match="AdaptiveAvgPool1d: output size 2; only 1 is supported"):
        nn.AdaptiveAvgPool1d(2)
    with pytest.raises(ValueError, match=r"BatchNorm2d: .*use BatchNorm1d for features or lines"):
        nn.Sequential(nn.BatchNorm2d(2)).output_shape((2, 4))
