"""The shapes in which images are handed out: flat or as channels of pixels, at their own size or resized."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from pdnn.checks import flag
from pdnn.data import resize

Array = npt.NDArray[Any]


def shape_images(where: str, x: Array, image: bool, size: int | None) -> Array:
    """Images in the form that a loader's options select.

    Parameters
    ----------
    where : str
        Begins the error message.
    x : ndarray, shape (n, height, width), (n, channels, height, width) or, without options, (n, features)
    image : bool
        Return (n, channels, height, width) instead of (n, channels * height * width).
    size : int, optional
        Resize to (size, size).

    Returns
    -------
    ndarray
        A view of `x`, or float32 if resized.

    Raises
    ------
    TypeError
        If `image` is no bool.
    ValueError
        If samples that are no images should be.
    """
    image = flag(where, "image", image)
    if x.ndim == 2 and (image or size is not None):
        raise ValueError(
            f"{where}: holds samples of shape {x.shape[1:]}, expected images for image= or size="
        )
    if x.ndim == 3:
        x = x[:, None]
    if size is not None:
        x = resize(x, size)
    return x if image else x.reshape(len(x), -1)
