"""Parameter and Store: handles, and the flat memory of a model that they look into."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from math import prod
from threading import RLock
from typing import Any, TypeAlias, TypeVar
from weakref import ref

import numpy as np
import numpy.typing as npt

from pdnn.advice import HANDLE, Advising
from pdnn.arrays import Array as Array
from pdnn.arrays import ArrayInterface, to_numpy
from pdnn.checks import unmasked
from pdnn.fit_lock import FitLock

Hook: TypeAlias = Callable[[Array], Any]
PostHook: TypeAlias = Callable[["Parameter"], Any]
PassHook: TypeAlias = Callable[[Sequence[Any]], float]


H = TypeVar("H", bound="Handle")


def _in_place(operation: Callable[[Array, Any], Array]) -> Callable[[H, Any], H]:
    """The method of a Handle that changes its values by an operation."""

    def change(handle: H, other: Any) -> H:
        unmasked(type(handle).__name__, handle.name, other)
        operation(handle.data, other)
        return handle

    return change


class Handle(ArrayInterface, Advising):
    """A name and a shape for values that live in a model's flat memory once the model has gathered them.

    It does so when it is first called, asked for its `parameters()`, or given to a Trainer. ``p += a``,
    ``p -= a``, ``p *= a`` and ``p /= a`` change the values in place, under `no_grad` or not.

    Attributes
    ----------
    name : str
        Within the model: ``"0.weight"``.
    shape : tuple of int
    store : Store or None
        The memory of the model that it belongs to.
    offset : int
        Where its elements begin in the flat array.
    """

    advice = HANDLE

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name = name
        self.shape = shape
        self.store: Store | None = None
        self.offset = 0
        self._data: Array | None = None  # before gathering: the values of the model that this is a copy of

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
            If it belongs to no model yet, or on assigning an array of another shape.
        """
        if self.store is None or self._data is None:
            raise self._homeless()
        return self._data

    @data.setter
    def data(self, values: npt.ArrayLike) -> None:
        self._fill(self.data, values)

    def _fill(self, own: Array, values: npt.ArrayLike) -> None:
        unmasked(type(self).__name__, self.name, values)
        array = to_numpy(values)
        if array.shape != self.shape:
            raise ValueError(
                f"{type(self).__name__} {self.name}: got shape {array.shape}, expected {self.shape}"
            )
        np.copyto(own, array, casting="same_kind")

    __iadd__ = _in_place(operator.iadd)
    __isub__ = _in_place(operator.isub)
    __imul__ = _in_place(operator.imul)
    __itruediv__ = _in_place(operator.itruediv)

    def _homeless(self) -> ValueError:
        return ValueError(
            f"{type(self).__name__} {self.name}: it belongs to no model yet; a model gathers its parameters "
            "when it is first called or asked for its parameters()"
        )

    def view(self, flat: Array) -> Array:
        """Its part of a flat array, in its shape."""
        return flat[self.offset : self.offset + self.size].reshape(self.shape)

    def attach(self, name: str, store: Store, offset: int) -> None:
        """Makes this a handle on `store`; one that it was a handle on has moved."""
        if self.store is not None:
            self.store.moved = True
        self.name, self.store, self.offset = name, store, offset

    def _move(self, flat: Array) -> None:
        """Has its values in this flat array from now on; values it had are taken along."""
        before, self._data = self._data, self.view(flat)
        if before is not None:
            self._data[...] = before

    def __getstate__(self) -> dict[str, Any]:
        return {"name": self.name, "shape": self.shape, "_data": self._data}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["name"], state["shape"])  # type: ignore[misc]
        self._data = state["_data"]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, shape={self.shape})"


