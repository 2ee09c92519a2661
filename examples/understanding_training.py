"""Understanding data parallelism, its first part: the training of one worker.

    python examples/understanding_training.py              # 1000 steps, a line every 100
    python examples/understanding_training.py --seeds 5    # and the medians beside measured ranges
    python examples/understanding_training.py --n-layers 2 --dim-hidden 64 --learning-rate 0.01

A 1024-256-256-256-32 network of tanh without biases learns scikit-learn's make_classification by gradient
descent, whose learning rate falls linearly from 0.1 to 0.03 over 1000 steps. It takes rows 0 … 999 in batches
of 64, in order and without the last, incomplete one: 15 batches, over and over. Rows 960 … 999 are not
trained on.

A line has the exercise's four columns and two more. train_loss and test_loss are both taken over rows
0 … 999, before and after the step's update: the training rows and those 40, which are why they end at 0.2.
Beside them stand the loss of the step's own batch, before the update, and the loss over rows held out, 1000
and on. That one stays above that of guessing, log 32 = 3.47: 960 rows are too few for 320 clusters in 1024
dimensions.

The lines that the exercise prints above its program for one process are those of two processes that average
their gradients; data_parallel.py reaches them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import pairwise
from statistics import median

import numpy as np

import pdnn
from pdnn import nn, optim
from pdnn.data import Dataset, Subset
from pdnn.exercises import published

SEEN = 1000  # rows that are trained and "tested" on

#: Where the test loss of one worker should be at some steps.
RANGES = published.ONE_WORKER_RANGES.value


@dataclass(frozen=True)
class Config:
    """What is run, printed first; each is an option. The first nine are the exercise's."""

    n_layers: int = 4
    dim_in: int = 1024
    n_classes: int = 32
    dim_hidden: int = 256
    train_size: int = 10_000
    batch_size: int = 64
    learning_rate: float = 0.1
    niters: int = 1000
    port: int = 29000
    every: int = 100
    last_lr_factor: float = 0.3
    seed: int = 0
    dtype: str = "float32"
    strategy: str = "serial"


HELP = {
    "n_layers": "products of a matrix, tanh between them",
    "dim_in": "features of a row",
    "train_size": "rows drawn in all; the first 1000 are trained on",
    "batch_size": "rows of a worker's step",
    "learning_rate": "at the first step",
    "niters": "updates",
    "port": "where the published program's processes meet; ranks of MPI need none, so it is only printed",
    "every": "steps between lines",
    "last_lr_factor": "of the learning rate, from step 1000 on",
    "seed": "of the parameters",
    "strategy": "serial, team:N, …",
}


@dataclass(frozen=True)
class Line:
    """What is known after the update of a step."""

    step: int
    train_loss: float  # over rows 0 … 999, before the update
    test_loss: float  # over the same rows, after it
    batch_loss: float  # of the step's batch, before the update
    held_out_loss: float
    milliseconds: float  # a step, since the line before

    def __str__(self) -> str:
        return (
            f"step {self.step:4d} | train_loss {self.train_loss:.4f} | test_loss {self.test_loss:.4f} | "
            f"step time {self.milliseconds:.3f}ms | batch_loss {self.batch_loss:.4f} | "
            f"held_out_loss {self.held_out_loss:.4f}"
        )


def make_data(config: Config) -> tuple[Dataset, Dataset]:
    """The rows that are trained on, and those held out."""
    return pdnn.datasets.make_classification(
        n_train=SEEN,
        n_samples=config.train_size,
        n_features=config.dim_in,
        n_informative=config.dim_in // 2,
        n_classes=config.n_classes,
    )


def network(config: Config) -> nn.Sequential:
    """The exercise's network: 401,408 parameters unless sizes say otherwise, uniform in ±√(6 / fan_in)."""
    widths = [config.dim_in, *(config.n_layers - 1) * [config.dim_hidden], config.n_classes]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        linear = nn.Linear(inputs, outputs, bias=False, weight_init=nn.init.kaiming_uniform())
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1], dtype=config.dtype, seed=config.seed)


def make_trainer(config: Config) -> pdnn.Trainer:
    """A trainer of a fresh network."""
    model = network(config)
    descent = optim.SGD(model.parameters(), lr=config.learning_rate)
    schedule = optim.LinearLR(descent, 1.0, config.last_lr_factor, total_iters=1000)
    return pdnn.Trainer(
        model,
        nn.CrossEntropyLoss(),
        descent,
        strategy=config.strategy,
        schedule=schedule,
        schedule_per="step",
    )


