"""Gradients of minibatches as tasks of a thread pool: two runs on MNIST digits, and a sweep.

    python examples/threadpool_minibatches.py           # both runs of 250 epochs, then the sweep
    python examples/threadpool_minibatches.py --fast    # 21 epochs, a small sweep

A 784-256-10 network of sigmoid and softmax learns 10,500 digits by gradient descent in minibatches of 105.
Vanilla: one update after each minibatch. Parallel: rounds of 25 minibatches, whose gradients are tasks for 5
threads, averaged into one update. The sweep varies both numbers and times the gradients apart from the rest.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import pdnn
from pdnn import nn, optim, strategies
from pdnn.callbacks import Callback
from pdnn.cli.values import can_draw, positive_int
from pdnn.data import Dataset, Subset
from pdnn.exercises import legacy_batches, published

BATCH = 105
L2 = (1e-2, 0.0, 1e-5, 0.0)  # of W1, b1, W2, b2: the objective has ½ a ΣW², its gradient a W

#: What the exercise's authors saw: training objective and test accuracy.
PUBLISHED = {
    "vanilla": (published.VANILLA_LOSS, published.VANILLA_ACCURACY),
    "parallel": (published.PARALLEL_LOSS, published.PARALLEL_ACCURACY),
}


def network(dtype: str = "float64") -> nn.Sequential:
    """The exercise's network with its initial values, which NumPy draws after seed 42 in this order."""
    model = nn.Sequential(nn.Linear(784, 256), nn.Sigmoid(), nn.Linear(256, 10), dtype=dtype)
    w1, b1, w2, b2 = model.parameters()
    np.random.seed(42)
    w1.data = 0.001 * np.random.randn(784, 256)
    w2.data = 0.001 * np.random.randn(256, 10)
    b1.data = 0.1 * np.random.randn(256)
    b2.data = 0.1 * np.random.randn(10)
    return model


def make_trainer(
    strategy: str | strategies.Strategy, lr: float = 1e-3, dtype: str = "float64"
) -> pdnn.Trainer:
    """A trainer of a fresh network, each layer with its own L2."""
    model = network(dtype)
    groups = [{"params": [p], "weight_decay": a} for p, a in zip(model.parameters(), L2, strict=True)]
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.SGD(groups, lr=lr), strategy=strategy)


def objective(trainer: pdnn.Trainer, data: Dataset | Subset) -> float:
    """-(1/m) Σ t log s + ½ Σ a W² over all rows of the data."""
    penalty = sum(a * np.sum(p.data**2) for p, a in zip(trainer.model.parameters(), L2, strict=True))
    return float(trainer.evaluate(data)["loss"] + 0.5 * penalty)


@dataclass
class Watch(Callback):
    """Every so many epochs: the objective over the training rows, accuracy on the test rows, and a line."""

    train: Dataset | Subset
    test: Dataset | Subset
    every: int = 10
    verbose: bool = True
    epochs: list[int] = field(default_factory=list)
    updates: list[int] = field(default_factory=list)
    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        if epoch % self.every:
            return
        self.epochs.append(epoch)
        self.updates.append(trainer.step)
        self.loss.append(objective(trainer, self.train))
        self.accuracy.append(trainer.evaluate(self.test)["accuracy"])
        if self.verbose:
            scores = f"Loss {self.loss[-1]:f} Accuracy {self.accuracy[-1]:f}"
            print(f"Epoch {epoch} {scores} time taken {1000 * logs['seconds']:.0f} ms", flush=True)


@dataclass
class Batching:
    """Which rows make a minibatch: the exercise's rule, the same batches every epoch, or a fresh shuffle."""

    train: Dataset
    batch: int = BATCH
    legacy: bool = True

    def fit(self, trainer: pdnn.Trainer, epochs: int, batches_a_round: int, *callbacks: Callback) -> None:
        """Trains with one update for every so many minibatches."""
        data: Dataset | Subset = self.train
        if self.legacy:
            data = Subset(data, np.concatenate(legacy_batches(len(data), self.batch)))
        trainer.fit(
            data,
            epochs,
            batch_size=self.batch * batches_a_round,
            shuffle=not self.legacy,
            callbacks=callbacks,
            verbose=False,
        )


