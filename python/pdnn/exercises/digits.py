"""The 5,000 small digits of the scatter-gather exercise (workload W2), and its pretrained weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import overload

import numpy as np

from pdnn.data import Dataset, train_test_split
from pdnn.datasets.matlab import Matrix, read_mat
from pdnn.datasets.parts import data_folder, wrap

DATA_FILES = ("mnistdata.mat", "ex4data1.mat")
WEIGHT_FILES = ("mnistweights.mat", "ex4weights.mat")


@overload
def ex4(
    path: str | os.PathLike[str] | None = None, train: None = None, *, test: float = 0.0, seed: int = 0
) -> tuple[Dataset, Dataset]: ...
@overload
def ex4(
    path: str | os.PathLike[str] | None = None, *, train: bool, test: float = 0.0, seed: int = 0
) -> Dataset: ...


def ex4(
    path: str | os.PathLike[str] | None = None,
    train: bool | None = None,
    *,
    test: float = 0.0,
    seed: int = 0,
) -> Dataset | tuple[Dataset, Dataset]:
    """5,000 handwritten digits of 20 x 20 pixels, in the order of the file.

    The exercise trains and measures on all of them, so no rows are held out by default: the training
    part is the whole set, the test part is empty.

    Labels in the file are 1..10, where 10 stands for the digit 0 (its authors' language counts from 1). Here
    ``y = label - 1`` is the output of the network that should fire, so the pretrained weights fit as they
    are; the digit itself is ``(y + 1) % 10``.

    Parameters
    ----------
    path : path, optional
        The .mat file with X (n, 400) and y (n, 1), or its folder; ``$PDNN_DATA/ex4-digits`` unless given.
    train : bool, optional
        Only that part.
    test : float in [0, 1]
        Share to hold out, chosen as by `pdnn.data.train_test_split`.
    seed : int
        Of that choice.

    Returns
    -------
    Dataset, or (train, test)
        x: float64, (n, 400), each image column by column; y: int64 in 0..9.

    Raises
    ------
    ValueError
        With the file's name, if it is damaged or holds something else.
    """
    file = _file(path, DATA_FILES)
    x, y = read_mat(file, "X", "y")
    if y.shape != (len(x), 1) or not np.isin(y, np.arange(1, 11)).all():
        raise ValueError(f"{file}: y has shape {y.shape}, expected {(len(x), 1)} with labels 1..10")
    whole = wrap(str(file), x, y[:, 0].astype(np.int64) - 1, 1.0)
    if test:
        parts = [Dataset(*part.gather(dtype=np.float64)) for part in train_test_split(whole, test, seed)]
    else:
        parts = [whole, whole[:0]]
    return (parts[0], parts[1]) if train is None else parts[0 if train else 1]


def ex4_weights(path: str | os.PathLike[str] | None = None) -> tuple[Matrix, Matrix]:
    """The exercise's trained network, Theta1 (25, 401) and Theta2 (10, 26); column 0 holds the biases.

    Parameters
    ----------
    path : path, optional
        The .mat file, or its folder; ``$PDNN_DATA/ex4-digits`` unless given.

    Raises
    ------
    ValueError
        With the file's name, if it is damaged or holds something else.
    """
    file = _file(path, WEIGHT_FILES)
    theta1, theta2 = read_mat(file, "Theta1", "Theta2")
    if theta1.shape[0] + 1 != theta2.shape[1]:
        raise ValueError(
            f"{file}: Theta1 has shape {theta1.shape} and Theta2 {theta2.shape}, "
            "expected (hidden, inputs + 1) and (outputs, hidden + 1)"
        )
    return theta1, theta2


def _file(path: str | os.PathLike[str] | None, names: tuple[str, ...]) -> Path:
    place = Path(path) if path is not None else data_folder("ex4-digits")
    if place is None:
        raise FileNotFoundError("ex4: no path was given and PDNN_DATA is not set")
    if not place.is_dir():
        return place
    for name in names:
        if (place / name).is_file():
            return place / name
    raise FileNotFoundError(f"{place}: has none of {', '.join(names)}")
