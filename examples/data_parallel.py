"""Understanding data parallelism, its second part: replicas that sum gradients, by pdnn and by hand.

    mpiexec -n 2 python examples/data_parallel.py                # mean and sum, by pdnn.Trainer and by hand
    mpiexec -n 2 python examples/data_parallel.py --seeds 5      # and medians beside measured ranges
    mpiexec -n 2 python examples/data_parallel.py --by hand --reduce sum

The network and the data are those of understanding_training.py, the same on every rank. Batches of 64 rows
are divided by rank: step s of P ranks takes batches s P … s P + P - 1, so the world's size multiplies the
global batch. The *mean* of the ranks' gradients is the gradient of the mean loss over that batch; their
*sum* is P times it, which is another optimizer: one whose learning rate is P times as high.

By hand (data_parallel_by_hand.py) the gradients are summed in hooks of the backward pass; pdnn.Trainer does
it in C++. In double precision both have the same parameters after five steps, to rounding. After hundreds
of steps they do not: training at this learning rate is chaotic and amplifies rounding, so curves can be
compared, but parameters cannot. All *ranks* must have the same parameters at any time.

As in the first part, the published "test loss" is that of the training rows and 40 more; the loss over rows
held out is printed beside it.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable
from dataclasses import replace

import data_parallel_by_hand
import numpy as np
import understanding_training as one_worker
from understanding_training import SEEN, Config, Line, network

import pdnn
from pdnn import nn
from pdnn.comm import Communicator
from pdnn.data import Dataset

#: The published test loss of two workers: ranges over 14 seeds, measured with PyTorch.
RANGES = {
    "mean": {100: (0.72, 0.82), 200: (0.23, 0.27), 300: (0.21, 0.25), 400: (0.20, 0.24), 500: (0.19, 0.24)},
    "sum": {100: (1.43, 1.65), 200: (0.98, 1.19), 300: (0.64, 0.87), 400: (0.30, 0.54), 500: (0.25, 0.35)},
}

Train = Callable[[Config, str, Dataset, Dataset, Callable[[Line], None]], tuple[nn.Module, list[Line]]]


def by_trainer(
    config: Config, reduce: str, seen: Dataset, held_out: Dataset, show: Callable[[Line], None] = print
) -> tuple[nn.Module, list[Line]]:
    """The built-in strategy, epochs in C++."""
    config = replace(config, strategy={"mean": "ddp", "sum": "ddp:sum"}[reduce])
    trainer = one_worker.make_trainer(config)
    return trainer.model, one_worker.train(trainer, config, seen, held_out, show)


def by_hand(
    config: Config, reduce: str, seen: Dataset, held_out: Dataset, show: Callable[[Line], None] = print
) -> tuple[nn.Module, list[Line]]:
    """Hooks and collectives; ranks start from different values, to see that rank 0's are taken."""
    own = network(config.seed + pdnn.world().rank, config.dtype)
    model = data_parallel_by_hand.DataParallel(own, average=reduce == "mean")
    return own, data_parallel_by_hand.train(model, config, seen, held_out, show)


WAYS: dict[str, Train] = {"trainer": by_trainer, "hand": by_hand}


def all_have_the_same(data: Dataset, comm: Communicator) -> bool:
    """Whether every rank's samples and labels are rank 0's, by their checksums."""
    mine = [zlib.crc32(np.ascontiguousarray(array)) for array in (data.x, data.y)]
    everyones = comm.all_gather(np.array(mine))
    return all((other == everyones[0]).all() for other in everyones)


def difference_between_ways(config: Config, reduce: str, seen: Dataset, steps: int = 5) -> float:
    """By hand against the Trainer in double precision: max |a - b| / max |b| of the worst parameter."""
    few = Config(samples=config.samples, steps=steps, every=steps, seed=config.seed, dtype="float64")
    hand, trainer = (way(few, reduce, seen, seen, lambda _: None)[0] for way in (by_hand, by_trainer))
    pairs = zip(hand.parameters(), trainer.parameters(), strict=True)
    return max(float(np.abs(a.data - b.data).max() / np.abs(b.data).max()) for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = Config()
    parser.add_argument("--by", nargs="+", choices=WAYS, default=list(WAYS), help="who trains (both)")
    parser.add_argument("--reduce", nargs="+", choices=RANGES, default=list(RANGES), help="(mean and sum)")
    parser.add_argument("--steps", type=int, default=known.steps, help="updates (%(default)s)")
    parser.add_argument("--every", type=int, default=known.every, help="steps between lines (%(default)s)")
    parser.add_argument("--samples", type=int, default=known.samples, help="rows drawn in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=known.seed, help="of the parameters (%(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on (%(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default=known.dtype)
    args = parser.parse_args()
    if min(args.steps, args.every, args.seeds) < 1 or args.samples <= SEEN:
        parser.error(f"--steps, --every and --seeds are at least 1, --samples more than {SEEN}")

    comm = pdnn.world()
    say = print if comm.rank == 0 else lambda *_: None
    options = {name: getattr(args, name) for name in ("samples", "steps", "every", "dtype")}
    say({**vars(Config(**options)), "ranks": comm.size})
    seen, held_out = pdnn.datasets.make_classification(n_samples=args.samples, n_train=SEEN)
    say(f"all ranks have the same data: {all_have_the_same(seen, comm)}")
    well = True
    for reduce in args.reduce:
        for way in args.by:
            runs = []
            for seed in range(args.seed, args.seed + args.seeds):
                say(f"\n{reduce} of gradients, by {way}, seed {seed}")
                model, lines = WAYS[way](Config(**options, seed=seed), reduce, seen, held_out, print)
                runs.append(lines)
            close = pdnn.ddp.check_parameter_closeness(model)
            print(f"rank {comm.rank}: {close}", flush=True)
            well &= bool(close)
            if args.seeds > 1 and comm.size == 2:
                say("\n".join(one_worker.beside(RANGES[reduce], one_worker.medians(runs), args.seeds)))
        if len(args.by) > 1:
            difference = difference_between_ways(Config(**options, seed=args.seed), reduce, seen)
            say(f"\n{reduce}: by hand and by trainer differ by {difference:.1e} after 5 steps in float64")
            well &= difference <= 1e-10
    if not well:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
