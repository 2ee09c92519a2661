"""Sheet 1: a network by hand against pdnn's."""

from __future__ import annotations

from typing import Any

import numpy as np

from pdnn import nn, optim
from pdnn.course.compare import Array, all_rows, read_only, returned, same
from pdnn.course.submission import Submission, Wrong
from pdnn.exercises import sigmoid, softmax
from pdnn.models import mlp

N, INPUTS, HIDDEN, CLASSES = 23, 12, 7, 5  # rows that no batch size divides, and no two sizes alike
NAMES = ("dW1", "db1", "dW2", "db2")


def _model(seed: int = 3) -> nn.Sequential:
    return mlp([INPUTS, HIDDEN, CLASSES], "sigmoid", dtype="float64", seed=seed)


def _rows(n: int = N) -> tuple[Array, Array, Array]:
    """Samples, labels, and these as rows with a one."""
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, n)
    return read_only(random.normal(size=(n, INPUTS))), labels, read_only(np.eye(CLASSES)[labels])


def _params(model: nn.Sequential) -> list[Array]:
    return [parameter.data for parameter in model.parameters()]


def _pass(model: nn.Sequential, x: Array) -> tuple[Array, Array]:
    """What `forward` should give."""
    w1, b1, _, _ = _params(model)
    return read_only(softmax(model.predict(x))), read_only(sigmoid(x @ w1 + b1))


def _gradient(model: nn.Sequential, x: Array, labels: Array) -> list[Array]:
    """pdnn's, as arrays of the parameters' shapes."""
    return list(model.split(model.gradient(x, labels, nn.CrossEntropyLoss())[1]).values())


def activations(student: Submission) -> str:
    """Sigmoid, and softmax also of large numbers."""
    a = read_only(np.array([[-2.0, 0, 1], [3, 0.5, -1], [-20, 8, 20]]))
    same("sigmoid(a)", student.sigmoid(a), sigmoid(a))
    got = np.asarray(returned("softmax", student.softmax(a)), np.float64)
    if got.shape == a.shape and not np.allclose(got.sum(axis=1), 1):
        sums = ", ".join(f"{each:.3g}" for each in got.sum(axis=1))
        raise Wrong(f"the rows of softmax(s) add up to {sums}, not to 1: sum over each row, axis=1")
    same("softmax(s)", got, softmax(a))
    large = read_only(np.array([[1000.0, 999, -1000], [-1000, -1001, -1002]]))
    with np.errstate(all="ignore"):
        got = np.asarray(student.softmax(large), np.float64)
    if not np.isfinite(got).all():
        raise Wrong("softmax(s) overflows for values like 1000: subtract the largest of each row first")
    same("softmax(s) of values like 1000", got, softmax(large))
    return "right, and softmax is stable"


def forward_pass(student: Submission) -> str:
    """The forward pass equals pdnn's."""
    model, (x, _, _) = _model(), _rows()
    y, z = _pass(model, x)
    got = student.forward(x, *(each.copy() for each in _params(model)))
    if not isinstance(got, (tuple, list)) or len(got) != 2:
        raise Wrong(f"forward returned {type(got).__name__}, not the pair (y, z)")
    same("z of forward", got[1], z, {"the sigmoid is missing": x @ _params(model)[0] + _params(model)[1]})
    return same("y of forward", got[0], y, {"the softmax is missing": model.predict(x)})


def mean_loss(student: Submission) -> str:
    """The loss is a mean over rows."""
    model, (x, _, t) = _model(), _rows()
    y, _ = _pass(model, x)
    rows = -(t * np.log(y)).sum(axis=1)
    known = {
        f"it is the sum over the rows, not their mean: {N} × too large for {N} rows": rows.sum(),
        "it is divided by all elements of y; divide by the rows only": rows.sum() / y.size,
        "the sign is wrong": -rows.mean(),
    }
    words = same("cross_entropy(y, t)", student.cross_entropy(y, t), rows.mean(), known)
    same("cross_entropy where a y is 0 and its t too", student.cross_entropy(t, t), 0.0)
    return words


