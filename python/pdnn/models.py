"""Ready-made models, and models read back from files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy.typing as npt

from pdnn import nn
from pdnn.checks import flag
from pdnn.files import safetensors
from pdnn.moved import moved
from pdnn.nn.export import classes_of
from pdnn.nn.init import kaiming_uniform
from pdnn.nn.state_dict import naming

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "sigmoid": nn.Sigmoid,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "softplus": nn.Softplus,
}


def mlp(
    sizes: Sequence[int],
    activation: str = "relu",
    *,
    bias: bool = True,
    flatten: bool = False,
    dtype: npt.DTypeLike = "float32",
    seed: int | None = None,
) -> nn.Sequential:
    """A multilayer perceptron: Linear layers with an activation between them, ending in logits.

    Parameters
    ----------
    sizes : sequence of int
        Widths from input to output: ``[784, 256, 10]``.
    activation : str
        One of `ACTIVATIONS`: "sigmoid", "tanh", "relu", ….
    bias : bool
    flatten : bool
        Begin with a Flatten, for samples that are images.
    dtype, seed
        As for `nn.Sequential`.

    Raises
    ------
    TypeError, ValueError
        If there are fewer than two sizes, or one is no width, or the activation is none of these.
    """
    if not isinstance(sizes, Iterable):
        raise TypeError(f"mlp: sizes is {sizes!r}, expected the widths from input to output")
    sizes = list(sizes)
    if len(sizes) < 2:
        raise ValueError(f"mlp: sizes {sizes}; expected at least an input and an output width")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        error = ValueError if isinstance(activation, str) else TypeError
        raise error(f"mlp: activation {activation!r}; expected one of {', '.join(ACTIVATIONS)}")
    layers: list[nn.Module] = [nn.Flatten()] if flag("mlp", "flatten", flatten) else []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs, bias), ACTIVATIONS[activation]()]
    return nn.Sequential(*layers[:-1], dtype=dtype, seed=seed)


def ResNet9(
    *, device: str = "cpu", sync: bool = True, dtype: npt.DTypeLike = "float32", seed: int | None = None
) -> nn.Sequential:
    """The residual network of the Horovod-style exercise: images (n, 3, 32, 32) to logits (n, 10).

    Eight convolutions, each with batch normalization and ReLU, and two linear layers, 431,946 parameters.
    The ReLU comes before a residual's addition, and none after it. Weights are uniform in ±√(6/fan_in),
    biases in ±1/√fan_in.

    Parameters
    ----------
    device : "cpu"
        There is no other.
    sync : bool
        Whether a batch is normalized over all ranks that share it, see `nn.BatchNorm2d`. A ``pool``
        needs ``sync=False``.
    dtype, seed
        As for `nn.Sequential`.

    Raises
    ------
    ValueError
        If the device is another.
    """
    check_device("ResNet9", device)
    return nn.Sequential(
        *_conv_bn(3, 16, 7, 4, sync),
        *_conv_bn(16, 32, 3, 2, sync),
        nn.Residual(nn.Sequential(*_conv_bn(32, 32, 3, 1, sync), *_conv_bn(32, 32, 3, 1, sync))),
        *_conv_bn(32, 64, 3, 2, sync),
        *_conv_bn(64, 128, 3, 2, sync),
        nn.Residual(nn.Sequential(*_conv_bn(128, 128, 3, 1, sync), *_conv_bn(128, 128, 3, 1, sync))),
        nn.Flatten(),
        nn.Linear(128, 128, weight_init=kaiming_uniform()),
        nn.ReLU(),
        nn.Linear(128, 10, weight_init=kaiming_uniform()),
        dtype=dtype,
        seed=seed,
    )


def check_device(where: str, device: str) -> None:
    """Raises ValueError unless the device is "cpu"."""
    if device != "cpu":
        raise ValueError(f'{where}: device is {device!r}; pdnn computes on "cpu" only')


def _conv_bn(inputs: int, outputs: int, kernel: int, stride: int, sync: bool) -> list[nn.Module]:
    convolution = nn.Conv2d(
        inputs, outputs, kernel, stride, padding=(kernel - 1) // 2, weight_init=kaiming_uniform()
    )
    return [convolution, nn.BatchNorm2d(outputs, sync=sync), nn.ReLU()]


def load_model(path: str | os.PathLike[str]) -> nn.Sequential:
    """The model that `Sequential.save` wrote, built anew.

    Raises
    ------
    ValueError
        If the file is damaged, or was not written by pdnn.
    """
    return read_model(path)[0]


def read_model(path: str | os.PathLike[str]) -> tuple[nn.Sequential, dict[str, str]]:
    """As `load_model`; also the metadata of the file, with those that `save` was given."""
    try:
        arrays, metadata = safetensors.read(path)
    except ValueError as error:
        if os.fspath(path).endswith(".onnx"):
            raise ValueError(f"{error}; pdnn import and models.from_onnx read ONNX files") from error
        raise
    if "pdnn.checkpoint" in metadata:
        raise ValueError(f"{path}: is a checkpoint; a Trainer of the same model reads it, by its load()")
    if "pdnn.architecture" not in metadata:
        raise ValueError(f"{path}: holds no pdnn architecture; build the model and call its load()")
    try:
        architecture = json.loads(metadata["pdnn.architecture"])
        model = _sequential(architecture["layers"], dtype=architecture["dtype"])
        described = sum(array.size for array in _arrays(model))
    except (AttributeError, KeyError, RecursionError, TypeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path}: its architecture is not one that this version of pdnn can build ({error}); build the "
            "model and call its load()"
        ) from error
    held = sum(array.size for array in arrays.values())
    if described != held:  # said before any memory is allocated for them
        raise ValueError(f"{path}: its architecture has {described} parameters and buffers, its data {held}")
    model.classes = classes_of(path, metadata)
    _begin_with(arrays, model)
    with naming(path):
        model.load_state_dict(arrays)
    return model, metadata


def from_onnx(path: str | os.PathLike[str]) -> nn.Sequential:
    """The network of an ONNX file, as scikit-learn's, Keras' and PyTorch's exporters write them.

    It predicts what the file computes, and can be trained further. docs/exchange.md has the operators.

    Raises
    ------
    ImportError
        If onnx-ir is not installed.
    TypeError
        If it gets no path.
    ValueError
        If the file is no ONNX, or has nodes without a layer in pdnn, all of which are listed.
    """
    return read_onnx(path)[0]


def read_onnx(path: str | os.PathLike[str]) -> tuple[nn.Sequential, dict[str, str]]:
    """As `from_onnx`; also the metadata of the file."""
    from pdnn.exchange import from_onnx  # which imports onnx

    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"from_onnx: got {type(path).__name__}, expected the path of a file; "
            "onnx.save(model, path) makes one"
        )
    try:
        found = from_onnx.read(path)
        model = _sequential(found.layers, dtype=found.dtype)
        _begin_with(found.arrays, model)
        model.load_state_dict(found.arrays)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from error
    model.classes = classes_of(path, found.metadata)
    return model, found.metadata


def _begin_with(arrays: dict[str, Any], model: nn.Module) -> None:
    """Draws no initial values where these have the shape that is needed."""
    for name, own in (model._named(nn.Parameter) | model._named(nn.Buffer)).items():
        if name in arrays and arrays[name].shape == own.shape:
            own._data = arrays[name]


def _arrays(model: nn.Module) -> set[nn.Parameter | nn.Buffer]:
    """Its parameters and buffers, which need have no memory yet."""
    values = [value for module in model.modules() for value in vars(module).values()]
    return {value for value in values if isinstance(value, (nn.Parameter, nn.Buffer))}


def _sequential(layers: list[dict[str, Any]], **arguments: Any) -> nn.Sequential:
    return nn.Sequential(*(build_layer(**layer) for layer in layers), **arguments)


def build_layer(type: str, **arguments: Any) -> nn.Module:
    """The layer that a `config` with its type describes, as `Sequential.config` lists them."""
    if type == "Sequential":
        return _sequential(**arguments)
    kind = getattr(nn, type, None) or nn.CustomLayer.kinds.get(type)
    if kind is None or not issubclass(kind, nn.Module):
        raise TypeError(f"{type} is no layer of pdnn.nn, and no nn.CustomLayer that was imported")
    if "fn" in arguments:
        arguments["fn"] = build_layer(**arguments["fn"])
    layer: nn.Module = kind(**arguments)
    return layer


__getattr__ = moved(__name__, lenet_psgd="pdnn.exercises.lenet_psgd")
