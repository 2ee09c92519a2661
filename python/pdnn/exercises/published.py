"""The published figures of the exercises: each with its value, its source and its conditions.

Each constant is a `Figure`. One number, or a mapping from what it was measured at, is its `value`::

    from pdnn.exercises import published

    published.EX4_COST.value  # 0.287629
    published.VANILLA_LOSS.value[10]  # 0.777892, after epoch 10
    print(published.PSGD_ACCURACY)  # what it is, its conditions and its source, in one line

The order is that of the notebooks: minibatches in a thread pool (02), scatter and gather (03), averaging and
Hogwild (05), data parallel by hand (06), ResNet9 (07).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

V = TypeVar("V")


@dataclass(frozen=True)
class Figure(Generic[V]):
    """A figure of somebody else, as it was published.

    Attributes
    ----------
    what : str
        What was measured, and its unit. Accuracies are shares between 0 and 1.
    value : float, or a mapping from an epoch, a step or a number of workers
        A pair is the lowest and the highest of several runs.
    conditions : str
        The data, sizes and lengths that the value belongs to; without them there is nothing to compare.
    source : str
        Who printed it.
    """

    what: str
    value: V
    conditions: str
    source: str

    def __str__(self) -> str:
        return f"{self.what}: {self.conditions}; {self.source}"


Curve = Figure[Mapping[int, float]]
Ranges = Figure[Mapping[int, tuple[float, float]]]

# Minibatches in a thread pool: 784-256-10, 10,500 digits in minibatches of 105, float64, eta 1e-3

_POOL = "the log lines of the thread-pool exercise"
_VANILLA = "an update after each of 100 minibatches; 75/25 split without a seed, so other images than ours"
_PARALLEL = "5 threads, an update after 25 minibatches; 75/25 split without a seed, so other images than ours"

VANILLA_LOSS: Curve = Figure(
    "training objective after an epoch",
    {0: 2.165225, 10: 0.777892, 20: 0.462656, 50: 0.233327, 100: 0.141393, 160: 0.102224},
    _VANILLA,
    _POOL,
)
VANILLA_ACCURACY: Curve = Figure(
    "test accuracy after an epoch",
    {0: 0.646000, 10: 0.880286, 20: 0.908000, 50: 0.922286, 100: 0.928857, 160: 0.931429},
    _VANILLA,
    _POOL,
)
PARALLEL_LOSS: Curve = Figure(
    "training objective after an epoch",
    {0: 2.303491, 10: 2.261419, 20: 2.197020, 50: 1.923187, 100: 1.499376, 160: 1.147921},
    _PARALLEL,
    _POOL,
)
PARALLEL_ACCURACY: Curve = Figure(
    "test accuracy after an epoch",
    {0: 0.103429, 10: 0.244571, 20: 0.611429, 50: 0.650286, 100: 0.722857, 160: 0.812286},
    _PARALLEL,
    _POOL,
)
VANILLA_MS = Figure(
    "milliseconds an epoch, about",
    500.0,
    "NumPy, whose products started threads of their own: the variables against it were set after the import",
    _POOL,
)
PARALLEL_MS = Figure(
    "milliseconds an epoch, about",
    390.0,
    "NumPy's gradients as tasks of 5 threads, 25 minibatches a round",
    _POOL,
)

# Scatter, gather, broadcast: 400-25-10, 5,000 digits of 20 x 20, batch gradient descent

_SCATTER = "the scatter-and-gather exercise"
_RATE_2 = "batch gradient descent, learning rate 2, weights drawn within ±0.12"

EX4_COST = Figure("cost of the pretrained weights", 0.287629, "all 5,000 digits", _SCATTER)
EX4_ACCURACY = Figure("accuracy of the pretrained weights", 0.9752, "all 5,000 digits", _SCATTER)
SCATTER_GATHER_ACCURACY: Curve = Figure(
    "training accuracy after as many iterations",
    {50: 0.82, 100: 0.87, 200: 0.93, 300: 0.94, 1000: 0.97},
    _RATE_2,
    _SCATTER,
)
SCATTER_GATHER_COST: Curve = Figure(
    "cost after as many iterations (1000: about)", {200: 0.572, 300: 0.485, 1000: 0.25}, _RATE_2, _SCATTER
)
SCATTER_GATHER_SLOW_ACCURACY = Figure(
    "training accuracy", 0.36, "as the others, but learning rate 0.1, 60 iterations", _SCATTER
)
SCATTER_GATHER_SECONDS: Curve = Figure(
    "seconds an iteration, by machines", {1: 0.55, 2: 0.38}, "one CPU of each machine", _SCATTER
)
SCATTER_GATHER_GPU_SECONDS: Curve = Figure(
    "seconds an iteration, by machines",
    {1: 1.75, 2: 1.00},
    "products on one GPU of each machine, which products as small as these do not repay",
    _SCATTER,
)
LINK_MB_PER_SECOND = Figure("MB/s between two machines", 118.0, "messages there and back", _SCATTER)

# Averaging and Hogwild: 213,194 parameters, MNIST of 32 x 32, SGD with lr 0.1, batches of 256 a worker

_AVERAGING = "the sheet of the averaging exercise"
_SOLUTION = "a second published solution of the averaging exercise"
_AVERAGED = "ranks start from different weights, train apart and are averaged once, at the end"
_AVERAGED_50 = f"50 epochs; {_AVERAGED}; dropout stays on in the test"
_AVERAGED_20 = f"20 epochs, not the sheet's 50; {_AVERAGED}"
_HOGWILD_20 = "20 epochs, not the sheet's 50; one model, shared without locks"

SHEET_PSGD_SECONDS: Curve = Figure(
    "seconds of training, by workers", {1: 915.66, 2: 552.65}, _AVERAGED_50, _AVERAGING
)
SHEET_PSGD_ACCURACY = Figure("test accuracy of two workers", 0.40, _AVERAGED_50, _AVERAGING)
PSGD_SECONDS: Curve = Figure(
    "seconds of training, by workers", {1: 375, 2: 193, 3: 142, 4: 123, 5: 103}, _AVERAGED_20, _SOLUTION
)
PSGD_ACCURACY: Curve = Figure(
    "test accuracy, by workers", {1: 0.91, 2: 0.36, 3: 0.20, 4: 0.10, 5: 0.11}, _AVERAGED_20, _SOLUTION
)
HOGWILD_SECONDS: Curve = Figure(
    "seconds of training, by workers", {1: 282, 2: 187, 3: 159, 4: 136, 5: 147}, _HOGWILD_20, _SOLUTION
)
HOGWILD_ACCURACY: Curve = Figure(
    "test accuracy, by workers", {1: 0.88, 2: 0.92, 3: 0.85, 4: 0.87, 5: 0.87}, _HOGWILD_20, _SOLUTION
)

# Data parallel by hand: 1024-256-256-256-32, tanh, SGD with lr 0.1 falling to 0.03, batches of 64, 1000 steps

_COLLECTIVES = "the lines printed in the data-parallel exercise"
_TWO_WORKERS = (
    "rows 0 to 999, all but the last 40 of which are trained on; printed above the program of one process, "
    "but these are losses of two workers with the mean of their gradients: one process has 1.87 to 1.97 at "
    "step 100"
)
_SEEDS = "14 seeds, the same rows 0 to 999"
_PYTORCH = "not published: measured for pdnn with PyTorch"

DATA_PARALLEL_TRAIN_LOSS: Curve = Figure(
    "train_loss at a step",
    {
        0: 3.7844,
        100: 0.7557,
        200: 0.2600,
        300: 0.2263,
        400: 0.2170,
        500: 0.2131,
        600: 0.2081,
        700: 0.2104,
        800: 0.2183,
        900: 0.2070,
    },
    _TWO_WORKERS,
    _COLLECTIVES,
)
DATA_PARALLEL_TEST_LOSS: Curve = Figure(
    "test_loss at a step",
    {
        0: 3.7780,
        100: 0.7426,
        200: 0.2585,
        300: 0.2236,
        400: 0.2156,
        500: 0.2196,
        600: 0.2081,
        700: 0.2062,
        800: 0.2131,
        900: 0.2232,
    },
    _TWO_WORKERS,
    _COLLECTIVES,
)
DATA_PARALLEL_STEP_MS = Figure("milliseconds a step, about", 12.0, "two workers", _COLLECTIVES)
ONE_WORKER_RANGES: Ranges = Figure(
    "lowest and highest test_loss at a step",
    {
        100: (1.87, 1.97),
        200: (1.26, 1.47),
        300: (0.88, 1.05),
        400: (0.65, 0.89),
        500: (0.35, 0.61),
        900: (0.22, 0.31),
    },
    f"one worker; {_SEEDS}",
    _PYTORCH,
)
MEAN_RANGES: Ranges = Figure(
    "lowest and highest test_loss at a step",
    {100: (0.72, 0.82), 200: (0.23, 0.27), 300: (0.21, 0.25), 400: (0.20, 0.24), 500: (0.19, 0.24)},
    f"two workers, mean of gradients; {_SEEDS}",
    _PYTORCH,
)
SUM_RANGES: Ranges = Figure(
    "lowest and highest test_loss at a step",
    {100: (1.43, 1.65), 200: (0.98, 1.19), 300: (0.64, 0.87), 400: (0.30, 0.54), 500: (0.25, 0.35)},
    f"two workers, sum of gradients; {_SEEDS}",
    _PYTORCH,
)

# ResNet9: 431,946 parameters, CIFAR-10's 50,000 training images, Adam with lr 1e-3, batch 128

_RESNET9 = "the log lines of the ResNet9 exercise"
_EPOCH = "one epoch of 50,000 images, batch 128 in all"

RESNET9_LOSS: Curve = Figure(
    "training loss at a batch of the first epoch",
    {0: 3.61, 100: 1.68, 200: 1.40, 300: 1.44},
    "one device, batch 128",
    _RESNET9,
)
RESNET9_FINAL_ACCURACY = Figure(
    "training accuracy", 0.696, "10 epochs of 50,000 images, one device, batch 128", _RESNET9
)
RESNET9_FINAL_LOSS = Figure(
    "training loss", 0.866, "10 epochs of 50,000 images, one device, batch 128", _RESNET9
)
RESNET9_EPOCH_ACCURACY: Ranges = Figure(
    "lowest and highest training accuracy of the ranks, by processes",
    {1: (0.385, 0.385), 3: (0.37, 0.38)},
    _EPOCH,
    _RESNET9,
)
RESNET9_EPOCH_LOSS: Ranges = Figure(
    "lowest and highest training loss of the ranks, by processes",
    {1: (1.702, 1.702), 3: (1.72, 1.73)},
    _EPOCH,
    _RESNET9,
)
RESNET9_EPOCH_SECONDS: Curve = Figure("seconds, by processes", {1: 59.5, 3: 44.5}, _EPOCH, _RESNET9)
RESNET9_NCCL_SECONDS = Figure("seconds", 43.9, "one epoch of 50,000 images over NCCL", _RESNET9)
