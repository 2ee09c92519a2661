"""Writes small checkpoints as this version writes them, and what trainings that go on from them end with.

  python scripts/golden_checkpoints.py tests/checkpoints/2

Run it once for each format, with the first version that writes it, and keep what it wrote: every later
version must read these files (tests/python/test_checkpoint_formats.py).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

import pdnn
from pdnn import models, nn, optim
from pdnn.checkpoint import FILE

LAYOUTS = {
    "serial": ("serial", 1, 20),
    "average": ("average:4", 2, 11),
    "elastic": ("elastic-average:3", 2, 11),
    "codec": ("ddp:topk:0.2", 2, 20),
}
"""Strategies, their ranks, and the step of the checkpoint, in the last epoch, by the names of the folders."""
END = 4
"""Epochs of the training. The checkpoints of format 1, which has whole ones, are of the second one's end."""
BATCH, ROWS = 4, 22


def data() -> tuple[np.ndarray, np.ndarray]:
    """Samples and classes, the same for every version of NumPy."""
    return np.sin(np.arange(ROWS * 5.0) ** 2).reshape(ROWS, 5), np.arange(ROWS) % 3


def trainer(strategy: str) -> pdnn.Trainer:
    """One that has a bit of everything to remember."""
    model = models.mlp([5, 4, 3], "tanh", dtype="float64", seed=3)
    model.flat_parameters[:] = np.cos(np.arange(model.flat_parameters.size))
    adam = optim.Adam(model.parameters(), lr=0.05)
    schedule = optim.lr_scheduler.StepLR(adam, 2, gamma=0.5)
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), adam, strategy=strategy, seed=8, schedule=schedule)


def write(folder: Path, strategy: str, step: int) -> None:
    """On every rank: the checkpoint, and the model at the end."""
    whole = trainer(strategy)
    whole.fit(data(), END, BATCH, checkpoint=folder, every=END, every_steps=step, keep=2, verbose=False)
    if whole.comm.rank == 0:
        (folder / "checkpoint.1.safetensors").replace(folder / FILE)
        whole.model.save(folder / "end.safetensors")


def main(folder: Path) -> None:
    """All layouts."""
    for name, (strategy, ranks, step) in LAYOUTS.items():
        pdnn.run(write, folder / name, strategy, step, ranks=ranks, backend="threads")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="of the format")
    main(parser.parse_args().folder)
