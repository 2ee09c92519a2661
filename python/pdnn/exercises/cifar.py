"""CIFAR-10 under the name that the ResNet9 exercise calls it by."""

from __future__ import annotations

import os

from pdnn.data import Dataset
from pdnn.datasets import cifar10


class CIFAR10Dataset(Dataset):
    """One part of CIFAR-10; `pdnn.datasets.cifar10` under the exercise's name and arguments.

    Parameters
    ----------
    base_folder : path, optional
        As `root` of `cifar10`.
    train : bool
        The training images, else the test images.

    Raises
    ------
    OSError, ValueError
        As `cifar10`.
    """

    def __init__(self, base_folder: str | os.PathLike[str] | None = None, train: bool = True) -> None:
        images = cifar10(base_folder, train=train)
        super().__init__(images.x, images.y, images.scale)
