"""The 5,000 small digits of the scatter-gather exercise (workload W2), and its pretrained weights."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from pdnn.data import Dataset, train_test_split
from pdnn.data.split import check_draw
from pdnn.datasets import mnist
from pdnn.datasets.matlab import Matrix, read_mat
from pdnn.datasets.parts import both, places, wrap

DATA_FILES = ("mnistdata.mat", "ex4data1.mat")
WEIGHT_FILES = ("mnistweights.mat", "ex4weights.mat")
OWN_WEIGHTS = Path(__file__).with_name("ex4_weights.npz")
OLD, NEW = 28, 20  # pixels along a side of MNIST's images and of the exercise's
EACH = 500  # images of each digit


@overload
def ex4(
    path: str | os.PathLike[str] | None = None,
    train: None = None,
    download: bool = True,
    *,
    test: float = 0.0,
    seed: int = 0,
) -> tuple[Dataset, Dataset]: ...
@overload
def ex4(
    path: str | os.PathLike[str] | None = None,
    *,
    train: bool,
    download: bool = True,
    test: float = 0.0,
    seed: int = 0,
) -> Dataset: ...


def ex4(
    path: str | os.PathLike[str] | None = None,
    train: bool | None = None,
    download: bool = True,
    *,
    test: float = 0.0,
    seed: int = 0,
) -> Dataset | tuple[Dataset, Dataset]:
    """5,000 handwritten digits of 20 x 20 pixels, 500 of each digit, in the order of the exercise's file.

    That file is read where it is. Where it is not, the same digits are made from MNIST's training images,
    each pixel to 2e-15.

    The exercise trains and measures on all of them, so no rows are held out by default: the training
    part is the whole set, the test part is empty.

    Labels in the file are 1..10, where 10 stands for the digit 0 (its authors' language counts from 1). Here
    ``y = label - 1`` is the output of the network that should fire, so the pretrained weights fit as they
    are; the digit itself is ``(y + 1) % 10``.

    Parameters
    ----------
    path : path, optional
        The .mat file with X (n, 400) and y (n, 1), or its folder. Unless given,
        ``$PDNN_DATA/ex4-digits``, the user's cache, and then MNIST, as `pdnn.datasets.mnist` finds it.
    train : bool, optional
        Only that part.
    download : bool
        Whether to fetch MNIST if it is needed and not there.
    test : float in [0, 1]
        Share to hold out, chosen as by `pdnn.data.train_test_split`.
    seed : int from 0 to 2**32 - 1
        Of that choice.

    Returns
    -------
    Dataset, or (train, test)
        x: float64, (n, 400), each image column by column; y: int64 in 0..9.

    Raises
    ------
    FileNotFoundError
        If the file is not in `path`, or nothing was found and `download` is False.
    OSError
        If MNIST is needed and its download fails.
    TypeError, ValueError
        If `train` is no bool, `test` no share or the seed no such integer; ValueError, with the file's name,
        if it is damaged or holds something else.
    """
    check_draw("ex4", test, seed)
    file = _file(path, DATA_FILES)
    whole = _from_file(file) if file else _from_mnist(download)
    if test:
        parts = [Dataset(*part.gather(dtype=np.float64)) for part in train_test_split(whole, test, seed)]
    else:
        parts = [whole, whole[:0]]
    return both("ex4", train, lambda is_train: parts[0 if is_train else 1])


def ex4_weights(path: str | os.PathLike[str] | None = None) -> tuple[Matrix, Matrix]:
    """The exercise's trained network, Theta1 (25, 401) and Theta2 (10, 26); column 0 holds the biases.

    Parameters
    ----------
    path : path, optional
        The .mat file, or its folder; ``$PDNN_DATA/ex4-digits`` and the user's cache unless given.

    Raises
    ------
    FileNotFoundError
        If the file is not there. Unlike the digits, the weights cannot be made from other data.
    ValueError
        With the file's name, if it is damaged or holds something else.
    """
    file = _file(path, WEIGHT_FILES)
    if file is None:
        looked = ", ".join(map(str, places("ex4-digits", None)))
        raise FileNotFoundError(
            f"ex4_weights: {WEIGHT_FILES[1]}, the trained network that comes with the exercise, is not in "
            f"{looked}; copy it into one of them, or pass its path. It cannot be downloaded or computed; "
            "ex4_own_weights() returns others, which pdnn trained"
        )
    theta1, theta2 = read_mat(file, "Theta1", "Theta2")
    if theta1.shape[0] + 1 != theta2.shape[1]:
        raise ValueError(
            f"{file}: Theta1 has shape {theta1.shape} and Theta2 {theta2.shape}, "
            "expected (hidden, inputs + 1) and (outputs, hidden + 1)"
        )
    return theta1, theta2


def ex4_own_weights() -> tuple[Matrix, Matrix]:
    """The same network trained by pdnn, Theta1 (25, 401) and Theta2 (10, 26), which need no file.

    Their cost on the 5,000 digits of `ex4` is 0.215376 and their precision 97.80 %. They come from 1000 steps
    of gradient descent on all digits at learning rate 2 (``scripts/make_ex4_weights.py``), and were rounded
    to float32.
    """
    with np.load(OWN_WEIGHTS) as file:
        return file["Theta1"].astype(np.float64), file["Theta2"].astype(np.float64)


def _file(path: str | os.PathLike[str] | None, names: tuple[str, ...]) -> Path | None:
    """The first of these files; None if no path was given and they are in none of the usual folders."""
    if path is not None and not Path(path).is_dir():
        return Path(path)
    for place in places("ex4-digits", path):
        for name in names:
            if (place / name).is_file():
                return place / name
    if path is None:
        return None
    raise FileNotFoundError(f"{path}: has none of {', '.join(names)}")


def _from_file(file: Path) -> Dataset:
    x, y = read_mat(file, "X", "y")
    if y.shape != (len(x), 1) or not np.isin(y, np.arange(1, 11)).all():
        raise ValueError(f"{file}: y has shape {y.shape}, expected {(len(x), 1)} with labels 1..10")
    return wrap(str(file), x, y[:, 0].astype(np.int64) - 1, 1.0)


def _from_mnist(download: bool) -> Dataset:
    """The first 500 of MNIST's training images of each digit, made smaller, column by column."""
    try:
        source = mnist(train=True, download=download)
    except OSError as error:
        looked = ", ".join(map(str, places("ex4-digits", None)))
        raise type(error)(
            f"ex4: {DATA_FILES[1]} is not in {looked}, and MNIST, of which its digits can be made, is "
            f"missing. {error}"
        ) from error
    rows = [np.flatnonzero(source.y == digit)[:EACH] for digit in range(10)]
    if source.sample_shape != (OLD * OLD,) or any(len(some) < EACH for some in rows):
        raise ValueError(
            f"ex4: MNIST's training part is {source}, expected {EACH} images or more of each digit, "
            f"{OLD} x {OLD}"
        )
    images = source.x[np.concatenate(rows)].reshape(-1, OLD, OLD)
    small = _shrink_rows(_shrink_rows(images).transpose(0, 2, 1))  # (image, column, row)
    return Dataset(small.reshape(len(small), -1) / 255, np.repeat((np.arange(10) - 1) % 10, EACH))


def _shrink_rows(images: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Images (n, 28, columns) to (n, 20, columns), as MATLAB's ``imresize(…, "bicubic")`` computes it.

    The kernel is Keys' cubic (*Cubic convolution interpolation*, 1981) with a = -1/2, stretched by 28/20
    against aliasing. Pixels are counted from 1; taps beyond the edge read the edge. The result depends on
    the last bits of `place`, so its formula and the order of the sum are kept as they are.
    """
    scale = NEW / OLD
    place = np.arange(1, NEW + 1) / scale + 0.5 * (1 - 1 / scale)
    taps = np.floor(place - 2 / scale)[:, None] + np.arange(8)  # all that the kernel reaches, and zeros
    far = np.abs(scale * (place[:, None] - taps))
    near_part, far_part = 1.5 * far**3 - 2.5 * far**2 + 1, -0.5 * far**3 + 2.5 * far**2 - 4 * far + 2
    weights = np.where(far <= 1, near_part, np.where(far <= 2, far_part, 0))
    weights /= weights.sum(axis=1, keepdims=True)
    read = np.clip(taps, 1, OLD).astype(np.intp) - 1
    out = np.zeros((len(images), NEW, images.shape[2]))
    for tap in range(taps.shape[1]):
        out += images[:, read[:, tap]] * weights[:, tap, None]
    return out
