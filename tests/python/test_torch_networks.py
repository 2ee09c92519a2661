"""With PyTorch's initial arrays and batches, in float64: the same networks step by step, and their files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim

torch = pytest.importorskip("torch", reason="compares with PyTorch: pip install torch")

STEPS, ROWS, INPUTS, CLASSES = 20, 16, 6, 3
RNG = np.random.default_rng(1)
X, Y = RNG.normal(1, 2, (STEPS * ROWS, INPUTS)), RNG.integers(0, CLASSES, STEPS * ROWS)

#: Each built from pdnn.nn or torch.nn, whose names are the same.
NETWORKS: dict[str, Any] = {
    "batch norm": lambda m: [
        m.Linear(INPUTS, 9), m.BatchNorm1d(9), m.ReLU(),
        m.Linear(9, 7), m.BatchNorm1d(7, eps=1e-3, momentum=0.3), m.Tanh(), m.Linear(7, CLASSES),
    ],
    "layer norm": lambda m: [m.LayerNorm(INPUTS), m.Linear(INPUTS, 9), m.LayerNorm(9), m.Linear(9, CLASSES)],
    "gelu": lambda m: [m.Linear(INPUTS, 9), m.GELU(), m.Linear(9, CLASSES)],
    "silu": lambda m: [m.Linear(INPUTS, 9), m.SiLU(), m.Linear(9, CLASSES)],
    "elu": lambda m: [m.Linear(INPUTS, 9), m.ELU(), m.Linear(9, 9), m.ELU(0.3), m.Linear(9, CLASSES)],
    "softplus": lambda m: [
        m.Linear(INPUTS, 9), m.Softplus(), m.Linear(9, 9), m.Softplus(beta=1.7, threshold=0.8),
        m.Linear(9, CLASSES),
    ],
    "leaky relu": lambda m: [
        m.Linear(INPUTS, 9), m.LeakyReLU(), m.Linear(9, 9), m.LeakyReLU(0.3), m.Linear(9, CLASSES),
    ],
    "residuals": lambda m: [
        m.Linear(INPUTS, 8),
        residual(m, m.Linear(8, 8), m.BatchNorm1d(8), m.ReLU(), residual(m, m.GELU(), m.Linear(8, 8))),
        m.Linear(8, CLASSES),
    ],
}  # fmt: skip


class TorchResidual(torch.nn.Module):  # type: ignore[misc,name-defined]
    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn

    def forward(self, x: Any) -> Any:
        return x + self.fn(x)


def residual(m: Any, *layers: Any) -> Any:
    return nn.Residual(nn.Sequential(*layers)) if m is nn else TorchResidual(torch.nn.Sequential(*layers))


def peer_of(model: nn.Sequential, layers: list[Any]) -> Any:
    """The same network in torch, with the same values."""
    peer = torch.nn.Sequential(*layers).double()
    arrays = {name: torch.from_numpy(array) for name, array in model.state_dict(format="torch").items()}
    peer.load_state_dict(arrays)  # strict
    return peer


def distance(model: nn.Sequential, peer: Any) -> float:
    """The largest difference of any parameter or running statistic, relative to its array's largest."""
    theirs = {name: tensor.numpy() for name, tensor in peer.state_dict().items()}
    return max(
        float(np.abs(theirs[name] - array).max() / max(np.abs(array).max(), 1e-3))
        for name, array in model.state_dict(format="torch").items()
    )


@pytest.mark.parametrize("name", NETWORKS)
def test_twenty_steps_equal_torch(name: str) -> None:
    model = nn.Sequential(*NETWORKS[name](nn), dtype="float64", seed=3)
    peer = peer_of(model, NETWORKS[name](torch.nn))
    assert distance(model, peer) == 0
    sgd = optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="serial")
    trainer.fit((X, Y), 1, ROWS, shuffle=False, verbose=False)
    theirs = torch.optim.SGD(peer.parameters(), lr=0.05, momentum=0.9)
    for step in range(STEPS):
        rows = slice(step * ROWS, (step + 1) * ROWS)
        theirs.zero_grad()
        loss = torch.nn.functional.cross_entropy(peer(torch.from_numpy(X[rows])), torch.from_numpy(Y[rows]))
        loss.backward()
        theirs.step()
    assert distance(model, peer) <= 1e-11
    peer.eval()
    with torch.no_grad():
        outputs = peer(torch.from_numpy(X)).numpy()
    np.testing.assert_allclose(model.predict(X), outputs, rtol=1e-10, atol=1e-11)


