"""Exportable: a model as files for other programs."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pdnn import _core
from pdnn.checks import shape_of_sample
from pdnn.core import Width, array_dtype, core_for, model_dtype
from pdnn.nn.module import Module
from pdnn.nn.state_dict import naming, read
from pdnn.nn.static import runs_in_python
from pdnn.store import Array, Handle, Parameter, TableParameter

if TYPE_CHECKING:
    from pdnn.exchange.network import Layer, Network


class Exportable(Module):
    """A model whose layers follow one another."""

    _classes: Array | None = None

    @property
    def classes(self) -> Array | None:
        """The names of its classes, str, in the order of its outputs, if it knows them.

        A Trainer's `fit` notes them where labels are names; they can be assigned, and files have them. A
        single output has two classes: below its loss's threshold, and above.

        Raises
        ------
        TypeError, ValueError
            If what is assigned is no sequence of names, each there once.
        """
        return self._classes

    @classes.setter
    def classes(self, names: Sequence[str] | Array | None) -> None:
        self._classes = None if names is None else _names(names)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads parameters that `save` (or the safetensors package) wrote, and names of classes, if there.

        Raises
        ------
        ValueError
            If the file is damaged or PyTorch's, or its names or shapes are not this model's.
        """
        arrays, metadata = read(path)
        names = classes_of(path, metadata)
        with naming(path):
            self.load_state_dict(arrays)
        if names is not None:
            self.classes = names

    def _metadata(self) -> dict[str, str]:
        if self.classes is None:
            return super()._metadata()
        return {"pdnn.classes": json.dumps(self.classes.tolist()), **super()._metadata()}

    def to_onnx(
        self,
        path: str | os.PathLike[str],
        input_shape: tuple[int, ...] | None = None,
        *,
        dtype: npt.DTypeLike | None = None,
        metadata: Mapping[str, str] | None = None,
    ) -> None:
        """Writes what `predict` computes as an ONNX file, for batches of any size; see docs/exchange.md.

        Parameters
        ----------
        path : path
            Of the file, which is replaced as a whole.
        input_shape : tuple of int, optional
            Of one sample: ``(3, 32, 32)``. Needed unless the first layers say how many features they take.
        dtype : "float32" or "float64", optional
            Of weights and arithmetic; the model's unless given, float32 for bfloat16.
        metadata : mapping of str to str, optional
            To be written into the file's, beside pdnn's own.

        Raises
        ------
        ImportError
            If onnx-ir is not installed.
        TypeError
            If a layer has its `forward` in Python, or metadata are no strings.
        ValueError
            If samples of this shape do not fit, the shape is needed, the dtype is unknown, there are more
            names of classes than outputs, or a layer cannot be written.
        """
        for key, word in (metadata or {}).items():
            if not (isinstance(key, str) and isinstance(word, str)):
                raise TypeError(f"to_onnx: metadata {key!r} is {word!r}, expected a string")
        network = _network("to_onnx", self, input_shape, dtype)
        from pdnn.exchange import to_onnx  # which imports onnx-ir

        to_onnx.write(path, replace(network, metadata=metadata or {}))

    def to_c(
        self,
        path: str | os.PathLike[str],
        input_shape: tuple[int, ...] | None = None,
        *,
        dtype: npt.DTypeLike | None = None,
    ) -> None:
        """Writes what `predict` computes, for one sample, as a file of plain C99; see docs/exchange.md.

        Parameters
        ----------
        path : path
            Of the file, which is replaced as a whole. Its functions begin with its name: ``model.c`` has
            ``model_predict``.
        input_shape, dtype
            As for `to_onnx`.

        Raises
        ------
        TypeError, ValueError
            As `to_onnx`, and if a parameter is not finite.
        """
        from pdnn.exchange import to_c

        to_c.write(path, _network("to_c", self, input_shape, dtype))


def _network(
    where: str, model: Exportable, sample: tuple[int, ...] | None, dtype: npt.DTypeLike | None
) -> Network:
    from pdnn.exchange.network import Network

    if (layer := runs_in_python(model)) is not None:
        raise TypeError(
            f"{where}: {type(layer).__name__} has its forward in Python; only layers of pdnn.nn are written"
        )
    written = np.dtype(array_dtype(model_dtype(where, model.dtype if dtype is None else dtype)))
    core = core_for(model.dtype)
    if sample is None and (sample := _features(model, core)) is None:
        raise ValueError(
            f"{where}: its first layers take samples of several shapes; say the shape of yours, such as "
            "input_shape=(3, 32, 32), or --input-shape 3x32x32"
        )
    sample = shape_of_sample(where, sample)
    model.place()
    model.build(core).output_shape(list(sample))  # refuses by the name of the layer
    whole = _described(model, core, written, sample, "")
    classes = () if model.classes is None else tuple(model.classes.tolist())
    outputs = prod(whole.outputs)
    if len(classes) > max(2, outputs):  # a single output has two
        raise ValueError(f"{where}: model.classes has {len(classes)} names for {outputs} outputs")
    return Network(whole, written, _core.build_info()["version"], model.fingerprint(), classes)


def _features(model: Module, core: Width) -> tuple[int, ...] | None:
    """The shape of samples that have features only, where the weight of a layer says how many."""

    def output(layer: Module, *sample: int) -> tuple[int, ...] | None:
        with suppress(ValueError):  # it takes no such samples
            return tuple(layer.build(core).output_shape([*sample]))
        return None

    for layer in model.modules():
        if next(layer.children(), None) is not None:
            continue  # what is inside comes next
        weight = vars(layer).get("weight")
        if isinstance(weight, Parameter) and not isinstance(weight, TableParameter):
            return weight.shape[:1] if output(layer, *weight.shape[:1]) else None
        as_it_is = all(output(layer, *shape) == shape for shape in ((1,), (2,)))
        if not (as_it_is and output(layer, 2, 3) in ((2, 3), None)):
            return None
    return None


def _described(
    module: Module, core: Width, dtype: np.dtype[np.generic], sample: tuple[int, ...], name: str
) -> Layer:
    from pdnn.exchange.network import Layer

    inside: list[Layer] = []
    at = sample
    for part_name, part in module.named_children():
        inside.append(_described(part, core, dtype, at, f"{name}.{part_name}" if name else part_name))
        at = inside[-1].outputs
    handles = {key: value for key, value in vars(module).items() if isinstance(value, Handle)}
    return Layer(
        name=name,
        type=type(module).__name__,
        arguments=module.config(),
        arrays={key: handle.data.astype(dtype, copy=False) for key, handle in handles.items()},
        inputs=sample,
        outputs=tuple(module.build(core).output_shape(list(sample))),
        inside=tuple(inside),
    )


def classes_of(path: str | os.PathLike[str], metadata: Mapping[str, str]) -> Array | None:
    """The names of classes in a file's metadata, if there are some; ValueError if they are something else."""
    try:
        names = json.loads(metadata.get("pdnn.classes", "null"))
        return None if names is None else _names(names)
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: its metadata pdnn.classes has no names of classes ({error})") from error


def _names(names: Sequence[str] | Array) -> Array:
    array = np.array(names)
    if array.ndim != 1 or array.dtype.kind != "U":
        raise TypeError(f"classes: got {names!r}, expected a sequence of names")
    if len(set(array.tolist())) < len(array):
        raise ValueError(f"classes: a name is there twice: {array.tolist()}")
    return array