def gradients(student: Submission) -> str:
    """The gradients equal pdnn's."""
    model, (x, labels, t) = _model(), _rows()
    y, z = _pass(model, x)
    w2 = _params(model)[2]
    right = _gradient(model, x, labels)
    got = student.backward(x, t, y, z, w2.copy())
    if not isinstance(got, (tuple, list)) or len(got) != 4:
        raise Wrong(f"backward returned {type(got).__name__}, not the four gradients (dW1, db1, dW2, db2)")
    values = [np.asarray(each, np.float64) for each in got]
    if all(each.shape == other.shape for each, other in zip(values, right, strict=True)):
        for factor, words in [
            (N, f"the 1/n is missing: every gradient is {N} × too large for {N} rows"),
            (1 / N, f"divided by n twice: every gradient is {N} × too small for {N} rows"),
            (-1, "the sign is wrong: δ is y − t, not t − y"),
        ]:
            if all(np.allclose(each, factor * other) for each, other in zip(values, right, strict=True)):
                raise Wrong(words)
    delta = (y - t) / N
    back = delta @ w2.T
    known: dict[str, dict[str, Any]] = {
        "dW1": {
            "σ' is missing: multiply by z (1 − z) on the way back": x.T @ back,
            "σ' is z (1 − z), not z": x.T @ (back * z),
        },
        "db1": {
            "it is the mean over the rows, not the sum: the 1/n is in δ already": right[1] / N,
            "σ' is missing: multiply by z (1 − z) on the way back": back.sum(axis=0),
        },
        "db2": {"it is the mean over the rows, not the sum: the 1/n is in δ already": right[3] / N},
    }
    for name, each, other in zip(NAMES, got, right, strict=True):
        same(name, each, other, known.get(name))
    return "all four are right"


def every_row(student: Submission) -> str:
    """Minibatches cover every row."""
    for n, size in [(23, 5), (20, 5), (3, 8)]:
        slices = returned("minibatches", student.minibatches(n, size))
        parts = [np.arange(n)[part] for part in slices]
        what = f"minibatches({n}, {size})"
        rows = all_rows(what, np.concatenate(parts) if parts else np.empty(0), n)
        if (np.diff(rows) < 0).any():
            raise Wrong(f"{what} are not in order")
        sizes = [len(part) for part in parts]
        expected = [size] * (n // size) + [n % size] * (n % size > 0)
        if sizes != expected:
            raise Wrong(f"{what} have {sizes} rows, not {expected}")
    return "also where the size does not divide the rows"


def epoch(student: Submission) -> str:
    """An epoch of training equals pdnn's."""
    size, rate = 5, 0.3
    x, labels, t = _rows()
    model, right, stale, dropped, summed, uphill = (_model() for _ in range(6))
    for begin in range(0, N, size):
        part = slice(begin, begin + size)
        for each, at, factor in [
            (right, right, 1),
            (stale, _model(), 1),
            (dropped, dropped, int(begin + size <= N)),
            (summed, summed, len(x[part])),
            (uphill, uphill, -1),
        ]:
            _, gradient = at.gradient(x[part], labels[part], nn.CrossEntropyLoss())
            each.flat_parameters[:] -= rate * factor * gradient
    before = model.flat_parameters.copy()
    student.train_epoch(x, t, _params(model), size, rate)
    if (model.flat_parameters == before).all():
        raise Wrong(
            "train_epoch does not change the parameters that it was given: write w -= rate * dw, in place"
        )
    known = {
        "every gradient was taken at the first parameters: stale from the second minibatch on": (
            stale.flat_parameters
        ),
        f"the last {N % size} rows of each epoch are dropped": dropped.flat_parameters,
        "the gradients are sums over the rows, not means": summed.flat_parameters,
        "the step goes uphill: subtract the gradient": uphill.flat_parameters,
    }
    return same("the model after train_epoch", model.flat_parameters, right.flat_parameters, known)


def plugged_in(student: Submission) -> str:
    """Your gradient drives pdnn's Adam."""
    x, labels, t = _rows()
    model, right = _model(), _model()
    for each in (model, right):
        optimizer = optim.Adam(each.parameters(), lr=0.05)
        for _ in range(3):
            if each is model:
                student.step_with(optimizer, model, x, t)
            else:
                optimizer.zero_grad()
                nn.CrossEntropyLoss()(each(x), labels).backward()
                optimizer.step()
    if (model.flat_parameters == _model().flat_parameters).all():
        raise Wrong("step_with changes nothing: p.grad[...] = gradient, in place, then optimizer.step()")
    return same("the model after 3 steps of Adam", model.flat_parameters, right.flat_parameters)


CHECKS = [activations, forward_pass, mean_loss, gradients, every_row, epoch, plugged_in]
