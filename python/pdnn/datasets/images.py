"""The shapes in which images are handed out: flat or as channels of pixels, at their own size or resized."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
BLOCK = 1024  # images resized at a time, so that the intermediate arrays stay small


def shape_images(where: str, x: Array, image: bool, size: int | None) -> Array:
    """Images as the options of a loader ask for them.

    Parameters
    ----------
    where : str
        Begins the error message.
    x : ndarray, shape (n, height, width) or (n, channels, height, width), or (n, features) if nothing is
    asked image : bool
        Return (n, channels, height, width) instead of (n, channels * height * width).
    size : int, optional
        Resize to (size, size).

    Returns
    -------
    ndarray
        A view of `x`, or float32 if resized.
    """
    if x.ndim == 2 and (image or size is not None):
        raise ValueError(
            f"{where}: holds samples of shape {x.shape[1:]}, expected images for image= or size="
        )
    if x.ndim == 3:
        x = x[:, None]
    if size is not None:
        x = resize(x, size)
    return x if image else x.reshape(len(x), -1)


def resize(x: Array, size: int) -> npt.NDArray[np.float32]:
    """Bilinear interpolation, as PyTorch's ``F.interpolate(mode="bilinear", align_corners=False)``.

    Pixels are squares and samples their centres: output pixel i lies at (i + 1/2) old/new - 1/2 of the
    input, never before its first or behind its last pixel, and mixes the two nearest ones by distance; rows
    first, then columns.

    Parameters
    ----------
    x : ndarray, shape (n, channels, height, width)
    size : int
        New height and width.

    Returns
    -------
    ndarray, shape (n, channels, size, size), float32
    """
    if size < 1:
        raise ValueError(f"size is {size}, expected at least 1 pixel")
    top, bottom, down = _neighbours(x.shape[2], size)
    left, right, across = _neighbours(x.shape[3], size)
    down = down[:, None]
    out = np.empty((*x.shape[:2], size, size), np.float32)
    for begin in range(0, len(x), BLOCK):
        block = x[begin : begin + BLOCK].astype(np.float32)
        rows = block[:, :, top] * (1 - down) + block[:, :, bottom] * down
        out[begin : begin + BLOCK] = rows[..., left] * (1 - across) + rows[..., right] * across
    return out


def _neighbours(
    old: int, new: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], npt.NDArray[np.float32]]:
    """For each of `new` pixels, the two of `old` that it lies between, and its distance from the first."""
    place = np.clip((np.arange(new) + 0.5) * (old / new) - 0.5, 0, old - 1)
    first = place.astype(np.intp)
    return first, np.minimum(first + 1, old - 1), (place - first).astype(np.float32)
