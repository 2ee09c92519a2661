"""Networks out of ONNX files, as layers of `pdnn.nn` and their arrays."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from pdnn.exchange.graph import Graph, Step
from pdnn.exchange.network import Array
from pdnn.exchange.samples import CHANNELS_FIRST, CHANNELS_LAST, Samples, Unknown
from pdnn.exchange.windows import Windows, one_or_each


@dataclass(frozen=True)
class Imported:
    """What a file holds.

    Attributes
    ----------
    layers : list of dict
        Types and arguments, as `Sequential.config` lists them.
    arrays : dict of str to ndarray
        As `state_dict` names and shapes them, of the dtype.
    dtype : "float32" or "float64"
    metadata : dict of str to str
    """

    layers: list[dict[str, Any]]
    arrays: dict[str, Array]
    dtype: str
    metadata: dict[str, str]


def read(path: str | os.PathLike[str]) -> Imported:
    """The network of a file.

    Raises
    ------
    ValueError
        If the file is no ONNX, or not understood: all nodes that have no layer in pdnn are listed.
    """
    graph = Graph(path)
    sizes = tuple(size if isinstance(size, int) else None for size in graph.input.shape or ())
    reader = _Reader(graph, "", sizes[1:])
    if len(sizes) == 4 and graph.begins_with_channels_last():
        reader.shape, reader.axes = (sizes[3], sizes[1], sizes[2]), CHANNELS_LAST
    reader.read(steps := graph.steps())
    if reader.rows is not None or reader.axes != CHANNELS_FIRST:
        graph.missed.setdefault(steps[-1].node, "its outputs are in another order than pdnn's")
    if graph.missed:
        lines = [
            f'  {node.op_type} "{node.name or node.outputs[0].name}": {why}'
            for node, why in sorted(graph.missed.items(), key=lambda item: graph.order[item[0]])
        ]
        raise ValueError(
            f"{len(lines)} of its {len(graph.nodes)} nodes are not understood:\n" + "\n".join(lines)
        )
    dtype = graph.arithmetic(reader.arrays.values())
    arrays = {name: array.astype(dtype, copy=False) for name, array in reader.arrays.items()}
    return Imported(reader.layers, arrays, dtype, graph.metadata)


class _Reader(Samples):
    """Takes steps one after another."""

    def read(self, steps: list[Step]) -> None:
        """Adds what steps do; those that it does not understand are in the graph's `missed`."""
        for step in steps:
            try:
                STEPS.get(step.kind, _Reader.unknown)(self, step)
            except Unknown as why:
                self.graph.missed.setdefault(step.node, str(why))
                self.forget()
        self.turn()
        self.flush()

    def unknown(self, step: Step) -> None:
        """Any other step."""
        self.read(step.inside)
        raise Unknown("pdnn has no such layer")

    def passed(self, step: Step) -> None:
        """Nothing that pdnn would have to do."""

    # ---- layers with weights

    def gemm(self, step: Step) -> None:
        """Y = alpha x W + beta c."""
        options = step.node.attributes
        weight = self.weights(step, 1, 2)
        if options.get_int("transA", 0):
            raise Unknown("its first factor is transposed")
        weight = weight.T if options.get_int("transB", 0) else weight
        bias = self.graph.constant(step.node.inputs[2]) if len(step.node.inputs) > 2 else None
        if bias is not None:
            if bias.size not in (1, weight.shape[1]) or prod(bias.shape[:-1]) != 1:
                raise Unknown(f"its bias has shape {bias.shape}, expected a number a feature")
            beta = bias.dtype.type(options.get_float("beta", 1.0))
            bias = np.broadcast_to(beta * bias, (1, weight.shape[1]))[0]
        self.linear(weight * weight.dtype.type(options.get_float("alpha", 1.0)), bias)

    def matmul(self, step: Step) -> None:
        """Y = x W."""
        self.linear(self.weights(step, 1, 2), None)

    def linear_regressor(self, step: Step) -> None:
        """A Linear, of scikit-learn's linear models."""
        options = step.node.attributes
        if (options.get_string("post_transform", "NONE") or "NONE") != "NONE":
            raise Unknown("transforms its outputs")
        targets = options.get_int("targets", 1) or 1
        weight = np.array(options.get_floats("coefficients", []), np.float32)
        bias = np.array(options.get_floats("intercepts", [0.0] * targets), np.float32)
        if not weight.size or weight.size % targets or len(bias) != targets:
            raise Unknown(f"has {weight.size} coefficients and {len(bias)} intercepts for {targets} targets")
        self.linear(weight.reshape(targets, -1).T, bias)

    def linear(self, weight: Array, bias: Array | None) -> None:
        """A Linear from the file's features."""
        self.features()
        if self.shape is not None and self.shape[0] not in (None, len(weight)):
            raise Unknown(f"takes {len(weight)} features, there are {self.shape[0]}")
        weight, bias = self.taken_up(weight, bias)
        weight = self.own_order(weight)
        sizes = {"in_features": weight.shape[0], "out_features": weight.shape[1]}
        self.emit("Linear", {"weight": weight, "bias": bias}, **sizes, bias=bias is not None)
        self.shape, self.rows = weight.shape[1:], None

    def conv(self, step: Step) -> None:
        """A Conv2d, or a Conv1d; (out, in, height, width) becomes (height, width, in, out)."""
        given = self.graph.constant(step.node.inputs[1])
        axes = 1 if given is not None and given.ndim == 3 else 2
        shape = self.images(axes)
        weight = np.moveaxis(self.weights(step, 1, 2 + axes), (0, 1), (-1, -2))
        bias = self.weights(step, 2, 1) if any(step.node.inputs[2:]) else None
        groups = step.node.attributes.get_int("group", 1) or 1
        windows = Windows.of(step.node, shape[1:], weight.shape[:-2])
        if self.waiting is not None and groups == 1:
            shifted = any(windows.padding) and self.waiting[1].any()  # but padding stays 0
            weight, bias = (weight, bias) if shifted else self.taken_up(weight, bias)
        channels = {"in_channels": weight.shape[-2] * groups, "out_channels": weight.shape[-1]}
        rare = {"dilation": one_or_each(windows.dilation), "groups": groups}
        self.emit(
            f"Conv{axes}d",
            {"weight": weight, "bias": bias},
            **channels,
            **windows.arguments(),
            **{name: value for name, value in rare.items() if value != 1},
            bias=bias is not None,
        )
        self.shape = (weight.shape[-1], *windows.places(shape[1:]))

    def pool(self, step: Step) -> None:
        """A MaxPool2d or AvgPool2d, or that of lines."""
        axes = len(step.node.attributes.get_ints("kernel_shape", ()) or ())
        shape = self.images(axes)
        windows, options = Windows.of(step.node, shape[1:], (1,) * axes), step.node.attributes
        if any(2 * padding > kernel for padding, kernel in zip(windows.padding, windows.kernel, strict=True)):
            raise Unknown("its padding is wider than half of its windows")
        if (
            step.kind == "AveragePool"
            and any(windows.padding)
            and not options.get_int("count_include_pad", 0)
        ):
            raise Unknown("its means leave padding out (count_include_pad=0), pdnn's count it as zeros")
        if one_or_each(windows.dilation) != 1:
            raise Unknown("its windows are dilated, pdnn's pools' are not")
        sizes = zip(shape[1:], *windows[:3], strict=True)
        rest = {
            None if size is None else (size + 2 * pad - kernel) % stride
            for size, kernel, stride, pad in sizes
        }
        if options.get_int("ceil_mode", 0) and rest != {0}:
            raise Unknown("rounds the number of windows up (ceil_mode)")
        if step.kind == "MaxPool" and prod(windows.kernel) > 256:
            raise Unknown(f"its windows have {prod(windows.kernel)} elements, at most 256 are possible")
        layer = "MaxPool" if step.kind == "MaxPool" else "AvgPool"
        self.emit(f"{layer}{axes}d", **windows.arguments())
        self.shape = (shape[0], *windows.places(shape[1:]))

    def global_mean(self, step: Step) -> None:
        """An AdaptiveAvgPool2d, or that of lines."""
        axes = step.arguments.get("axes", 1 if len(self.shape or ()) == 2 else 2)
        self.shape = (self.images(axes)[0], *(1,) * axes)
        self.emit(f"AdaptiveAvgPool{axes}d", output_size=1)

    def reduce_mean(self, step: Step) -> None:
        """An AdaptiveAvgPool2d, or that of lines, if it is over all axes behind the channels."""
        options, values = step.node.attributes, step.node.inputs
        axes = self.graph.constant(values[1]) if len(values) > 1 else options.get_ints("axes", ())
        channels, *places = (None,) * (len(self.axes) - 1) if self.shape is None else self.shape
        rank = 2 + len(places)
        over = {self.axes[int(axis) % rank] for axis in ([] if axes is None else axes)}
        if rank not in (3, 4) or over != {*range(2, rank)}:
            raise Unknown("is no mean over the pixels of images, or the places of lines")
        self.emit(f"AdaptiveAvgPool{len(places)}d", output_size=1)
        self.shape = (channels, *(1 for _ in places))
        if not options.get_int("keepdims", 1):
            self.flatten(step)

    def batch_norm(self, step: Step) -> None:
        """A BatchNorm1d or 2d, by the shape of samples."""
        options = step.node.attributes
        if options.get_int("training_mode", 0) or len(step.node.outputs) > 1:  # before opset 14
            raise Unknown("is in training mode")
        weight, bias, mean, variance = (self.own_order(self.weights(step, at, 1)) for at in range(1, 5))
        if self.shape is not None and len(self.shape) > 1:
            self.images(min(2, len(self.shape) - 1))
        self.emit(
            "BatchNorm2d" if self.shape is not None and len(self.shape) == 3 else "BatchNorm1d",
            {"weight": weight, "bias": bias, "running_mean": mean, "running_var": variance},
            num_features=len(weight),
            eps=self.decimal(step, "epsilon", 1e-5),
            momentum=round(1 - self.decimal(step, "momentum", 0.9), 7),  # ONNX counts what stays
        )

    def layer_norm(self, step: Step) -> None:
        """A LayerNorm."""
        self.features()
        if step.node.attributes.get_int("axis", -1) not in (-1, 1):
            raise Unknown("is not over the features of a sample")
        weight = self.weights(step, 1, 1)
        bias = self.weights(step, 2, 1) if any(step.node.inputs[2:]) else np.zeros_like(weight)
        eps = self.decimal(step, "epsilon", 1e-5)
        arrays: dict[str, Array | None] = {"weight": self.own_order(weight), "bias": self.own_order(bias)}
        self.emit("LayerNorm", arrays, normalized_shape=len(weight), eps=eps)

    # ---- products and sums with constants, which weights take up

    def arithmetic(self, step: Step) -> None:
        """X + c, x - c, c - x, x c or x / c, with a number or one for each feature or channel."""
        first, second = map(self.graph.constant, step.node.inputs)
        constant = first if first is not None else second
        if constant is not None and constant.dtype.kind in "biu":
            raise Unknown("computes with integers, which wrap or round")
        if constant is None or (first is not None and step.kind == "Div"):
            raise Unknown("pdnn has no such layer")
        numbers, one = np.float64(self.per_channel(constant)), np.ones(1)
        if step.kind in ("Mul", "Div"):
            self.affine(step, numbers if step.kind == "Mul" else 1 / numbers, np.zeros(1))
        elif first is not None and step.kind == "Sub":
            self.affine(step, -one, numbers)
        else:
            self.affine(step, one, -numbers if step.kind == "Sub" else numbers)

    def scaler(self, step: Step) -> None:
        """Y = (x - offset) scale, of scikit-learn's scalers."""
        self.features()
        offset = np.array(step.node.attributes.get_floats("offset", [0.0]))
        scale = np.array(step.node.attributes.get_floats("scale", [1.0]))
        self.affine(step, scale, -offset * scale)

    def softmax(self, step: Step) -> None:
        """A Softmax or LogSoftmax."""
        self.features()
        default = -1 if self.graph.opsets.get("", 1) >= 13 else 1
        if step.node.attributes.get_int("axis", default) not in (-1, 1) or self.rows is not None:
            raise Unknown("is not over the features of a sample")
        self.emit(step.kind)

    def dropout(self, step: Step) -> None:
        """A Dropout."""
        ratio, training = (self.graph.constant(value) for value in (*step.node.inputs[1:], None, None)[:2])
        p = self.decimal(step, "ratio", 0.5) if ratio is None else float(str(ratio.reshape(())))
        if not 0 <= p < 1 or (training is not None and training.any()):
            raise Unknown("is in training mode" if 0 <= p < 1 else f"drops with probability {p}")
        self.emit("Dropout", p=p)

    def cast(self, step: Step) -> None:
        """Another float type; that of the weights counts."""
        users = {use.node.op_type for use in step.node.outputs[0].uses()}
        if step.node.attributes.get_int("to", 1) not in (1, 10, 11, 16) and users != {"Gather"}:
            raise Unknown("makes integers")

    def gather(self, step: Step) -> None:
        """An Embedding."""
        if step.node.attributes.get_int("axis", 0) != 0:
            raise Unknown("looks up columns")
        self.features()
        weight = self.weights(step, 0, 2)
        self.emit("Embedding", {"weight": weight}, num_embeddings=len(weight), embedding_dim=weight.shape[1])
        self.shape = (None if self.shape is None else self.shape[0], weight.shape[1])

    def gelu(self, step: Step) -> None:
        """A GELU."""
        if step.node.attributes.get_string("approximate", "none") != "none":
            raise Unknown("approximates GELU by tanh, pdnn's is the exact one")
        self.emit("GELU")

    def leaky_relu(self, step: Step) -> None:
        """A LeakyReLU."""
        self.emit("LeakyReLU", negative_slope=self.decimal(step, "alpha", 0.01))

    def elu(self, step: Step) -> None:
        """An ELU."""
        self.emit("ELU", alpha=self.decimal(step, "alpha", 1.0))

    def swish(self, step: Step) -> None:
        """A SiLU."""
        if self.decimal(step, "alpha", 1.0) != 1:
            raise Unknown("has another alpha than 1")
        self.emit("SiLU")

    def residual(self, step: Step) -> None:
        """A Residual."""
        self.turn()
        self.flush()
        inner = _Reader(self.graph, f"{self.prefix}{len(self.layers)}.fn.", self.shape)
        inner.axes = self.axes
        inner.read(step.inside)
        before, after = ((part.shape, part.axes, part.rows is None) for part in (self, inner))
        if before != after or self.rows is not None:
            raise Unknown("adds values whose axes or features are in another order")
        self.emit("Residual", fn={"type": "Sequential", "layers": inner.layers})
        self.arrays |= inner.arrays

    def complement(self, step: Step) -> None:
        """(1 - p, p) with p = sigmoid(z) is softmax(0, z): two features, of which the first is 0."""
        name = f"{self.prefix}{len(self.layers) - 1}."
        if self.shape != (1,) or not self.layers or self.layers[-1]["type"] != "Linear":
            raise Unknown("joins other values than the probabilities of two classes")
        for array in ("weight", "bias"):
            if f"{name}{array}" in self.arrays:
                old = self.arrays[f"{name}{array}"]
                self.arrays[f"{name}{array}"] = np.concatenate([np.zeros_like(old), old], axis=-1)
        self.layers[-1]["out_features"] = 2
        self.shape = (2,)
        self.emit("Softmax")


