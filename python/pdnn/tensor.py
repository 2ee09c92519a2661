"""Tensor: an array that remembers how it was made, so that gradients find their way back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from itertools import count
from math import prod
from numbers import Real
from typing import Any, TypeAlias

import numpy as np

from pdnn.advice import TENSOR, Advising
from pdnn.arrays import Array, ArrayInterface
from pdnn.checks import kind_of, several, unmasked
from pdnn.recording import recording
from pdnn.store import Parameter, Store

Final: TypeAlias = Callable[[Parameter], None]

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
"""Types of the values of a Tensor, in the machine's order of bytes."""

_numbers = count()


class Values(Advising, np.ndarray):
    """An array that also answers ``numpy()``, as tensors of other libraries do.

    The batches of a loader and the `data` of a loss are such arrays, so that a loop written for those
    libraries runs as it is. Whatever is computed from one is a plain array.
    """

    __slots__ = ()

    def numpy(self) -> Array:
        """The plain array, in the same memory."""
        return self.view(np.ndarray)

    def __array_wrap__(self, array: Array, context: Any = None, return_scalar: bool = False) -> Any:
        return array[()] if array.ndim == 0 else array.view(np.ndarray)

    def __repr__(self) -> str:
        return repr(self.numpy())


class Node:
    """One operation in a graph: what it was made from, and its derivative.

    Attributes
    ----------
    inputs : tuple
        The nodes that made its inputs; None for one that no gradient is wanted of.
    parameters : sequence of Parameter
        Those whose gradients `backward` adds to, in the order of their memory.
    rows : float or None
        Of the batch, where the operation knows what a row is: layers and losses do. A loss has the sum of
        their weights.
    synchronized : bool
        Whether it adds up sums over ranks. Then its `without_rows()` takes part in them for a rank that makes
        no such call, and returns a function that does so for its backward pass.
    """

    __slots__ = ("__weakref__", "inputs", "number", "parameters")
    rows: float | None = None
    synchronized: bool = False

    def __init__(self, inputs: Sequence[Tensor], parameters: Sequence[Parameter] = ()) -> None:
        self.inputs = tuple(tensor.node for tensor in inputs)
        self.parameters = parameters
        self.number = next(_numbers)  # an input's is smaller: falling numbers are an order to go back in

    def backward(self, dy: Array, pending: bool, final: Final | None) -> Sequence[Array | None]:
        """The gradient for each input, from the output's.

        Parameters
        ----------
        dy : ndarray
            Is kept as it is.
        pending : bool
            Whether the parameters' gradients go to `Store.pending` instead of their own place.
        final : function of Parameter, optional
            To be called when this node adds nothing more to a parameter's gradient.
        """
        raise NotImplementedError

    def free(self) -> None:
        """Lets go of what `backward` needs."""
        raise NotImplementedError

    @property
    def freed(self) -> bool:
        """Whether a backward pass has been here."""
        raise NotImplementedError


class _Operation(Node):
    """A node without parameters: a function of dy."""

    __slots__ = ("_function",)

    def __init__(self, inputs: Sequence[Tensor], function: Callable[[Array], Sequence[Array]]) -> None:
        super().__init__(inputs)
        self._function: Callable[[Array], Sequence[Array]] | None = function

    def backward(self, dy: Array, pending: bool, final: Final | None) -> Sequence[Array | None]:
        assert self._function is not None
        return self._function(dy)

    def free(self) -> None:
        self._function = None

    @property
    def freed(self) -> bool:
        return self._function is None


