"""SHA-256 of the parameters after ten short trainings, to see that a change of the code changes no bit.

Run it with the old build and ``--save``, then with the new one and ``--compare``. The bits depend on the
instruction set (PDNN_ISA), on nothing else.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pdnn
from pdnn import _core, nn, optim


def perceptron() -> nn.Sequential:
    """The network of the thread-pool exercise, narrower."""
    return nn.Sequential(
        nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 80), nn.Tanh(), nn.Linear(80, 10), seed=1
    )


def convolutional() -> nn.Sequential:
    """One of each: convolution, batch norm, pooling, dropout."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 3),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(54, 10),
        seed=1,
    )


Optimizers = Callable[[Any], optim.Optimizer]


def sgd(parameters: Any) -> optim.Optimizer:
    return optim.SGD(parameters, lr=0.1)


def momentum(parameters: Any) -> optim.Optimizer:
    return optim.SGD(parameters, lr=0.05, momentum=0.9, nesterov=True)


def adam(parameters: Any) -> optim.Optimizer:
    return optim.Adam(parameters, lr=1e-3, weight_decay=1e-4)


def rmsprop(parameters: Any) -> optim.Optimizer:
    return optim.RMSprop(parameters, lr=1e-3, momentum=0.5)


@dataclass(frozen=True)
class Training:
    """A strategy on some ranks, which are threads, with what it trains."""

    strategy: str
    ranks: int = 1
    model: Callable[[], nn.Sequential] = perceptron
    optimizer: Optimizers = sgd
    clip_norm: float | None = None


TRAININGS = {
    "serial": Training("serial"),
    "serial, convolutions, Adam": Training("serial", model=convolutional, optimizer=adam),
    "team:2, momentum": Training("team:2", optimizer=momentum),
    "pool:2/3, clipped": Training("pool:2/3", optimizer=rmsprop, clip_norm=0.5),
    "ddp on 2 ranks": Training("ddp", ranks=2, optimizer=adam),
    "ddp:int8 on 2 ranks": Training("ddp:int8", ranks=2),
    "average:3 on 2 ranks": Training("average:3", ranks=2, optimizer=momentum),
    "scatter-gather on 3 ranks": Training("scatter-gather", ranks=3, model=convolutional),
    "pipeline:2/3+team:2": Training("pipeline:2/3+team:2", ranks=2, optimizer=adam),
    "tp:2 x ddp on 4 ranks": Training("tp:2 x ddp", ranks=4),
}


def fingerprint(training: Training) -> str:
    """Of rank 0's parameters and buffers after two epochs, whose last batches have fewer rows."""
    rng = np.random.default_rng(0)
    x = rng.random((105, 1, 8, 8), dtype=np.float32)
    if training.model is perceptron:
        x = x.reshape(105, 64)
    y = rng.integers(0, 10, 105).astype(np.int32)

    def train() -> str:
        model = training.model()
        trainer = pdnn.Trainer(
            model,
            nn.CrossEntropyLoss(),
            training.optimizer(model.parameters()),
            strategy=training.strategy,
            seed=3,
            clip_norm=training.clip_norm,
        )
        trainer.fit((x, y), epochs=2, batch_size=25, verbose=False)
        return model.fingerprint()

    return pdnn.comm.run_threads(train, training.ranks)[0] if training.ranks > 1 else train()


def main() -> int:
    """The exit status: 0 unless a training is not what it was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", type=Path, help="a JSON file for the table")
    parser.add_argument("--compare", type=Path, help="a table that must be the same")
    arguments = parser.parse_args()
    table = {name: fingerprint(training) for name, training in TRAININGS.items()}
    before = json.loads(arguments.compare.read_text()) if arguments.compare else {}
    print(f"instruction set {_core.active_isa()}")
    changed = [name for name in table if arguments.compare and before.get(name) != table[name]]
    for name, digest in table.items():
        print(f"{digest[:16]}  {name}{'  CHANGED' if name in changed else ''}")
    if arguments.save:
        arguments.save.write_text(json.dumps(table, indent=2) + "\n")
    return bool(changed)


if __name__ == "__main__":
    sys.exit(main())
