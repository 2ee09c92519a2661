"""Parallel SGD by averaging parameters: every rank trains its own network, and their average is the result.

    mpiexec -n 2 python examples/parameter_averaging.py                    # 50 epochs, averaged at the end
    mpiexec -n 2 python examples/parameter_averaging.py --every 10         # after every 10 steps (local SGD)
    mpiexec -n 2 python examples/parameter_averaging.py --different-inits  # the published mistake
    mpiexec -n 2 python examples/parameter_averaging.py --by hand          # the exercise's own program
    python examples/parameter_averaging.py --sweep 1 2 3 4 5 --epochs 2    # starts ranks itself; pictures

The ranks send no messages while they train, so P ranks need a P-th of the time. The loss of accuracy
depends on where they start. The average of two networks is a good network if both came from the *same*
first weights. From different weights their hidden units have different meanings, in another order, and
their average is useless. The published program seeds every rank differently, and its
averaged model of two ranks has an accuracy of 40 %; that is --different-inits.

Each run appends ``P,time,accuracy`` to TimeForTraining.txt in the folder --out. Averages are weighted by
the rows that each rank has trained on; the clock runs from when all ranks have loaded their digits to when
they have the average.

"--by all_reduce" and "--by master" are strategies of pdnn.Trainer. By hand every rank draws its rows, trains
alone, and prints lines of its own, the accuracy of its own model among them; then a master receives all
parameters, by their names, and divides their sum by P.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import parallel_sgd
from parallel_sgd import BATCH, FILE, PublishedLines, Result

import pdnn
from pdnn import nn, optim
from pdnn.cli.values import can_draw, positive_int
from pdnn.data import Dataset, DistributedSampler, Subset
from pdnn.exercises import published
from pdnn.strategies import ModelAveraging

PUBLISHED = {
    20: (published.PSGD_SECONDS, published.PSGD_ACCURACY.value),
    50: (published.SHEET_PSGD_SECONDS, {2: published.SHEET_PSGD_ACCURACY.value}),
}
"""Seconds and accuracies by workers, of so many epochs."""


def average_by_master(model: nn.Sequential) -> None:
    """Rank 0 receives every rank's parameters, name by name, and returns their mean to all."""
    comm = pdnn.world()
    named = {name: parameter.data for name, parameter in model.named_parameters()}
    if comm.rank > 0:
        for values in named.values():
            comm.send(values, dest=0)
    for source in range(1, comm.size) if comm.rank == 0 else ():
        for values in named.values():
            values += comm.recv(source)
    if comm.rank == 0:
        for values in named.values():
            values /= comm.size
    comm.broadcast(model.flat_parameters)


def train_by_hand(digits: tuple[Dataset, Dataset], epochs: int, seed: int, different_inits: bool) -> Result:
    """The exercise's program: every rank trains a model of its own on its rows, and they are averaged."""
    comm, (train, test) = pdnn.world(), digits
    tell: Callable[[str], object] = partial(print, flush=True)
    say = tell if comm.rank == 0 else lambda *_: None
    model = pdnn.exercises.lenet_psgd(seed=seed + (comm.rank if different_inits else 0))
    descent = optim.SGD(model.parameters(), lr=0.1)
    own_seed = seed + comm.rank  # of dropout
    alone = pdnn.Trainer(model, nn.NLLLoss(), descent, strategy="serial", comm=pdnn.comm.SELF, seed=own_seed)
    sampler = DistributedSampler(train, comm.size, comm.rank, seed=seed)
    say(parallel_sgd.beginning(model, comm.size))
    comm.barrier()
    began = time.perf_counter()
    for epoch in range(epochs):
        sampler.set_epoch(epoch)
        rows = Subset(train, np.array(list(sampler)))
        alone.fit(rows, 1, BATCH, shuffle=False, callbacks=[PublishedLines(epochs, tell)], verbose=False)
    tell(f"Finished Training at rank {comm.rank}")
    own = model.flat_parameters.copy()
    say("Updating params...")
    average_by_master(model)
    seconds = time.perf_counter() - began
    tested = alone.evaluate(test)
    model.flat_parameters[:] = own
    tell(f"Own test accuracy at rank {comm.rank}: {100 * alone.evaluate(test)['accuracy']:.2f}%")
    comm.barrier()
    say(parallel_sgd.ending(seconds, tested))
    return Result(comm.size, seconds, tested["accuracy"])


def train_and_average(args: argparse.Namespace) -> Result:
    """One job on the ranks of this world."""
    comm = pdnn.world()
    say = print if comm.rank == 0 else lambda *_, **__: None
    *digits, origin = parallel_sgd.load_digits(args.data, args.embedded)
    way, strategy = "by hand", None
    if args.by != "hand":
        strategy = ModelAveraging(every=args.every, by=args.by, same_init=not args.different_inits)
        way = str(strategy)
    say(f"{origin}; {comm.size} rank(s), {way}, {BATCH} rows a batch of each", flush=True)
    if note := parallel_sgd.crowded(comm.size):
        say(note)
    if strategy is None:
        result = train_by_hand((digits[0], digits[1]), args.epochs, args.seed, args.different_inits)
    else:
        seed = args.seed + comm.rank  # rank 0's is what counts, unless each keeps its own
        result, _ = parallel_sgd.train(strategy, comm.size, (digits[0], digits[1]), args.epochs, seed, say)
    if comm.rank == 0:
        parallel_sgd.append(args.out / FILE, result)
        if args.epochs in PUBLISHED and not (args.embedded or args.every):
            say(parallel_sgd.published_line(result, *PUBLISHED[args.epochs]), flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of MNIST's files (else downloaded)")
    parser.add_argument("--embedded", action="store_true", help="the small set of digits that is in pdnn")
    parser.add_argument("--epochs", type=positive_int, default=50, help="(%(default)s)")
    parser.add_argument(
        "--every", type=positive_int, metavar="K", help="average after every K steps (at the end only)"
    )
    parser.add_argument(
        "--by", choices=("all_reduce", "master", "hand"), default="all_reduce", help="who adds up"
    )
    parser.add_argument(
        "--different-inits", action="store_true", help="every rank starts from its own weights"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first weights (%(default)s)")
    parser.add_argument(
        "--sweep", type=positive_int, nargs="+", metavar="P", help="one job after another, on P ranks"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out/parameter_averaging"), help="folder (%(default)s)"
    )
    args = parser.parse_args()
    if args.by == "hand" and args.every:
        parser.error("--by hand averages at the end only; --every goes with all_reduce or master")
    if args.sweep:
        can_draw(parser)
    args.out.mkdir(parents=True, exist_ok=True)
    for ranks in args.sweep or []:
        pdnn.run(train_and_average, args, ranks=ranks)
    if args.sweep:
        parallel_sgd.draw_file(args.out / FILE, args.sweep)
        print(f"{FILE}, speedup.png and accuracy.png are in {args.out}")
    else:
        train_and_average(args)


if __name__ == "__main__":
    main()
