"""Module and Parameter: what layers and models have in common."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from itertools import count
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]


class Parameter:
    """A handle on one parameter of a model.

    The values live in the model's flat buffer from the moment that the model gathers its parameters (at the
    first use of its `parameters()`, an optimizer or a Trainer).

    Attributes
    ----------
    name : str
        Within the model: ``"0.weight"``.
    shape : tuple of int
    """

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name = name
        self.shape = shape
        self._data: Array | None = None
        self._grad: Array | None = None
        self._owner: weakref.ref[Any] | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def data(self) -> Array:
        """The values: a view of the model's memory, C-ordered. Assigning copies into it.

        Raises
        ------
        ValueError
            If the parameter belongs to no model yet, or on assigning an array of another shape.
        """
        if self._data is None:
            raise ValueError(
                f"Parameter {self.name}: it belongs to no model yet; put its layer into an nn.Sequential"
            )
        return self._data

    @data.setter
    def data(self, values: npt.ArrayLike) -> None:
        array = np.asarray(values)
        if array.shape != self.shape:
            raise ValueError(f"Parameter {self.name}: got shape {array.shape}, expected {self.shape}")
        self.data[...] = array

    @property
    def grad(self) -> Array:
        """The gradient that the last training step stored: a view, shaped like `data`."""
        if self._grad is None:
            raise ValueError(
                f"Parameter {self.name}: it belongs to no model yet; put its layer into an nn.Sequential"
            )
        return self._grad

    def attach(self, name: str, data: Array, grad: Array, owner: Any) -> None:
        """Makes this a handle on memory of a model, its `owner`."""
        self.name, self._data, self._grad, self._owner = name, data, grad, weakref.ref(owner)

    @property
    def owner(self) -> Any:
        """The model whose flat buffers hold the values; None before it belongs to one."""
        return self._owner and self._owner()

    @property
    def attached(self) -> bool:
        """Whether it belongs to a model."""
        return self._data is not None

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "shape": self.shape}  # the values travel with the model

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["name"], state["shape"])  # type: ignore[misc]

    def __repr__(self) -> str:
        return f"Parameter({self.name}, shape={self.shape})"


class Module:
    """Base of layers and models."""

    training: bool = True

    def train(self, mode: bool = True) -> Module:
        """Sets training mode (dropout drops) or evaluation mode; returns self."""
        self.training = mode
        return self

    def eval(self) -> Module:
        """Sets evaluation mode; returns self."""
        return self.train(False)

    def own_parameters(self) -> Iterator[Parameter]:
        """The parameters of this module and those inside it, in order, without gathering them."""
        return iter(())

    def build(self, core: Any) -> Any:
        """This module as an object of the C++ core; `core` is its submodule for one width."""
        raise NotImplementedError(f"{type(self).__name__} has no static form")

    def config(self) -> dict[str, Any]:
        """The arguments that make this module again, as JSON can hold them."""
        return {}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value}" for key, value in self.config().items())
        return f"{type(self).__name__}({arguments})"


class _Seeds:
    """What models without a seed of their own draw from: manual_seed's number, and how many came before."""

    def __init__(self) -> None:
        self.base = 0
        self.models = count()

    def next(self) -> int:
        # The golden ratio's multiples lie far apart, so neighbouring seeds give unrelated models.
        return (self.base * 0x9E3779B97F4A7C15 + next(self.models)) % 2**64


_seeds = _Seeds()


def manual_seed(seed: int) -> None:
    """Makes the models built from here on reproducible; each gets another seed of the same sequence."""
    _seeds.base = seed
    _seeds.models = count()


def next_seed() -> int:
    """The seed of a model that was given none."""
    return _seeds.next()
