"""Sequential: layers in order, one flat buffer of parameters, one bound C++ network."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from math import prod
from typing import TYPE_CHECKING, Any, Protocol, overload

import numpy as np
import numpy.typing as npt

from pdnn.checks import integer, kind_of, shape_of_sample, unmasked
from pdnn.core import CoreModel, CoreNetwork, Width, array_dtype, core_for
from pdnn.nn.export import Exportable
from pdnn.nn.loss import Loss, check_loss
from pdnn.nn.module import Module
from pdnn.nn.place import Place
from pdnn.nn.static import can_be_named, runs_in_python, why_other_parameters
from pdnn.nn.targets import prepare_rows
from pdnn.recording import no_grad
from pdnn.store import Array, Handle, Parameter, Store

if TYPE_CHECKING:
    from pdnn.nn.summary import Summary


class Stepping(Protocol):
    """The interface of an optimizer for `Sequential.step`."""

    def stepper(self, model: Sequential, criterion: Loss) -> Callable[..., float]:
        """What makes a step from samples and labels."""


class Sequential(Exportable):
    """Layers applied one after another.

    Parameters
    ----------
    *layers : Module
        Each its own object; an inner Sequential is allowed.
    dtype : "float32", "float64" or "bfloat16"
        Of parameters and arithmetic; with "bfloat16", parameters and all arrays are float32, and products
        round their factors (docs/bfloat16.md).
    seed : int, optional
        Initial parameters are a function of (seed, index of the layer, index of the element). Unless given,
        the next seed of `pdnn.manual_seed`.

    Raises
    ------
    TypeError
        If a layer is not a Module, or the seed no integer.
    ValueError
        If a layer appears twice, or the dtype is none of these; at first use, if one appears in inner ones,
        too, or belongs to another model of which this one has not all.
    """

    def __init__(self, *layers: Module, dtype: npt.DTypeLike | None = None, seed: int | None = None) -> None:
        super().__init__(dtype=dtype, seed=seed)
        places: dict[int, int] = {}
        for index, layer in enumerate(layers):
            if not isinstance(layer, Module):
                raise TypeError(
                    f"Sequential: layer {index} is of type {kind_of(layer)}, expected an nn.Module"
                )
            if (first := places.setdefault(id(layer), index)) != index:
                raise ValueError(f"Sequential: layer {index} is the same object as layer {first}")
        self.layers = layers
        self._model: CoreModel | None = None

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Pairs ("0", layer), ("1", layer), and so on."""
        return ((str(index), layer) for index, layer in enumerate(self.layers))

    # ---- parameters

    @property
    def core(self) -> CoreModel:
        """The C++ model of this one; the first access gathers the parameters.

        Raises
        ------
        TypeError
            If a layer has its `forward` in Python.
        ValueError
            If it is part of a larger model.
        """
        if self._model is None and (layer := runs_in_python(self)) is not None:
            raise TypeError(
                f"Sequential: {type(layer).__name__} has its forward in Python, so there is no static form; "
                "write the loop by hand"
            )
        self.place()
        if self._model is None:
            raise ValueError(
                "Sequential: its parameters belong to another model; use that one, build new layers, or take "
                "a copy.deepcopy of this one"
            )
        return self._model

    def _allocate(self, named: dict[str, Handle], dtype: str, seed: int) -> Store:
        if runs_in_python(self) is not None:
            return super()._allocate(named, dtype, seed)
        core = core_for(dtype)
        drawn = any(own._data is None for own in named.values())  # else all values are those of other models
        model = core.Model(self.build(core), seed if drawn else None)
        shapes = [own.shape for own in named.values() if isinstance(own, Parameter)]
        if [tuple(shape) for _, shape in model.parameters()] != shapes:
            raise ValueError(f"Sequential: {why_other_parameters(self)}")
        self._model = model  # before handles are attached, after which nothing is allocated again
        return Store(named, model.params, model.grads, model.buffers, seed, dtype)

    def _settle(self, place: Place) -> None:
        if self._place is not None:
            self._model = None  # a larger model takes the parameters
        super()._settle(place)

    # ---- computing

    def forward(self, x: Any) -> Any:
        """One layer after another."""
        for layer in self.layers:
            x = layer(x)
        return x

    def summary(self, input_shape: tuple[int, ...], batch_size: int = 1) -> Summary:
        """The layers with output shapes, parameters and FLOPs, and the memory of a training step.

        Parameters
        ----------
        input_shape : tuple of int
            Of one sample: ``(784,)`` or ``(3, 32, 32)``.
        batch_size : int
            Samples of the step whose memory is computed.

        Returns
        -------
        Summary
            Printed, a table.

        Raises
        ------
        TypeError
            If the shape is none, or batch_size is no integer.
        ValueError
            If samples of this shape do not fit, or batch_size is below 1.
        """
        from pdnn.nn.summary import Summary, layer_rows  # few programs ask

        batch_size = integer("summary", "batch_size", batch_size, 1)
        sample = shape_of_sample("summary", input_shape)
        self.output_shape(sample)  # refuses by the name of the layer
        whole, *rows = layer_rows(self, core_for(self.dtype), sample)
        arrays = (self.flat_parameters, self.flat_gradients, self.flat_buffers)
        return Summary(
            rows=rows,
            parameters=whole.parameters,
            flops=whole.flops,
            model_bytes=sum(array.nbytes for array in arrays),
            batch_size=batch_size,
            batch_bytes=self.core.batch_bytes(list(sample), batch_size),
        )

    def output_shape(self, sample_shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of one output for samples of this shape.

        Raises
        ------
        ValueError
            If the samples do not fit, naming the layer that refuses them and both shapes.
        """
        return tuple(self.core.output_shape(list(sample_shape)))

    def predict(self, x: Array) -> Array:
        """Outputs for a batch, in evaluation mode, on the calling thread.

        A model with a layer in Python is in that mode meanwhile for other threads, too, whose backward
        passes and predictions wait: such a layer must not wait for a thread that makes one.

        Parameters
        ----------
        x : ndarray, shape (n, ...), of the model's dtype, C-ordered

        Returns
        -------
        ndarray, shape (n, outputs), of the model's dtype
        """
        x = batch_of("predict", x, self)
        store = self.place().store
        if self._model is not None:
            outputs: Array = self._model.predict(x)
            return outputs
        with store.turn(), no_grad():  # the modes are those of all threads
            modes = [(module, module.training) for module in self.modules()]
            self.eval()
            try:
                outputs = self(x).numpy()
            finally:
                for module, mode in modes:
                    module.training = mode
        return outputs

    def gradient(
        self,
        x: Array,
        y: Array,
        criterion: Loss,
        *,
        seed: int = 0,
        out: Array | None = None,
        weight: npt.ArrayLike | None = None,
    ) -> tuple[float, Array]:
        """The loss of a batch and its gradient; the model is only read and the GIL is released.

        Any number of threads may call it at once on one model.

        Parameters
        ----------
        x : ndarray, shape (n, ...), of the model's dtype, C-ordered
        y : ndarray
            Labels as the criterion takes them.
        criterion : Loss
            Its reduction decides between mean and sum.
        seed : int
            Of dropout's masks, in training mode.
        out : ndarray, shape (number of parameters,), of the model's dtype, C-ordered, optional
            Where to write the gradient, such as `flat_gradients`; a new array unless given. Calls at the
            same time need an array each.
        weight : array, shape (n,), optional
            Of the rows, as the criterion takes them.

        Returns
        -------
        loss : float
            Under the criterion's reduction (by default the mean over these rows).
        gradient : ndarray, shape (number of parameters,)
            In the order of `flat_parameters`; `split` gives its parts names and shapes. It is `out`, if that
            is given.

        Raises
        ------
        TypeError
            If x or out is no array, or of another dtype, the criterion none of pdnn's, or the seed no
            integer.
        ValueError
            If shapes or labels do not fit, or out is read-only, not contiguous or memory that the call reads.
        """
        x = batch_of("gradient", x, self)
        check_loss("gradient", "criterion", criterion)
        seed = integer("gradient", "seed", seed) % 2**64
        outputs = prod(self.output_shape(x.shape[1:]))
        dtype = array_dtype(self.dtype)
        targets, weights = prepare_rows("gradient", y, weight, criterion, outputs, dtype)
        loss = criterion.build(core_for(self.dtype))
        if out is not None:
            self._check_out(out, x, targets)
        value, gradient = self.core.gradient(x, targets, loss, self.training, seed, out, weights)
        return value, gradient

    def step(
        self,
        x: Array,
        y: Array,
        criterion: Loss,
        optimizer: Stepping,
        weight: npt.ArrayLike | None = None,
    ) -> float:
        """One training step: forward and backward pass, and an update, in one call of the core.

        As quick as a step by hand can be, for online and reinforcement learning: a few microseconds from
        Python for a small network. It does what ``optimizer.zero_grad()``, ``criterion(model(x), y)``,
        ``backward()`` and ``optimizer.step()`` do, with the same dropout masks and to the same bits; the
        gradient is in `flat_gradients` afterwards. The calling thread computes, without the GIL; calls from
        several threads take turns. Parameter groups, schedules, `state_dict` and a Trainer see its steps as
        their own. Gradients are not clipped.

        Parameters
        ----------
        x : ndarray of floats, shape (n, ...)
            Read in place if it is of the model's dtype and C-ordered, else converted.
        y : ndarray
            Labels as the criterion takes them. Classes as int64 or int32, and values of the model's dtype and
            C-ordered, are the quickest.
        criterion : Loss
            Keep one object for all steps: the core is prepared once for each.
        optimizer : Optimizer
            Of this model's parameters.
        weight : array, shape (n,), optional
            Of the rows, as the criterion takes them. If all are 0 there is no update; the loss and the
            gradient are 0.

        Returns
        -------
        float
            The loss of the batch before the update, under the criterion's reduction.

        Raises
        ------
        TypeError
            If x is no array of floats, labels are no numbers, the criterion or the optimizer is none of
            pdnn's, or a layer has its `forward` in Python.
        ValueError
            If shapes or labels do not fit, the optimizer is another model's, the model has hooks, or its
            layers are not all in one mode. Nothing changes then.
        """
        if not hasattr(optimizer, "stepper"):
            raise TypeError(f"step: optimizer is of type {kind_of(optimizer)}, expected one of pdnn.optim's")
        return optimizer.stepper(self, criterion)(x, y, weight)

    def _check_out(self, out: Array, x: Array, targets: Array) -> None:
        if not isinstance(out, np.ndarray):
            raise TypeError(f"gradient: out is of type {kind_of(out)}, expected a NumPy array")
        read = {"x": x, "y": targets, "the parameters": self.flat_parameters}
        for name, array in read.items():
            if np.may_share_memory(out, array):
                raise ValueError(f"gradient: out shares memory with {name}, which the call reads")

    # ---- as a module

    def _metadata(self) -> dict[str, str]:
        if runs_in_python(self) is not None or not all(map(can_be_named, self.layers)):
            # A file has no code: it would be read as another model, or not at all.
            return super()._metadata()
        architecture = {"dtype": self.dtype, **self.config()}
        return {"pdnn.architecture": json.dumps(architecture), **super()._metadata()}

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_model": None}

    def build(self, core: Width) -> CoreNetwork:
        """The network of the core."""
        return core.Network([layer.build(core) for layer in self.layers])

    def config(self) -> dict[str, Any]:
        """The layers' types and arguments."""
        return {"layers": [{"type": type(layer).__name__, **layer.config()} for layer in self.layers]}

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.layers)

    @overload
    def __getitem__(self, index: int) -> Any: ...  # the program knows which layer: model[0].weight
    @overload
    def __getitem__(self, index: slice) -> Sequential: ...

    def __getitem__(self, index: int | slice) -> Any:
        """A layer; or some of them, one after another, as a Sequential.

        The layers of a slice are the same objects, and its `flat_parameters` is a part of this model's: the
        parameters are gathered first. It has no static form of its own; call it, or let it `predict`. To
        build another model from layers, take them from `layers` before the first call.

        Raises
        ------
        ValueError
            If a slice has a step.
        """
        if not isinstance(index, slice):
            return self.layers[index]
        if index.step not in (None, 1):
            raise ValueError(
                f"Sequential: a slice with step {index.step}; its layers have to follow one another"
            )
        self.place()
        part = Sequential(*self.layers[index], dtype=self.dtype)
        part.training = self.training
        return part


def batch_of(where: str, x: Array, model: Module) -> Array:
    """An array of rows as it is, and the integers of a model with an Embedding as numbers of its dtype.

    Raises
    ------
    TypeError, ValueError
        If it is no array, one without rows, or of raw integers.
    """
    if not isinstance(x, np.ndarray):
        raise TypeError(f"{where}: x is of type {kind_of(x)}, expected a NumPy array")
    if x.ndim < 2:
        raise ValueError(f"{where}: x has shape {x.shape}, expected one row a sample, (n, features)")
    unmasked(where, "x", x)
    if x.dtype.kind not in "iu":
        return x
    store = model.place().store
    if store.indices:
        return x.astype(store.dtype)
    raise TypeError(
        f"{where}: x is {x.dtype}; raw integers need their scale: pass the Dataset to a Trainer, "
        f"or x.astype({store.dtype!r}) * scale"
    )
