"""What ``--optimizer`` and ``--schedule`` name: ``adam``; ``linear:0.1``, ``step:10:0.5``, ``cosine``."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pdnn import nn, optim
from pdnn.cli.values import non_negative_float, positive_float, positive_int
from pdnn.optim import rules
from pdnn.optim.batch_loss import Solver

OPTIMIZERS: dict[str, type[optim.Optimizer]] = {
    **{name.lower(): getattr(rules, name) for name in rules.__all__},
    "lbfgs": optim.LBFGS,
    "levenberg-marquardt": optim.LevenbergMarquardt,
    "gauss-newton": optim.GaussNewton,
    "natural-gradient": optim.NaturalGradient,
}
"""Words to classes."""

FULL_BATCH = tuple(name for name, kind in OPTIMIZERS.items() if kind.needs_closure)
"""Those that take all rows at once, in float64, unless told otherwise."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "sgd": {"lr": 0.1, "momentum": 0.9},
    "lbfgs": {"line_search_fn": "strong_wolfe"},
}
"""What differs from the defaults of the classes, which are torch's."""

SOME = ("lr", "momentum", "max_iter", "history_size", "damping", "tau", "solver")
"""Options that only some optimizers take."""


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))


BATCH_SIZE = 128
"""Rows of an update, unless the optimizer is for all rows at once."""

BATCH_SIZE_HELP = f"default: {BATCH_SIZE}; all for {_listed(FULL_BATCH)}"

DTYPE_HELP = "default: float32; float64 for the optimizers that take all rows at once"

SCHEDULE_HELP = (
    "of the learning rate, after each update: linear[:END], falls to END (0) times its first value; "
    "cosine[:END], the same along half a wave; step[:EPOCHS[:FACTOR]], times FACTOR (0.1) every EPOCHS (10)"
)


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    """Adds the optimizer's and the schedule's options."""
    parser.add_argument("--optimizer", choices=tuple(OPTIMIZERS), default="sgd", help="default: %(default)s")
    parser.add_argument(
        "--lr",
        type=positive_float,
        metavar="RATE",
        help="learning rate; default: 0.1 for sgd and natural-gradient, 1 for lbfgs and gauss-newton, "
        "else torch's; levenberg-marquardt has none",
    )
    parser.add_argument(
        "--max-iter",
        type=positive_int,
        metavar="N",
        help="of lbfgs: iterations of a step, each with a line search (strong Wolfe); default: 20",
    )
    parser.add_argument(
        "--history-size",
        type=positive_int,
        metavar="N",
        help="of lbfgs: differences of gradients that are kept; default: 100",
    )
    parser.add_argument(
        "--damping",
        type=positive_float,
        metavar="D",
        help="of gauss-newton (default: 0.001) and natural-gradient (0.01): added to the matrix's diagonal",
    )
    parser.add_argument(
        "--tau",
        type=positive_float,
        metavar="T",
        help="of levenberg-marquardt: its first damping, as a part of the largest element of the diagonal; "
        "default: 0.001",
    )
    parser.add_argument(
        "--solver",
        choices=get_args(Solver),
        help="of second order: decompose the matrix (normal), that of rows (kernel), or conjugate gradients "
        "(cg); default: auto, by size",
    )
    parser.add_argument(
        "--momentum",
        type=non_negative_float,
        metavar="M",
        help="of sgd (default: 0.9) and rmsprop (default: 0)",
    )
    parser.add_argument(
        "--l2",
        type=non_negative_float,
        metavar="A",
        help="weight decay: A/2 Σw² in the loss, or decoupled from it for adamw (default: 0.01) and lion",
    )
    parser.add_argument("--schedule", type=schedule, metavar="SCHEDULE", help=SCHEDULE_HELP)


def optimizer(arguments: argparse.Namespace, parameters: Iterable[nn.Parameter]) -> optim.Optimizer:
    """The optimizer of a command line; what is not given is the class's default, as torch has it."""
    given = {name: getattr(arguments, name) for name in SOME} | {"weight_decay": arguments.l2}
    options = {name: value for name, value in given.items() if value is not None}
    return OPTIMIZERS[arguments.optimizer](parameters, **DEFAULTS.get(arguments.optimizer, {}) | options)


def batch_size(arguments: argparse.Namespace, rows: int) -> int:
    """The rows of an update: those of ``--batch-size``, or the optimizer's usual ones of so many."""
    if arguments.batch_size is not None:
        return int(arguments.batch_size)
    return max(rows, 1) if arguments.optimizer in FULL_BATCH else BATCH_SIZE


def dtype(arguments: argparse.Namespace) -> str:
    """The type of the model's numbers: that of ``--dtype``, or the optimizer's usual one."""
    return arguments.dtype or ("float64" if arguments.optimizer in FULL_BATCH else "float32")


def check(arguments: argparse.Namespace) -> None:
    """Ends the process if the options do not fit each other."""
    numbers = {word: inspect.signature(kind).parameters for word, kind in OPTIMIZERS.items()}
    own = numbers[arguments.optimizer]
    for name in SOME:
        if getattr(arguments, name) is not None and name not in own:
            owners = _listed([word for word in OPTIMIZERS if name in numbers[word]])
            option = f"--{name.replace('_', '-')}"
            arguments.error(f"{option} is for {owners}; {arguments.optimizer} has none")
    if arguments.schedule is not None and "lr" not in own:
        arguments.error(f"--schedule is of the learning rate; {arguments.optimizer} has none")
    if arguments.momentum is not None and arguments.momentum >= 1:
        arguments.error(f"--momentum {arguments.momentum:g} is not below 1")


@dataclass(frozen=True)
class Plan:
    """How long a training is, in steps."""

    steps: int
    steps_an_epoch: int


Maker = Callable[[optim.Optimizer, Plan], optim.LRScheduler]


def schedule(text: str) -> Maker:
    """The schedule, given an optimizer and the training's length, that a word such as ``cosine`` names."""
    kind, *numbers = text.split(":")
    most = {"linear": 1, "cosine": 1, "step": 2}.get(kind, -1)
    if len(numbers) > most:
        raise argparse.ArgumentTypeError(f"{text!r} names no schedule {SCHEDULE_HELP}")
    if kind == "step":
        epochs = positive_int(numbers[0]) if numbers else 10
        gamma = positive_float(numbers[1]) if len(numbers) > 1 else 0.1
        return lambda own, plan: optim.StepLR(own, epochs * plan.steps_an_epoch, gamma)
    end = non_negative_float(numbers[0]) if numbers else 0.0
    if kind == "linear":
        return lambda own, plan: optim.LinearLR(own, 1.0, end, plan.steps)
    return lambda own, plan: optim.CosineAnnealingLR(own, plan.steps, end * own.param_groups[0]["lr"])
