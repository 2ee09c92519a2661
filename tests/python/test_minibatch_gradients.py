"""The thread-pool exercise's functions: its cell with one import changed, over the caller's arrays."""

from __future__ import annotations

import sys
import threading
import tracemalloc
from collections.abc import Callable
from multiprocessing.pool import ThreadPool
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import exercises, nn
from pdnn.exercises import compute_minibatch_gradients, convert_to_one_hot, feedforward

CELL = """
from multiprocessing.pool import ThreadPool

np.random.seed(42)
W1, W2 = .001 * np.random.randn(784, 256), .001 * np.random.randn(256, 10)
b1, b2 = .1 * np.random.randn(1, 256), .1 * np.random.randn(1, 10)
eta = 1e-3
x_batches, y_batches, num_batches, _ = mini_batch(x_train, y_train, 104)
pool = ThreadPool(5)
for first in range(0, num_batches, together):
    work = [(W1, W2, b1, b2, x_batches[i], y_batches[i]) for i in range(first, first + together)]
    grads = pool.map(computeMinibatchGradientsTuple, work)
    grad_W1, grad_W2, grad_b1, grad_b2 = [sum(parts) / together for parts in zip(*grads)]
    W1 -= eta * grad_W1
    W2 -= eta * grad_W2
    b1 -= eta * grad_b1
    b2 -= eta * grad_b2
pool.close()
y_pred, Z1 = feedforward(x_train, W1, W2, b1, b2)
loss = L(y_train, y_pred, W1, W2)
y_pred, Z1 = feedforward(x_test, W1, W2, b1, b2)
accuracy = np.mean(np.argmax(y_pred, axis=1) == np.argmax(y_test, axis=1))
"""


@pytest.mark.parametrize(
    ("together", "loss", "accuracy"), [(1, 2.1678, 0.6497), (25, 2.3030, 0.0940)], ids=["vanilla", "parallel"]
)
def test_the_exercises_cell_runs_with_its_import_changed(together: int, loss: float, accuracy: float) -> None:
    """The figures after the first epoch are those of the exercise's NumPy on this split."""
    train, test = (part.gather(dtype="float64") for part in pdnn.datasets.mnist_mini(scale=1))
    names: dict[str, Any] = {"np": np, "together": together}
    exec("from pdnn.exercises import *", names)
    names |= {"x_train": train[0], "y_train": convert_to_one_hot(train[1], 10)}
    names |= {"x_test": test[0], "y_test": convert_to_one_hot(test[1], 10)}
    exec(CELL, names)
    assert names["loss"] == pytest.approx(loss, abs=1e-4)
    assert names["accuracy"] == pytest.approx(accuracy, abs=1e-4)


def arrays(
    m: int = 7, inputs: int = 5, hidden: int = 4, outputs: int = 3, dtype: str = "float64"
) -> list[np.ndarray]:
    """W1, W2, b1, b2, x, t."""
    rng = np.random.default_rng(0)
    shapes = (inputs, hidden), (hidden, outputs), (1, hidden), (1, outputs), (m, inputs)
    return [
        *(rng.normal(size=shape).astype(dtype) for shape in shapes),
        np.eye(outputs, dtype=dtype)[rng.integers(outputs, size=m)],
    ]


def test_gradients_are_the_derivatives_of_the_cost() -> None:
    *parameters, x, t = arrays()
    w1, w2, b1, b2 = parameters

    def cost() -> float:
        return exercises.cost(t, feedforward(x, w1, w2, b1, b2)[0], w1, w2)

    for parameter, gradient in zip(parameters, compute_minibatch_gradients(*parameters, x, t), strict=True):
        numbers = np.empty_like(parameter)
        for index in np.ndindex(parameter.shape):
            kept = parameter[index]
            parameter[index] = kept + 1e-5
            above = cost()
            parameter[index] = kept - 1e-5
            numbers[index] = (above - cost()) / 2e-5
            parameter[index] = kept
        distance = np.linalg.norm(gradient - numbers)
        assert distance <= 1e-7 * (np.linalg.norm(gradient) + np.linalg.norm(numbers))


@pytest.mark.parametrize(("dtype", "within"), [("float64", 1e-14), ("float32", 1e-5)])
def test_they_are_the_models_with_the_penalty(dtype: str, within: float) -> None:
    w1, w2, b1, b2, x, t = arrays(dtype=dtype)
    model = nn.Sequential(nn.Linear(5, 4), nn.Sigmoid(), nn.Linear(4, 3), dtype=dtype)
    for parameter, values in zip(model.parameters(), (w1, b1[0], w2, b2[0]), strict=True):
        parameter.data = values
    parts = model.split(model.gradient(x, t.argmax(axis=1), nn.CrossEntropyLoss())[1])
    want = parts["0.weight"] + 1e-2 * w1, parts["2.weight"] + 1e-5 * w2, parts["0.bias"], parts["2.bias"]
    got = compute_minibatch_gradients((w1, w2, b1[0], b2[0], x, t))
    for ours, theirs in zip(got, want, strict=True):
        assert ours.dtype == dtype
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=within)


