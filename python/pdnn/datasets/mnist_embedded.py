"""The data set inside the package: every fifth image of MNIST, so that everything runs without a download."""

from __future__ import annotations

from pathlib import Path
from typing import overload

import numpy as np

from pdnn.data import Dataset
from pdnn.datasets.idx_files import read_idx
from pdnn.datasets.parts import both
from pdnn.datasets.shapes import shape_images

FOLDER = Path(__file__).parent / "embedded"
TEST = 3_500


@overload
def mnist_mini(
    train: None = None, *, scale: float = 1 / 255, image: bool = False, size: int | None = None
) -> tuple[Dataset, Dataset]: ...
@overload
def mnist_mini(
    train: bool, *, scale: float = 1 / 255, image: bool = False, size: int | None = None
) -> Dataset: ...


def mnist_mini(
    train: bool | None = None, *, scale: float = 1 / 255, image: bool = False, size: int | None = None
) -> Dataset | tuple[Dataset, Dataset]:
    """14,000 handwritten digits, 10,500 to train and 3,500 to test.

    MNIST's 60,000 training images and then its 10,000 test images are counted through, and every fifth is
    taken, from the first on. The split is that of scikit-learn's ``train_test_split(random_state=0)``: the
    test part is the first 3,500 rows of ``np.random.RandomState(0).permutation(14000)``, the training part
    the rest, in that order. Source and license (CC BY-SA 3.0) are beside the files, in
    ``pdnn/datasets/embedded``.

    Parameters
    ----------
    train : bool, optional
        Only that part.
    scale : float
        ``scale=1`` keeps 0..255.
    image : bool
        Samples of shape (1, 28, 28) instead of (784,).
    size : int, optional
        Resize to (size, size), bilinear; samples are then float32.

    Returns
    -------
    Dataset, or (train, test)
        x: uint8, y: uint8 in 0..9.
    """
    images = read_idx(FOLDER / "images-idx3-ubyte.gz")
    labels = read_idx(FOLDER / "labels-idx1-ubyte.gz")
    order = np.random.RandomState(0).permutation(len(images))

    def part(is_train: bool) -> Dataset:
        rows = order[TEST:] if is_train else order[:TEST]
        return Dataset(shape_images("mnist_mini", images[rows], image, size), labels[rows], scale)

    return both("mnist_mini", train, part)
