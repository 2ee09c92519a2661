"""Tables on a command line: ``FILE.csv``, what to predict of it, by which loss."""

from __future__ import annotations

import argparse
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pdnn import nn
from pdnn.cli.values import share

if TYPE_CHECKING:
    from pdnn.data import Dataset, Subset
    from pdnn.data.checks import Array

ENDINGS = (".csv", ".tsv")
"""Of files that are tables."""

WEIGHT_HELP = "of a .csv file: what each row counts, by name or number from 0; default: 1"
HEADER_HELP = "of a .csv file: whether its first line has names; default: if none of its fields is a number"


def _losses() -> dict[str, type[nn.Loss]]:
    """All losses by the names of torch's functions: ``smooth_l1`` is SmoothL1Loss."""
    found = {}
    for kind in vars(nn).values():
        if isinstance(kind, type) and issubclass(kind, nn.Loss) and kind.core_name is not None:
            words = re.findall("[A-Z]+(?![a-z])[0-9]*|[A-Z][a-z0-9]*", kind.__name__.removesuffix("Loss"))
            found["_".join(words).lower()] = kind
    return found


LOSSES = _losses()
"""Words to classes."""

LOSS_OPTIONS = {
    "cross_entropy": "label_smoothing",
    "huber": "delta",
    "quantile": "quantile",
    "smooth_l1": "beta",
}
"""The option that a word may give a loss."""

FOR_NUMBERS = ("mse", "l1", "smooth_l1", "huber", "quantile")
"""Losses that compare numbers of any size."""

MOST_CLASSES = 100
"""Of whole numbers, where no model is named; more of them are numbers to predict."""

HIDDEN = 64
"""Width of the hidden layer, where no model is named."""


