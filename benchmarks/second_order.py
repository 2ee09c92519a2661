"""Levenberg-Marquardt beside Adam and torch's L-BFGS on ten small regressions, in float64 on one thread.

python benchmarks/second_order.py [--sets 10] [--adam-steps 100000] [--without-torch] [--json FILE]

For each set Adam's smallest loss of all rates and steps, a tenth of it as the goal, and the processor seconds
that each side takes to get there. torch's L-BFGS may take `--patience` times as long as Levenberg-Marquardt.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from time import process_time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

import measure
from pdnn import models, nn, optim
from workers import installed_version

Array = np.ndarray
WIDTHS = (4, 32, 16, 4)
RATES = (1e-2, 3e-3, 1e-3)

#: Four functions of four numbers in [-1, 1] each, the columns of x.
SETS: dict[str, Callable[[Array], list[Array]]] = {
    "sines": lambda x: [np.sin(3 * x[i]) + np.cos(2 * x[i - 1]) for i in range(4)],
    "products": lambda x: [x[i] * x[i - 1] for i in range(4)],
    "cubics": lambda x: [x[i] ** 3 - x[i - 1] * x[i - 2] for i in range(4)],
    "bumps": lambda x: [np.exp(-4 * (x[i] ** 2 + x[i - 1] ** 2)) for i in range(4)],
    "rationals": lambda x: [1 / (1 + 4 * x[i] ** 2) + x[i - 1] / (2 + x[i - 2]) for i in range(4)],
    "distances": lambda x: [np.sqrt(0.1 + (x[i] - x[i - 1]) ** 2) for i in range(4)],
    "exponentials": lambda x: [np.exp(x[i]) * x[i - 1] for i in range(4)],
    "sigmoids": lambda x: [np.tanh(3 * (x[i] + x[i - 1])) * np.tanh(2 * x[i - 2]) for i in range(4)],
    "an arm": lambda x: [
        f(2 * x[0]) + f(2 * x[0] + 2 * x[1]) * (1 + x[i] / 2) for f in (np.sin, np.cos) for i in (2, 3)
    ],
    "pendulums": lambda x: [np.sin(2 * x[i] + x[i - 1] * np.cos(2 * x[i - 2])) for i in range(4)],
}


def rows(name: str, count: int) -> tuple[Array, Array]:
    """The samples of a set and its targets, both (count, 4), targets of mean 0 and variance 1."""
    x = np.random.default_rng(0).uniform(-1, 1, (count, 4))
    y = np.stack(SETS[name](x.T), 1)
    return x, (y - y.mean(0)) / y.std(0)


def network() -> nn.Sequential:
    return models.mlp(list(WIDTHS), "tanh", dtype="float64", seed=0)


def ours(x: Array, y: Array, make: Callable[[nn.Sequential], optim.Optimizer]) -> Iterator[float]:
    """The losses of pdnn's steps on all rows."""
    model, criterion = network(), nn.MSELoss()
    optimizer = make(model)
    while True:
        yield model.step(x, y, criterion, optimizer)


def adam(x: Array, y: Array, steps: int) -> float:
    """The smallest loss of all rates and steps."""

    def losses(lr: float) -> Iterator[float]:
        return islice(ours(x, y, lambda model: optim.Adam(model.parameters(), lr=lr)), steps)

    return min(min(losses(lr)) for lr in RATES)


def torchs(x: Array, y: Array) -> Iterator[float]:
    """The losses of torch's L-BFGS with a strong Wolfe search, the smallest of each twenty iterations."""
    import torch

    torch.set_num_threads(1)
    model = network()
    model.core  # noqa: B018  draws the parameters
    layers: list[torch.nn.Module] = []
    for layer in model:
        if isinstance(layer, nn.Linear):
            own = torch.nn.Linear(layer.in_features, layer.out_features, dtype=torch.float64)
            with torch.no_grad():
                own.weight.copy_(torch.from_numpy(np.asarray(layer.weight).T.copy()))
                own.bias.copy_(torch.from_numpy(np.asarray(layer.bias).copy()))
            layers.append(own)
        else:
            layers.append(torch.nn.Tanh())
    net, inputs, targets = torch.nn.Sequential(*layers), torch.from_numpy(x), torch.from_numpy(y)
    optimizer = torch.optim.LBFGS(
        net.parameters(),
        max_iter=20,
        history_size=100,
        tolerance_grad=0,
        tolerance_change=0,
        line_search_fn="strong_wolfe",
    )
    losses: list[float] = []

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(net(inputs), targets)
        loss.backward()
        losses.append(loss.item())
        return loss

    while True:
        optimizer.step(closure)
        yield min(losses)
        losses.clear()


def reach(make: Callable[[], Iterator[float]], goal: float, patience: float) -> tuple[float, float]:
    """Processor seconds until a loss is at the goal, or patience ends; and the smallest loss."""
    next(make())  # what a process makes once
    began, least = process_time(), np.inf
    for loss in make():
        least, passed = min(least, loss), process_time() - began
        if least <= goal or passed > patience:
            return passed, least
    raise AssertionError("losses do not end")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=len(SETS), help="the first so many (default: all)")
    parser.add_argument("--rows", type=int, default=256, help="of a set (default: %(default)s)")
    parser.add_argument(
        "--adam-steps", type=int, default=100_000, help="for each rate (default: %(default)s)"
    )
    parser.add_argument(
        "--patience",
        type=float,
        default=25,
        help="how many times as long as Levenberg-Marquardt torch may take (default: %(default)s)",
    )
    parser.add_argument("--without-torch", action="store_true", help="leave PyTorch out")
    parser.add_argument("--json", type=measure.destination, metavar="FILE", help="write everything measured")
    arguments = parser.parse_args()
    with_torch = not arguments.without_torch and installed_version("torch") is not None
    report = measure.begin()
    print(
        f"{'set':14}{'Adam':>10}{'goal':>10}{'LM, s':>9}{'LM':>10}{'L-BFGS, s':>11}{'L-BFGS':>10}{'ratio':>8}"
    )
    for name in list(SETS)[: arguments.sets]:
        x, y = rows(name, arguments.rows)
        best = adam(x, y, arguments.adam_steps)
        goal = best / 10
        seconds, loss = reach(
            partial(ours, x, y, lambda model: optim.LevenbergMarquardt(model.parameters())),
            goal,
            patience=600,
        )
        row = {"set": name, "adam": best, "goal": goal, "seconds": seconds, "loss": loss}
        text = f"{name:14}{best:10.2e}{goal:10.2e}{seconds:9.3f}{loss:10.2e}"
        if with_torch:
            theirs, least = reach(partial(torchs, x, y), goal, arguments.patience * max(seconds, 0.05))
            row |= {"torch_seconds": theirs, "torch_loss": least}
            text += f"{theirs:11.2f}{least:10.2e}{'> ' * (least > goal) + format(theirs / seconds, '.1f'):>8}"
        print(text, flush=True)
        report["results"].append(row)
    measure.write(report, arguments.json)


if __name__ == "__main__":
    main()
