"""A small data set in a file, for commands that train."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_blobs(path: Path) -> Path:
    """A .npz file of three classes that are easy to tell apart: 203 rows to train, 60 to test."""
    rng = np.random.default_rng(3)
    arrays = {}
    for part, rows in [("train", 203), ("test", 60)]:
        y = rng.integers(0, 3, rows)
        arrays[f"x_{part}"] = (rng.normal(size=(rows, 4)) + 4 * np.eye(4)[y]).astype(np.float32)
        arrays[f"y_{part}"] = y
    np.savez(path, **arrays)
    return path