def test_a_thread_pool_gives_the_bits_of_a_loop() -> None:
    w1, w2, b1, b2, *_ = parameters = arrays(1)[:4]
    tasks = [(w1, w2, b1, b2, *arrays(m)[4:]) for m in range(1, 20)]
    before = [parameter.copy() for parameter in parameters]
    with ThreadPool(5) as pool:
        pooled = pool.map(compute_minibatch_gradients, tasks)
    for got, task in zip(pooled, tasks, strict=True):
        for mine, alone in zip(got, compute_minibatch_gradients(*task), strict=True):
            np.testing.assert_array_equal(mine, alone)
    for parameter, kept in zip(parameters, before, strict=True):
        np.testing.assert_array_equal(parameter, kept)


def test_samples_are_not_copied() -> None:
    batch = arrays(2000, 500, 4)
    tracemalloc.start()
    try:
        compute_minibatch_gradients(*batch)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < batch[4].nbytes / 4


def test_other_threads_run_while_gradients_are_computed() -> None:
    batch, order, began = arrays(1200, 1200, 1200), [], threading.Event()

    def compute() -> None:
        began.set()
        compute_minibatch_gradients(*batch)
        order.append("computed")

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # so nobody takes the GIL from a thread that does not give it back
    try:
        thread = threading.Thread(target=compute)
        thread.start()
        began.wait()
        order.append("meanwhile")
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert order == ["meanwhile", "computed"]


def test_a_network_that_is_sure_has_a_finite_cost() -> None:
    scores = np.array([[1000.0, 0, -1000]])
    s = exercises.softmax(scores)
    np.testing.assert_array_equal(s, [[1, 0, 0]])
    none = np.zeros((1, 1))
    assert exercises.cost(np.array([[1.0, 0, 0]]), s, none, none) == 0
    assert 700 < exercises.cost(np.array([[0.0, 1, 0]]), s, none, none) < 710
    np.testing.assert_array_equal(exercises.sigmoid(scores), [[1, 0.5, 0]])


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lambda a: a[:5], TypeError, r"got \(ndarray, .*\), expected six arrays \(W1, W2, b1, b2, x, t\)"),
        (lambda a: [*a[:5], [0, 1]], TypeError, "list.*expected six arrays"),
        (lambda a: [*a[:4], a[4].astype(int), a[5]], TypeError, r"int64 \(7, 5\) and float64.*astype"),
        (lambda a: [*a[:4], np.asfortranarray(a[4]), a[5]], ValueError, r"\(7, 5\).*not C-contiguous"),
        (lambda a: [*a[:4], a[4][:, :3].copy(), a[5]], ValueError, r"\(7, 3\).*\(5, 4\)"),
        (
            lambda a: [*a[:5], a[5].argmax(axis=1)],
            ValueError,
            r"t has shape \(7,\), expected \(7, 3\).*one_hot",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    change: Callable[[list[Any]], list[Any]], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        compute_minibatch_gradients(tuple(change(arrays())))  # type: ignore[arg-type]


def test_one_hot_rows_and_batches() -> None:
    np.testing.assert_array_equal(convert_to_one_hot(["1", "0"], 2), [[0, 1], [1, 0]])
    with pytest.raises(ValueError, match=r"classes are 1 … 3, expected 0 … 2"):
        convert_to_one_hot([1, 3], 3)
    x = np.arange(1050)[:, None]
    x_batches, y_batches, count, again = exercises.mini_batch(x, x % 10, 10)
    assert count == again == len(x_batches) == 10
    np.testing.assert_array_equal(np.concatenate(x_batches) % 10, np.concatenate(y_batches))
    assert sorted(np.concatenate(x_batches).ravel()) == list(range(1050))
    with pytest.raises(ValueError, match="x has 1050 rows and y has 1051"):
        exercises.mini_batch(x, np.zeros((1051, 1)), 10)


def test_targets_and_weights_that_do_not_fit_are_told() -> None:
    """Labels as a column gave gradients of the right shapes, and of wrong values."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 5)), np.array([0, 1, 2, 0, 1, 2])
    w1, w2 = rng.normal(size=(5, 4)), rng.normal(size=(4, 3))
    s, h = exercises.feedforward(x, w1, w2, np.zeros((1, 4)), np.zeros((1, 3)))
    t = exercises.convert_to_one_hot(y, 3)
    with pytest.raises(TypeError, match="backpropagate: w1 is of type float; pass W1 and W2"):
        exercises.backpropogate(s, h, x, t, 1e-2, 1e-5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"backpropagate: t has shape \(6, 1\), expected \(6, 3\)"):
        exercises.backpropogate(s, h, x, y[:, None], w1, w2)
    with pytest.raises(ValueError, match=r"cost: t has shape \(3, 6\)"):
        exercises.L(t.T, s, w1, w2)
    with pytest.raises(ValueError, match=r"y has shape \(2, 1\)"):
        exercises.convert_to_one_hot([[1], [0]], 2)
