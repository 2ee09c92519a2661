"""What second-order optimizers compute, against torch.func in float64: g, B = JᵀHJ, and B v by products."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pdnn import models, nn, optim
from pdnn.core import core_for
from pdnn.optim import batch_loss

RNG = np.random.default_rng(4)
ROWS, SIZES, DAMPING = 23, [4, 7, 5, 3], 0.3
X = RNG.normal(size=(ROWS, SIZES[0]))
VALUES = RNG.normal(size=(ROWS, SIZES[-1]))
CLASSES = RNG.integers(0, SIZES[-1], ROWS)
WEIGHTS = RNG.uniform(0.5, 2, ROWS)
V = RNG.normal(size=models.mlp(SIZES).flat_parameters.size)
CASES = {
    "squares": (nn.MSELoss(), optim.GaussNewton),
    "cross entropy": (nn.CrossEntropyLoss(), optim.GaussNewton),
    "summed cross entropy": (nn.CrossEntropyLoss("sum"), optim.LevenbergMarquardt),
    "Fisher, squares": (nn.MSELoss(), optim.NaturalGradient),
    "Fisher, cross entropy": (nn.CrossEntropyLoss(), optim.NaturalGradient),
}


class OfTorch:
    """The gradient, B, and vᵀBv at the parameters of a model, by torch.func."""

    def __init__(self, model: nn.Sequential, criterion: nn.Loss, fisher: bool) -> None:
        torch = pytest.importorskip("torch", reason="compares with PyTorch: pip install torch")
        func = torch.func
        theta, v = torch.tensor(model.flat_parameters), torch.tensor(V)
        x, classes, values = torch.tensor(X), torch.tensor(CLASSES), torch.tensor(VALUES)
        entropy, mean = isinstance(criterion, nn.CrossEntropyLoss), criterion.reduction == "mean"
        weights = torch.tensor(WEIGHTS / WEIGHTS.sum() if mean else WEIGHTS)
        places = [(each.offset, each.size, each.shape) for each in model.parameters()]

        def outputs(theta: Any) -> Any:
            arrays, h = [theta[at : at + size].reshape(shape) for at, size, shape in places], x
            for index in range(0, len(arrays), 2):
                h = (h if index == 0 else torch.tanh(h)) @ arrays[index] + arrays[index + 1]
            return h

        def of_outputs(out: Any) -> Any:
            """Of each row."""
            if entropy:
                return torch.nn.functional.cross_entropy(out, classes, reduction="none")
            return (out - values).square().mean(1)

        def losses(theta: Any) -> Any:
            return of_outputs(outputs(theta))

        if fisher:
            rows = func.jacrev(losses)(theta)
            bent = func.jvp(losses, (theta,), (v,))[1].square()
            self.b = torch.einsum("i,ip,iq->pq", weights, rows, rows).numpy()
        else:
            j, (out, jv) = func.jacrev(outputs)(theta), func.jvp(outputs, (theta,), (v,))
            h = func.hessian(lambda out: of_outputs(out).sum())(out)
            h = torch.stack([h[i, :, i] for i in range(ROWS)])
            bent = torch.einsum("ik,ikl,il->i", jv, h, jv)
            self.b = torch.einsum("i,ikp,ikl,ilq->pq", weights, j, h, j).numpy()
        self.gradient = func.grad(lambda theta: weights @ losses(theta))(theta).numpy()
        self.curvature = float(weights @ bent)  # vᵀBv


@pytest.mark.filterwarnings("ignore:`torch.jit.script`")  # by torch itself, in jvp
@pytest.mark.parametrize("case", CASES)
def test_gradients_matrices_and_products_are_those_of_torch(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    criterion, kind = CASES[case]
    model = models.mlp(SIZES, "tanh", dtype="float64", seed=2)
    model.flat_parameters[...] += 0.1 * RNG.normal(size=V.size)  # biases, too
    want = OfTorch(model, criterion, kind.fisher)
    y = CLASSES.astype(np.int32) if isinstance(criterion, nn.CrossEntropyLoss) else VALUES
    batch = kind(model.parameters()).batch_loss(model, criterion, X.shape[1:])
    batch.take(core_for("float64").Source(X, y, 1.0, 0.0, WEIGHTS), np.arange(ROWS))

    np.testing.assert_allclose(batch.linearize(), want.gradient, rtol=0, atol=1e-13)
    assert batch.largest() == pytest.approx(want.b.diagonal().max(), rel=1e-12)
    damped = want.b + DAMPING * np.eye(V.size)
    inverse = np.array([batch.solve(DAMPING, unit, "normal") for unit in np.eye(V.size)])
    np.testing.assert_allclose(-inverse @ damped, np.eye(V.size), rtol=0, atol=1e-11)
    np.testing.assert_allclose(
        damped @ batch.solve(DAMPING, want.gradient, "kernel"), -want.gradient, rtol=0, atol=1e-11
    )
    # the first of the conjugate gradients goes along v if diag(B + damping) v is the right side
    right = damped.diagonal() * V
    monkeypatch.setattr(batch_loss, "PRODUCTS", 1)
    step = -batch.solve(DAMPING, right, "cg") / V
    np.testing.assert_allclose(step, right @ V / (want.curvature + DAMPING * V @ V), rtol=1e-11)
    monkeypatch.setattr(batch_loss, "PRODUCTS", 500)
    monkeypatch.setattr(batch_loss, "TOLERANCE", 1e-14)
    np.testing.assert_allclose(damped @ batch.solve(DAMPING, V, "cg"), -V, rtol=0, atol=1e-11)
