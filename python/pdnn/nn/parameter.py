"""Parameter and Store: handles, and the flat memory of a model that they look into."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import count
from math import prod
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Hook: TypeAlias = Callable[[Array], Any]


class Parameter:
    """A handle on one parameter of a model.

    The values live in the model's flat buffer from the moment that the model gathers its parameters (at the
    first call, use of its `parameters()`, or Trainer).

    Attributes
    ----------
    name : str
        Within the model: ``"0.weight"``.
    shape : tuple of int
    store : Store or None
        The memory of the model that it belongs to.
    offset : int
        Where its elements begin in the flat buffer.
    """

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name = name
        self.shape = shape
        self.store: Store | None = None
        self.offset = 0
        self._data: Array | None = None  # before gathering: the values of the model that this is a copy of
        self._grad: Array | None = None
        self._hooks: dict[int, Hook] = {}

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
        if self.store is None or self._data is None:
            raise self._homeless()
        return self._data

    @data.setter
    def data(self, values: npt.ArrayLike) -> None:
        array = np.asarray(values)
        if array.shape != self.shape:
            raise ValueError(f"Parameter {self.name}: got shape {array.shape}, expected {self.shape}")
        self.data[...] = array

    @property
    def grad(self) -> Array:
        """The gradient: a view, shaped like `data`. Training steps store it, `Tensor.backward` adds to it."""
        if self._grad is None:
            raise self._homeless()
        return self._grad

    def _homeless(self) -> ValueError:
        return ValueError(
            f"Parameter {self.name}: it belongs to no model yet; a model gathers its parameters when it is "
            "first called or asked for its parameters()"
        )

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Calls `hook(grad)` in each backward pass, once this parameter's gradient of that pass is final.

        Parameters
        ----------
        hook : function of ndarray
            Gets the gradient of this pass alone, summed over all uses of the parameter, before it is added to
            `grad`. It may change the array in place, or return another of the same shape to take its place.
            Hooks run in the order in which they were registered.

        Returns
        -------
        RemovableHandle
            Its `remove()` takes the hook back.
        """
        return RemovableHandle(self._hooks, hook)

    @property
    def hooks(self) -> Sequence[Hook]:
        """The hooks registered, in their order."""
        return tuple(self._hooks.values())

    @property
    def values(self) -> Array | None:
        """The values it has so far, also before it belongs to a model; None: still to be drawn."""
        return self._data

    def attach(self, name: str, store: Store, offset: int) -> None:
        """Makes this a handle on `store`; values it had are taken along."""
        here = slice(offset, offset + self.size)
        data = store.flat_parameters[here].reshape(self.shape)
        if self._data is not None:
            data[...] = self._data
        self.name, self.store, self.offset = name, store, offset
        self._data, self._grad = data, store.flat_gradients[here].reshape(self.shape)

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "shape": self.shape, "_data": self._data}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["name"], state["shape"])  # type: ignore[misc]
        self._data = state["_data"]

    def __repr__(self) -> str:
        return f"Parameter({self.name}, shape={self.shape})"


class RemovableHandle:
    """What `register_hook` returns."""

    _numbers = count()

    def __init__(self, hooks: dict[int, Hook], hook: Hook) -> None:
        self._hooks, self._number = hooks, next(self._numbers)
        hooks[self._number] = hook

    def remove(self) -> None:
        """Takes the hook back; a second time does nothing."""
        self._hooks.pop(self._number, None)


class Store:
    """The memory of a model: its parameters as one array, their gradients as another.

    Attributes
    ----------
    handles : list of Parameter
        In the order of the arrays.
    flat_parameters, flat_gradients : ndarray, shape (count,)
    dtype : "float32" or "float64"
    seed : int
        Of initial values, and of the dropout masks of eager calls.
    moved : bool
        Whether a larger model has taken the parameters into its own memory.
    """

    def __init__(self, named: dict[str, Parameter], data: Array, grads: Array, seed: int) -> None:
        self.handles = list(named.values())
        self.flat_parameters = data
        self.flat_gradients = grads
        self.dtype = str(data.dtype)
        self.seed = seed
        self.moved = False
        self._calls = count()
        offset = 0
        for name, handle in named.items():
            handle.attach(name, self, offset)
            offset += handle.size

    def parameters(self) -> Iterator[Parameter]:
        """The handles, as a model iterates them."""
        return iter(self.handles)

    def next_call(self) -> int:
        """How many calls came before this one."""
        return next(self._calls)

    def find(self, handles: Sequence[Parameter]) -> slice | None:
        """Where these parameters lie in the arrays, if they lie together and in this order."""
        if not handles:
            return slice(0, 0)
        first = handles[0]
        if first.store is not self:
            return None
        at = next(index for index, handle in enumerate(self.handles) if handle is first)
        here = self.handles[at : at + len(handles)]
        if len(here) < len(handles) or any(a is not b for a, b in zip(handles, here, strict=True)):
            return None
        return slice(first.offset, handles[-1].offset + handles[-1].size)
