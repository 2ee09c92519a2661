"""Predict classes or numbers with a saved model.

  pdnn predict model.safetensors mnist-mini                     # accuracy on the test set
  pdnn predict model.safetensors npz:mine.npz --out classes.csv
  pdnn predict model.safetensors samples.npy --out classes.npy  # samples without labels
  pdnn predict model.safetensors table.csv --target price       # R² and mean absolute error
  pdnn predict model.safetensors new.csv --target none --outputs

Samples without labels are a .npy file of floats, one sample per row, scaled as in training, or a table with
--target none. All rows of a table are predicted, of other data the test set.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from reprlib import repr as few
from typing import TYPE_CHECKING

import numpy as np

from pdnn.cli import specs, tables
from pdnn.cli.values import distinct, output
from pdnn.files.atomic import replacing
from pdnn.progress import rounded

if TYPE_CHECKING:
    from pdnn import Trainer, nn
    from pdnn.data import Dataset
    from pdnn.data.checks import Array


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``pdnn predict``."""
    parser.add_argument("model", metavar="MODEL", help="a file that --save or model.save wrote")
    parser.add_argument("data", type=_data, metavar="DATA", help=f"a .npy file, or {specs.DATA_HELP}")
    parser.add_argument("--out", type=_out, metavar="FILE", help="write what is predicted: .csv or .npy")
    parser.add_argument(
        "--target",
        type=_columns,
        metavar="COLUMN[,COLUMN]",
        help="of a .csv file: the labels, by name or number from 0, or none; default: the last column",
    )
    parser.add_argument("--weight", metavar="COLUMN", help=tables.WEIGHT_HELP)
    parser.add_argument("--header", choices=("yes", "no"), help=tables.HEADER_HELP)
    parser.add_argument(
        "--outputs", action="store_true", help="predict the model's outputs, not classes, as for numbers"
    )


def main(arguments: argparse.Namespace) -> int:
    """Prints how good predictions are where there are labels; writes them, or prints them without labels."""
    from pdnn import Trainer, models, nn, optim

    data, labeled = arguments.data(arguments)
    model, metadata = models.read_model(arguments.model)
    _check_columns(arguments.model, metadata, data)
    usual = tables.loss(None, model, data)
    if isinstance(usual, nn.BCEWithLogitsLoss) and isinstance(model[-1], nn.Sigmoid):
        usual = nn.BCELoss()
    noted, misfit = _noted_loss(arguments.model, metadata, model, data)
    if misfit:
        if arguments.out is None:
            raise ValueError(f"{arguments.model}: {misfit}")
        print(f"no score: {misfit}")
        labeled = False  # what is predicted goes by what the model was trained on
    loss = noted or usual
    classes = tables.are_classes(usual, loss)
    numbers = not classes if labeled else metadata.get(specs.PREDICTS_KEY) == specs.NUMBERS
    trainer = Trainer(model, loss, optim.SGD(model.parameters(), lr=1))
    predicted = trainer.predict(data) if numbers or arguments.outputs else trainer.predict_classes(data)
    if labeled:
        measured = ["accuracy"] if classes else ["loss"] if loss.one_target_a_row else ["r2", "mae"]
        print(_score(trainer, data, measured, arguments))
    if arguments.out is not None:
        _write(arguments.out, predicted)
    elif arguments.outputs or not labeled:
        for row in predicted:
            print(*np.atleast_1d(row), sep=",")
    return 0


def _check_columns(path: str, metadata: dict[str, str], data: Dataset) -> None:
    """Raises ValueError if a table names other inputs than the one that the model was trained on."""
    try:
        trained_on = json.loads(metadata.get(specs.COLUMNS_KEY, "null"))
        if trained_on is not None and not (
            isinstance(trained_on, list) and all(isinstance(name, str) for name in trained_on)
        ):
            raise TypeError(f"{few(trained_on)} is no list of names")
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: its metadata {specs.COLUMNS_KEY} has no names ({error})") from error
    found = data.columns
    if found is not None and trained_on is not None and found != trained_on:
        from pdnn.datasets.csv_words import first_difference

        place = first_difference(found, trained_on)
        raise ValueError(
            f"the inputs of the table are {few(found)}, {path} was trained on {few(trained_on)}, and number "
            f"{place} is the first that differs; put them in this order, and name with --target "
            "(none: no column) and --weight what is no input"
        )


