"""Sequential: layers in order, one flat buffer of parameters, one bound C++ network."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from pdnn.files import safetensors
from pdnn.nn.losses import Loss
from pdnn.nn.module import Array, Module, Parameter, next_seed
from pdnn.nn.targets import core_for, prepare_targets

DTYPES = ("float32", "float64")


class Sequential(Module):
    """Layers applied one after another.

    Parameters
    ----------
    *layers : Module
        Each its own object; an inner Sequential is allowed.
    dtype : "float32" or "float64"
        Of parameters and arithmetic.
    seed : int, optional
        Initial parameters are a function of (seed, index of the layer, index of the element). Unless given,
        the next seed of `pdnn.manual_seed`.

    Raises
    ------
    TypeError
        If a layer is not a Module.
    ValueError
        If a layer appears twice or belongs to another model, or the dtype is neither.
    """

    def __init__(self, *layers: Module, dtype: npt.DTypeLike = "float32", seed: int | None = None) -> None:
        for index, layer in enumerate(layers):
            if not isinstance(layer, Module):
                raise TypeError(
                    f"Sequential: layer {index} is a {type(layer).__name__}, expected an nn.Module"
                )
            if layer in layers[:index]:
                raise ValueError(
                    f"Sequential: layer {index} is the same object as layer {layers.index(layer)}"
                )
        self.layers = layers
        self.dtype = str(np.dtype(dtype))
        if self.dtype not in DTYPES:
            raise ValueError(f"Sequential: dtype {self.dtype}; expected float32 or float64")
        self.seed = seed
        self._model: Any = None

    # ---- parameters

    @property
    def core(self) -> Any:
        """The C++ model behind this one, which gathers the parameters when first asked for."""
        if self._model is None:
            self._gather()
        return self._model

    def _gather(self) -> None:
        handles = list(self.own_parameters())
        for handle in handles:
            if handle.attached:
                raise ValueError(
                    f"Sequential: parameter {handle.name} belongs to another model; build new layers"
                )
        core = core_for(self.dtype)
        seed = next_seed() if self.seed is None else self.seed % 2**64
        self._model = core.Model(self.build(core), seed)
        data, grads, end = self._model.params, self._model.grads, 0
        for handle, (name, shape) in zip(handles, self._model.parameters(), strict=True):
            begin, end = end, end + handle.size
            handle.attach(name, data[begin:end].reshape(shape), grads[begin:end].reshape(shape), self)

    def own_parameters(self) -> Iterator[Parameter]:
        """All layers' parameters in order, without gathering them."""
        for layer in self.layers:
            yield from layer.own_parameters()

    def parameters(self) -> Iterator[Parameter]:
        """All parameters, in the order of the flat buffer."""
        self.core  # noqa: B018  gathers
        return self.own_parameters()

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """(name, parameter) pairs; names are torch's: ``"0.weight"``."""
        return ((parameter.name, parameter) for parameter in self.parameters())

    @property
    def flat_parameters(self) -> Array:
        """All parameters as one array, shape (count,): the memory that the core computes with."""
        data: Array = self.core.params
        return data

    @property
    def flat_gradients(self) -> Array:
        """The gradient of the last training step as one array, shape (count,)."""
        grads: Array = self.core.grads
        return grads

    # ---- computing

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

        Parameters
        ----------
        x : ndarray, shape (n, ...), of the model's dtype, C-ordered

        Returns
        -------
        ndarray, shape (n, outputs), of the model's dtype
        """
        self._check_batch("predict", x)
        outputs: Array = self.core.forward(x, False, 0)
        return outputs

    def gradient(self, x: Array, y: Array, criterion: Loss, *, seed: int = 0) -> tuple[float, Array]:
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

        Returns
        -------
        loss : float
            Under the criterion's reduction (mean over these rows unless told otherwise).
        gradient : ndarray, shape (number of parameters,)
            In the order of `flat_parameters`.

        Raises
        ------
        TypeError
            If x is of another dtype.
        ValueError
            If shapes or labels do not fit.
        """
        self._check_batch("gradient", x)
        outputs = int(np.prod(self.output_shape(x.shape[1:]), dtype=np.int64))
        targets = prepare_targets("gradient", y, criterion, outputs, self.dtype)
        loss = criterion.build(core_for(self.dtype))
        value, gradient = self.core.gradient(x, targets, loss, self.training, seed)
        return value, gradient

    def _check_batch(self, where: str, x: Array) -> None:
        if not isinstance(x, np.ndarray):
            raise TypeError(f"{where}: x is a {type(x).__name__}, expected a NumPy array")
        if x.ndim < 2:
            raise ValueError(f"{where}: x has shape {x.shape}, expected one row a sample, (n, features)")
        if x.dtype.kind in "iu":
            raise TypeError(
                f"{where}: x is {x.dtype}; raw integers need their scale: pass the Dataset to a Trainer, "
                f"or x.astype({self.dtype!r}) * scale"
            )

    # ---- files and copies

    def state_dict(self) -> dict[str, Array]:
        """Names to arrays that share the model's memory."""
        return {name: parameter.data for name, parameter in self.named_parameters()}

    def load_state_dict(self, state: Mapping[str, Array]) -> None:
        """Copies the arrays into the parameters of the same names; nothing changes unless all of them fit.

        Raises
        ------
        ValueError
            If a name is missing or unknown, or a shape differs.
        """
        own = self.state_dict()
        missing, unknown = own.keys() - state.keys(), state.keys() - own.keys()
        if missing or unknown:
            raise ValueError(
                f"load_state_dict: missing {sorted(missing) or 'none'}, unknown {sorted(unknown) or 'none'}"
            )
        for name, values in state.items():
            if np.shape(values) != own[name].shape:
                raise ValueError(
                    f"load_state_dict: {name} has shape {np.shape(values)}, expected {own[name].shape}"
                )
        for name, values in state.items():
            own[name][...] = values

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes parameters and architecture to one file in the safetensors layout, all or nothing."""
        architecture = {"dtype": self.dtype, **self.config()}
        safetensors.write(path, self.state_dict(), {"pdnn.architecture": json.dumps(architecture)})

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads parameters that `save` (or the safetensors package) wrote.

        Raises
        ------
        ValueError
            If the file is damaged, or its names or shapes are not this model's.
        """
        self.load_state_dict(safetensors.read(path)[0])

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state["_model"] = None if self._model is None else self.flat_parameters.copy()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        flat = state.pop("_model")
        self.__dict__.update(state, _model=None)
        if flat is not None:
            self.flat_parameters[...] = flat

    # ---- as a module

    def build(self, core: Any) -> Any:
        """The network of the core."""
        return core.Network([layer.build(core) for layer in self.layers])

    def config(self) -> dict[str, Any]:
        """The layers' types and arguments."""
        return {"layers": [{"type": type(layer).__name__, **layer.config()} for layer in self.layers]}

    def train(self, mode: bool = True) -> Sequential:
        """Sets training mode (dropout drops) or evaluation mode, here and inside; returns self."""
        super().train(mode)
        for layer in self.layers:
            layer.train(mode)
        return self

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[Module]:
        return iter(self.layers)

    def __getitem__(self, index: int) -> Module:
        return self.layers[index]

    def __repr__(self) -> str:
        lines = "\n".join(
            f"  ({index}): {layer!r}".replace("\n", "\n  ") for index, layer in enumerate(self.layers)
        )
        return f"Sequential(\n{lines}\n)"