def test_values_of_torch_come_back_and_what_does_not_fit_is_refused() -> None:
    model = nn.Sequential(*NETWORKS["residuals"](nn), dtype="float64", seed=3)
    peer = torch.nn.Sequential(*NETWORKS["residuals"](torch.nn)).double()
    state = {name: tensor.numpy() for name, tensor in peer.state_dict().items()}
    assert "1.fn.1.num_batches_tracked" in state
    assert {name for name in state if not name.endswith("tracked")} == set(model.state_dict())
    model.load_state_dict(state, format="torch")
    assert distance(model, peer) == 0
    peer.eval()
    np.testing.assert_allclose(
        model.predict(X), peer(torch.from_numpy(X)).detach().numpy(), rtol=1e-12, atol=1e-14
    )
    before = model.flat_parameters.copy()
    with pytest.raises(ValueError, match=r"unknown \['1.fn.1.num_batches_tracked'\]"):
        model.load_state_dict(state)
    with pytest.raises(ValueError, match=r"0\.weight has shape \(8, 6\), expected \(6, 8\)"):
        model.load_state_dict({n: a for n, a in state.items() if not n.endswith("tracked")})
    with pytest.raises(ValueError, match=r"0\.weight has shape \(1, 6\), expected \(8, 6\)"):
        model.load_state_dict(state | {"0.weight": torch.zeros(1, 6)}, format="torch")
    with pytest.raises(ValueError, match=r"missing \['0.bias'\]"):
        model.load_state_dict({n: a for n, a in state.items() if n != "0.bias"}, format="torch")
    with pytest.raises(ValueError, match=r'2.weight is a tensor of PyTorch; pass format="torch"'):
        model.load_state_dict(model.state_dict() | {"2.weight": torch.zeros(3, 8)})
    with pytest.raises(ValueError, match='format "keras"; expected "pdnn" or "torch"'):
        model.state_dict(format="keras")
    np.testing.assert_array_equal(model.flat_parameters, before)


def test_tensors_of_bfloat16_and_those_that_require_a_gradient_come() -> None:
    layers: Any = lambda m: [m.Embedding(4, 2), m.Flatten(), m.Linear(6, 3)]  # noqa: E731
    model, peer = nn.Sequential(*layers(nn), seed=3), torch.nn.Sequential(*layers(torch.nn))
    model.load_state_dict(dict(peer.named_parameters()), format="torch")
    assert distance(model, peer) == 0
    state = peer.bfloat16().state_dict()
    model.load_state_dict(state, format="torch")
    assert distance(model, peer.float()) == 0


def conv_bn(inputs: int, outputs: int, kernel: int, stride: int) -> list[Any]:
    convolution = torch.nn.Conv2d(inputs, outputs, kernel, stride, padding=(kernel - 1) // 2)
    return [convolution, torch.nn.BatchNorm2d(outputs), torch.nn.ReLU()]


def torch_resnet9() -> list[Any]:
    return [
        *conv_bn(3, 16, 7, 4), *conv_bn(16, 32, 3, 2),
        residual(torch.nn, *conv_bn(32, 32, 3, 1), *conv_bn(32, 32, 3, 1)),
        *conv_bn(32, 64, 3, 2), *conv_bn(64, 128, 3, 2),
        residual(torch.nn, *conv_bn(128, 128, 3, 1), *conv_bn(128, 128, 3, 1)),
        torch.nn.Flatten(), torch.nn.Linear(128, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10),
    ]  # fmt: skip


def test_resnet9_with_adam_equals_torch_after_twenty_steps() -> None:
    images, labels = RNG.normal(size=(STEPS * ROWS, 3, 32, 32)), RNG.integers(0, 10, STEPS * ROWS)
    model = models.ResNet9(dtype="float64", seed=3)
    peer = peer_of(model, torch_resnet9())
    adam = optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-3)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), adam, strategy="serial")
    trainer.fit((images, labels), 1, ROWS, shuffle=False, verbose=False)
    theirs = torch.optim.Adam(peer.parameters(), lr=1e-3, weight_decay=1e-3)
    for step in range(STEPS):
        rows = slice(step * ROWS, (step + 1) * ROWS)
        theirs.zero_grad()
        outputs = peer(torch.from_numpy(images[rows]))
        torch.nn.functional.cross_entropy(outputs, torch.from_numpy(labels[rows])).backward()
        theirs.step()
    assert distance(model, peer) <= 1e-9


