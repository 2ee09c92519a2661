"""The oracle: networks, losses and SGD in NumPy, written from their equations (docs/backprop.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


ACTIVATIONS = {
    "sigmoid": (sigmoid, lambda y: y * (1 - y)),
    "tanh": (np.tanh, lambda y: 1 - y * y),
    "relu": (lambda x: np.maximum(x, 0), lambda y: (y > 0).astype(y.dtype)),
}


def cross_entropy(logits: Array, labels: Array) -> tuple[float, Array]:
    """Mean loss over the rows, and its derivative."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_softmax = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))
    slope = np.exp(log_softmax)
    slope[rows, labels] -= 1
    return float(-log_softmax[rows, labels].mean()), slope / len(labels)


class Mlp:
    """Linear layers with an activation between them, and mean softmax cross-entropy."""

    def __init__(self, weights: list[Array], biases: list[Array], activation: str) -> None:
        self.weights = [w.copy() for w in weights]
        self.biases = [b.copy() for b in biases]
        self.function, self.slope = ACTIVATIONS[activation]

    def outputs(self, x: Array) -> list[Array]:
        """x, and what each layer makes of it."""
        ys = [x]
        for i, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            z = ys[-1] @ w + b
            ys.append(z if i == len(self.weights) - 1 else self.function(z))
        return ys

    def gradient(self, x: Array, labels: Array) -> tuple[float, list[tuple[Array, Array]]]:
        """Loss, and (dw, db) of each layer."""
        ys = self.outputs(x)
        loss, dy = cross_entropy(ys[-1], labels)
        grads = []
        for i in reversed(range(len(self.weights))):
            grads.append((ys[i].T @ dy, dy.sum(axis=0)))
            dy = (dy @ self.weights[i].T) * self.slope(ys[i])
        return loss, grads[::-1]

    def flat(self, pairs: list[tuple[Array, Array]] | None = None) -> Array:
        """Parameters, or such pairs, in the order of pdnn's flat buffer."""
        pairs = list(zip(self.weights, self.biases, strict=True)) if pairs is None else pairs
        return np.concatenate([part.ravel() for pair in pairs for part in pair])


def sgd_epoch(
    net: Mlp,
    x: Array,
    labels: Array,
    order: Array,
    batch: int,
    lr: float,
    momentum: float,
    velocity: list[Any],
) -> None:
    """One epoch in place; `velocity` holds (v of w, v of b) a layer, made on first use."""
    if not velocity:
        velocity += [
            [np.zeros_like(w), np.zeros_like(b)] for w, b in zip(net.weights, net.biases, strict=True)
        ]
    for begin in range(0, len(order), batch):
        rows = order[begin : begin + batch]
        for i, (dw, db) in enumerate(net.gradient(x[rows], labels[rows])[1]):
            velocity[i] = [momentum * velocity[i][0] + dw, momentum * velocity[i][1] + db]
            net.weights[i] -= lr * velocity[i][0]
            net.biases[i] -= lr * velocity[i][1]
