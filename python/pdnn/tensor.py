"""Tensor: an array that remembers how it was made, so that gradients find their way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import prod
from numbers import Real
from operator import ge, gt, le, lt
from typing import Any

import numpy as np

from pdnn.advice import TENSOR, Advising
from pdnn.arrays import Array, ArrayInterface
from pdnn.checks import kind_of, several, unmasked
from pdnn.graph import InputLeaf, Node, Operation, ParameterLeaf, go_back
from pdnn.recording import recording
from pdnn.store import Parameter

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
"""Types of the values of a Tensor, in the machine's order of bytes."""


_SIGNS = {lt: "<", le: "<=", gt: ">", ge: ">="}


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


class Tensor(ArrayInterface, Advising):
    """A batch between layers, or a loss: a NumPy array with the operation that made it.

    Layers, losses and the operations here give Tensors; `backward` on a loss adds the gradients of all
    parameters behind it to their `grad`. The arrays in a graph must stay as they are until then.

    Parameters
    ----------
    data : ndarray or Parameter
        Floats, shape (n, ...), or () for a loss. Backward passes add a Parameter's gradient to its `grad`.
    requires_grad : bool
        Whether backward passes shall leave a gradient of this input in `grad`.

    Attributes
    ----------
    data : ndarray
        The values; images are views of channels-last memory.

    Raises
    ------
    TypeError
        If they are no floats.
    """

    __slots__ = ("__weakref__", "data", "node")
    advice = TENSOR
    __array_ufunc__ = None  # array + tensor is the tensor's business

    def __init__(
        self, data: Array | Parameter, node: Node | None = None, *, requires_grad: bool = False
    ) -> None:
        unmasked("Tensor", "data", data)
        self.data = np.asarray(data)
        if self.data.dtype not in FLOATS:
            raise TypeError(f"Tensor: got an array of {self.data.dtype}, expected float32 or float64")
        if isinstance(data, Parameter) and node is None and recording():
            node = ParameterLeaf(data)
        self.node = InputLeaf() if node is None and requires_grad else node

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
        """Whether parameters or such inputs lie behind it, so that `backward` has a way to go."""
        return self.node is not None

    @property
    def grad(self) -> Array | None:
        """The gradient of an input made with `requires_grad`, in its shape; assign None to forget it.

        Of all backward passes so far, added up; None before the first, and for what operations made.
        """
        return self.node.grad if isinstance(self.node, InputLeaf) else None

    @grad.setter
    def grad(self, value: Array | None) -> None:
        if not isinstance(self.node, InputLeaf):
            raise ValueError(
                "Tensor.grad: only an input, Tensor(array, requires_grad=True), has one, and a Parameter"
            )
        if value is not None and np.shape(value) != self.shape:
            raise ValueError(f"Tensor.grad: got shape {np.shape(value)}, expected {self.shape}")
        self.node.grad = None if value is None else np.array(value, self.dtype)

    def __len__(self) -> int:
        return len(self.data)

    def __bool__(self) -> bool:
        return bool(self.data)  # of a single number; NumPy refuses others

    def __repr__(self) -> str:
        return f"Tensor({self.data!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _input, (
            self.data,
            isinstance(self.node, InputLeaf),
        )  # without the graph, which is one process's

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

    def _compare(self, other: Any, by: Callable[[Any, Any], bool]) -> bool:
        """Of single numbers, as losses are."""
        value: Any = other.data if isinstance(other, Tensor) else other
        sign = _SIGNS[by]
        if not isinstance(value, (np.ndarray, Real)):
            raise TypeError(f"Tensor: {sign} with {kind_of(other)}")
        number = np.asarray(value, None if isinstance(value, np.ndarray) else self.dtype)
        if self.ndim or number.ndim:
            raise TypeError(
                f"Tensor: {sign} of shapes {self.shape} and {number.shape}; only single numbers compare, "
                f"otherwise compare arrays, as in tensor.data {sign} other"
            )
        return bool(by(self.data, number))

    def __lt__(self, other: Tensor | float) -> bool:
        return self._compare(other, lt)

    def __le__(self, other: Tensor | float) -> bool:
        return self._compare(other, le)

    def __gt__(self, other: Tensor | float) -> bool:
        return self._compare(other, gt)

    def __ge__(self, other: Tensor | float) -> bool:
        return self._compare(other, ge)

    def __getitem__(self, key: Any) -> Tensor:
        before, part = self.data, self.data[key]

        def back(dy: Array) -> list[Array]:
            dx = np.zeros_like(before)
            if np.may_share_memory(part, before):  # a view has no element twice
                dx[key] = dy
            else:
                np.add.at(dx, key, dy)
            return [dx]

        return _result(part, [self], back)

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

    def __iter__(self) -> Iterator[Tensor]:
        if self.ndim == 0:
            raise TypeError("Tensor: a single number is none to go through")
        return (self[row] for row in range(len(self)))

    def __pow__(self, exponent: float) -> Tensor:
        if not isinstance(exponent, Real):
            raise TypeError(f"Tensor: ** with {kind_of(exponent)}; it takes a number")
        x, power = self.data, self.dtype.type(exponent)

        def back(dy: Array) -> list[Array]:
            with np.errstate(divide="ignore", invalid="ignore"):  # a root has no slope at 0
                return [dy * power * x ** (power - 1) if power else np.zeros_like(x)]

        return _result(x**power, [self], back)

    def exp(self) -> Tensor:
        """The exponential of each element."""
        y = np.exp(self.data)
        return _result(y, [self], lambda dy: [dy * y])

    def log(self) -> Tensor:
        """The natural logarithm of each element."""
        x = self.data
        return _result(np.log(x), [self], lambda dy: [dy / x])

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
        go_back(self.node, self.data)


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


def _input(data: Array, wanted: bool) -> Tensor:
    """What a copy of a Tensor is."""
    return Tensor(data, requires_grad=wanted)


def _result(data: Any, inputs: Sequence[Tensor], function: Callable[[Array], Sequence[Array]]) -> Tensor:
    """The outcome of an operation, recorded if anybody can want its gradient."""
    wanted = recording() and any(tensor.requires_grad for tensor in inputs)
    return Tensor(data, Operation([tensor.node for tensor in inputs], function) if wanted else None)