def compare(name: str, watch: Watch) -> None:
    """Prints the run beside the published one, at the epochs that were published."""
    losses, accuracies = PUBLISHED[name]
    print(f"{'epoch':>5}  {'loss':>8} {'published':>9}  {'accuracy':>8} {'published':>9}   {name}")
    for epoch, loss, accuracy in zip(watch.epochs, watch.loss, watch.accuracy, strict=True):
        if epoch in losses.value:
            theirs = losses.value[epoch], accuracies.value[epoch]
            print(f"{epoch:5d}  {loss:8.4f} {theirs[0]:9.4f}  {accuracy:8.4f} {theirs[1]:9.4f}")
    print(losses.conditions)


def where_time_goes(trainer: pdnn.Trainer) -> dict[str, float]:
    """Milliseconds of the fastest epoch: all of it, and the phase in which gradients are made and joined."""
    seconds = trainer.history.history["seconds"]
    fastest = int(np.argmin(seconds))
    gradient = trainer.history.phases[fastest]["gradient"]
    return {"epoch_ms": 1000 * seconds[fastest], "gradient_ms": 1000 * gradient}


def sweep(
    batching: Batching, test: Dataset, threads: Sequence[int], rounds: Sequence[int], epochs: int, lr: float
) -> list[dict[str, float]]:
    """Threads × batches a round: milliseconds an epoch and speed-ups over one thread, loss and accuracy."""
    table: list[dict[str, float]] = []
    for batches in rounds:
        for workers in threads:
            trainer = make_trainer(strategies.Pool(workers, parallel_batches=batches), lr)
            batching.fit(trainer, epochs, batches)
            times = where_time_goes(trainer)
            row = {"threads": workers, "batches_a_round": batches, **times}
            alone = next((r for r in table if r["threads"] == 1 and r["batches_a_round"] == batches), row)
            row["epoch_speedup"] = alone["epoch_ms"] / row["epoch_ms"]
            row["gradient_speedup"] = alone["gradient_ms"] / row["gradient_ms"]
            row |= {"updates": trainer.step, "loss": objective(trainer, batching.train)}
            row["accuracy"] = trainer.evaluate(test)["accuracy"]
            table.append(row)
            print(
                f"{workers} threads, {batches:2d} batches a round: epoch {row['epoch_ms']:6.1f} ms "
                f"(x{row['epoch_speedup']:.2f}), gradients {row['gradient_ms']:6.1f} ms "
                f"(x{row['gradient_speedup']:.2f}); accuracy {row['accuracy']:.4f}",
                flush=True,
            )
    return table


