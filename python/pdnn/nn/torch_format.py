"""Between pdnn's arrays and PyTorch's: the same names, other axes."""

from __future__ import annotations

import numpy as np

from pdnn.nn.parameter import Array

#: PyTorch's axes in terms of ours: Linear (in, out) to (out, in), Conv2d (height, width, in, out) to
#: (out, in, height, width). Anything else is the same.
AXES = {2: (1, 0), 4: (3, 2, 0, 1)}

#: What PyTorch counts batches by; nothing here depends on it.
COUNTER = "num_batches_tracked"


def to_torch(array: Array) -> Array:
    """An array as PyTorch shapes it: a copy, C-ordered."""
    return np.array(array.transpose(AXES.get(array.ndim)), order="C")


def from_torch(array: Array) -> Array:
    """An array of PyTorch as pdnn shapes it: a view."""
    array = np.asarray(array)
    axes = AXES.get(array.ndim)
    return array if axes is None else array.transpose(np.argsort(axes))
