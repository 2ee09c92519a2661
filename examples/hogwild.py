"""Hogwild: one model, P workers that update it whenever they have a gradient, and no locks.

    python examples/hogwild.py --workers 2                            # threads of this process, 50 epochs
    mpiexec -n 2 python examples/hogwild.py                           # processes that share memory
    python examples/hogwild.py --sweep 1 2 3 4 5 --epochs 2           # threads, then both pictures
    python examples/hogwild.py --sweep 1 2 --processes --epochs 2

A worker copies the parameters, computes the gradient of its batch, and applies its own optimizer to the
shared parameters, while the others do the same, without waiting. An update then belongs to parameters that
others have changed meanwhile; the number of their updates is its *staleness*, which is printed. With
several workers no two runs are equal, not even to rounding. The network, its data, the
file and the pictures are those of parameter_averaging.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import parallel_sgd
from parallel_sgd import FILE, Result

import pdnn
from pdnn.cli.values import can_draw, positive_int
from pdnn.exercises import published
from pdnn.strategies import Hogwild, HogwildProcesses


def train_without_locks(args: argparse.Namespace, threads: int) -> Result:
    """One job: on the ranks of this world, or alone on so many threads."""
    comm = pdnn.world()
    say = print if comm.rank == 0 else lambda *_, **__: None
    *digits, origin = parallel_sgd.load_digits(args.data, args.embedded)
    strategy = HogwildProcesses(comm.size) if comm.size > 1 else Hogwild(threads)
    say(f"{origin}; {strategy}, {parallel_sgd.BATCH} rows a batch of each worker", flush=True)
    if note := parallel_sgd.crowded(strategy.workers):
        say(note)
    result, trainer = parallel_sgd.train(
        strategy, strategy.workers, (digits[0], digits[1]), args.epochs, args.seed, say
    )
    if comm.rank == 0:
        parallel_sgd.append(args.out / FILE, result)
        updates = trainer.history.updates
        count = sum(epoch["count"] for epoch in updates)
        per_second = count / sum(trainer.history.history["seconds"])
        staleness = sum(epoch["mean_staleness"] * epoch["count"] for epoch in updates) / count
        most = max(epoch["max_staleness"] for epoch in updates)
        print(
            f"{per_second:.0f} updates/s; staleness {staleness:.2f} in the mean, {most:.0f} at most",
            flush=True,
        )
        if args.epochs == 20 and not args.embedded:
            accuracy = published.HOGWILD_ACCURACY.value
            print(parallel_sgd.published_line(result, published.HOGWILD_SECONDS, accuracy), flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--workers", type=positive_int, metavar="P", help="threads; under mpiexec its ranks are workers"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of MNIST's files (else downloaded)")
    parser.add_argument("--embedded", action="store_true", help="the small set of digits that is in pdnn")
    parser.add_argument("--epochs", type=positive_int, default=50, help="(%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first weights (%(default)s)")
    parser.add_argument(
        "--sweep", type=positive_int, nargs="+", metavar="P", help="one job after another, of P workers"
    )
    parser.add_argument("--processes", action="store_true", help="with --sweep: ranks, not threads")
    parser.add_argument("--out", type=Path, default=Path("out/hogwild"), help="folder (%(default)s)")
    args = parser.parse_args()
    if args.processes and not args.sweep:
        parser.error("--processes goes with --sweep; otherwise start the ranks by mpiexec -n P")
    if args.workers and args.sweep:
        parser.error("--workers is for one job; --sweep says how many workers each of its jobs has")
    if args.workers and pdnn.world().size > 1:
        parser.error("--workers are threads of one process; the workers of this job are its ranks")
    if args.sweep:
        can_draw(parser)
    args.out.mkdir(parents=True, exist_ok=True)
    for workers in args.sweep or []:
        if args.processes:
            pdnn.run(train_without_locks, args, 1, ranks=workers)
        else:
            train_without_locks(args, workers)
    if args.sweep:
        parallel_sgd.draw_file(args.out / FILE, args.sweep)
        print(f"{FILE}, speedup.png and accuracy.png are in {args.out}")
    else:
        train_without_locks(args, args.workers or 1)


if __name__ == "__main__":
    main()