def _noted_loss(
    path: str, metadata: dict[str, str], model: nn.Sequential, data: Dataset
) -> tuple[nn.Loss | None, str]:
    """The loss that a model was trained with, if its file says so, and why it does not fit these labels."""
    word = metadata.get(specs.LOSS_KEY)
    if word is None:
        return None, ""
    try:
        noted = tables.made(str(word))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    try:
        return tables.loss(str(word), model, data), ""
    except ValueError as error:
        return noted, f"the labels do not fit what it was trained on (another --target?): pdnn train {error}"


def _score(trainer: Trainer, data: Dataset, metrics: list[str], arguments: argparse.Namespace) -> str:
    """How good predictions are, or why that cannot be said; then an error unless they are to be written."""
    try:
        values = trainer.evaluate(data, metrics=[name for name in metrics if name != "loss"])
    except ValueError as error:
        if arguments.out is None:
            raise
        return f"no score: {str(error).removeprefix('evaluate: ')}"
    told = ", ".join(f"{name} {rounded(values[name])}" for name in metrics)
    return f"{told} on {len(data)} sample{'s'[: len(data) > 1]}"


Loader = Callable[[argparse.Namespace], tuple["Dataset", bool]]


def _data(text: str) -> Loader:
    """The loader of the samples that a word names, given the options, and whether they have labels."""
    parts = None if text.endswith(".npy") or tables.is_table(text) else specs.data(text)

    def load(arguments: argparse.Namespace) -> tuple[Dataset, bool]:
        distinct(arguments, {"--out": arguments.out}, {"MODEL": arguments.model, "DATA": text})
        if tables.is_table(text):
            return _read_table(text, arguments)
        for option in ("target", "weight", "header"):
            if getattr(arguments, option) is not None:
                arguments.error(f"--{option} is for tables: FILE.csv")
        return (_read_samples(Path(text)), False) if parts is None else (parts()[1], True)

    return load


def _columns(text: str) -> list[str]:
    return [] if text == "none" else tables.columns(text)


def _read_table(path: str, arguments: argparse.Namespace) -> tuple[Dataset, bool]:
    from pdnn import datasets

    target = [-1] if arguments.target is None else arguments.target
    header = None if arguments.header is None else arguments.header == "yes"
    weight = arguments.weight
    return datasets.csv(path, True, target=target, weight=weight, test=0, header=header), bool(target)


def _read_samples(path: Path) -> Dataset:
    from pdnn.data import Dataset
    from pdnn.datasets.parts import per_unit

    try:  # mapped, so that nothing is allocated for a header that promises more than the file holds
        x = np.ascontiguousarray(np.load(path, mmap_mode="r", allow_pickle=False))
        return Dataset(x, np.zeros(len(x), np.int64), per_unit(x, None))
    except (EOFError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: holds no samples ({error})") from error


def _out(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (".csv", ".npy"):
        raise argparse.ArgumentTypeError(f"{text!r} ends in neither .csv nor .npy")
    return Path(output(text))


def _write(path: Path, predicted: Array) -> None:
    if path.suffix == ".npy":
        content = io.BytesIO()
        np.save(content, predicted)
    else:
        floats = predicted.dtype.kind == "f"
        names = [f"output {number}" for number in range(predicted.shape[1])] if floats else ["class"]
        text = io.StringIO()
        table = csv.writer(text, lineterminator="\n")
        table.writerow(names)
        table.writerows(
            [str(value).removesuffix(".0") if floats else value for value in np.atleast_1d(row)]
            for row in predicted
        )
        content = io.BytesIO(text.getvalue().encode())
    with replacing(path) as file:
        file.write(content.getbuffer())