def loss_word(text: str) -> str:
    """A word that `made` makes a loss of."""
    try:
        made(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def made(text: str) -> nn.Loss:
    """The loss that a word such as ``huber`` or ``quantile:0.1,0.9`` names.

    Raises
    ------
    ValueError
        If it names none, or gives it a number that it does not take.
    """
    name, colon, value = text.partition(":")
    name = name.replace("-", "_")
    if name not in LOSSES:
        raise ValueError(f"{text!r} names no loss; expected one of {', '.join(LOSSES)}")
    if not colon:
        return LOSSES[name]()
    if name not in LOSS_OPTIONS:
        raise ValueError(f"{text!r}: {name} takes no number; {', '.join(LOSS_OPTIONS)} do")
    try:
        numbers = [float(word) for word in value.split(",")]
    except ValueError:
        raise ValueError(f"{text!r}: expected a number after the colon") from None
    if len(numbers) > 1 and name != "quantile":
        raise ValueError(f"{text!r}: expected one number after the colon")
    given: Any = numbers if len(numbers) > 1 else numbers[0]
    return LOSSES[name](**{LOSS_OPTIONS[name]: given})


@dataclass(frozen=True)
class Table:
    """A .csv file; called, it reads (train, test), with the options of `pdnn.datasets.csv`."""

    path: str

    def __call__(self, **options: Any) -> tuple[Dataset, Dataset]:
        """Reads the file."""
        from pdnn import datasets

        train, test = datasets.csv(self.path, **options)
        return train, test


def add_arguments(parser: argparse._ArgumentGroup) -> None:
    """Adds the options of tables, and the loss."""
    parser.add_argument(
        "--target",
        type=columns,
        metavar="COLUMN[,COLUMN]",
        help="of a .csv file: what to predict, by name or number from 0; default: the last column",
    )
    parser.add_argument("--weight", metavar="COLUMN", help=WEIGHT_HELP)
    parser.add_argument(
        "--test",
        type=_test,
        metavar="PART",
        help="of a .csv file: the share of the rows to test on (default: 0.25, the same rows in every run), "
        "or another file",
    )
    parser.add_argument("--header", choices=("yes", "no"), help=HEADER_HELP)
    parser.add_argument(
        "--standardize",
        action="store_true",
        help="shift and scale each input to mean 0 and variance 1 over the training rows; the saved model "
        "does so itself",
    )
    parser.add_argument(
        "--standardize-target",
        action="store_true",
        help="train on numbers to predict of mean 0 and variance 1 over the training rows; the losses of "
        "epochs are of these, those of the test and of the saved model of the table's; for "
        f"--loss {', '.join(FOR_NUMBERS)}",
    )
    parser.add_argument(
        "--loss",
        type=loss_word,
        metavar="LOSS",
        help=f"{', '.join(LOSSES)}; with a number of its own after a colon: "
        f"{', '.join(f'{name}:{option.upper()}' for name, option in LOSS_OPTIONS.items())}, as in "
        "quantile:0.9 or, with an output each, quantile:0.1,0.9; default: cross_entropy for classes (for one "
        "output bce_with_logits), mse for numbers",
    )


def load(arguments: argparse.Namespace) -> tuple[Dataset, Dataset]:
    """The data that ``--data`` names; ends the process if an option is for tables, and this is none."""
    given: dict[str, Any] = {
        name: getattr(arguments, name)
        for name in ("target", "weight", "test", "header")
        if getattr(arguments, name) is not None
    }
    if given and not isinstance(arguments.data, Table):
        arguments.error(f"--{next(iter(given))} is for tables: --data FILE.csv")
    if "header" in given:
        given["header"] = given["header"] == "yes"
    parts: tuple[Dataset, Dataset] = arguments.data(**given)
    if not len(parts[0]) and isinstance(arguments.data, Table):
        raise ValueError(
            f"{arguments.data.path}: all of its {len(parts[1])} rows are test data; pass --test a smaller "
            "share, or another file"
        )
    return parts


def notes(arguments: argparse.Namespace, data: Dataset) -> dict[str, Any]:
    """What a training that goes on must find as it was: the inputs, their sizes, and the rows held out.

    What is None was not asked for: a later training may have none again, but no other.
    """
    held_out = arguments.validation
    found: dict[str, Any] = {
        "--standardize": arguments.standardize,
        "--validation": held_out if isinstance(held_out, float) else None,
    }
    if isinstance(arguments.data, Table):
        test = 0.25 if arguments.test is None else arguments.test
        found["--test"] = os.path.basename(test) if isinstance(test, str) else test
        found["--standardize-target"] = arguments.standardize_target
        if data.columns is not None:
            found["inputs"] = data.columns
    return found


def loss(name: str | None, model: nn.Sequential, data: Dataset | Subset) -> nn.Loss:
    """The loss of this name, or the usual one for what a model ends in and its labels.

    Raises
    ------
    ValueError
        If the one of this name does not fit them.
    """
    from pdnn.data.dataset import parts_of

    whole, _ = parts_of(data)
    y, single = whole.y, model.output_shape(whole.sample_shape) == (1,)
    if name is not None:
        chosen = made(name)
        if whole.classes is not None and not chosen.takes_classes:
            raise ValueError(
                f'--loss {name} compares numbers, the labels are names such as "{whole.classes[0]}"'
            )
        if y.size and (misfit := _misfit(chosen, model, single, y)):
            raise ValueError(f"--loss {name} {misfit}")
        return chosen
    if isinstance(model[-1], nn.LogSoftmax):
        return nn.NLLLoss()
    if y.dtype.kind == "f":
        return nn.CrossEntropyLoss() if _shares(y) and not single else nn.MSELoss()
    if single:
        return nn.BCEWithLogitsLoss() if y.size == 0 or (y.min() >= 0 and y.max() <= 1) else nn.MSELoss()
    return nn.CrossEntropyLoss()


def are_classes(usual: nn.Loss, chosen: nn.Loss) -> bool:
    """Whether labels are classes, by the loss that is usual for them and the one that is taken.

    Labels 0 and 1 of a single output are classes whatever the loss is.
    """
    return usual.takes_classes and (chosen.takes_classes or not usual.one_class_a_row)


def for_numbers(loss: nn.Loss) -> bool:
    """Whether a loss is one of `FOR_NUMBERS`."""
    return type(loss) in [LOSSES[name] for name in FOR_NUMBERS]


def _misfit(chosen: nn.Loss, model: nn.Sequential, single: bool, y: Array) -> str:
    """Why a loss does not fit a model or its labels, and which one does; empty if it fits."""
    fits = "cross_entropy" if isinstance(chosen, nn.NLLLoss) else "bce_with_logits"
    if isinstance(chosen, (nn.NLLLoss, nn.BCELoss)) and isinstance(model[-1], nn.Linear):
        wants = "log-probabilities" if isinstance(chosen, nn.NLLLoss) else "probabilities"
        return f"wants {wants}, and the model ends in a Linear layer; --loss {fits} is for that"
    floats = y.dtype.kind == "f"
    told = f"the labels are {'decimal' if floats else 'whole'} numbers from {y.min():g} to {y.max():g}"
    others = f"--loss {', '.join(FOR_NUMBERS)} are for numbers"
    if isinstance(chosen, (nn.CrossEntropyLoss, nn.NLLLoss)):
        if not _shares(y) if floats else y.min() < 0:
            return f"takes names, whole numbers from 0, or shares that add up to 1; {told}; {others}"
        if single:
            return (
                "wants an output for each class, and the model has one; for two classes take bce_with_logits"
            )
    elif isinstance(chosen, (nn.BCELoss, nn.BCEWithLogitsLoss)) and floats and (y.min() < 0 or y.max() > 1):
        return f"takes classes, or numbers from 0 to 1; {told}; {others}"
    return ""


def _shares(y: Array) -> bool:
    """Whether each row has several numbers from 0 whose sum is 1."""
    return y.ndim == 2 and bool(((y >= 0).all(axis=1) & (abs(y.sum(axis=1) - 1) < 1e-3)).all())


def model_word(name: str | None, *parts: Dataset | Subset) -> str:
    """The model for a table where none is named: one hidden layer, as many outputs as the loss needs.

    Parameters
    ----------
    name : str, optional
        Of the loss.
    *parts : Dataset or Subset
        The table, to train on and to test on: samples of one dimension.
    """
    from pdnn.data.dataset import parts_of

    wholes = [parts_of(part)[0] for part in parts]
    whole, y = wholes[0], np.concatenate([whole.y for whole in wholes])
    chosen = None if name is None else made(name)
    if y.ndim == 2:
        outputs = y.shape[1]
    elif isinstance(chosen, nn.QuantileLoss):
        outputs = 1 + (name or "").count(",")
    elif isinstance(chosen, (nn.BCELoss, nn.BCEWithLogitsLoss)):
        outputs = 1
    elif whole.classes is not None:
        outputs = len(whole.classes)
    elif y.dtype.kind == "f" or (chosen is not None and not chosen.takes_classes):
        outputs = 1
    else:
        outputs = int(y.max()) + 1 if y.min() >= 0 and y.max() < MOST_CLASSES else 1
    return f"mlp:{whole.sample_shape[0]}-{HIDDEN}-{outputs}"


def is_table(path: str) -> bool:
    """Whether a file is a table, by the end of its name."""
    return path.lower().endswith(ENDINGS)


def columns(text: str) -> list[str]:
    """Columns by name or number."""
    return text.split(",")


def _test(text: str) -> float | str:
    if is_table(text):
        return text
    return share(text, "neither a share between 0 and 1 nor a .csv file")
