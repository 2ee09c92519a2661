"""Shared by all loaders: folders of data, (train, test) or one of them, errors with the file's name."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pdnn.data import Dataset
from pdnn.datasets.download import user_cache


def places(name: str, root: str | os.PathLike[str] | None) -> list[Path]:
    """Where a data set may be, the last for downloads: `root` alone, or ``$PDNN_DATA/name`` and the cache."""
    if root is not None:
        return [Path(root)]
    override = os.environ.get("PDNN_DATA")
    return [Path(override, name), user_cache(name)] if override else [user_cache(name)]


def both(
    where: str, train: bool | None, part: Callable[[bool], Dataset]
) -> Dataset | tuple[Dataset, Dataset]:
    """``part(train)``, or the pair (train, test) where `train` is None."""
    if not isinstance(train, bool | np.bool_ | None):
        raise TypeError(f"{where}: train is {train!r}, expected True, False or None for both parts")
    if train is not None:
        return part(train)
    first, second = part(True), part(False)
    if first.sample_shape != second.sample_shape:
        raise ValueError(
            f"{where}: training samples have shape {first.sample_shape}, test samples {second.sample_shape}; "
            "expected the same"
        )
    if first.scale != second.scale:
        raise ValueError(
            f"{where}: of training and test samples only one part is bytes, which count as 0..1; pass scale, "
            "or store both in one type"
        )
    if (first.classes is None) != (second.classes is None):
        raise ValueError(
            f"{where}: labels of only one part are names of classes; whose numbers the others are is not "
            "known: store both as names, or both as numbers"
        )
    return first, second


def per_unit(x: npt.NDArray[Any], scale: float | None) -> float:
    """The scale of these samples: 1/255 for bytes and 1 for others unless given."""
    return scale if scale is not None else 1 / 255 if x.dtype == np.uint8 else 1.0


def wrap(where: str, x: npt.NDArray[Any], y: npt.NDArray[Any], scale: float) -> Dataset:
    """A Dataset of arrays that came from the file `where`; what does not fit is the file's fault."""
    try:
        return Dataset(x, y, scale)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from error
