"""Trains digits with a layer of one's own, and with pdnn's: python train.py [STRATEGY] [RANKS].

Both begin with the same parameters, and end with the same ones up to rounding.
"""

from __future__ import annotations

import sys

import numpy as np
from eigen_linear import EigenLinear

import pdnn
from pdnn import nn, optim


def train(strategy: str, layer: type[nn.Module]) -> nn.Sequential:
    """The network after two epochs on digits."""
    digits, _ = pdnn.datasets.mnist_mini()
    initial = nn.Sequential(nn.Linear(784, 32), nn.Tanh(), nn.Linear(32, 10), dtype="float64", seed=7)
    model = nn.Sequential(layer(784, 32), nn.Tanh(), layer(32, 10), dtype="float64")
    model.load_state_dict(initial.state_dict())
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy=strategy, seed=7)
    trainer.fit(digits, epochs=2, batch_size=100, verbose=False)
    return model


def difference(strategy: str) -> float:
    """The largest difference of a parameter between both, relative to the largest parameter."""
    own, builtin = (train(strategy, layer).flat_parameters for layer in (EigenLinear, nn.Linear))
    return float(np.abs(own - builtin).max() / np.abs(builtin).max())


def main(strategy: str = "serial", ranks: str = "1") -> None:
    """Trains both ways, on ranks that are threads if there are several."""
    if int(ranks) > 1:
        differences = pdnn.run(lambda: difference(strategy), ranks=int(ranks), backend="threads")
    else:
        differences = [difference(strategy)]
    print(f"{strategy}: relative difference {max(differences):.1e}")


if __name__ == "__main__":
    main(*sys.argv[1:])
