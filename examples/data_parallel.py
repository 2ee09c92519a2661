"""Understanding data parallelism, its second part: replicas that sum gradients, by pdnn and by hand.

    mpiexec -n 2 python examples/data_parallel.py                # mean and sum, by pdnn.Trainer and by hand
    mpiexec -n 2 python examples/data_parallel.py --seeds 5      # and medians beside measured ranges
    mpiexec -n 2 python examples/data_parallel.py --by hand --reduce sum
    python examples/data_parallel.py --world-size 2              # starts the ranks itself

The network and the data are those of understanding_training.py, the same on every rank. Batches of 64 rows
are divided by rank: step s of P ranks takes batches s P … s P + P - 1, so the world's size multiplies the
global batch. The *mean* of the ranks' gradients is the gradient of the mean loss over that batch; their
*sum* is P times it, which is another optimizer: one whose learning rate is P times as high.

By hand (data_parallel_by_hand.py) the gradients are summed in hooks of the backward pass; pdnn.Trainer does
it in C++. In double precision both have the same parameters after five steps, to rounding. After hundreds
of steps they do not: training at this learning rate is chaotic and amplifies rounding, so curves can be
compared, but parameters cannot. All *ranks* must have the same parameters at any time.

As in the first part, the published losses are those of the training rows and 40 more; the loss over rows held
out is printed beside them. By hand, closeness is checked after every iteration. The lines that the exercise
prints (a test loss of .7426 at step 100) are those of the mean over two workers.
"""

from __future__ import annotations

import argparse
import zlib
from collections.abc import Callable
from dataclasses import asdict, replace

import data_parallel_by_hand
import numpy as np
import understanding_training as one_worker
from understanding_training import Config, Line, network

import pdnn
from pdnn import nn
from pdnn.comm import Communicator
from pdnn.data import Dataset
from pdnn.exercises import published

#: Where the test loss of two workers should be at some steps.
RANGES = {"mean": published.MEAN_RANGES.value, "sum": published.SUM_RANGES.value}

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
    own = network(replace(config, seed=config.seed + pdnn.world().rank))
    model = data_parallel_by_hand.DataParallel(own, average=reduce == "mean")
    return own, data_parallel_by_hand.train(model, config, seen, held_out, show)


WAYS: dict[str, Train] = {"trainer": by_trainer, "hand": by_hand}


def all_have_the_same(data: Dataset, comm: Communicator) -> bool:
    """Whether every rank's samples and labels are rank 0's, by their checksums."""
    mine = [zlib.crc32(array.tobytes()) for array in (data.x, data.y)]
    everyones = comm.all_gather(np.array(mine))
    return all((other == everyones[0]).all() for other in everyones)


def difference_between_ways(config: Config, reduce: str, seen: Dataset, steps: int = 5) -> float:
    """By hand against the Trainer in double precision: max |a - b| / max |b| of the worst parameter."""
    few = replace(config, niters=steps, every=steps, dtype="float64")
    hand, trainer = (way(few, reduce, seen, seen, lambda _: None)[0] for way in (by_hand, by_trainer))
    pairs = zip(hand.parameters(), trainer.parameters(), strict=True)
    return max(float(np.abs(a.data - b.data).max() / np.abs(b.data).max()) for a, b in pairs)


def published_lines(config: Config) -> str:
    """What the exercise prints, if its network and data are trained: the mean over two workers reaches it."""
    if replace(config, niters=1000, every=100, seed=0, dtype="float32", port=29000) != Config():
        return ""
    train_loss = published.DATA_PARALLEL_TRAIN_LOSS.value
    lines = [
        f"step {step:4d} | train_loss {train_loss[step]:.4f} | test_loss {test_loss:.4f}"
        for step, test_loss in published.DATA_PARALLEL_TEST_LOSS.value.items()
        if step < config.niters
    ]
    return "\n".join(["\npublished, of two workers and the mean:", *lines])


def run(args: argparse.Namespace, config: Config) -> bool:
    """All that was asked for, on the ranks of this world; whether they stayed and came out alike."""
    comm = pdnn.world()
    say = print if comm.rank == 0 else lambda *_: None
    say({**asdict(config), "world_size": comm.size})
    seen, held_out = one_worker.make_data(config)
    say(f"all ranks have the same data: {all_have_the_same(seen, comm)}")
    if comm.size == 2 and "mean" in args.reduce:
        say(published_lines(config))
    well = True
    for reduce in args.reduce:
        for way in args.by:
            runs = []
            for seed in range(args.seed, args.seed + args.seeds):
                say(f"\n{reduce} of gradients, by {way}, seed {seed}")
                model, lines = WAYS[way](replace(config, seed=seed), reduce, seen, held_out, print)
                runs.append(lines)
                close = pdnn.ddp.check_parameter_closeness(model)
                print(f"rank {comm.rank}: {close}", flush=True)
                well &= bool(close)
            if args.seeds > 1 and comm.size == 2 and one_worker.is_the_exercises(config):
                say("\n".join(one_worker.beside(RANGES[reduce], one_worker.medians(runs), args.seeds)))
        if len(args.by) > 1:
            difference = difference_between_ways(config, reduce, seen)
            say(f"\n{reduce}: by hand and by trainer differ by {difference:.1e} after 5 steps in float64")
            well &= difference <= 1e-10
    return well


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--by", nargs="+", choices=WAYS, default=list(WAYS), help="who trains (both)")
    parser.add_argument("--reduce", nargs="+", choices=RANGES, default=list(RANGES), help="(mean and sum)")
    parser.add_argument("--world-size", type=int, metavar="P", help="ranks to start, without mpiexec")
    one_worker.add_options(parser, "strategy")
    args, config = one_worker.read_options(parser)
    if args.world_size is None or args.world_size == pdnn.world().size:
        well = run(args, config)
    elif pdnn.world().size == 1:
        well = all(pdnn.run(run, args, config, ranks=args.world_size))
    else:
        parser.error(f"--world-size {args.world_size}, but mpiexec has started {pdnn.world().size} ranks")
    if not well:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
