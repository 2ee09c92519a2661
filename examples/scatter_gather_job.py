"""The job of scatter_gather.py, driven by rank 0: written out over pdnn.comm, and by pdnn.Trainer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

import pdnn
from pdnn import nn, optim
from pdnn.comm import Communicator
from pdnn.data import Dataset

Array = npt.NDArray[Any]
Product = Callable[[Array, Array], Array]

INPUTS, HIDDEN, CLASSES = 400, 25, 10
SHAPES = ((HIDDEN, INPUTS + 1), (CLASSES, HIDDEN + 1))
"""Of Theta1 and Theta2; biases are column 0, as in the exercise."""
PHASES = (
    *("bcast", "scatter inputs", "scatter labels", "hidden product", "output product"),
    *("forward", "back", "gather 1", "gather 2", "update"),
)


class Timer:
    """Seconds of each phase on this rank: ``with timer("bcast"): …``."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - began


def initial_thetas(seed: int) -> tuple[Array, Array]:
    """Theta1 (25, 401) and Theta2 (10, 26), uniform in ±0.12."""
    random = np.random.RandomState(seed)
    theta1, theta2 = (random.uniform(-0.12, 0.12, shape) for shape in SHAPES)
    return theta1, theta2


def sigmoid(z: Array) -> Array:
    """1 / (1 + exp(-z))."""
    return 1 / (1 + np.exp(-z))


def cost_and_gradients(
    theta1: Array, theta2: Array, x: Array, labels: Array, product: Product, timer: Timer
) -> tuple[float, Array, Array]:
    """Cost and gradients, *summed* over these rows: sums of shards add up exactly, whatever their sizes.

    The cost of a row is Σ_k -t_k log a_k - (1 - t_k) log(1 - a_k), for outputs a and t_k = 1 at its label.

    Parameters
    ----------
    theta1, theta2 : array, shapes (25, 401) and (10, 26)
    x : array, shape (rows, 400)
    labels : array of int, shape (rows,), in 0..9
    product : function of two matrices
    timer : Timer
    """
    with timer("hidden product"):
        z1 = product(x, theta1[:, 1:].T)  # [rows, 25]
    with timer("forward"):
        a1 = sigmoid(z1 + theta1[:, 0])
    with timer("output product"):
        z2 = product(a1, theta2[:, 1:].T)  # [rows, 10]
    with timer("forward"):
        z2 = z2 + theta2[:, 0]
        t = labels[:, np.newaxis] == np.arange(CLASSES)
        cost = np.logaddexp(0, np.where(t, -z2, z2)).sum()  # -log σ(z) = log(1 + e⁻ᶻ): no log of 0
    with timer("back"):
        d2 = sigmoid(z2) - t
        gradient2 = np.column_stack([d2.sum(axis=0), product(d2.T, a1)])
        d1 = product(d2, theta2[:, 1:]) * a1 * (1 - a1)
        gradient1 = np.column_stack([d1.sum(axis=0), product(d1.T, x)])
    return float(cost), gradient1, gradient2


def precision(theta1: Array, theta2: Array, x: Array, labels: Array) -> float:
    """Share of the rows whose largest output is the right one."""
    a1 = sigmoid(x @ theta1[:, 1:].T + theta1[:, 0])
    outputs = a1 @ theta2[:, 1:].T + theta2[:, 0]
    return float(np.mean(outputs.argmax(axis=1) == labels))


@dataclass
class Run:
    """A training: thetas, on every rank; costs, on rank 0; seconds of iterations and phases on this rank."""

    theta1: Array
    theta2: Array
    costs: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    timer: Timer = field(default_factory=Timer)


def begin(
    comm: Communicator, digits: Dataset | None, thetas: tuple[Array, Array] | None
) -> tuple[Array | None, Array | None, Run]:
    """Rank 0's rows and labels, on the others None, and a run whose thetas are rank 0's on every rank."""
    x = y = None
    run = Run(np.empty(SHAPES[0]), np.empty(SHAPES[1]))
    if comm.rank == 0:
        assert digits is not None and thetas is not None, "rank 0 has the digits and the first thetas"
        x, y = digits.x, digits.y
        run.theta1[...], run.theta2[...] = thetas
    broadcast(comm, run)
    return x, y, run


def train(
    comm: Communicator,
    digits: Dataset | None,
    thetas: tuple[Array, Array] | None,
    *,
    iterations: int,
    learning_rate: float,
    once: bool = False,
    product: Product = np.matmul,
    log: Callable[[str], None] | None = None,
) -> Run:
    """Batch gradient descent, every step driven by rank 0.

    Parameters
    ----------
    comm : Communicator
    digits, thetas : Dataset and pair of arrays
        Rank 0's; the others may pass None and are sent what they need.
    once : bool
        Scatter the rows in the first iteration only. They never change, so that is enough.
    product : function of two matrices
    log : function of str, optional
        Gets rank 0's line of each iteration.
    """
    x, y, run = begin(comm, digits, thetas)
    for iteration in range(iterations):
        began = time.perf_counter()
        if iteration == 0 or not once:
            with run.timer("scatter inputs"):
                my_x = comm.scatter(x)
            with run.timer("scatter labels"):
                my_y = comm.scatter(y)
        cost, gradient1, gradient2 = cost_and_gradients(
            run.theta1, run.theta2, my_x, my_y, product, run.timer
        )
        with run.timer("gather 1"):
            gradients1 = comm.gather(gradient1)
        with run.timer("gather 2"):
            gradients2, costs = comm.gather(gradient2), comm.gather(np.array([cost]))
        if x is not None and gradients1 and gradients2 and costs:  # on rank 0
            with run.timer("update"):  # divided once, by the rows of all ranks: right for uneven shards too
                run.theta1 -= learning_rate / len(x) * sum(gradients1)
                run.theta2 -= learning_rate / len(x) * sum(gradients2)
                run.costs.append(float(np.sum(costs)) / len(x))
        broadcast(comm, run)
        run.seconds.append(time.perf_counter() - began)
        if log and comm.rank == 0:
            log(
                f"Iteration {iteration + 1} (learning rate {learning_rate:g}, iteration {iterations}), "
                f"cost: {run.costs[-1]:.6f}, time: {run.seconds[-1]:.4f} s"
            )
    return run


