"""Predict classes with a saved model.

  pdnn predict model.safetensors mnist-mini                     # accuracy on the test set
  pdnn predict model.safetensors npz:mine.npz --out classes.csv
  pdnn predict model.safetensors samples.npy --out classes.npy  # samples without labels

Samples without labels are a .npy file of floats, one sample per row, scaled as in training.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pdnn.cli import specs

if TYPE_CHECKING:
    from pdnn.data import Dataset
    from pdnn.data.checks import Array


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``pdnn predict``."""
    parser.add_argument("model", metavar="MODEL", help="a file that --save or model.save wrote")
    parser.add_argument("data", type=_data, metavar="DATA", help=f"a .npy file, or {specs.DATA_HELP}")
    parser.add_argument("--out", type=_out, metavar="FILE", help="write the classes: .csv or .npy")


def main(arguments: argparse.Namespace) -> int:
    """Prints the accuracy where there are labels; writes the classes, or prints them where there are none."""
    import pdnn
    from pdnn import Trainer, nn, optim

    model = pdnn.load_model(arguments.model)
    data, labeled = arguments.data()
    trainer = Trainer(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=1))
    classes = trainer.predict_classes(data)
    if labeled:
        labels = data.y if data.y.ndim == 1 else data.y.argmax(axis=1)
        print(f"accuracy {(classes == labels).mean():.4f} on {len(data)} samples")
    if arguments.out is not None:
        _write(arguments.out, classes)
    elif not labeled:
        print(*classes, sep="\n")
    return 0


def _data(text: str) -> Callable[[], tuple[Dataset, bool]]:
    """The loader of the samples that a word names, and whether they have labels."""
    if text.endswith(".npy"):
        return lambda: (_read_samples(Path(text)), False)
    parts = specs.data(text)
    return lambda: (parts()[1], True)


def _read_samples(path: Path) -> Dataset:
    import numpy as np

    from pdnn.data import Dataset

    try:  # mapped, so that nothing is allocated for a header that promises more than the file holds
        x = np.ascontiguousarray(np.load(path, mmap_mode="r", allow_pickle=False))
        return specs.bytes_to_unit(Dataset(x, np.zeros(len(x), np.int64)))
    except (EOFError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: holds no samples ({error})") from error


def _out(text: str) -> Path:
    path = Path(text)
    if path.suffix not in (".csv", ".npy"):
        raise argparse.ArgumentTypeError(f"{text!r} ends in neither .csv nor .npy")
    return path


def _write(path: Path, classes: Array) -> None:
    import numpy as np

    if path.suffix == ".npy":
        np.save(path, classes)
    else:
        np.savetxt(path, classes, fmt="%d", header="class", comments="")