class Tensor(ArrayInterface, Advising):
    """A batch between layers, or a loss: a NumPy array with the operation that made it.

    Layers, losses and the operations here give Tensors; `backward` on a loss adds the gradients of all
    parameters behind it to their `grad`. The arrays in a graph must stay as they are until then.

    Parameters
    ----------
    data : ndarray
        Floats, shape (n, ...), or () for a loss.

    Attributes
    ----------
    data : ndarray
        The values; images are views of channels-last memory.
    """

    __slots__ = ("__weakref__", "data", "node")
    advice = TENSOR
    __array_ufunc__ = None  # array + tensor is the tensor's business

    def __init__(self, data: Array, node: Node | None = None) -> None:
        unmasked("Tensor", "data", data)
        self.data = np.asarray(data)
        if self.data.dtype not in FLOATS:
            raise TypeError(f"Tensor: got an array of {self.data.dtype}, expected float32 or float64")
        self.node = node

    @property
    def shape(self) -> tuple[int, ...]:
        """As of the array."""
        return self.data.shape

    @property
    def ndim(self) -> int:
        """As of the array."""
        return self.data.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """As of the array."""
        return self.data.dtype

    @property
    def requires_grad(self) -> bool:
        """Whether parameters lie behind it, so that `backward` has a way to go."""
        return self.node is not None

    def __len__(self) -> int:
        return len(self.data)

    def __bool__(self) -> bool:
        return bool(self.data)  # of a single number; NumPy refuses others

    def __repr__(self) -> str:
        return f"Tensor({self.data!r})"

    def numpy(self) -> Array:
        """The values, as an array that shares this memory."""
        return self.data

    def item(self) -> float:
        """The single value as a number."""
        return float(self.data.item())

    __float__ = item

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.data.ndim == 0 else super().__format__(spec)

    def detach(self) -> Tensor:
        """The same values with nothing behind them."""
        return Tensor(self.data)

    # ---- operations

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (Tensor, np.ndarray, Real)):
            raise TypeError(
                "Tensor: == and != do not compare elements; compare arrays, as in tensor.data == other"
            )
        return NotImplemented

    __hash__ = object.__hash__

    def __add__(self, other: Tensor | Array | float) -> Tensor:
        if isinstance(other, Real):
            return _result(self.data + self.data.dtype.type(other), [self], lambda dy: [dy])
        one, other = self._alike(other, "+")
        return _result(one.data + other.data, [one, other], lambda dy: [dy, dy])

    __radd__ = __add__

    def __neg__(self) -> Tensor:
        return _result(-self.data, [self], lambda dy: [-dy])

    def __sub__(self, other: Tensor | Array | float) -> Tensor:
        if not isinstance(other, Real):
            self._alike(other, "-")
        return self + -other

    def __rsub__(self, other: Tensor | Array | float) -> Tensor:
        if not isinstance(other, Real):
            self._alike(other, "-")
        return -self + other

    def __mul__(self, other: Tensor | Array | float) -> Tensor:
        if isinstance(other, Real):
            factor = self.data.dtype.type(other)  # NumPy 1 would make a single float32 a float64
            return _result(self.data * factor, [self], lambda dy: [dy * factor])
        one, other = self._alike(other, "*")
        a, b = one.data, other.data
        return _result(a * b, [one, other], lambda dy: [dy * b, dy * a])

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> Tensor:
        if not isinstance(other, Real):
            raise TypeError(f"Tensor: / with {kind_of(other)}; it takes a number")
        divisor = self.data.dtype.type(other)
        return _result(self.data / divisor, [self], lambda dy: [dy / divisor])

    def sum(self) -> Tensor:
        """The sum of all elements, shape ()."""
        shape = self.shape
        return _result(self.data.sum(), [self], lambda dy: [np.broadcast_to(dy, shape)])

    def mean(self) -> Tensor:
        """The mean of all elements, shape ()."""
        return self.sum() / max(self.data.size, 1)

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """The same elements in C order under another shape, numbers or one tuple; -1 stands for the rest."""
        before, after = self.shape, shape[0] if len(shape) == 1 else shape
        return _result(self.data.reshape(after), [self], lambda dy: [dy.reshape(before)])

    def flatten(self, start_dim: int = 0) -> Tensor:
        """Axes from `start_dim` on as one: ``flatten(1)`` makes features of images, (n, c h w)."""
        if not 0 <= start_dim < self.ndim:
            raise ValueError(f"flatten: start_dim {start_dim} of a Tensor with {self.ndim} axes")
        return self.reshape(*self.shape[:start_dim], prod(self.shape[start_dim:]))

    def _alike(self, other: object, operation: str) -> tuple[Tensor, Tensor]:
        """Both operands, of one shape and dtype: single numbers in the wider one, nothing is broadcast."""
        if not isinstance(other, (Tensor, np.ndarray)):
            raise TypeError(f"Tensor: {operation} with {kind_of(other)}")
        if other.shape != self.shape or (other.dtype != self.dtype and self.ndim > 0):
            raise ValueError(
                f"Tensor: {operation} of {self.dtype} {self.shape} and {other.dtype} {other.shape}; "
                "both must be alike"
            )
        dtype = np.promote_types(self.dtype, other.dtype)
        return self._as(dtype), (other if isinstance(other, Tensor) else Tensor(other))._as(dtype)

    def _as(self, dtype: np.dtype[Any]) -> Tensor:
        before = self.dtype
        if dtype == before:
            return self
        return _result(self.data.astype(dtype), [self], lambda dy: [dy.astype(before)])

    # ---- gradients

    def backward(self) -> None:
        """Adds the gradient of this loss to the `grad` of every parameter behind it.

        Hooks run as soon as the gradient they are registered for is final. The graph is let go on the way.

        Raises
        ------
        ValueError
            If this is no single number, nothing was recorded, or a backward pass went through the graph
            before.
        """
        if self.data.size != 1:
            raise ValueError(f"backward: shape {self.shape}; only a loss, one number, has a gradient here")
        if self.node is None:
            raise ValueError(
                "backward: nothing is behind this Tensor; it was made under no_grad(), or without parameters"
            )
        _go_back(self.node, self.data)


