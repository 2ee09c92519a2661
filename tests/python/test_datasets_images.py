"""Promises of the shapes of images: views, and PyTorch's bilinear interpolation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdnn import datasets
from pdnn.data import resize

Array = npt.NDArray[Any]


def test_images_are_views_of_what_was_read() -> None:
    flat, image = datasets.mnist_mini(True), datasets.mnist_mini(True, image=True)
    assert image.sample_shape == (1, 28, 28)
    np.testing.assert_array_equal(flat.x, image.x.reshape(10_500, 784))
    assert flat.x.base is not None and image.x.base is not None


def interpolated(image: Array, size: int) -> Array:
    """One pixel at a time, in float64, from the definition."""
    out = np.empty((size, size))
    for i, j in np.ndindex(out.shape):
        corner = []
        for k, old in ((i, image.shape[0]), (j, image.shape[1])):
            place = min(max((k + 0.5) * old / size - 0.5, 0.0), old - 1.0)
            corner.append((int(place), min(int(place) + 1, old - 1), place - int(place)))
        (top, bottom, v), (left, right, h) = corner
        upper = image[top, left] * (1 - h) + image[top, right] * h
        lower = image[bottom, left] * (1 - h) + image[bottom, right] * h
        out[i, j] = upper * (1 - v) + lower * v
    return out


@given(height=st.integers(1, 9), width=st.integers(1, 9), size=st.integers(1, 12))
def test_resize_interpolates_between_pixel_centers(height: int, width: int, size: int) -> None:
    images = np.random.default_rng(height).random((2, 3, height, width))
    resized = resize(images, size)
    assert resized.dtype == np.float32 and resized.shape == (2, 3, size, size)
    np.testing.assert_allclose(resized[1, 2], interpolated(images[1, 2], size), atol=1e-6)


def test_resize_in_blocks_equals_resize_at_once() -> None:
    images = np.random.default_rng(0).integers(0, 256, (2049, 1, 3, 3), dtype=np.uint8)
    np.testing.assert_array_equal(
        resize(images, 4)[[0, 1023, 1024, 2048]], resize(images[[0, 1023, 1024, 2048]], 4)
    )
    with pytest.raises(ValueError, match="resize: size = 0; expected an integer from 1"):
        resize(images, 0)
    with pytest.raises(ValueError, match=r"images have shape \(2049, 3, 3\).*image=True"):
        resize(images[:, 0], 4)


def test_resized_digits_equal_pytorch() -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch where it is installed")
    raw, resized = datasets.mnist_mini(False, image=True), datasets.mnist_mini(False, image=True, size=32)
    pixels = torch.from_numpy(raw.gather(slice(200))[0])
    theirs = torch.nn.functional.interpolate(pixels, size=(32, 32), mode="bilinear", align_corners=False)
    assert resized.x.dtype == np.float32 and resized.sample_shape == (1, 32, 32)
    np.testing.assert_allclose(resized.gather(slice(200))[0], theirs.numpy(), atol=1e-6)
    assert datasets.mnist_mini(False, size=32).sample_shape == (1024,)