def _activation(type: str) -> Callable[[_Reader, Step], None]:
    return lambda reader, step: reader.emit(type, **step.arguments)


STEPS: dict[str, Callable[[_Reader, Step], None]] = {
    "Add": _Reader.arithmetic,
    "AveragePool": _Reader.pool,
    "BatchNormalization": _Reader.batch_norm,
    "Cast": _Reader.cast,
    "Complement": _Reader.complement,
    "Conv": _Reader.conv,
    "Div": _Reader.arithmetic,
    "Dropout": _Reader.dropout,
    "Elu": _Reader.elu,
    "Flatten": _Reader.flatten,
    "GELU": _activation("GELU"),
    "Gather": _Reader.gather,
    "Gelu": _Reader.gelu,
    "Gemm": _Reader.gemm,
    "GlobalAveragePool": _Reader.global_mean,
    "Identity": _Reader.passed,
    "LayerNormalization": _Reader.layer_norm,
    "LeakyRelu": _Reader.leaky_relu,
    "LinearRegressor": _Reader.linear_regressor,
    "LogSoftmax": _Reader.softmax,
    "MatMul": _Reader.matmul,
    "MaxPool": _Reader.pool,
    "Mul": _Reader.arithmetic,
    "ReduceMean": _Reader.reduce_mean,
    "Relu": _activation("ReLU"),
    "Reshape": _Reader.reshape,
    "Residual": _Reader.residual,
    "Scaler": _Reader.scaler,
    "SiLU": _activation("SiLU"),
    "Sigmoid": _activation("Sigmoid"),
    "Softmax": _Reader.softmax,
    "Softplus": _activation("Softplus"),
    "Squeeze": _Reader.squeeze,
    "Sub": _Reader.arithmetic,
    "Swish": _Reader.swish,
    "Tanh": _activation("Tanh"),
    "Transpose": _Reader.transpose,
}