def cat(tensors: Sequence[Tensor | Array], dim: int = 0) -> Tensor:
    """Tensors joined along an axis (torch.cat): 0 joins batches, 1 features or channels, -1 the last axis.

    Raises
    ------
    TypeError
        If it gets no list of them.
    ValueError
        If there are none, or their dtypes or other axes differ.
    """
    given = several("cat", "tensors", tensors, "a list of Tensors")
    parts = [part if isinstance(part, Tensor) else Tensor(part) for part in given]
    axis = dim + (max((part.ndim for part in parts), default=0) if dim < 0 else 0)
    kinds = {(part.dtype, part.ndim, part.shape[:axis] + part.shape[axis + 1 :]) for part in parts}
    if len(kinds) != 1 or not 0 <= axis < parts[0].ndim:
        raise ValueError(
            f"cat: got {[f'{part.dtype} {part.shape}' for part in parts]} along axis {dim}; "
            "expected Tensors that have this axis, with the other axes and the dtypes alike"
        )
    ends = np.cumsum([part.shape[dim] for part in parts])[:-1]
    joined = np.concatenate([part.data for part in parts], axis=dim)
    return _result(joined, parts, lambda dy: np.split(dy, ends, axis=dim))


def _result(data: Any, inputs: Sequence[Tensor], function: Callable[[Array], Sequence[Array]]) -> Tensor:
    """The outcome of an operation, recorded if anybody can want its gradient."""
    wanted = recording() and any(tensor.requires_grad for tensor in inputs)
    return Tensor(data, _Operation(inputs, function) if wanted else None)


def _weight(nodes: Sequence[Node], stores: Iterable[Store]) -> float:
    """By what all gradients of a pass are multiplied: what `Store.register_pass_hook` was given says."""
    weights = [store.begin_pass(nodes) for store in stores]
    if len(set(weights)) > 1:
        raise ValueError(
            "backward: the pass goes through two models, and the DistributedOptimizer of one weighs its "
            "gradients by rows; give the other one such an optimizer too, or call it under no_grad()"
        )
    return weights[0] if weights else 1.0


def _go_back(root: Node, value: Array) -> None:
    """Walks the graph behind `root`, each node after all that used its output."""
    nodes, found = [root], {root}
    for node in nodes:
        for source in node.inputs:
            if source is not None and source not in found:
                found.add(source)
                nodes.append(source)
    parameters = [parameter for node in nodes for parameter in node.parameters]
    stores = [store for store in dict.fromkeys([own.store for own in parameters]) if store is not None]
    with ExitStack() as turns:
        for store in sorted(stores, key=id):  # in one order, so that no two passes wait for each other
            turns.enter_context(store.turn())
        _add_gradients(root, value, nodes, parameters, stores)


def _add_gradients(
    root: Node, value: Array, nodes: list[Node], parameters: list[Parameter], stores: list[Store]
) -> None:
    """The backward pass, while no other thread's adds to the gradients of these stores."""
    if any(node.freed for node in nodes):
        raise ValueError(
            "backward: a backward pass went through this graph before and let it go; compute the loss again"
        )
    nodes.sort(key=lambda node: -node.number)
    pending = any(own.hooks for own in parameters)
    watched = pending or any(own.post_hooks for own in parameters)
    uses = Counter(parameters if watched else ())

    def final(parameter: Parameter) -> None:
        uses[parameter] -= 1
        if uses[parameter] == 0:
            parameter.finish(pending)

    gradients = {root: np.full_like(value, _weight(nodes, stores))}
    try:
        for node in nodes:
            dxs = node.backward(gradients.pop(node), pending, final if watched else None)
            for source, dx in zip(node.inputs, dxs, strict=True):
                if source is not None and dx is not None:
                    gradients[source] = gradients[source] + dx if source in gradients else dx
            node.free()
    except BaseException:
        for store in stores:  # of what hooks have not seen, a failed pass leaves nothing behind
            store.drop_pending()
        raise
