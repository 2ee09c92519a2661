"""The network of an estimator: its layers, and scikit-learn's law for their first parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import sqrt

import numpy as np

from pdnn import nn

ACTIVATIONS: dict[str, Callable[[], nn.Module] | None] = {
    "identity": None,
    "logistic": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "leaky_relu": nn.LeakyReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "softplus": nn.Softplus,
}
"""What may follow a hidden layer."""


def build(
    widths: Sequence[int],
    activations: Sequence[str],
    law: str,
    dropout: Sequence[float],
    batch_norm: bool,
    sync: bool,
    dtype: str,
    random: np.random.RandomState,
) -> nn.Sequential:
    """A new network that ends in raw outputs.

    A hidden layer is a Linear, then batch normalization, the activation and dropout, where wanted. Weights
    and biases are uniform in ±√(6 / (inputs + outputs)), of logistic layers in ±√(2 / …) (Glorot and Bengio,
    AISTATS 2010, eq. 16), drawn layer by layer.

    Parameters
    ----------
    widths : sequence of int
        From input to output.
    activations : sequence of str
        Of the hidden layers, from `ACTIVATIONS`.
    law : str
        The activation whose law the last layer has: that of the layer before, where there is one.
    dropout : sequence of float
        Probabilities of the hidden layers.
    batch_norm : bool
    sync : bool
        Whether batches are normalized over all ranks.
    dtype : "float32", "float64" or "bfloat16"
    random : RandomState
        The first parameters are drawn from it.
    """
    layers: list[nn.Module] = []
    hidden = zip(activations, dropout, strict=True)
    for (inputs, outputs), (activation, p) in zip(pairwise(widths[:-1]), hidden, strict=True):
        layers.append(nn.Linear(inputs, outputs))
        if batch_norm:
            layers.append(nn.BatchNorm1d(outputs, sync=sync))
        if (kind := ACTIVATIONS[activation]) is not None:
            layers.append(kind())
        if p > 0:
            layers.append(nn.Dropout(p))
    layers.append(nn.Linear(widths[-2], widths[-1]))
    model = nn.Sequential(*layers, dtype=dtype, seed=0)
    model.place()
    for linear, activation in zip(linears(model), [*activations, law], strict=True):
        inputs, outputs = linear.weight.shape
        bound = sqrt((2 if activation == "logistic" else 6) / (inputs + outputs))
        assert linear.bias is not None
        for parameter in (linear.weight, linear.bias):
            parameter.data[...] = random.uniform(-bound, bound, parameter.shape)
    return model


def linears(model: nn.Sequential) -> Iterator[nn.Linear]:
    """Its Linear layers, in order."""
    return (layer for layer in model.layers if isinstance(layer, nn.Linear))
