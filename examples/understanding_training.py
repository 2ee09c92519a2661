"""Understanding data parallelism, its first part: the training of one worker.

    python examples/understanding_training.py              # 1000 steps, a line every 100
    python examples/understanding_training.py --seeds 5    # and the medians beside measured ranges

A 1024-256-256-256-32 network of tanh without biases learns scikit-learn's make_classification by gradient
descent, whose learning rate falls linearly from 0.1 to 0.03 over 1000 steps. It takes rows 0 … 999 in batches
of 64, in order and without the last, incomplete one: 15 batches, over and over. Rows 960 … 999 are not
trained on.

The published "test loss" is taken over rows 0 … 999: the training rows and those 40, which are why it ends
at 0.2. The loss over rows held out, 1000 and on, is printed beside it. It stays above that of guessing, log
32 = 3.47: 960 rows are too few for 320 clusters in 1024 dimensions.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

import pdnn
from pdnn import nn, optim
from pdnn.data import Dataset, Subset

WIDTHS = (1024, 256, 256, 256, 32)
BATCH = 64
SEEN = 1000  # rows that are trained and "tested" on

#: The published test loss at some steps, for one worker: ranges over 14 seeds, measured with PyTorch.
RANGES = {
    100: (1.87, 1.97),
    200: (1.26, 1.47),
    300: (0.88, 1.05),
    400: (0.65, 0.89),
    500: (0.35, 0.61),
    900: (0.22, 0.31),
}


@dataclass(frozen=True)
class Config:
    """What is run; printed first."""

    samples: int = 10_000
    widths: tuple[int, ...] = WIDTHS
    batch: int = BATCH
    steps: int = 1000
    every: int = 100
    lr: float = 0.1
    last_lr_factor: float = 0.3
    seed: int = 0
    dtype: str = "float32"
    strategy: str = "serial"


@dataclass(frozen=True)
class Line:
    """What is known after the update of a step."""

    step: int
    train_loss: float  # of the step's batch, before the update
    test_loss: float  # the published one
    held_out_loss: float
    milliseconds: float  # a step, since the line before

    def __str__(self) -> str:
        return (
            f"step {self.step:4d} | train_loss {self.train_loss:.4f} | test_loss {self.test_loss:.4f} | "
            f"step time {self.milliseconds:.3f}ms | held_out_loss {self.held_out_loss:.4f}"
        )


def network(seed: int, dtype: str = "float32") -> nn.Sequential:
    """The exercise's network: 401,408 parameters, uniform in ±√(6 / fan_in)."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(WIDTHS):
        linear = nn.Linear(inputs, outputs, bias=False, weight_init=nn.init.kaiming_uniform())
        layers += [linear, nn.Tanh()]
    return nn.Sequential(*layers[:-1], dtype=dtype, seed=seed)


def make_trainer(config: Config) -> pdnn.Trainer:
    """A trainer of a fresh network."""
    model = network(config.seed, config.dtype)
    descent = optim.SGD(model.parameters(), lr=config.lr)
    schedule = optim.LinearLR(descent, 1.0, config.last_lr_factor, total_iters=1000)
    return pdnn.Trainer(
        model,
        nn.CrossEntropyLoss(),
        descent,
        strategy=config.strategy,
        schedule=schedule,
        schedule_per="step",
    )


def train_steps(trainer: pdnn.Trainer, seen: Dataset, count: int) -> float:
    """So many updates, going on with the batch that is next; the mean loss of their batches.

    With ranks an update takes a batch for each of them: they are dealt the next ones in turn.
    """
    whole = len(seen) // BATCH * BATCH
    batch = trainer.comm.size * BATCH
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
    lines: list[Line] = []
    since = 0
    for step in range(0, config.steps, config.every):
        loss = train_steps(trainer, seen, 1)
        seconds = trainer.history.history["seconds"]
        milliseconds = 1000 * sum(seconds[since:]) / (1 if step == 0 else config.every)
        since = len(seconds)
        losses = (trainer.evaluate(data, comm=trainer.comm)["loss"] for data in (seen, held_out))
        lines.append(Line(step, loss, *losses, milliseconds=milliseconds))
        if trainer.comm.rank == 0:
            show(lines[-1])
        rest = min(config.every, config.steps - step) - 1
        if rest > 0:
            train_steps(trainer, seen, rest)
    return lines


def medians(runs: list[list[Line]]) -> dict[int, float]:
    """Step to the median of the published test loss over runs."""
    return {lines[0].step: median(line.test_loss for line in lines) for lines in zip(*runs, strict=True)}


def beside(ranges: dict[int, tuple[float, float]], found: dict[int, float], seeds: int) -> list[str]:
    """Medians over seeds and the ranges that they should lie in, as lines to read."""
    lines = [f"median over {seeds} seeds of the published test loss, beside the range over 14 seeds"]
    for step, value in found.items():
        if step in ranges:
            low, high = ranges[step]
            verdict = "inside" if low <= round(value, 2) <= high else "outside"
            lines.append(f"step {step:4d}  {value:.2f}  {low:.2f} to {high:.2f}  {verdict}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    known = Config()
    parser.add_argument("--steps", type=int, default=known.steps, help="updates (%(default)s)")
    parser.add_argument("--every", type=int, default=known.every, help="steps between lines (%(default)s)")
    parser.add_argument("--samples", type=int, default=known.samples, help="rows drawn in all (%(default)s)")
    parser.add_argument("--seed", type=int, default=known.seed, help="of the parameters (%(default)s)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, from --seed on (%(default)s)")
    parser.add_argument("--lr", type=float, default=known.lr, help="first learning rate (%(default)s)")
    parser.add_argument("--dtype", choices=("float32", "float64"), default=known.dtype)
    parser.add_argument("--strategy", default=known.strategy, help="serial, team:N, … (%(default)s)")
    args = parser.parse_args()
    if min(args.steps, args.every, args.seeds) < 1 or args.samples <= SEEN:
        parser.error(f"--steps, --every and --seeds are at least 1, --samples more than {SEEN}")

    options = {name: value for name, value in vars(args).items() if name != "seeds"}
    print(vars(Config(**options)), flush=True)
    seen, held_out = pdnn.datasets.make_classification(n_samples=args.samples, n_train=SEEN)
    runs: list[list[Line]] = []
    for seed in range(args.seed, args.seed + args.seeds):
        if args.seeds > 1:
            print(f"\nseed {seed}")
        config = Config(**{**options, "seed": seed})
        runs.append(train(make_trainer(config), config, seen, held_out))
    if args.seeds > 1:
        print()
        print("\n".join(beside(RANGES, medians(runs), args.seeds)))


if __name__ == "__main__":
    main()
