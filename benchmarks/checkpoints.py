"""What checkpoints within epochs cost: trainings with and without them take turns.

  python benchmarks/checkpoints.py                      # serial and team:2, a checkpoint a second
  python benchmarks/checkpoints.py --seconds 0.1 --strategies serial --rounds 5

A training is some epochs of MNIST's size (60,000 rows of 784 bytes) of the network 784-256-10 in batches
of 105, float32, with momentum; a checkpoint of it has 1.6 MB. Both sides of a round follow each other,
now one and now the other first. The cost is the median over the rounds of (with / without) - 1, of the
seconds of a `fit`: steps, pauses, copies, waiting for the last file. The processor's seconds count all
threads, among them the one that writes, and leave out other programs.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import numpy as np

import pdnn
from measure import count
from pdnn import models, nn, optim
from pdnn.checkpoint import Content, Writer
from pdnn.data import Dataset

ROWS, BATCH = 60_000, 105


def digits() -> Dataset:
    """Bytes and classes, as many as MNIST has."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (ROWS, 784), dtype=np.uint8)
    return Dataset(x, rng.integers(0, 10, ROWS), scale=1 / 255)


def seconds_of(strategy: str, data: Dataset, epochs: int, **options: object) -> tuple[float, float]:
    """Seconds of a `fit`, and those of all threads on a processor."""
    model = models.mlp([784, 256, 10], "sigmoid", seed=1)
    sgd = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
    wall, processor = perf_counter(), process_time()
    trainer.fit(data, epochs, BATCH, verbose=False, **options)  # type: ignore[arg-type]
    return perf_counter() - wall, process_time() - processor


class Counting(Writer):
    """Counts what is written."""

    written = 0

    def write(self, content: Content) -> None:
        Counting.written += 1
        super().write(content)


def measure(strategy: str, data: Dataset, epochs: int, rounds: int, seconds: float) -> str:
    """A row of the table: medians over the rounds."""
    ratios, times, each = [], [], []
    Counting.written = 0
    for number in range(rounds):
        sides, before = {}, Counting.written
        for kept in (False, True) if number % 2 else (True, False):
            with tempfile.TemporaryDirectory() as folder:
                options = (
                    {"checkpoint": Path(folder), "every": epochs, "every_seconds": seconds} if kept else {}
                )
                sides[kept] = seconds_of(strategy, data, epochs, **options)
        ratios.append([sides[True][i] / sides[False][i] - 1 for i in range(2)])
        each.append(1e3 * (sides[True][1] - sides[False][1]) / max(1, Counting.written - before))
        times.append(sides[False][0])
    wall, processor = (median(column) for column in zip(*ratios, strict=True))
    return (
        f"| {strategy} | {median(times) / epochs:.3f} | {Counting.written / rounds:.1f} | {wall:+.1%} | "
        f"{processor:+.1%} | {median(each):.1f} |"
    )


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="between checkpoints")
    parser.add_argument("--epochs", type=count, default=12, help="of a training")
    parser.add_argument("--rounds", type=count, default=9)
    parser.add_argument("--strategies", default="serial,team:2")
    arguments = parser.parse_args()
    pdnn.checkpoint.Writer = Counting  # type: ignore[misc]
    data = digits()
    print(
        "| strategy | s an epoch | checkpoints a training | more seconds | more of the processor's | "
        "processor, ms a checkpoint |\n|---|--:|--:|--:|--:|--:|"
    )
    for strategy in arguments.strategies.split(","):
        seconds_of(strategy, data, 1)
        print(measure(strategy, data, arguments.epochs, arguments.rounds, arguments.seconds), flush=True)


if __name__ == "__main__":
    main()
