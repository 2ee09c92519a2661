"""What parameter_averaging.py and hogwild.py share: digits, network, one training, its file and its pictures.

The exercise trains a convolutional network on MNIST, resized to 32 x 32, with P workers that see a P-th of
the rows each: batches of 256 rows a worker, learning rate 0.1, 50 epochs. It reports the time of the
training and the accuracy on the 10,000 test images, a line for each P in TimeForTraining.txt. Its log lines
are those printed here, but for one: it prints 1 - loss as the accuracy.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import pdnn
from pdnn import nn, optim
from pdnn.callbacks import Callback
from pdnn.data import Dataset
from pdnn.exercises import published

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BATCH = 256
FILE = "TimeForTraining.txt"


@dataclass(frozen=True)
class Result:
    """One line of the exercise's file."""

    workers: int
    seconds: float  # of training alone: the digits are loaded, and every rank is there
    accuracy: float  # on the test images, without dropout

    def __str__(self) -> str:
        return f"{self.workers},{self.seconds:.2f},{self.accuracy:.4f}"


class PublishedLines(Callback):
    """The exercise's progress: a line after every tenth epoch, and after the last."""

    def __init__(self, epochs: int, say: Callable[[str], object], every: int = 10) -> None:
        self.epochs, self.say, self.every = epochs, say, every

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        if (epoch + 1) % self.every == 0 or epoch + 1 == self.epochs:
            loss, accuracy = logs["loss"], logs["accuracy"]
            self.say(
                f"Epoch [{epoch + 1}/{self.epochs}], Train Loss: {loss:.4f}, Train Accuracy: {accuracy:.4f}"
            )


def beginning(model: nn.Sequential, workers: int) -> str:
    """The exercise's first lines: a training's parameters, and on how many processes it runs."""
    with np.printoptions(threshold=6, edgeitems=3, precision=4):
        values = [f"{name} {p.shape} {p.data.ravel()}" for name, p in model.named_parameters()]
    return "\n".join([*values, f"-----Experiment: Number of processes={workers}-----"])


def ending(seconds: float, tested: Mapping[str, float]) -> str:
    """The exercise's last lines."""
    return (
        f"Total time for training: {seconds:.2f}\n"
        f"Test Data: Average loss: {tested['loss']:.4f}, Final Accuracy: {100 * tested['accuracy']:.2f}%"
    )


def published_line(result: Result, seconds: published.Curve, accuracy: Mapping[int, float]) -> str:
    """Published figures of as many workers, or that there are none."""
    if result.workers not in seconds.value:
        return f"published: nothing of {result.workers} workers"
    theirs = [f"{seconds.value[result.workers]:.0f} s"]
    if result.workers in accuracy:
        theirs.append(f"accuracy {100 * accuracy[result.workers]:.0f}%")
    return f"published: {', '.join(theirs)} ({seconds.conditions})"


def load_digits(folder: Path | None, embedded: bool = False) -> tuple[Dataset, Dataset, str]:
    """Training and test images (n, 1, 32, 32), and what they are."""
    if embedded:
        return *pdnn.datasets.mnist_mini(image=True, size=32), "the 14,000 digits that come with pdnn"
    return *pdnn.datasets.mnist(folder, image=True, size=32), "MNIST"


def train(
    strategy: str | pdnn.strategies.Strategy,
    workers: int,
    digits: tuple[Dataset, Dataset],
    epochs: int,
    seed: int = 0,
    say: Callable[[str], object] = print,
    lr: float = 0.1,
) -> tuple[Result, pdnn.Trainer]:
    """Trains a new network; ranks that must start from different values pass different seeds."""
    train_images, test_images = digits
    model = pdnn.exercises.lenet_psgd(seed=seed)
    descent = optim.SGD(model.parameters(), lr=lr)
    trainer = pdnn.Trainer(model, nn.NLLLoss(), descent, strategy=strategy)
    quiet = say if trainer.comm.rank == 0 else lambda _: None
    quiet(beginning(model, workers))
    trainer.comm.barrier()
    began = time.perf_counter()
    trainer.fit(train_images, epochs, BATCH, callbacks=[PublishedLines(epochs, quiet)], verbose=False)
    seconds = time.perf_counter() - began
    tested = trainer.evaluate(test_images, comm=trainer.comm)
    quiet(ending(seconds, tested))
    return Result(workers, seconds, tested["accuracy"]), trainer


def crowded(workers: int) -> str:
    """What must be said of times where workers share cores; otherwise nothing."""
    world = pdnn.world()
    cores = pdnn.comm.cores_of_rank(world) if world.size == 1 else os.cpu_count() or 1
    if workers <= cores:
        return ""
    return f"{workers} workers share {cores} core(s): oversubscribed, their time says nothing about speedup"


def append(path: Path, result: Result) -> None:
    """One more line ``P,time,accuracy``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        print(result, file=file)


def read(path: Path) -> list[Result]:
    """The newest line of each P, by P."""
    newest = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        workers, seconds, accuracy = line.split(",")
        newest[int(workers)] = Result(int(workers), float(seconds), float(accuracy))
    return [newest[workers] for workers in sorted(newest)]


def draw_speedup(axes: Axes, results: Sequence[Result], label: str = "measured", color: str = "C0") -> None:
    """Time of the fewest workers over that of P; hollow where workers share cores."""
    first = results[0]
    speedups = [first.workers * first.seconds / result.seconds for result in results]
    axes.plot([result.workers for result in results], speedups, label=label, color=color)
    for result, speedup in zip(results, speedups, strict=True):
        face = "white" if crowded(result.workers) else color
        axes.plot(result.workers, speedup, "o", color=color, markerfacecolor=face)
    axes.set(xlabel="P (hollow: more workers than cores)", ylabel="speedup")
    whole_numbers(axes)


def draw_error(axes: Axes, results: Iterable[Result], label: str = "measured", color: str = "C0") -> None:
    """Test error, 1 - accuracy, against P: most of what there is to see is between 0.9 and 1."""
    results = list(results)
    workers = [result.workers for result in results]
    axes.plot(workers, [1 - result.accuracy for result in results], "o-", label=label, color=color)
    axes.set(xlabel="P", ylabel="test error (1 - accuracy)", yscale="log")
    whole_numbers(axes)


def whole_numbers(axes: Axes) -> None:
    """Ticks of P, which is no fraction; a thin grid."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)


def draw_file(path: Path, sweep: Sequence[int]) -> None:
    """speedup.png and accuracy.png of a sweep that has just ended, beside the exercise's file."""
    from matplotlib.figure import Figure

    for name, draw in (("speedup", draw_speedup), ("accuracy", draw_error)):
        figure = Figure(figsize=(5, 3.4), layout="constrained")
        draw(figure.add_subplot(), [result for result in read(path) if result.workers in sweep])
        figure.savefig(path.with_name(f"{name}.png"), dpi=120)
