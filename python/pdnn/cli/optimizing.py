"""What ``--optimizer`` and ``--schedule`` name: ``adam``; ``linear:0.1``, ``step:10:0.5``, ``cosine``."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from pdnn import nn, optim
from pdnn.cli.values import non_negative_float, positive_float, positive_int
from pdnn.optim import rules

OPTIMIZERS: dict[str, type[optim.Optimizer]] = {name.lower(): getattr(rules, name) for name in rules.__all__}
"""Words to classes."""

SCHEDULE_HELP = (
    "of the learning rate, after each update: linear[:END], falls to END (0) times its first value; "
    "cosine[:END], the same along half a wave; step[:EPOCHS[:FACTOR]], times FACTOR (0.1) every EPOCHS (10)"
)


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    """Adds the optimizer's and the schedule's options."""
    parser.add_argument("--optimizer", choices=tuple(OPTIMIZERS), default="sgd", help="default: %(default)s")
    parser.add_argument(
        "--lr", type=positive_float, metavar="RATE", help="learning rate; default: 0.1 for sgd, else torch's"
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
    options: dict[str, Any] = {"lr": 0.1, "momentum": 0.9} if arguments.optimizer == "sgd" else {}
    given = {"lr": arguments.lr, "momentum": arguments.momentum, "weight_decay": arguments.l2}
    options |= {name: value for name, value in given.items() if value is not None}
    return OPTIMIZERS[arguments.optimizer](parameters, **options)


def check(arguments: argparse.Namespace) -> None:
    """Ends the process if the options do not fit each other."""
    numbers = inspect.signature(OPTIMIZERS[arguments.optimizer]).parameters
    if arguments.momentum is not None and "momentum" not in numbers:
        arguments.error(f"--momentum is for sgd and rmsprop; {arguments.optimizer} has none")
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
        raise argparse.ArgumentTypeError(f"{text!r} names no schedule; expected {SCHEDULE_HELP}")
    if kind == "step":
        epochs = positive_int(numbers[0]) if numbers else 10
        gamma = positive_float(numbers[1]) if len(numbers) > 1 else 0.1
        return lambda own, plan: optim.StepLR(own, epochs * plan.steps_an_epoch, gamma)
    end = non_negative_float(numbers[0]) if numbers else 0.0
    if kind == "linear":
        return lambda own, plan: optim.LinearLR(own, 1.0, end, plan.steps)
    return lambda own, plan: optim.CosineAnnealingLR(own, plan.steps, end * own.param_groups[0]["lr"])
