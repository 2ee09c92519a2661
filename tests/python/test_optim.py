"""Optimizers: parameter groups, their errors, and equality with PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim

X = np.random.default_rng(0).normal(size=(40, 6))
Y = np.arange(40) % 3


def trained(model: nn.Sequential, optimizer: optim.Optimizer, epochs: int = 5) -> None:
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy="serial")
    trainer.fit((X, Y), epochs, 8, shuffle=False, verbose=False)


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True)])
def test_sgd_equals_torch(momentum: float, nesterov: bool) -> None:
    torch = pytest.importorskip("torch")
    model = models.mlp([6, 5, 3], "tanh", dtype="float64", seed=1)
    peer = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()
    with torch.no_grad():
        for theirs, ours in zip(peer.parameters(), model.parameters(), strict=True):
            theirs.copy_(torch.from_numpy(ours.data.T.copy()))
    ours = list(model.parameters())
    trained(
        model,
        optim.SGD(
            [{"params": ours[:2], "weight_decay": 0.01, "lr": 0.05}, {"params": ours[2:]}],
            lr=0.1, momentum=momentum, nesterov=nesterov,
        ),
        epochs=20,
    )  # fmt: skip
    groups = [
        {"params": peer[0].parameters(), "weight_decay": 0.01, "lr": 0.05},
        {"params": peer[2].parameters()},
    ]
    descent = torch.optim.SGD(groups, lr=0.1, momentum=momentum, nesterov=nesterov)
    for _ in range(20):
        for begin in range(0, 40, 8):
            descent.zero_grad()
            outputs = peer(torch.from_numpy(X[begin : begin + 8]))
            torch.nn.functional.cross_entropy(outputs, torch.from_numpy(Y[begin : begin + 8])).backward()
            descent.step()
    for theirs, mine in zip(peer.parameters(), model.parameters(), strict=True):
        np.testing.assert_allclose(mine.data, theirs.detach().numpy().T, rtol=0, atol=1e-12)


def test_parameters_in_no_group_stay() -> None:
    model = models.mlp([6, 5, 3], seed=1)
    first, *rest = model.parameters()
    before = first.data.copy()
    trained(model, optim.SGD(rest, lr=0.1))
    np.testing.assert_array_equal(first.data, before)


def test_a_step_by_hand_is_the_formula() -> None:
    model = models.mlp([6, 5, 3], dtype="float64", seed=1)
    first, *rest = model.parameters()
    sgd = optim.SGD([{"params": first, "lr": 0.5}, {"params": rest, "weight_decay": 0.25}], lr=0.125)
    model.flat_gradients[...] = np.arange(model.flat_gradients.size)
    want = [first.data - 0.5 * first.grad, *(p.data - 0.125 * (p.grad + 0.25 * p.data) for p in rest)]
    sgd.step()
    for parameter, values in zip(model.parameters(), want, strict=True):
        np.testing.assert_allclose(parameter.data, values, rtol=1e-15)
    sgd.zero_grad()
    assert not model.flat_gradients.any()


def test_steps_by_hand_need_one_model() -> None:
    with pytest.raises(ValueError, match="no model"):
        optim.SGD([nn.Linear(2, 2).weight], lr=0.1).step()
    both = [*models.mlp([2, 2]).parameters(), *models.mlp([2, 2]).parameters()]
    with pytest.raises(ValueError, match="several models"):
        optim.SGD(both, lr=0.1).step()


def test_changed_groups_count_from_the_next_epoch() -> None:
    model = models.mlp([6, 5, 3], seed=1)
    sgd = optim.SGD(model.parameters(), lr=0.1)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="serial")
    trainer.fit((X, Y), 1, verbose=False)
    before = model.flat_parameters.copy()
    sgd.param_groups[0]["lr"] = 0.0
    trainer.fit((X, Y), 1, verbose=False)
    np.testing.assert_array_equal(model.flat_parameters, before)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lr": -1}, "lr = -1"),
        ({"lr": float("nan")}, "lr = nan"),
        ({"lr": 0.1, "momentum": 1}, "momentum = 1"),
        ({"lr": 0.1, "nesterov": True}, "nesterov needs"),
        ({"lr": 0.1, "weight_decay": -0.1}, "weight_decay"),
    ],
)
def test_numbers_out_of_range_are_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        optim.SGD(models.mlp([2, 2]).parameters(), **options)  # type: ignore[arg-type]


def test_parameters_that_do_not_fit_are_refused() -> None:
    model = models.mlp([2, 2])
    parameters = list(model.parameters())
    with pytest.raises(ValueError, match="appears twice"):
        optim.SGD([*parameters, parameters[0]], lr=0.1)
    with pytest.raises(ValueError, match="no parameters"):
        optim.SGD([], lr=0.1)
    with pytest.raises(ValueError, match=r"unknown \['beta'\]"):
        optim.SGD([{"params": parameters, "beta": 1}], lr=0.1)
    sgd = optim.SGD(parameters, lr=0.1)
    with pytest.raises(ValueError, match="not this model's"):
        pdnn.Trainer(models.mlp([2, 2]), nn.CrossEntropyLoss(), sgd)
