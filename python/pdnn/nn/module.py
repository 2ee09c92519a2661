"""Module: the base of all layers and models, including your own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy.typing as npt

from pdnn.advice import MODULE, Advising
from pdnn.checks import flag, integer
from pdnn.core import DTYPES as DTYPES
from pdnn.core import CoreLayer, Width, core_for, model_dtype, name_of
from pdnn.files import safetensors
from pdnn.moved import former
from pdnn.nn import state_dict
from pdnn.nn.eager import Runner, as_tensor
from pdnn.nn.place import GATHERING, Place, check_change, check_containers
from pdnn.nn.seeds import Seeds, seeds, settled_seed
from pdnn.nn.static import builds, runs_in_python
from pdnn.store import Array as Array
from pdnn.store import Buffer, Handle, Parameter, Store, offsets_of
from pdnn.tensor import Tensor

Self = TypeVar("Self", bound="Module")
H = TypeVar("H", bound=Handle)


class Module(Advising):
    """Base of layers and models.

    Your own model is a subclass: attributes that are Modules become parts of it, in the order in which
    they are first assigned, and `forward` computes with them.

    Parameters
    ----------
    dtype : "float32", "float64" or "bfloat16", optional
        Of parameters and arithmetic; with "bfloat16", parameters and all arrays are float32, and products
        round their factors (docs/bfloat16.md). Default: that of the module around it, or float32. The
        outermost module decides; a part with another dtype is an error.
    seed : int, optional
        Initial parameters are a function of (seed, place of the layer, index of the element), the place being
        its index among its parent's modules, its parent's, and so on. The outermost module's seed counts;
        unless given, it is the next seed of `pdnn.manual_seed`.

    Raises
    ------
    TypeError, ValueError
        If the seed is no integer, or the dtype is none of these.
    """

    advice = MODULE
    training: bool = True
    seed: int | None = None
    _dtype: str | None = None
    _place: Place | None = None
    _seeds: Seeds | None = None  # which were current when it was made

    def __init__(self, *, dtype: npt.DTypeLike | None = None, seed: int | None = None) -> None:
        if dtype is not None:
            self._dtype = model_dtype(type(self).__name__, dtype)
        self.seed = None if seed is None else integer(self, "seed", seed)

    # ---- parts

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) pairs of the parts, in the order in which they were assigned."""
        for name, value in tuple(vars(self).items()):  # to which another thread may add _place
            if isinstance(value, Module):
                yield name, value

    def children(self) -> Iterator[Module]:
        """The parts, in order."""
        return (child for _, child in self.named_children())

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """(path, module) pairs of this module, ``""``, and all inside it; each once, by its first path."""
        return _walk(prefix, self, set())

    def modules(self) -> Iterator[Module]:
        """This module and all inside it, each once."""
        return (module for _, module in self.named_modules())

    def __setattr__(self, name: str, value: Any) -> None:
        if self._seeds is None:
            vars(self)["_seeds"] = seeds()
        if not isinstance(value, (Handle, Module)) or value is not vars(self).get(name):  # as by weight *= 2
            check_change(self, name, value)
        super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        check_change(self, name)
        super().__delattr__(name)

    # ---- modes

    def train(self: Self, mode: bool = True) -> Self:
        """Sets training mode (dropout drops) or evaluation mode, here and inside; returns self."""
        for module in self.modules():
            module.training = flag(self, "mode", mode)
        return self

    def eval(self: Self) -> Self:
        """Sets evaluation mode; returns self."""
        return self.train(False)

    # ---- parameters

    def own_parameters(self) -> Iterator[Parameter]:
        """The parameters of this module and those inside it, in order, without gathering them."""
        return iter(self._named(Parameter).values())

    def _named(self, kind: type[H]) -> dict[str, H]:
        """The handles of a kind by their names, in order; ValueError if one has two."""
        names: dict[H, str] = {}
        for path, module in self.named_modules():
            for name, value in tuple(vars(module).items()):
                if isinstance(value, kind):
                    own = f"{path}.{name}" if path else name
                    if names.setdefault(value, own) != own:
                        raise ValueError(
                            f"{type(self).__name__}: {own} is {names[value]}; layers share no parameters: "
                            "use one layer in both places"
                        )
        return {name: handle for handle, name in names.items()}

    def parameters(self) -> Iterator[Parameter]:
        """All parameters, in the order of the flat buffer."""
        self.place()
        return self.own_parameters()

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """(name, parameter) pairs; names are torch's: ``"0.weight"``, ``"fc1.bias"``."""
        self.place()
        return iter(self._named(Parameter).items())

    def named_buffers(self) -> Iterator[tuple[str, Buffer]]:
        """(name, buffer) pairs of arrays that are learned without gradients: ``"1.running_mean"``."""
        self.place()
        return iter(self._named(Buffer).items())

    @property
    def dtype(self) -> str:
        """Of parameters and arithmetic: "float32", "float64", or "bfloat16" with arrays of float32."""
        if self._place is not None and not self._place.store.moved:
            return self._place.store.arithmetic
        asked = {module._dtype for module in self.modules() if module._dtype is not None}
        asked |= {own.store.arithmetic for own in self._named(Handle).values() if own.store is not None}
        if len(asked) > 1:
            raise ValueError(
                f"{type(self).__name__}: its parts are {' and '.join(sorted(asked))}; a model has one dtype"
            )
        return asked.pop() if asked else "float32"

    def place(self) -> Place:
        """The memory of the parameters; the first access gathers them.

        Raises
        ------
        ValueError
            If a part belongs to another model of which this one has not all.
        """
        if self._place is None or self._place.store.moved:
            with GATHERING:
                self._gather()
        assert self._place is not None
        return self._place

    def _gather(self) -> None:
        check_containers(list(self.modules()), Module)
        named, dtype = self._named(Handle), self.dtype
        stores = {id(handle.store): handle.store for handle in named.values() if handle.store is not None}
        store = next(iter(stores.values()), None) if len(stores) == 1 else None
        if store is None or not self._place_in(store).whole:
            inside = set(named.values())
            strangers = (each for other in stores.values() for each in other.handles if each not in inside)
            if (handle := next(strangers, None)) is not None:
                raise ValueError(
                    f"{type(self).__name__}: a part belongs to another model, with {handle.name}, "
                    "which is not inside this one; build new layers, or take the whole model"
                )
            store = self._allocate(
                named, dtype, (self._seeds or seeds()).next() if self.seed is None else self.seed % 2**64
            )
        store.synchronized |= any(getattr(module, "sync", False) for module in self.modules())
        for module in self.modules():
            if module._place is None or module._place.store is not store:
                module._settle(module._place_in(store))

    def _place_in(self, store: Store) -> Place:
        span, stretch = (store.find(list(self._named(kind).values())) for kind in (Parameter, Buffer))
        fused = span is not None and stretch is not None and runs_in_python(self) is None
        return Place(store, span, stretch, fused, type(self).__name__, list(self.modules())[1:])

    def _allocate(self, named: dict[str, Handle], dtype: str, seed: int) -> Store:
        """New memory with the values in it: those that parts have, else initial ones."""
        core = core_for(dtype)
        kinds = ([own.size for own in named.values() if isinstance(own, of)] for of in (Parameter, Buffer))
        data, buffers = (core.zeros(sum(sizes)) for sizes in kinds)
        self._draw(core, seed, [], offsets_of(named.values()), data, buffers)
        return Store(named, data, core.zeros(data.size), buffers, seed, dtype)

    def _draw(
        self, core: Width, seed: int, path: list[int], offsets: dict[Handle, int], data: Array, buffers: Array
    ) -> None:
        """Draws this module's initial values; `offsets` holds where those still to be drawn begin."""
        own = self._named(Handle).values()
        if own and builds(self) and offsets.keys() >= set(own):
            spans = []
            for kind, flat in ((Parameter, data), (Buffer, buffers)):
                mine = [handle for handle in own if isinstance(handle, kind)]
                begin = offsets[mine[0]] if mine else 0
                spans.append(flat[begin : begin + sum(handle.size for handle in mine)])
            if any(handle._data is None for handle in own):  # else all values are those of other models
                self.build(core).initialize(seed, path, *spans)
            for handle in own:
                del offsets[handle]
            return
        if not builds(self) and any(isinstance(value, Handle) for value in vars(self).values()):
            raise TypeError(f"{type(self).__name__}: has a Parameter of its own; parameters belong to layers")
        for index, child in enumerate(self.children()):
            child._draw(core, seed, [*path, index], offsets, data, buffers)

    def _settle(self, place: Place) -> None:
        """Takes its place in the memory of a model."""
        self._place = place

    @property
    def flat_parameters(self) -> Array:
        """All parameters as one array, shape (count,): the memory that the core computes with."""
        return self.place().flat("flat_parameters")

    @property
    def flat_gradients(self) -> Array:
        """The gradients of all parameters as one array, shape (count,)."""
        return self.place().flat("flat_gradients")

    @property
    def flat_buffers(self) -> Array:
        """All buffers as one array, shape (their elements,)."""
        return self.place().flat("flat_buffers")

    flat_state = former("flat_state", "flat_buffers")

    def split(self, flat: Array) -> dict[str, Array]:
        """Names of parameters to their parts of a flat array: views, in the parameters' shapes.

        Parameters
        ----------
        flat : ndarray, shape (count,), of any dtype
            In the order of `flat_parameters`, as a gradient is.

        Raises
        ------
        TypeError, ValueError
            If it is no array, or of another shape.
        """
        return self.place().split(flat, self._named(Parameter))

    # ---- files and copies

    def state_dict(self, *, format: str = "pdnn") -> dict[str, Array]:
        """Names of parameters and buffers to arrays.

        Parameters
        ----------
        format : "pdnn" or "torch"
            Arrays that share the model's memory, or copies in PyTorch's shapes: weights of Linear as
            (out, in), of Conv2d as (out, in, height, width). The names are PyTorch's either way.

        Raises
        ------
        ValueError
            If the format is neither.
        """
        self.place()
        return state_dict.converted("state_dict", self._named(Handle), format)

    def load_state_dict(self, state: Mapping[str, Array], *, format: str = "pdnn") -> None:
        """Copies arrays into the parameters and buffers of these names; nothing changes unless all fit.

        Parameters
        ----------
        state : mapping of str to array
        format : "pdnn" or "torch"
            The shapes of the arrays, see `state_dict`. PyTorch's ``num_batches_tracked`` is ignored.

        Raises
        ------
        TypeError, ValueError
            If it is no mapping, or a name, a shape, a dtype or the format does not fit.
        """
        self.place()
        state_dict.load(self._named(Handle), state, format)

    def fingerprint(self) -> str:
        """SHA-256 of the names and bytes of all parameters and buffers: equal if and only if all bits are."""
        return state_dict.fingerprint(self.state_dict())

    def save(self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None) -> None:
        """Writes parameters and buffers, and metadata, to one safetensors file, all or nothing."""
        safetensors.write(path, self.state_dict(), {**(metadata or {}), **self._metadata()})

    def _metadata(self) -> dict[str, str]:
        """What is written beside the parameters."""
        return {"format": "pdnn"}

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads parameters that `save` (or the safetensors package) wrote.

        Raises
        ------
        ValueError
            If the file is damaged, is or may be PyTorch's, or its names or shapes are not this model's.
        """
        with state_dict.naming(path):
            self.load_state_dict(state_dict.read(path)[0])

    def __getstate__(self) -> dict[str, Any]:
        state = vars(self).copy()  # the handles carry their values
        state.pop("_seeds", None)
        if (place := state.pop("_place", None)) is not None:
            state.update(_dtype=place.store.arithmetic, seed=place.store.seed)
        else:  # there are none yet, and those of the copies will be the same
            state["seed"] = settled_seed(self.modules())
        return state

    # ---- computing

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        """The outputs for a batch, as a Tensor with its graph.

        Parameters
        ----------
        *inputs : ndarray or Tensor, shape (n, ...), of the model's dtype
            What `forward` takes.

        Raises
        ------
        TypeError
            If the first is an array of integers (only a Dataset knows their scale) and there is no
            Embedding, or one has the other float type.
        ValueError
            If shapes do not fit.
        """
        place, name = self.place(), type(self).__name__
        tensors = [as_tensor(name, index, x, place.store) for index, x in enumerate(inputs)]
        if place.fused and all(module.training == self.training for module in place.inside):
            return Module.forward(self, *tensors, **options)
        return self.forward(*tensors, **options)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Outputs from inputs; your own model defines it."""
        place, name = self.place(), type(self).__name__
        if not (place.runners or builds(self)):  # which walks through all parts: once is enough
            raise NotImplementedError(f"{name}: define forward(self, x)")
        if len(inputs) != 1 or options or not isinstance(inputs[0], Tensor):
            raise TypeError(f"{name}: takes one batch, a NumPy array or a Tensor")
        x = inputs[0]
        store, dtype = place.store, name_of(x.dtype)
        if dtype != store.dtype and store.flat_parameters.size:
            raise TypeError(f"{name}: x is {dtype}, this model is {store.dtype}")
        if dtype not in place.runners:
            assert place.span is not None and place.buffers is not None
            core, own = core_for(store.arithmetic if dtype == store.dtype else dtype), self.own_parameters()
            place.runners[dtype] = Runner(self.build(core), core, store, own, place.span, place.buffers)
        return place.runners[dtype](x, self.training)

    # ---- static form

    def build(self, core: Width) -> CoreLayer:
        """This module as an object of the C++ core; `core` is its submodule for one width."""
        raise NotImplementedError(f"{type(self).__name__} has no static form")

    def config(self) -> dict[str, Any]:
        """The arguments that make this module again, as JSON can hold them."""
        return {}

    def __repr__(self) -> str:
        parts = list(self.named_children())
        if parts:
            lines = "\n".join(f"  ({name}): {part!r}".replace("\n", "\n  ") for name, part in parts)
            return f"{type(self).__name__}(\n{lines}\n)"
        return f"{type(self).__name__}({', '.join(f'{key}={value}' for key, value in self.config().items())})"


def _walk(path: str, module: Module, seen: set[int]) -> Iterator[tuple[str, Module]]:
    if id(module) not in seen:
        seen.add(id(module))
        yield path, module
        for name, child in module.named_children():
            yield from _walk(f"{path}.{name}" if path else name, child, seen)
