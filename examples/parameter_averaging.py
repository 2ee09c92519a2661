"""Parallel SGD by averaging parameters: every rank trains its own network, and their average is the result.

    mpiexec -n 2 python examples/parameter_averaging.py                    # 50 epochs, averaged at the end
    mpiexec -n 2 python examples/parameter_averaging.py --every 10         # after every 10 steps (local SGD)
    mpiexec -n 2 python examples/parameter_averaging.py --different-inits  # the published mistake
    python examples/parameter_averaging.py --sweep 1 2 3 4 5 --epochs 2    # starts ranks itself; pictures

The ranks send no messages while they train, so P ranks need a P-th of the time. The loss of accuracy
depends on where they start. The average of two networks is a good network if both came from the *same*
first weights. From different weights their hidden units have different meanings, in another order, and
their average is useless. The published program seeds every rank differently, and its
averaged model has an accuracy of 40 %; that is --different-inits.

Each run appends ``P,time,accuracy`` to TimeForTraining.txt in the folder --out. Averages are weighted by
the rows that each rank has trained on; the clock runs from when all ranks have loaded their digits to when
they have the average.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import parallel_sgd
from parallel_sgd import FILE, Result

import pdnn
from pdnn.strategies import ModelAveraging


def train_and_average(args: argparse.Namespace) -> Result:
    """One job on the ranks of this world."""
    comm = pdnn.world()
    say = print if comm.rank == 0 else lambda *_, **__: None
    *digits, origin = parallel_sgd.load_digits(args.data, args.embedded)
    strategy = ModelAveraging(every=args.every, by=args.by, same_init=not args.different_inits)
    say(f"{origin}; {comm.size} rank(s), {strategy}, {parallel_sgd.BATCH} rows a batch of each", flush=True)
    if note := parallel_sgd.crowded(comm.size):
        say(note)
    seed = args.seed + comm.rank  # rank 0's is what counts, unless each keeps its own
    result, _ = parallel_sgd.train(strategy, comm.size, (digits[0], digits[1]), args.epochs, seed, say)
    if comm.rank == 0:
        parallel_sgd.append(args.out / FILE, result)
        print(f"P={result.workers}: {result.seconds:.2f} s, test accuracy {result.accuracy:.4f}", flush=True)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="folder of MNIST's files (else downloaded)")
    parser.add_argument("--embedded", action="store_true", help="the small set of digits that is in pdnn")
    parser.add_argument("--epochs", type=int, default=50, help="(%(default)s)")
    parser.add_argument(
        "--every", type=int, metavar="K", help="average after every K steps (at the end only)"
    )
    parser.add_argument("--by", choices=("all_reduce", "master"), default="all_reduce", help="who adds up")
    parser.add_argument(
        "--different-inits", action="store_true", help="every rank starts from its own weights"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the first weights (%(default)s)")
    parser.add_argument("--sweep", type=int, nargs="+", metavar="P", help="one job after another, on P ranks")
    parser.add_argument(
        "--out", type=Path, default=Path("out/parameter_averaging"), help="folder (%(default)s)"
    )
    args = parser.parse_args()
    for ranks in args.sweep or []:
        pdnn.run(train_and_average, args, ranks=ranks)
    if args.sweep:
        parallel_sgd.draw_file(args.out / FILE)
        print(f"{FILE}, speedup.png and accuracy.png are in {args.out}")
    else:
        train_and_average(args)


if __name__ == "__main__":
    main()
