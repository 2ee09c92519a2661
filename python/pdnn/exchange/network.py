"""Network: a model as files in other formats are written from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Layer:
    """A layer for samples of one shape.

    Attributes
    ----------
    name : str
        Its path: ``"4.fn.0"``.
    type : str
        ``"Conv2d"``.
    arguments : dict
        Those that build it.
    arrays : dict of str to ndarray
        Its own parameters and buffers, in the shapes of `pdnn.nn`, of the dtype to write.
    inputs, outputs : tuple of int
        Shapes of a sample before and after it.
    inside : tuple of Layer
        The layers that it contains, one after another.
    """

    name: str
    type: str
    arguments: dict[str, Any]
    arrays: dict[str, Array]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    inside: tuple[Layer, ...] = ()

    def each(self, argument: str, default: int = 1) -> list[int]:
        """An argument of windows: its number for each axis of a sample behind the channels."""
        value = self.arguments.get(argument, default)
        return [*value] if isinstance(value, (list, tuple)) else [value] * (len(self.inputs) - 1)

    def unknown(self, format: str) -> ValueError:
        """The error that there is nothing like it in a format."""
        return ValueError(f"layer {self.name}, {self.type}: cannot be written as {format}")


@dataclass(frozen=True)
class Network:
    """A model.

    Attributes
    ----------
    whole : Layer
        All of it.
    dtype : dtype
        float32 or float64: that of its arrays, and of the arithmetic to write.
    version : str
        Of pdnn.
    fingerprint : str
        The model's.
    classes : tuple of str
        Names of its classes; none if it knows none.
    metadata : mapping of str to str
        To be written beside them, where the format has metadata.
    """

    whole: Layer
    dtype: np.dtype[Any]
    version: str
    fingerprint: str
    classes: tuple[str, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
