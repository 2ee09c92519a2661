"""How data sets and models are written on a command line: ``npz:FILE``, ``mlp:784-256-10:sigmoid``."""

from __future__ import annotations

import argparse
import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os.path import exists
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from pdnn.cli.tables import ENDINGS, Table, is_table
from pdnn.cli.values import share
from pdnn.metrics import named
from pdnn.models import ACTIVATIONS

if TYPE_CHECKING:
    from pdnn import nn
    from pdnn.data import Dataset

Parts: TypeAlias = "tuple[Dataset, Dataset]"

DATA_HELP = (
    "mnist-mini (part of pdnn), mnist or cifar10 (downloaded once), cifar10:FOLDER, idx:FOLDER, npz:FILE; "
    "bytes count as 0..1; FILE.csv, a table of numbers. Digits are flat; mnist:SIZE, mnist-mini:SIZE, "
    "idx:FOLDER:SIZE are images"
)
MODEL_HELP = (
    f"mlp:INPUTS-HIDDEN-...-OUTPUTS[:ACTIVATION], with {', '.join(ACTIVATIONS)} (default: relu); "
    "lenet, for digits as images (mnist:32); resnet9, for cifar10; resnet9:local, the same with batch "
    "normalization over each rank's own rows"
)

LOSS_KEY = "pdnn.loss"
"""In the metadata of models that ``pdnn train`` saves: the word that names the loss."""

PREDICTS_KEY = "pdnn.predicts"
"""In a model's file: whether the labels that it was trained on were `CLASSES` or `NUMBERS`."""

CLASSES, NUMBERS = "classes", "numbers"

COLUMNS_KEY = "pdnn.columns"
"""In the metadata of models that were trained on a table whose columns have names: those of the inputs."""


def noted(metadata: Mapping[str, str]) -> dict[str, str]:
    """Of a model file's metadata, what ``pdnn train`` has noted of the training."""
    return {key: metadata[key] for key in (LOSS_KEY, PREDICTS_KEY, COLUMNS_KEY) if key in metadata}


Loader = Callable[[ModuleType, str, int | None], Parts]
"""Of (`pdnn.datasets`, the path, the size of digits that are images)."""

ALONE: dict[str, Loader] = {
    "mnist-mini": lambda datasets, _, size: datasets.mnist_mini(image=size is not None, size=size),
    "mnist": lambda datasets, _, size: datasets.mnist(image=size is not None, size=size),
    "cifar10": lambda datasets, *_: datasets.cifar10(),
}
"""Data sets that a word names by itself."""

OF_PATH: dict[str, Loader] = {
    "cifar10": lambda datasets, path, _: datasets.cifar10(path, download=False),
    "idx": lambda datasets, path, size: datasets.idx(path, image=size is not None, size=size),
    "npz": lambda datasets, path, _: datasets.npz(path),
}
"""Those that a word names with a path."""

SIZED = ("mnist-mini", "mnist", "idx")
"""Those of digits, which a size makes images."""


@dataclass(frozen=True)
class Named:
    """Data that a word names; called, it reads (train, test)."""

    load: Loader
    path: str
    size: int | None

    def __call__(self) -> Parts:
        """Reads them."""
        from pdnn import datasets

        return self.load(datasets, self.path, self.size)


def data(text: str) -> Table | Named:
    """The loader, of (train, test), that a word such as ``idx:FOLDER`` names; nothing is read yet."""
    kind, _, path = text.partition(":")
    if is_table(text) and kind not in OF_PATH:
        return Table(text)
    size = None
    if kind in SIZED:
        before, _, last = path.rpartition(":")
        if last.isdecimal() and int(last) > 0:
            path, size = before, int(last)
    load = (OF_PATH if path else ALONE).get(kind)
    if load is None:
        told = f"; a table ends in {' or '.join(ENDINGS)}: unpack or rename it" if exists(text) else ""
        if text.endswith((".npz", ".npy")):
            told = "; write npz:FILE.npz, of arrays x_train, y_train, x_test and y_test"
        raise argparse.ArgumentTypeError(f"{text!r} names no data; expected {DATA_HELP}{told}")

    return Named(load, path, size)


def model(text: str) -> Callable[[tuple[int, ...], int, str], nn.Sequential]:
    """What a word such as ``mlp:784-256-10:sigmoid`` names; built of (shape of samples, seed, dtype)."""
    if text == "lenet":
        return _lenet
    if text in ("resnet9", "resnet9:local"):
        return functools.partial(_resnet9, sync=text == "resnet9")
    kind, _, rest = text.partition(":")
    widths, _, activation = rest.partition(":")
    sizes = widths.split("-")
    if (
        kind != "mlp"
        or len(sizes) < 2
        or not all(size.isdecimal() and 0 < int(size) < 2**63 for size in sizes)
    ):
        raise argparse.ArgumentTypeError(f"{text!r} names no model; expected {MODEL_HELP}")
    if activation not in ("", *ACTIVATIONS):
        raise argparse.ArgumentTypeError(f"{text!r}: {activation!r} is none of {', '.join(ACTIVATIONS)}")

    def build(sample: tuple[int, ...], seed: int, dtype: str) -> nn.Sequential:
        from pdnn import models

        layers = [int(size) for size in sizes]
        return models.mlp(layers, activation or "relu", flatten=len(sample) > 1, dtype=dtype, seed=seed)

    return build


def _lenet(sample: tuple[int, ...], seed: int, dtype: str) -> nn.Sequential:
    from pdnn.exercises import lenet_psgd

    return lenet_psgd(dtype=dtype, seed=seed)


def _resnet9(sample: tuple[int, ...], seed: int, dtype: str, *, sync: bool) -> nn.Sequential:
    from pdnn import models

    return models.ResNet9(sync=sync, dtype=dtype, seed=seed)


def sample(text: str) -> tuple[int, ...]:
    """The shape of samples that a model of this name takes."""
    if text.startswith("mlp:"):
        return (int(text.split(":")[1].split("-")[0]),)
    return (1, 32, 32) if text == "lenet" else (3, 32, 32)


def loss(model: nn.Sequential) -> nn.Loss:
    """The loss that classifiers are trained with, by what they end in."""
    from pdnn import nn

    return nn.NLLLoss() if isinstance(model[-1], nn.LogSoftmax) else nn.CrossEntropyLoss()


def strategy(text: str) -> str:
    """A word that spells a strategy."""
    from pdnn.strategies import parse

    if text not in ("auto", "fastest"):
        try:
            parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
    return text


def metrics(text: str) -> list[str]:
    """The names of metrics in a word such as ``r2,mae``."""
    names = text.split(",")
    try:
        named(names)
    except ValueError as error:
        said = str(error).removeprefix("metrics: ").removesuffix(", or a function")
        raise argparse.ArgumentTypeError(said) from error
    return names


def validation(text: str) -> float | str:
    """``"test"``, ``"none"``, or the share of the training rows to hold out."""
    if text in ("test", "none"):
        return text
    return share(text, "neither test, none nor a share between 0 and 1")
