"""Ranks, as threads, that train models of their own: what tests of averaging strategies have in common."""

from __future__ import annotations

from typing import Any

import numpy as np

import pdnn
from pdnn import nn, optim, strategies
from pdnn.data import Dataset

RNG = np.random.default_rng(0)
DATA = Dataset(RNG.integers(0, 256, (53, 12), dtype=np.uint8), RNG.integers(0, 4, 53), scale=1 / 255)


class Look(pdnn.callbacks.Callback):
    """Keeps what callbacks see."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        self.seen.append(trainer.model.flat_parameters.copy())


def make(strategy: strategies.Strategy | str, momentum: float = 0.9, seed: int = 2) -> pdnn.Trainer:
    layers = nn.Linear(12, 9), nn.BatchNorm1d(9), nn.Dropout(0.2), nn.Sigmoid(), nn.Linear(9, 4)
    model = nn.Sequential(*layers, dtype="float64", seed=seed)
    sgd = optim.SGD(model.parameters(), lr=0.3, momentum=momentum)
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)


def train(strategy: strategies.Strategy | str, epochs: int = 2, batch_size: int = 6, **options: Any) -> Any:
    """What one rank has afterwards."""
    own = {name: options.pop(name) for name in ("momentum", "seed") if name in options}
    if "seeds" in options:
        own["seed"] = options.pop("seeds")[pdnn.world().rank]
    trainer, look = make(strategy, **own), Look()
    trainer.fit(DATA, epochs, batch_size, validation=DATA, verbose=False, callbacks=[look], **options)
    model = np.concatenate([trainer.model.flat_parameters, trainer.model.flat_buffers])
    return model, trainer.history, look.seen, trainer.evaluate(DATA)


def on_ranks(ranks: int, *arguments: Any, **options: Any) -> list[Any]:
    return pdnn.run(train, *arguments, ranks=ranks, backend="threads", **options)