class Parameter(Handle):
    """A parameter of a layer: values that are trained, and their gradient.

    Attributes
    ----------
    hooks, post_hooks : dict
        What `register_hook` and `register_post_accumulate_grad_hook` took, in order.
    """

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        super().__init__(name, shape)
        self._grad: Array | None = None
        self.hooks: dict[int, Hook] = {}
        self.post_hooks: dict[int, PostHook] = {}

    @property
    def grad(self) -> Array:
        """The gradient: a view, shaped like `data`. Training steps store it, `Tensor.backward` adds to it.

        Assigning copies into it, as into `data`.
        """
        if self._grad is None:
            raise self._homeless()
        return self._grad

    @grad.setter
    def grad(self, values: npt.ArrayLike) -> None:
        self._fill(self.grad, values)

    @property
    def requires_grad(self) -> bool:
        """True: every parameter gets its gradient. Those in no group of the optimizer do not change."""
        return True

    @requires_grad.setter
    def requires_grad(self, wanted: bool) -> None:
        if not wanted:
            raise ValueError(
                f"Parameter {self.name}: requires_grad = {wanted}; every parameter gets its gradient. To "
                "keep it as it is, pass the optimizer the other parameters only"
            )

    def attach(self, name: str, store: Store, offset: int) -> None:
        """Makes this a handle on `store`; values it had are taken along."""
        super().attach(name, store, offset)
        self._move(store.flat_parameters)
        self._grad = self.view(store.flat_gradients)

    def register_hook(self, hook: Hook) -> RemovableHandle:
        """Calls `hook(grad)` in each backward pass, once this parameter's gradient of that pass is final.

        Parameters
        ----------
        hook : function of ndarray
            Gets the gradient of this pass alone, summed over all uses of the parameter, before it is added to
            `grad`. It may change the array in place, or return another of the same shape to take its place;
            one who keeps it takes a copy. Hooks run in the order in which they were registered.

        Returns
        -------
        RemovableHandle
            Its `remove()` takes the hook back.
        """
        return RemovableHandle(self.hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: PostHook) -> RemovableHandle:
        """Calls `hook(parameter)` in each backward pass, once `grad` holds all that this pass adds to it.

        Such a hook may start something that goes on with `grad` while the pass goes on: nothing else touches
        it before the next pass.

        Returns
        -------
        RemovableHandle
            Its `remove()` takes the hook back.
        """
        return RemovableHandle(self.post_hooks, hook)

    def finish(self, pending: bool) -> None:
        """Runs the hooks, now that the gradient of a backward pass is final.

        Parameters
        ----------
        pending : bool
            Whether it lies in `Store.pending`, and not in `grad` already.

        Raises
        ------
        ValueError
            If a hook returns an array of another shape.
        """
        if pending:
            assert self.store is not None
            own = grad = self.view(self.store.pending())
            for hook in tuple(self.hooks.values()):
                if (other := hook(grad)) is not None:
                    unmasked(f"Parameter {self.name}", "what a hook returned", other)
                    if (shape := np.shape(other)) != self.shape:
                        raise ValueError(
                            f"Parameter {self.name}: a hook returned shape {shape}, expected {self.shape}"
                        )
                    grad = np.asarray(other)
            self.grad[...] += grad
            own[...] = 0
        for post_hook in tuple(self.post_hooks.values()):
            post_hook(self)


class TableParameter(Parameter):
    """A parameter of rows that are looked up, not multiplied: PyTorch has it in the same shape."""


class Buffer(Handle):
    """What a layer learns without gradients, like running statistics."""

    def attach(self, name: str, store: Store, offset: int) -> None:
        """Makes this a handle on `store`; values it had are taken along."""
        super().attach(name, store, offset)
        self._move(store.flat_buffers)


class RemovableHandle:
    """What `register_hook` returns."""

    _numbers = count()

    def __init__(self, hooks: dict[int, Any], hook: Callable[..., Any]) -> None:
        if not callable(hook):
            raise TypeError(f"hook is of type {type(hook).__name__}, expected a function")
        self._hooks, self._number = hooks, next(self._numbers)
        hooks[self._number] = hook

    def remove(self) -> None:
        """Takes the hook back; a second time does nothing."""
        self._hooks.pop(self._number, None)


