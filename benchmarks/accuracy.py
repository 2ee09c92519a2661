"""The accuracy of networks trained in float32 and in bfloat16, from the same seeds.

python benchmarks/accuracy.py [--seeds 3] [--networks mlp,cnn,resnet9] [--json FILE]

* mlp: 784-256-10 with sigmoid on MNIST, 5 epochs of SGD, batches of 105.
* cnn: the exercise's network with two convolutions (`exercises.lenet_psgd`) on MNIST, 3 epochs of SGD with
  momentum, batches of 128.
* resnet9: `models.ResNet9` on 4,000 photographs of CIFAR-10, 10 epochs of Adam, batches of 128.

The data sets are in $PDNN_DATA (docs/data.md). Columns: percent of the test images that are right, the mean
over the seeds; and the mean difference in points with its standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import measure
import pdnn
from pdnn import datasets, exercises, models, nn, optim
from pdnn.data import Dataset, Subset

Data = tuple[Dataset | Subset, Dataset | Subset]


@dataclass(frozen=True)
class Task:
    """A network, what it is trained on and how."""

    data: Callable[[], Data]
    model: Callable[[str, int], nn.Sequential]
    loss: Callable[[], nn.Loss]
    optimizer: Callable[[nn.Sequential], optim.Optimizer]
    epochs: int
    batch_size: int


def _few_photographs() -> Data:
    train, test = datasets.cifar10()
    return Subset(train, range(4000)), test


TASKS = {
    "mlp": Task(
        lambda: datasets.mnist(),
        lambda dtype, seed: models.mlp([784, 256, 10], "sigmoid", dtype=dtype, seed=seed),
        nn.CrossEntropyLoss,
        lambda model: optim.SGD(model.parameters(), lr=0.5),
        5,
        105,
    ),
    "cnn": Task(
        lambda: datasets.mnist(image=True),
        lambda dtype, seed: exercises.lenet_psgd(dtype=dtype, seed=seed),
        nn.NLLLoss,
        lambda model: optim.SGD(model.parameters(), lr=0.02, momentum=0.9),
        3,
        128,
    ),
    "resnet9": Task(
        _few_photographs,
        lambda dtype, seed: models.ResNet9(dtype=dtype, seed=seed),
        nn.CrossEntropyLoss,
        lambda model: optim.Adam(model.parameters(), lr=1e-3),
        10,
        128,
    ),
}


def accuracy(task: Task, data: Data, dtype: str, seed: int) -> float:
    """Percent of the test images that the trained network gets right."""
    model = task.model(dtype, seed)
    trainer = pdnn.Trainer(model, task.loss(), task.optimizer(model), seed=seed, strategy="auto")
    trainer.fit(data[0], task.epochs, task.batch_size, verbose=False)
    return 100 * trainer.evaluate(data[1])["accuracy"]


def main(arguments: Sequence[str]) -> None:
    """Prints a line a network; writes all accuracies if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=measure.count, default=3, help="trainings of each; default: 3")
    measure.add_names(parser, "--networks", TASKS)
    parser.add_argument("--json", type=measure.destination, metavar="FILE", help="all accuracies")
    options = parser.parse_args(arguments)
    report = measure.begin()
    print("| network | float32 | bfloat16 | difference |\n|---|--:|--:|--:|")
    for name in options.networks:
        task, data = TASKS[name], TASKS[name].data()
        right = {
            dtype: [accuracy(task, data, dtype, seed) for seed in range(options.seeds)]
            for dtype in ("float32", "bfloat16")
        }
        report["results"].append({"network": name, **right})
        differences = [b - f for f, b in zip(right["float32"], right["bfloat16"], strict=True)]
        error = stdev(differences) / len(differences) ** 0.5 if len(differences) > 1 else 0.0
        means = " | ".join(f"{fmean(values):.2f}" for values in right.values())
        print(f"| {name} | {means} | {fmean(differences):+.2f} ± {error:.2f} |", flush=True)
    measure.write(report, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