def test_what_is_torchs_is_called_so() -> None:
    """Its classes have pdnn's names: "got Linear, expected a Module" says nothing."""
    theirs, model = torch.nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))
    adam, criterion = torch.optim.Adam(theirs.parameters()), torch.nn.MSELoss()
    sgd = optim.SGD(model.parameters(), lr=0.1)
    wrong: dict[str, Any] = {
        "layer 0 is of type torch.nn.modules.linear.Linear": lambda: nn.Sequential(theirs),
        "fn is of type torch.nn.modules.linear.Linear": lambda: nn.Residual(theirs),
        "ModuleList: got torch.nn.modules.linear.Linear": lambda: nn.ModuleList([theirs]),
        "SGD: got torch.nn.parameter.Parameter": lambda: optim.SGD(theirs.parameters(), lr=0.1),
        "StepLR: got torch.optim.adam.Adam": lambda: optim.StepLR(adam, 1),
        "model is of type torch.nn.modules.linear.Linear": lambda: pdnn.Trainer(theirs, nn.MSELoss(), sgd),
        "loss is of type torch.nn.modules.loss.MSELoss": lambda: pdnn.Trainer(model, criterion, sgd),
        "optimizer is of type torch.optim.adam.Adam": lambda: pdnn.Trainer(model, nn.MSELoss(), adam),
        "got torch.utils.data.dataset.TensorDataset": lambda: pdnn.Trainer(model, nn.MSELoss(), sgd).fit(
            torch.utils.data.TensorDataset(torch.zeros(2, 2))
        ),
    }
    for words, call in wrong.items():
        with pytest.raises(TypeError, match=re.escape(words)):
            call()


def test_the_program_and_the_claims_of_the_page_for_its_users(root: Path) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (root / "docs/pytorch.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["right"] > 0.85 * len(names["test"])

    y, weight = Y[:ROWS] % 2, np.where(Y[:ROWS] % 2 == 1, 3.0, 1.0)
    theirs = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0]))
    want = theirs(torch.from_numpy(X[:ROWS, :1]), torch.from_numpy(y[:, None].astype(float))).item()
    got = nn.BCEWithLogitsLoss()(X[:ROWS, :1], y, weight).item()
    assert got * weight.sum() / ROWS == pytest.approx(want)

    model = nn.Sequential(nn.Linear(INPUTS, CLASSES), dtype="float64", seed=3)
    sgd = optim.SGD(model.parameters(), lr=1.0)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="serial")
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(
        torch.optim.SGD([torch.zeros(1)], lr=1.0), factor=0.5, patience=2, threshold_mode="abs"
    )
    ours = pdnn.callbacks.ReduceLROnPlateau("loss", factor=0.5, patience=3)
    for epoch, loss in enumerate([3.0, 2.0, 2.0, 2.5, 1.99995, 1.9, 2.0, 1.8, 2.0, 2.0, 2.0]):
        ours.on_epoch_end(trainer, epoch, {"loss": loss})
        plateau.step(loss)
        assert sgd.param_groups[0]["lr"] == plateau.get_last_lr()[0]
    assert sgd.param_groups[0]["lr"] == 0.25