class Store:
    """The memory of a model: its parameters as one array, their gradients as another, its buffers as a third.

    Handles keep it, and it keeps no handle, so that a model that nobody has any more is gone at once.

    Attributes
    ----------
    shapes : list of tuple of int
        Of the parameters, in the order of the arrays.
    flat_parameters, flat_gradients : ndarray, shape (count,)
    flat_buffers : ndarray, shape (elements of all buffers,)
    dtype, arithmetic : str
        "float32" or "float64", of the arrays; the model's dtype, perhaps "bfloat16".
    seed : int
        Of initial values, and of the dropout masks of eager calls.
    moved : bool
        Whether a larger model has taken the values into its own memory.
    synchronized : bool
        Whether a layer of the model takes sums over all ranks (``sync=True``).
    indices : bool
        Whether a layer looks up rows, so that integers are indices, which have no scale.
    """

    def __init__(
        self, named: dict[str, Handle], data: Array, grads: Array, buffers: Array, seed: int, arithmetic: str
    ) -> None:
        self._handles = [ref(handle) for handle in named.values()]
        self.shapes = [handle.shape for handle in named.values() if isinstance(handle, Parameter)]
        self.flat_parameters = data
        self.flat_gradients = grads
        self.flat_buffers = buffers
        self.dtype, self.arithmetic, self.seed = str(data.dtype), arithmetic, seed
        self.moved = self.synchronized = False
        self.indices = any(isinstance(handle, TableParameter) for handle in self.handles)
        self.pass_hooks: dict[int, PassHook] = {}
        self.fits, self._turn, self._process = FitLock(), RLock(), os.getpid()
        self._pending: Array | None = None
        self._calls, self._unused_calls = count(), list[int]()
        offsets = offsets_of(named.values())
        for name, handle in named.items():
            handle.attach(name, self, offsets[handle])

    @property
    def handles(self) -> list[Handle]:
        """Those that somebody still has: parameters and buffers, in the order of their names."""
        return [handle for each in self._handles if (handle := each()) is not None]

    def parameters(self) -> Iterator[Parameter]:
        """The parameters of these, as a model iterates them."""
        return (handle for handle in self.handles if isinstance(handle, Parameter))

    def register_pass_hook(self, hook: PassHook) -> RemovableHandle:
        """Calls ``hook(nodes)`` when a backward pass that reaches this model begins.

        Parameters
        ----------
        hook : function of the graph's nodes, in the order in which the pass goes through them
            Returns the weight of the pass: the number by which all its gradients are multiplied.

        Returns
        -------
        RemovableHandle
            Its `remove()` takes the hook back.
        """
        return RemovableHandle(self.pass_hooks, hook)

    def turn(self) -> RLock:
        """Held by a backward pass: it adds to the gradients, and another thread's waits until it is over."""
        if self._process != os.getpid():  # a fork, without the threads of its parent and their passes
            self._turn, self._pending, self._process = RLock(), None, os.getpid()
        return self._turn

    def begin_pass(self, nodes: Sequence[Any]) -> float:
        """The weight of a backward pass through these nodes, 1 unless a hook has another.

        Raises
        ------
        ValueError
            If two hooks disagree.
        """
        weights = {hook(nodes) for hook in tuple(self.pass_hooks.values())} or {1.0}
        if len(weights) > 1:
            raise ValueError(
                "backward: two optimizers of one model weigh this pass differently; give both the same op"
            )
        return weights.pop()

    def pending(self) -> Array:
        """Gradients of a backward pass under way that hooks are still to see, in order; zero in between."""
        if self._pending is None:
            self._pending = np.zeros_like(self.flat_gradients)
        return self._pending

    def drop_pending(self) -> None:
        """Forgets them."""
        self._pending = None

    def next_call(self) -> int:
        """How many calls came before this one."""
        if self._unused_calls:
            with suppress(IndexError):  # another thread has taken it
                return self._unused_calls.pop()
        return next(self._calls)

    def give_back_call(self, number: int) -> None:
        """Has the next call take this number, whose own was refused."""
        self._unused_calls.append(number)

    def find(self, handles: Sequence[Handle]) -> slice | None:
        """Where these, all parameters or all buffers, lie in their array, if together and in this order."""
        begin = end = handles[0].offset if handles else 0
        for handle in handles:
            if handle.store is not self or handle.offset != end:
                return None
            end += handle.size
        return slice(begin, end)


def offsets_of(handles: Iterable[Handle]) -> dict[Handle, int]:
    """Where each begins, parameters in one flat array and buffers in another."""
    offsets, ends = {}, {Parameter: 0, Buffer: 0}
    for handle in handles:
        kind = Parameter if isinstance(handle, Parameter) else Buffer
        offsets[handle] = ends[kind]
        ends[kind] += handle.size
    return offsets
