"""What copies in memory cost, to which ranks go back when one dies: trainings with and without take turns.

  python benchmarks/copies.py                           # ddp and pipeline:2, a copy every 10, 100, 1000 steps
  python benchmarks/copies.py --strategies ddp/8 --every 100 --rounds 3

A training is an epoch of MNIST's size (60,000 rows of 784 bytes) of the network 784-256-10 in batches of
105, float32, with momentum, on two ranks that are threads; a pipeline has a third one in waiting. The cost
is the median over the rounds of (with / without) - 1, of the seconds that the first rank's thread was on a
processor: they count its copies, and the ends and the beginnings of the core's calls between them, and
leave out other programs. A rank keeps two copies: of the parameters, of what the optimizer remembers, and
of running statistics.
"""

from __future__ import annotations

import argparse
from statistics import median
from time import thread_time

import pdnn
from checkpoints import BATCH, ROWS, digits
from measure import count
from pdnn import fitting, models, nn, optim
from pdnn.copies import Copies
from pdnn.data import Dataset


def seconds_of(strategy: str, data: Dataset, every: int) -> float:
    """Seconds on a processor of the first rank's thread, in a `fit` on two ranks."""

    def rank() -> float:
        world = pdnn.world()
        world.spares = world.size - 2
        model = models.mlp([784, 256, 10], "sigmoid", seed=1)
        sgd = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
        began = thread_time()
        trainer.fit(data, 1, BATCH, verbose=False, elastic=every)
        return thread_time() - began

    spares = int(not strategy.startswith(("ddp", "average")) and every > 0)
    return pdnn.run(rank, ranks=2 + spares, backend="threads")[0]


class Timed(Copies):
    """Adds up what copies took and what the last two need, over all ranks and trainings."""

    made, took, need = 0, 0.0, 0

    def take(self, session: object) -> None:
        began = thread_time()
        super().take(session)  # type: ignore[arg-type]
        Timed.made += 1
        Timed.took += thread_time() - began
        Timed.need = max(Timed.need, self.nbytes)


def measure(strategy: str, data: Dataset, every: int, rounds: int) -> str:
    """A row of the table: medians over the rounds."""
    ratios, times = [], []
    Timed.made, Timed.took = 0, 0.0
    for number in range(rounds):
        sides = {}
        for copied in (0, every) if number % 2 else (every, 0):
            sides[copied] = seconds_of(strategy, data, copied)
        ratios.append(sides[every] / sides[0] - 1)
        times.append(sides[0])
    return (
        f"| {strategy} | {every} | {median(times):.3f} | {median(ratios):+.1%} | "
        f"{1e3 * Timed.took / Timed.made:.2f} | {Timed.need / 1e6:.2f} |"
    )


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--every", default="10,100,1000", help="steps from one copy to the next")
    parser.add_argument("--rounds", type=count, default=9)
    parser.add_argument("--strategies", default="ddp,pipeline:2")
    arguments = parser.parse_args()
    fitting.Copies = Timed  # type: ignore[attr-defined]
    data = digits()
    print(f"{-(-ROWS // BATCH)} steps an epoch; seconds of a rank on a processor")
    print("| strategy | a copy every … steps | s an epoch | more | ms a copy | MB of two |")
    print("|---|--:|--:|--:|--:|--:|")
    for strategy in arguments.strategies.split(","):
        seconds_of(strategy, data, 0)
        for every in map(int, arguments.every.split(",")):
            print(measure(strategy, data, every, arguments.rounds), flush=True)


if __name__ == "__main__":
    main()
