"""Operations of Tensors beside PyTorch's; gradients of inputs; comparisons and copies."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import ddp, nn, optim

RNG = np.random.default_rng(5)
X = RNG.uniform(0.5, 2, (6, 4))
ROWS, COLUMNS = np.array([0, 3, 3, 5]), np.array([1, 2, 2, 0])  # one element twice

OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "rows and columns": lambda x: x[ROWS, COLUMNS],
    "a slice": lambda x: x[1:5:2, -3:],
    "a row": lambda x: x[2],
    "an element": lambda x: x[2, 1] * 3,
    "an axis more": lambda x: x[:, None, 1:3],
    "a mask": lambda x: x[X > 1],
    "a power": lambda x: x**3 - x**0.5 + x**-1,
    "an exponential": lambda x: (x * -0.5).exp() * x,
    "a logarithm": lambda x: x.log() * x,
    "halves": lambda x: x[:, :2] * x[:, 2:].exp(),
}


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_and_their_gradients_are_torchs(name: str, dtype: str) -> None:
    torch = pytest.importorskip("torch", reason="is the oracle")
    ours = pdnn.Tensor(X.astype(dtype), requires_grad=True)
    theirs = torch.tensor(X.astype(dtype), requires_grad=True)
    y, want = OPERATIONS[name](ours), OPERATIONS[name](theirs)
    tolerance = 1e-12 if dtype == "float64" else 1e-5
    assert (y.shape, y.dtype) == (tuple(want.shape), np.dtype(dtype))
    np.testing.assert_allclose(y.data, want.detach().numpy(), rtol=tolerance)
    (y * y).sum().backward()
    (want * want).sum().backward()
    assert ours.grad is not None and ours.grad.dtype == np.dtype(dtype)
    np.testing.assert_allclose(ours.grad, theirs.grad.numpy(), rtol=tolerance, atol=tolerance)


def test_an_input_has_the_gradient_that_differences_say() -> None:
    net, y = pdnn.models.mlp((4, 5, 3), dtype="float64", seed=1), np.arange(6) % 3
    x = pdnn.Tensor(X.copy(), requires_grad=True)
    assert x.requires_grad and x.grad is None
    for passes in (1, 2):  # which add up
        nn.CrossEntropyLoss()(net(x), y).backward()
        assert x.grad is not None
        for row, column in ((0, 0), (5, 3)):
            around = [X.copy(), X.copy()]
            around[0][row, column] -= 1e-5
            around[1][row, column] += 1e-5
            below, above = (nn.CrossEntropyLoss()(net(each), y).item() for each in around)
            assert x.grad[row, column] == pytest.approx(passes * (above - below) / 2e-5, rel=1e-6)
    x.grad = None
    assert x.grad is None
    x.grad = np.zeros((6, 4))
    with pytest.raises(ValueError, match=r"shape \(4,\), expected \(6, 4\)"):
        x.grad = np.zeros(4)


def test_images_have_gradients_in_their_own_order() -> None:
    torch = pytest.importorskip("torch", reason="is the oracle")
    conv = nn.Conv2d(2, 3, 3, padding=1)
    images = RNG.standard_normal((2, 2, 5, 4)).astype(np.float32)
    x, want = pdnn.Tensor(images, requires_grad=True), torch.tensor(images, requires_grad=True)
    theirs = torch.nn.Conv2d(2, 3, 3, padding=1)
    conv.place()
    theirs.load_state_dict({k: torch.tensor(v) for k, v in conv.state_dict(format="torch").items()})
    (conv(x) ** 2).sum().backward()
    (theirs(want) ** 2).sum().backward()
    assert x.grad is not None
    np.testing.assert_allclose(x.grad, want.grad.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("hooked", [False, True])
def test_a_penalty_on_parameters_has_a_gradient(hooked: bool) -> None:
    net, want = (pdnn.models.mlp((4, 5, 3), dtype="float64", seed=1) for _ in range(2))
    y, seen = np.arange(6) % 3, []
    if hooked:
        for parameter in net.parameters():
            parameter.register_hook(lambda grad: seen.append(grad.copy()))
    loss = nn.CrossEntropyLoss()(net(X), y) + 0.1 * sum((pdnn.Tensor(p) ** 2).sum() for p in net.parameters())
    loss.backward()
    nn.CrossEntropyLoss()(want(X), y).backward()
    expected = want.flat_gradients + 0.2 * want.flat_parameters
    np.testing.assert_allclose(net.flat_gradients, expected, rtol=1e-12, atol=1e-15)
    if hooked:  # once each, of the whole
        assert sorted(grad.size for grad in seen) == sorted(p.size for p in net.parameters())
        assert sum(grad.sum() for grad in seen) == pytest.approx(expected.sum())
    with pdnn.no_grad():
        assert not pdnn.Tensor(next(net.parameters())).requires_grad


def test_only_inputs_keep_a_gradient() -> None:
    y = pdnn.Tensor(X, requires_grad=True) * 2
    y.sum().backward()
    assert y.grad is None
    with pytest.raises(ValueError, match="requires_grad=True"):
        y.grad = None
    with pytest.raises(ValueError, match="nothing is behind"):
        pdnn.Tensor(X).sum().backward()


def test_a_power_of_0_has_no_slope_and_a_root_says_nothing_at_0() -> None:
    x = pdnn.Tensor(np.array([0.0, 2.0]), requires_grad=True)
    (x**0).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0, 0]
    x.grad = None
    (x**0.5).sum().backward()  # warnings are errors
    assert x.grad is not None and x.grad[0] == np.inf


def test_rows_may_be_gone_through_and_a_single_number_not() -> None:
    x = pdnn.Tensor(X, requires_grad=True)
    total = sum(row.sum() * row.sum() for row in x)
    assert isinstance(total, pdnn.Tensor)
    total.backward()
    np.testing.assert_allclose(x.grad, np.repeat(2 * X.sum(axis=1, keepdims=True), 4, axis=1))
    for use in (list, sum, iter):
        with pytest.raises(TypeError, match="a single number is none to go through"):
            use(nn.MSELoss()(pdnn.Tensor(X), X))  # type: ignore[operator]


@pytest.mark.parametrize("op", ["Average", "Sum"])
def test_optimizers_of_ranks_weigh_no_input_and_no_pass_without_rows(op: str) -> None:
    net, y = pdnn.models.mlp((4, 3), dtype="float64", seed=1), np.arange(6) % 3
    x, want = (pdnn.Tensor(X.copy(), requires_grad=True) for _ in range(2))
    nn.CrossEntropyLoss()(net(want), y).backward()
    ddp.init()
    sgd = optim.SGD(net.parameters(), lr=0.1)
    optimizer = ddp.DistributedOptimizer(sgd, net.named_parameters(), op=getattr(ddp, op))
    optimizer.zero_grad()
    nn.CrossEntropyLoss()(net(x), y).backward()
    np.testing.assert_allclose(x.grad, want.grad, rtol=1e-12)
    optimizer.step()
    optimizer.zero_grad()
    penalty = sum((pdnn.Tensor(p) ** 2).sum() for p in net.parameters())
    assert isinstance(penalty, pdnn.Tensor)
    if op == "Average":
        with pytest.raises(ValueError, match="nothing in this pass counts rows"):
            penalty.backward()
    else:
        penalty.backward()
        before = net.flat_parameters.copy()
        optimizer.step()
        np.testing.assert_allclose(net.flat_parameters, 0.8 * before, rtol=1e-12)


def test_single_numbers_compare() -> None:
    loss, best = nn.MSELoss()(pdnn.Tensor(X), X + 1), float("inf")
    assert loss < best and loss <= best and best > loss and best >= loss
    assert pdnn.Tensor(np.array(0.1, np.float32)) <= 0.1  # in its own precision
    assert not loss > best and loss >= loss * 1 and np.float64(0) < loss and loss > np.float32(0)
    assert min([loss * 2, loss, loss * 3]).item() == loss.item()
    with pytest.raises(TypeError, match=r"< of shapes \(6, 4\) and \(\); .*tensor.data < other"):
        pdnn.Tensor(X) < 1  # noqa: B015
    with pytest.raises(TypeError, match="< with str"):
        loss < "a"  # type: ignore[operator]  # noqa: B015


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda x: pickle.loads(pickle.dumps(x))])
def test_copies_have_the_values_and_no_graph(copied: Callable[[Any], Any]) -> None:
    class Remembering(nn.Module):
        def __init__(self) -> None:
            super().__init__(dtype="float64")
            self.layer, self.hidden = nn.Linear(4, 2), pdnn.Tensor(X)

        def forward(self, x: Any) -> Any:
            self.hidden = self.layer(x)
            return self.hidden

    net = Remembering()
    net(X)
    if copied is copy.deepcopy:
        other = copied(net)
        np.testing.assert_array_equal(other.hidden.data, net.hidden.data)
    other = copied(net.hidden)
    assert not other.requires_grad and net.hidden.requires_grad
    wanted = copied(pdnn.Tensor(X, requires_grad=True))
    assert wanted.requires_grad and wanted.grad is None


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda x: x**x, TypeError, r"\*\* with Tensor; it takes a number"),
        (lambda x: x[9], IndexError, "out of bounds"),
        (lambda x: x.requires_grad_(), AttributeError, "requires_grad=True"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[Any], Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call(pdnn.Tensor(X))