def train_ddp(
    comm: Communicator,
    digits: Dataset | None,
    thetas: tuple[Array, Array] | None,
    *,
    iterations: int,
    learning_rate: float,
    product: Product = np.matmul,
) -> Run:
    """The same without a root: rows are scattered once, an all-reduce adds the gradients, every rank updates.

    Parameters are those of `train`; the costs are on every rank.
    """
    x, y, run = begin(comm, digits, thetas)
    with run.timer("scatter inputs"):
        my_x = comm.scatter(x)
    with run.timer("scatter labels"):
        my_y = comm.scatter(y)
    rows = int(comm.all_reduce(np.array([float(len(my_x))]))[0])
    for _ in range(iterations):
        began = time.perf_counter()
        cost, *gradients = cost_and_gradients(run.theta1, run.theta2, my_x, my_y, product, run.timer)
        with run.timer("all-reduce"):
            sums = comm.all_reduce(np.concatenate([*(g.ravel() for g in gradients), [cost]])) / rows
        with run.timer("update"):
            first, second = np.split(sums[:-1], [run.theta1.size])
            run.theta1 -= learning_rate * first.reshape(SHAPES[0])
            run.theta2 -= learning_rate * second.reshape(SHAPES[1])
        run.costs.append(float(sums[-1]))
        run.seconds.append(time.perf_counter() - began)
    return run


def time_plans(
    comm: Communicator,
    digits: Dataset,
    thetas: tuple[Array, Array],
    *,
    iterations: int,
    rounds: int = 3,
    product: Product = np.matmul,
) -> dict[str, dict[str, float]]:
    """Milliseconds an iteration of each phase on rank 0: one rank alone, and all of them in three ways.

    The ways take turns; a figure is the median of its `rounds` turns. The others wait while rank 0 is alone.
    """
    by_root = partial(
        train, digits=digits, thetas=thetas, iterations=iterations, learning_rate=2.0, product=product
    )
    plans: dict[str, Callable[[], Run | None]] = {
        "1 rank": lambda: by_root(pdnn.comm.SELF, once=True) if comm.rank == 0 else None
    }
    if comm.size > 1:
        plans |= {
            f"{comm.size} ranks, scatter every time": partial(by_root, comm),
            f"{comm.size} ranks, scatter once": partial(by_root, comm, once=True),
            f"{comm.size} ranks, ddp": lambda: train_ddp(
                comm, digits, thetas, iterations=iterations, learning_rate=2.0, product=product
            ),
        }
    turns: dict[str, list[dict[str, float]]] = {name: [] for name in plans}
    for _ in range(rounds):
        for name, plan in plans.items():
            run = plan()
            comm.barrier()
            if run:
                turns[name].append({phase: 1000 * s / iterations for phase, s in run.timer.seconds.items()})
    return {
        name: {phase: median(turn[phase] for turn in own) for phase in own[0]}
        for name, own in turns.items()
        if own
    }


def broadcast(comm: Communicator, run: Run) -> None:
    """Both thetas, straight after each update: until then the other ranks hold the old ones."""
    with run.timer("bcast"):
        comm.broadcast(run.theta1)
        comm.broadcast(run.theta2)


def network(thetas: tuple[Array, Array]) -> nn.Sequential:
    """The network as a model: a Theta (outputs, 1 + inputs) becomes weight (inputs, outputs) and bias."""
    layers = nn.Linear(INPUTS, HIDDEN), nn.Sigmoid(), nn.Linear(HIDDEN, CLASSES), nn.Sigmoid()
    model = nn.Sequential(*layers, dtype="float64")
    weight1, bias1, weight2, bias2 = model.parameters()
    for theta, weight, bias in zip(thetas, (weight1, weight2), (bias1, bias2), strict=True):
        weight.data, bias.data = theta[:, 1:].T, theta[:, 0]
    return model


def make_trainer(
    thetas: tuple[Array, Array], learning_rate: float = 2.0, strategy: str = "auto"
) -> pdnn.Trainer:
    """What trains that network; its loss is the cost above, its strategy may be "scatter-gather"."""
    model = network(thetas)
    loss = nn.BCELoss(reduction="batchmean")
    return pdnn.Trainer(model, loss, optim.SGD(model.parameters(), lr=learning_rate), strategy=strategy)


def train_by_pdnn(
    digits: Dataset, thetas: tuple[Array, Array], *, iterations: int, learning_rate: float, once: bool = False
) -> list[float]:
    """The costs of `train`, by the Trainer."""
    trainer = make_trainer(thetas, learning_rate, "scatter-gather:once" if once else "scatter-gather")
    trainer.fit(digits, iterations, batch_size=len(digits), shuffle=False, verbose=False)
    return trainer.history.history["loss"]