def draw_runs(path: Path, runs: dict[str, Watch]) -> None:
    """Accuracy against epochs and against updates, with the published points."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.5), layout="constrained")
    for place, along in enumerate(("epochs", "updates"), 1):
        axes = figure.add_subplot(1, 2, place)
        for name, watch in runs.items():
            (line,) = axes.plot(getattr(watch, along), watch.accuracy, label=name)
            if along == "epochs":
                _, theirs = PUBLISHED[name]
                x = [epoch for epoch in theirs.value if epoch in watch.epochs]
                y = [theirs.value[epoch] for epoch in x]
                axes.plot(x, y, "x", color=line.get_color(), label=f"{name}, published")
        axes.set(xlabel=along, ylabel="test accuracy", xscale="log" if along == "updates" else "linear")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)


def draw_sweep(path: Path, table: list[dict[str, float]]) -> None:
    """Speed-up against threads, and accuracy against batches a round."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.5), layout="constrained")
    speed, accuracy = figure.subplots(1, 2)
    for batches in sorted({row["batches_a_round"] for row in table}):
        rows = [row for row in table if row["batches_a_round"] == batches]
        threads = [row["threads"] for row in rows]
        (line,) = speed.plot(threads, [r["gradient_speedup"] for r in rows], "o-", label=f"{batches} a round")
        speed.plot(threads, [row["epoch_speedup"] for row in rows], ":", color=line.get_color())
    speed.set_xticks(threads)
    speed.set(xlabel="threads", ylabel="speed-up (gradients; dotted: epoch)")
    speed.legend(fontsize="small")
    once = {row["batches_a_round"]: row["accuracy"] for row in table}
    accuracy.plot(list(once), list(once.values()), "o-")
    accuracy.set(xlabel="batches a round", ylabel="test accuracy after the same epochs", xscale="log")
    accuracy.set_xticks(list(once), [str(batches) for batches in once], minor=False)
    accuracy.minorticks_off()
    for axes in (speed, accuracy):
        axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    what = ("vanilla", "parallel", "sweep")
    parser.add_argument("what", nargs="*", metavar="PART", help=f"of {', '.join(what)}; all unless given")
    parser.add_argument("--epochs", type=positive_int, help="of the two runs (250; fast: 21)")
    parser.add_argument("--sweep-epochs", type=positive_int, help="of each run of the sweep (10; fast: 2)")
    parser.add_argument("--threads", type=positive_int, default=5, help="of the pool (%(default)s)")
    parser.add_argument(
        "--batches-a-round", type=positive_int, default=25, help="of the parallel run (%(default)s)"
    )
    parser.add_argument("--lr", type=float, default=1e-3, help="step size η (%(default)s)")
    parser.add_argument(
        "--batching",
        choices=("legacy", "general"),
        default="legacy",
        help="legacy: the exercise's, the same batches every epoch; general: a fresh shuffle each epoch",
    )
    parser.add_argument(
        "--batch",
        type=positive_int,
        default=BATCH,
        help="rows of a minibatch (%(default)s); others need --batching general",
    )
    parser.add_argument("--fast", action="store_true", help="few epochs")
    parser.add_argument("--out", type=Path, default=Path("out/threadpool"), help="folder (%(default)s)")
    chosen = parser.parse_args()
    if unknown := set(chosen.what) - set(what):
        parser.error(f"unknown part {sorted(unknown)[0]!r}; expected some of {', '.join(what)}")
    can_draw(parser)
    if chosen.batching == "legacy" and chosen.batch != BATCH:
        parser.error(
            f"--batch {chosen.batch}: the exercise's batches have {BATCH} rows; add --batching general"
        )
    chosen.what = chosen.what or list(what)
    chosen.epochs = chosen.epochs or (21 if chosen.fast else 250)
    chosen.sweep_epochs = chosen.sweep_epochs or (2 if chosen.fast else 10)
    return chosen


def main() -> None:
    args = arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    train, test = pdnn.datasets.mnist_mini(scale=1)  # raw 0 … 255, as the exercise takes them
    batching = Batching(train, args.batch, args.batching == "legacy")
    plans: dict[str, tuple[strategies.Strategy, int]] = {
        "vanilla": (strategies.Serial(), 1),
        "parallel": (strategies.Pool(args.threads, args.batches_a_round), args.batches_a_round),
    }
    runs: dict[str, Watch] = {}
    for name, (strategy, batches) in plans.items():
        if name not in args.what:
            continue
        print(f"\n{name}: strategy {strategy}, {args.batching} batches of {args.batch}, {batches} a round")
        trainer = make_trainer(strategy, args.lr)
        runs[name] = Watch(train, test)
        batching.fit(trainer, args.epochs, batches, runs[name])
        times = where_time_goes(trainer)
        print(f"fastest epoch {times['epoch_ms']:.1f} ms, of which gradients {times['gradient_ms']:.1f} ms")
        compare(name, runs[name])
        trainer.history.save(args.out / f"{name}.json")
    if runs:
        draw_runs(args.out / "runs.png", runs)
    if "sweep" in args.what:
        print(
            f"\nsweep, {args.sweep_epochs} epochs each; speed-ups over one thread and as many batches a round"
        )
        threads, rounds = ((1, 2), (1, 5, 25)) if args.fast else ((1, 2, 3, 4, 5), (1, 5, 10, 20, 25, 50))
        table = sweep(batching, test, threads, rounds, args.sweep_epochs, args.lr)
        with open(args.out / "sweep.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, table[0])
            writer.writeheader()
            writer.writerows(table)
        draw_sweep(args.out / "sweep.png", table)
    print(f"\nfiles in {args.out}")


if __name__ == "__main__":
    main()