def train_steps(trainer: pdnn.Trainer, config: Config, seen: Dataset, count: int) -> float:
    """So many updates, going on with the batch that is next; the mean loss of their batches.

    With ranks an update takes a batch for each of them: they are dealt the next ones in turn.
    """
    whole = len(seen) // config.batch_size * config.batch_size
    batch = trainer.comm.size * config.batch_size
    first = trainer.step * batch
    rows = np.arange(first, first + count * batch) % whole
    trainer.fit(Subset(seen, rows), 1, batch, shuffle=False, verbose=False)
    return float(trainer.history.history["loss"][-1])


def train(
    trainer: pdnn.Trainer,
    config: Config,
    seen: Dataset,
    held_out: Dataset,
    show: Callable[[Line], None] = print,
) -> list[Line]:
    """Trains; a line at step 0 and every so many steps, shown on rank 0."""

    def mean_loss(data: Dataset) -> float:
        return float(trainer.evaluate(data, comm=trainer.comm)["loss"])

    lines: list[Line] = []
    since = 0
    for step in range(0, config.niters, config.every):
        before = mean_loss(seen)
        batch_loss = train_steps(trainer, config, seen, 1)
        seconds = trainer.history.history["seconds"]
        milliseconds = 1000 * sum(seconds[since:]) / (1 if step == 0 else config.every)
        since = len(seconds)
        lines.append(Line(step, before, mean_loss(seen), batch_loss, mean_loss(held_out), milliseconds))
        if trainer.comm.rank == 0:
            show(lines[-1])
        rest = min(config.every, config.niters - step) - 1
        if rest > 0:
            train_steps(trainer, config, seen, rest)
    return lines


def is_the_exercises(config: Config) -> bool:
    """Whether published lines and ranges are of this network and its data."""
    free = {name: getattr(Config, name) for name in ("niters", "every", "seed", "dtype", "strategy", "port")}
    return replace(config, **free) == Config()


def medians(runs: list[list[Line]]) -> dict[int, float]:
    """Step to the median of the test loss over runs."""
    return {lines[0].step: median(line.test_loss for line in lines) for lines in zip(*runs, strict=True)}


def beside(ranges: Mapping[int, tuple[float, float]], found: Mapping[int, float], seeds: int) -> list[str]:
    """Medians over seeds and the ranges that they should lie in, as lines to read."""
    lines = [f"median over {seeds} seeds of the test loss, beside the range over 14 seeds"]
    for step, value in found.items():
        if step in ranges:
            low, high = ranges[step]
            verdict = "inside" if low <= round(value, 2) <= high else "outside"
            lines.append(f"step {step:4d}  {value:.2f}  {low:.2f} to {high:.2f}  {verdict}")
    return lines


def add_options(parser: argparse.ArgumentParser, *left_out: str) -> None:
    """An option for each field of a `Config`, but for these, and --seeds."""
    for field in fields(Config):
        if field.name not in left_out:
            option, known = f"--{field.name.replace('_', '-')}", field.default
            words = f"{HELP.get(field.name, '')} (%(default)s)".strip()
            choices = ("float32", "float64") if field.name == "dtype" else None
            parser.add_argument(option, type=type(known), default=known, choices=choices, help=words)
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on (%(default)s)")


def read_options(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Config]:
    """All arguments, and the configuration that they make."""
    args = parser.parse_args()
    known = {field.name for field in fields(Config)}
    config = Config(**{name: value for name, value in vars(args).items() if name in known})
    if min(config.n_layers, config.niters, config.every, args.seeds) < 1:
        parser.error("--n-layers, --niters, --every and --seeds are at least 1")
    if config.train_size <= SEEN or not 1 <= config.batch_size <= SEEN:
        parser.error(f"--train-size is more than {SEEN}, the rows of training, --batch-size 1 to {SEEN}")
    return args, config


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser)
    args, config = read_options(parser)
    print(asdict(config), flush=True)
    seen, held_out = make_data(config)
    runs: list[list[Line]] = []
    for seed in range(args.seed, args.seed + args.seeds):
        if args.seeds > 1:
            print(f"\nseed {seed}")
        each = replace(config, seed=seed)
        runs.append(train(make_trainer(each), each, seen, held_out))
    if args.seeds > 1 and is_the_exercises(config):
        print()
        print("\n".join(beside(RANGES, medians(runs), args.seeds)))


if __name__ == "__main__":
    main()
