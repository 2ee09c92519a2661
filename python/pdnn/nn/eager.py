"""Layers called one by one: each call is a node of a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from pdnn._core import Communicator
from pdnn.checks import kind_of, unmasked
from pdnn.comm import world
from pdnn.core import CoreLayer, LayerCall, Width
from pdnn.graph import Final, Node
from pdnn.recording import recording
from pdnn.store import Array, Parameter, Store
from pdnn.tensor import Tensor


class Runner:
    """A module as the core runs it: with its part of a model's memory, bound to each sample shape it meets.

    Parameters
    ----------
    layer : object of the core
    core : the core's submodule
    store : Store
    parameters : iterable of Parameter
        The module's, in the order of the store.
    span, buffers : slice
        The module's part of the store.
    """

    def __init__(
        self,
        layer: CoreLayer,
        core: Width,
        store: Store,
        parameters: Iterable[Parameter],
        span: slice,
        buffers: slice,
    ) -> None:
        self.layer, self.core, self.store, self.span = layer, core, store, span
        flats = store.flat_parameters[span], store.flat_gradients[span], store.flat_buffers[buffers]
        if not (flats[0].size or flats[2].size):  # no values, so no width of its own
            flats = (core.zeros(0),) * 3
        self.params, self.grads, self.buffers = flats
        self.parameters = [parameter for parameter in parameters if parameter.size]
        self._bound: dict[tuple[int, ...], LayerCall] = {}

    def bound(self, sample: tuple[int, ...]) -> LayerCall:
        """The layer bound to samples of this shape.

        Raises
        ------
        ValueError
            If they do not fit.
        """
        if sample not in self._bound:
            self._bound[sample] = self.core.LayerCall(self.layer, sample)
        return self._bound[sample]

    def __call__(self, x: Tensor, training: bool) -> Tensor:
        """The outputs for a batch; dropout's masks are functions of (seed, how many calls came before)."""
        if x.ndim < 2:
            raise ValueError(
                f"x has shape {x.shape}, expected one row a sample, (n, features); for one sample pass "
                "x[None], for one feature x[:, None]"
            )
        bound = self.bound(x.shape[1:])
        memory = to_memory(x.data, bound)
        key = (self.store.seed, self.store.next_call()) if training else (0, 0)
        ranks = world().core if training and bound.synchronized else None
        y, saved = bound.forward(memory, self.params, self.buffers, training, *key, ranks)
        if recording() and (x.requires_grad or self.parameters):
            node = _LayerNode(self, bound, x, (memory, y, saved), (training, *key, ranks))
            return Tensor(from_memory(y, bound), node)
        return Tensor(from_memory(y, bound))


def as_tensor(where: str, index: int, x: Any, store: Store) -> Any:
    """An array given to a module, checked to be of its store's width, as a Tensor; other things as they are.

    Raises
    ------
    TypeError
        If it is the first input and neither a Tensor nor floats nor indices, or of the other width.
    """
    if not isinstance(x, np.ndarray):
        if index == 0 and not isinstance(x, Tensor):
            raise TypeError(f"{where}: got {kind_of(x)}, expected a NumPy array or a pdnn.Tensor")
        return x
    unmasked(where, "x", x)
    dtype = store.dtype
    if x.dtype.kind != "f":
        if index > 0:
            return x
        if store.indices and x.dtype.kind in "iu":
            return Tensor(x.astype(dtype))
        if x.dtype.kind not in "iu":
            raise TypeError(f"{where}: x is {x.dtype}, this model takes {dtype}")
        raise TypeError(
            f"{where}: x is {x.dtype}; raw integers need their scale: take batches from a "
            f"DataLoader of the Dataset, or pass x.astype({dtype!r}) * scale"
        )
    if x.dtype != dtype and store.flat_parameters.size:
        raise TypeError(
            f"{where}: x is {x.dtype}, this model is {dtype}; pass "
            f"x.astype({dtype!r}), or take batches from a DataLoader(dtype={dtype!r})"
        )
    return Tensor(x)


def to_memory(samples: Array, bound: LayerCall) -> Array:
    """A batch as a layer takes it: C-ordered, images and lines with channels last, under the public shape."""
    if samples.ndim < 3 or bound.channels_first:
        return np.ascontiguousarray(samples)
    return np.ascontiguousarray(np.moveaxis(samples, 1, -1)).reshape(samples.shape)


def from_memory(memory: Array, bound: LayerCall) -> Array:
    """A layer's array as users see it: images and lines as views in the public order."""
    if memory.ndim < 3 or bound.channels_first:
        return memory
    n, channels, *places = memory.shape
    return np.moveaxis(memory.reshape(n, *places, channels), -1, 1)


class _LayerNode(Node):
    __slots__ = ("_arrays", "_bound", "_runner", "_sample", "_settings", "rows", "synchronized")

    def __init__(
        self,
        runner: Runner,
        bound: LayerCall,
        x: Tensor,
        arrays: tuple[Array, Array, Array],
        settings: tuple[bool, int, int, Communicator | None],
    ) -> None:
        super().__init__([x.node], runner.parameters)
        self.rows, self._sample = len(x), x.shape[1:]
        self.synchronized = settings[-1] is not None
        self._runner, self._bound, self._settings = runner, bound, settings
        self._arrays: tuple[Array, Array, Array] | None = arrays

    def backward(self, dy: Array, pending: bool, final: Final | None) -> Sequence[Array | None]:
        assert self._arrays is not None
        (x, y, saved), runner = self._arrays, self._runner
        if runner.store.moved:
            raise ValueError(
                "backward: a larger model has taken the parameters since this graph was made; compute the "
                "loss again"
            )
        grads = runner.store.pending()[runner.span] if pending else runner.grads
        rest = list(self.parameters)

        def announce(begin: int, end: int) -> None:
            assert final is not None
            while rest and rest[-1].offset >= runner.span.start + begin:
                final(rest.pop())

        dx = self._bound.backward(
            x,
            y,
            to_memory(dy, self._bound),
            runner.params,
            runner.buffers,
            saved,
            grads,
            self.inputs[0] is not None,
            *self._settings,
            announce if final else None,
        )
        assert not (final and rest), "every slice is announced"
        return [None if dx is None else from_memory(dx, self._bound)]

    def without_rows(self) -> Callable[[], object]:
        """Makes the same call for a rank that has no rows: its part in the sums over ranks.

        Returns
        -------
        callable
            Its backward pass.
        """
        source = Node() if self.inputs[0] is not None else None  # sums are taken for dx, where it is wanted
        batch = self._runner.core.zeros(0).reshape(0, *self._sample)
        outputs = self._runner(Tensor(batch, source), training=True)
        node = outputs.node
        assert node is not None
        return lambda: node.backward(outputs.data, pending=False, final=None)

    def free(self) -> None:
        self._arrays = None

    @property
    def freed(self) -> bool:
        return self._arrays is None


class LossNode(Node):
    """A loss: the derivative by its outputs, which is known at once."""

    __slots__ = ("_dy", "rows")

    def __init__(self, outputs: Tensor, dy: Array, counted: float) -> None:
        super().__init__([outputs.node])
        self._dy: Array | None = dy
        self.rows = counted

    def backward(self, dy: Array, pending: bool, final: Final | None) -> Sequence[Array | None]:
        """That derivative, times the loss's own."""
        assert self._dy is not None
        factor = float(dy)
        return [self._dy if factor == 1 else self._dy * factor]

    def free(self) -> None:
        """Lets go of it."""
        self._dy = None

    @property
    def freed(self) -> bool:
        """Whether it is gone."""
        return self._dy is None
