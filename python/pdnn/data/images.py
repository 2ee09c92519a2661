"""Images: resized, and augmented at random in every epoch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pdnn.arrays import to_numpy
from pdnn.checks import flag, integer, unmasked
from pdnn.data.checks import Array

BLOCK = 1024  # images resized at a time, so that the intermediate arrays stay small


@dataclass(frozen=True)
class PadCropFlip:
    """Random crops of padded images, half of them mirrored: the usual augmentation of CIFAR-10.

    An image is padded with zeros on all sides, its own size is cut out again at a random place, and the cut
    is mirrored left to right or not (torchvision's ``RandomCrop(size, padding)`` and
    ``RandomHorizontalFlip()``). The result is a function of (seed, epoch, number of the image in the data
    set). It does not depend on the order of rows, the batches, the threads or the ranks.

    `Trainer.fit` and `DataLoader` accept it as ``augment=``; evaluation does not change images.

    Parameters
    ----------
    padding : int
        Pixels on each side.
    flip : bool

    Raises
    ------
    TypeError
        If `padding` is no integer, or `flip` neither True nor False.
    ValueError
        If it is negative.
    """

    padding: int = 4
    flip: bool = True

    def __post_init__(self) -> None:
        integer(self, "padding", self.padding, 0)
        flag(self, "flip", self.flip)

    def tell(self, source: Any, seed: int, epoch: int) -> None:
        """Sets this augmentation of a source of the core, from now on; ValueError if that is no images."""
        source.augment(self.padding, self.flip, seed % 2**64, epoch)


def check_augment(where: str, augment: object) -> None:
    """Raises TypeError if this is neither an augmentation nor None."""
    if not (augment is None or isinstance(augment, PadCropFlip)):
        raise TypeError(f"{where}: augment is {augment!r}, expected a PadCropFlip or None")


def resize(images: Array, size: int) -> npt.NDArray[np.float32]:
    """Bilinear interpolation, as PyTorch's ``F.interpolate(mode="bilinear", align_corners=False)``.

    Pixels are squares and samples their centers: output pixel i is at (i + 1/2) old/new - 1/2 of the input,
    bounded to the first and the last pixel. It is the mean of the two nearest pixels, weighted by distance;
    rows first, then columns.

    Parameters
    ----------
    images : ndarray, shape (n, channels, height, width), uint8, float32 or float64
    size : int
        New height and width.

    Returns
    -------
    ndarray, shape (n, channels, size, size), float32
        In the scale of the images: bytes stay between 0 and 255.

    Raises
    ------
    TypeError
        If `size` is no integer, or the images are no real numbers.
    ValueError
        If the images have another number of dimensions or no pixels, or masked ones, or `size` is below 1.
    """
    unmasked("resize", "images", images)
    images = to_numpy(images)
    if images.dtype.kind not in "biuf":
        raise TypeError(f"resize: images have dtype {images.dtype}, expected booleans, integers or floats")
    if images.ndim != 4 or 0 in images.shape[2:]:
        raise ValueError(
            f"resize: images have shape {images.shape}, expected (n, channels, height, width); "
            "loaders give it with image=True"
        )
    size = integer("resize", "size", size, 1)
    top, bottom, down = _neighbors(images.shape[2], size)
    left, right, across = _neighbors(images.shape[3], size)
    down = down[:, None]
    out = np.empty((*images.shape[:2], size, size), np.float32)
    for begin in range(0, len(images), BLOCK):
        block = images[begin : begin + BLOCK].astype(np.float32)
        rows = block[:, :, top] * (1 - down) + block[:, :, bottom] * down
        out[begin : begin + BLOCK] = rows[..., left] * (1 - across) + rows[..., right] * across
    return out


def _neighbors(
    old: int, new: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.float32]]:
    """For each of `new` pixels, the two of `old` that it lies between, and its distance from the first."""
    place = np.clip((np.arange(new) + 0.5) * (old / new) - 0.5, 0, old - 1)
    first = place.astype(np.intp)
    return first, np.minimum(first + 1, old - 1), (place - first).astype(np.float32)
