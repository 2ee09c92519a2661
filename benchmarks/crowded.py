"""Epochs beside other programs that compute, which have the cores for milliseconds when ranks give them away.

python benchmarks/crowded.py [--programs 1] [--nice 0] [--rounds 10] [--epochs 4] [--json FILE]

Ranks that are threads and threads of teams train a small network, alone and beside programs that do nothing
but compute; quiet and crowded epochs take turns. Times are means, as what is lost comes in whole turns of the
system's scheduler. Two ranks or threads on two cores beside one such program have three quarters of them at
best, so that a factor of 1.33 is fair, and 2 if they wait for each other at every step.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean

import numpy as np

import pdnn
from measure import begin, count, destination, write
from pdnn import models, nn, optim

CASES = [("serial", 1), ("team:2", 1), ("team:4", 1), ("ddp", 2), ("ddp", 4), ("pipeline:2", 2)]
"""Strategies and ranks."""


@contextmanager
def crowd(programs: int, nice: int) -> Iterator[None]:
    """So many programs compute meanwhile."""
    loop = f"import os\nos.nice({nice})\nwhile True: pass"
    started = [subprocess.Popen([sys.executable, "-I", "-S", "-c", loop]) for _ in range(programs)]
    try:
        time.sleep(0.2)
        yield
    finally:
        for each in started:
            each.kill()
            each.wait()
        time.sleep(0.2)  # for which waits may still sleep


def seconds(strategy: str, ranks: int, epochs: int) -> float:
    """Of an epoch of 64 steps, on the slowest rank."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(4096, 64)).astype(np.float32), rng.integers(0, 10, 4096)

    def rank() -> float:
        model = models.mlp([64, 64, 10], seed=1)
        sgd = optim.SGD(model.parameters(), 0.01)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
        trainer.fit(x, y, 1, 64, verbose=False)
        began = time.perf_counter()
        trainer.fit(x, y, epochs, 64, verbose=False)
        return (time.perf_counter() - began) / epochs

    return max(pdnn.run(rank, ranks=ranks, backend="threads"))


def main() -> None:
    """Measures, and prints a line for each strategy."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--programs", type=count, default=1, help="default: %(default)s")
    parser.add_argument("--nice", type=int, default=0, help="their nice value; default: %(default)s")
    parser.add_argument("--rounds", type=count, default=10, help="default: %(default)s")
    parser.add_argument("--epochs", type=count, default=4, help="of each round; default: %(default)s")
    parser.add_argument("--json", type=destination, metavar="FILE", help="also write the figures there")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "strategy", UserWarning)  # more threads than cores
    report = begin(programs=options.programs, nice=options.nice)
    print(f"{'strategy':12}{'ranks':>6}{'quiet':>12}{'crowded':>12}{'factor':>8}")
    for strategy, ranks in CASES:
        quiet, crowded = [], []
        for _ in range(options.rounds):
            quiet.append(seconds(strategy, ranks, options.epochs))
            with crowd(options.programs, options.nice):
                crowded.append(seconds(strategy, ranks, options.epochs))
        result = {"strategy": strategy, "ranks": ranks, "quiet": fmean(quiet), "crowded": fmean(crowded)}
        report["results"].append(result)
        times = f"{1e3 * fmean(quiet):9.2f} ms{1e3 * fmean(crowded):9.2f} ms"
        print(f"{strategy:12}{ranks:6}{times}{fmean(crowded) / fmean(quiet):8.2f}", flush=True)
    write(report, options.json)


if __name__ == "__main__":
    main()
