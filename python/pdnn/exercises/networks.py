"""Networks of the exercises."""

from __future__ import annotations

import numpy.typing as npt

from pdnn import nn


def lenet_psgd(
    *, dropout: float = 0.4, dtype: npt.DTypeLike = "float32", seed: int | None = None
) -> nn.Sequential:
    """The network of the parallel-SGD exercise: digits (n, 1, 32, 32) to log-probabilities (n, 10).

    Two convolutions and three linear layers, 213,194 parameters, uniform in ±1/√fan_in; to be trained with
    `nn.NLLLoss`.

    Parameters
    ----------
    dropout : float
        The probability of dropping, between the convolutions and the linear layers.
    dtype, seed
        As for `nn.Sequential`.
    """
    return nn.Sequential(
        nn.Conv2d(1, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 512),
        nn.ReLU(),
        nn.Linear(512, 256),
        nn.Linear(256, 10),
        nn.LogSoftmax(),
        dtype=dtype,
        seed=seed,
    )
