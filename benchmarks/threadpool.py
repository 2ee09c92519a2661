"""Gradients as tasks of `multiprocessing.pool.ThreadPool(2)` over the same gradients on one thread.

python benchmarks/threadpool.py [--dtype float32] [--blocks 40]

`model.gradient` releases the GIL, so two threads should be worth two cores. A block is 24 gradients of the
784-256-10 network on batches of 105 rows. How it is measured: measure.py; the tasks share nothing that they
write, so a round trip between the cores only has to show that both were there.
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time
from collections.abc import Sequence
from multiprocessing.pool import ThreadPool

import measure
from workers import Runner, Side

GRADIENTS, ROWS = 24, 105


def gradients(dtype: str, threads: int) -> Runner:
    """Blocks of gradients: a loop for one thread, `ThreadPool.map` for several."""
    import pdnn

    train, _ = pdnn.datasets.mnist_mini()
    model = pdnn.models.mlp([784, 256, 10], "sigmoid", dtype=dtype, seed=0)
    criterion = pdnn.nn.CrossEntropyLoss()
    batches = [train[ROWS * i : ROWS * (i + 1)].gather(dtype=dtype) for i in range(GRADIENTS)]
    cores = itertools.cycle(sorted(os.sched_getaffinity(0)))
    pool = ThreadPool(threads, lambda: os.sched_setaffinity(0, {next(cores)}))  # a core for each thread

    def block() -> tuple[float, float]:
        began = time.perf_counter()
        if threads == 1:
            losses = [model.gradient(x, y, criterion)[0] for x, y in batches]
        else:
            losses = pool.map(lambda batch: model.gradient(*batch, criterion)[0], batches, chunksize=1)
        return (time.perf_counter() - began) / GRADIENTS, sum(losses)

    return block


def main(arguments: Sequence[str]) -> None:
    """The program."""
    from pdnn import _core

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float64")
    parser.add_argument("--blocks", type=measure.count, default=40, help="of each side (default %(default)s)")
    parser.add_argument(
        "--round-trip",
        type=float,
        default=1000,
        metavar="NS",
        help="blocks beside a slower one are left out (default %(default)s ns)",
    )
    options = parser.parse_args(arguments)
    if len(os.sched_getaffinity(0)) < 2:
        parser.error("two threads need a core each, and this process may use one")

    sides = [Side(f"{n} thread(s)", gradients, (options.dtype, n), cores=n) for n in (1, 2)]
    (one, two), trips = measure.alternate(sides, options.blocks, _core.measure_round_trip)
    if one.check != two.check:
        raise RuntimeError(f"losses {one.check} on one thread, {two.check} on two: not the same work")
    slowest = 1e-9 * options.round_trip
    alone, pooled = (measure.quiet(side.seconds, trips, slowest) for side in (one, two))
    machine = measure.machine()
    print(f"{machine['processor']}, {machine['cores']} cores, load {machine['load']:.1f}; {options.dtype}")
    print(f"{len(alone)} of {options.blocks} blocks kept")
    if not alone:
        sys.exit("no block was quiet: are two cores free?")
    slow, fast = measure.fastest_quarter(alone), measure.fastest_quarter(pooled)
    print(f"one thread     {1e3 * slow:.3f} ms a gradient")
    print(f"ThreadPool(2)  {1e3 * fast:.3f} ms a gradient, {slow / fast:.2f} x as fast")


if __name__ == "__main__":
    main(sys.argv[1:])
