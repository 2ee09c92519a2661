"""Networks as ONNX files (https://onnx.ai/onnx/operators): float32 or float64, any number of samples."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from math import sqrt

import numpy as np

from pdnn.exchange.network import Array, Layer, Network
from pdnn.files.atomic import replacing

try:
    import onnx_ir as ir
except ModuleNotFoundError as error:
    raise ImportError("ONNX files need onnx-ir: pip install onnx-ir") from error

_MOST_BYTES = 2**31 - 2**20
"""Of parameters: protobuf writes messages of less than 2 GiB."""

OPSET, IR_VERSION = 17, 8
"""The oldest that have all operators in use, so that many programs read the files."""


def write(path: str | os.PathLike[str], network: Network) -> None:
    """Writes a network, all or nothing.

    Raises
    ------
    ValueError
        If a layer cannot be written, or parameters take 2 GiB.
    """
    graph = _Graph(network.dtype)
    x = ir.val("input", graph.dtype, ["batch", *network.whole.inputs])
    y = graph.add(network.whole, x)
    if y is x:
        y = graph.node("Identity", network.whole, x)
    y.name = "output"
    model = ir.Model(
        ir.Graph(
            [x],
            [y],
            nodes=graph.nodes,
            initializers=graph.constants,
            name="pdnn",
            opset_imports={"": OPSET},
        ),
        ir_version=IR_VERSION,
        producer_name="pdnn",
        producer_version=network.version,
        metadata_props={
            **network.metadata,
            "pdnn.fingerprint": network.fingerprint,
            "pdnn.input_shape": json.dumps(network.whole.inputs),
            **({"pdnn.classes": json.dumps(network.classes)} if network.classes else {}),
        },
    )
    size = sum(each.const_value.nbytes for each in graph.constants if each.const_value is not None)
    if size >= _MOST_BYTES:
        raise ValueError(
            f"{path}: the model has {size} bytes of parameters, and an ONNX file holds less than 2 GiB; "
            "save it as .safetensors, or export parts of it, such as model[:3]"
        )
    with replacing(path) as file:
        file.write(ir.to_proto(model).SerializeToString())


class _Graph:
    """Nodes and constants so far."""

    def __init__(self, dtype: np.dtype[np.generic]) -> None:
        self.dtype = ir.DataType.from_numpy(dtype)
        self.nodes: list[ir.Node] = []
        self.constants: list[ir.Value] = []
        self.names: set[str] = set()

    def add(self, layer: Layer, x: ir.Value) -> ir.Value:
        """The output of a layer for an input."""
        if layer.type not in LAYERS:
            raise layer.unknown("ONNX")
        return LAYERS[layer.type](self, layer, x)

    def constant(self, layer: Layer, name: str, array: Array | float) -> ir.Value:
        """An array under the layer's name."""
        tensor = ir.tensor(np.asarray(array, self.dtype.numpy(), order="C"), name=f"{layer.name}.{name}")
        self.constants.append(ir.val(tensor.name, const_value=tensor))
        return self.constants[-1]

    def parameters(self, layer: Layer, *names: str) -> list[ir.Value]:
        """The layer's arrays of these names, as far as it has them."""
        return [self.constant(layer, name, layer.arrays[name]) for name in names if name in layer.arrays]

    def node(
        self, op: str, layer: Layer, *inputs: ir.Value, **attributes: int | float | list[int]
    ) -> ir.Value:
        """The output of a new node."""
        name = f"{layer.name}.{op}".lstrip(".")
        while name in self.names:
            name += "_"
        self.names.add(name)
        output = ir.val(f"{name}.output", self.dtype, ["batch", *layer.outputs])
        self.nodes.append(ir.node(op, inputs, attributes, outputs=[output], name=name))
        return output


Writer = Callable[[_Graph, Layer, ir.Value], ir.Value]


def _chain(graph: _Graph, layer: Layer, x: ir.Value) -> ir.Value:
    for part in layer.inside:
        x = graph.add(part, x)
    return x


def _operator(op: str, *names: str, **attributes: int) -> Writer:
    """A layer that is one operator on x and arrays of these names."""
    return lambda graph, layer, x: graph.node(op, layer, x, *graph.parameters(layer, *names), **attributes)


def _batch_norm(graph: _Graph, layer: Layer, x: ir.Value) -> ir.Value:
    arrays = graph.parameters(layer, "weight", "bias", "running_mean", "running_var")
    momentum = 1 - float(layer.arguments["momentum"])  # ONNX counts what stays
    return graph.node(
        "BatchNormalization", layer, x, *arrays, epsilon=float(layer.arguments["eps"]), momentum=momentum
    )


def _layer_norm(graph: _Graph, layer: Layer, x: ir.Value) -> ir.Value:
    arrays = graph.parameters(layer, "weight", "bias")
    return graph.node("LayerNormalization", layer, x, *arrays, axis=-1, epsilon=float(layer.arguments["eps"]))


def _conv(graph: _Graph, layer: Layer, x: ir.Value) -> ir.Value:
    """Weights are (out, in, height, width) in ONNX; of lines (out, in, length)."""
    weight = graph.constant(layer, "weight", np.moveaxis(layer.arrays["weight"], (-1, -2), (0, 1)))
    bias = graph.parameters(layer, "bias")
    dilations, groups = layer.each("dilation"), layer.arguments.get("groups", 1)
    return graph.node("Conv", layer, x, weight, *bias, **_windows(layer), dilations=dilations, group=groups)


def _embedding(graph: _Graph, layer: Layer, x: ir.Value) -> ir.Value:
    """Indices are numbers of the network's type."""
    indices = graph.node("Cast", layer, x, to=int(ir.DataType.INT64))
    indices.dtype, indices.shape = ir.DataType.INT64, x.shape
    return graph.node("Gather", layer, *graph.parameters(layer, "weight"), indices)


def _pool(op: str, **more: int) -> Writer:
    return lambda graph, layer, x: graph.node(op, layer, x, **_windows(layer), **more)


def _windows(layer: Layer) -> dict[str, list[int]]:
    kernel, stride = layer.each("kernel_size"), layer.each("stride")
    return {"kernel_shape": kernel, "strides": stride, "pads": 2 * layer.each("padding", 0)}


def _leaky_relu(graph: _Graph, layer: Layer, x: ir.Value) -> ir.Value:
    return graph.node("LeakyRelu", layer, x, alpha=float(layer.arguments["negative_slope"]))


def _elu(graph: _Graph, layer: Layer, x: ir.Value) -> ir.Value:
    return graph.node("Elu", layer, x, alpha=float(layer.arguments["alpha"]))


def _softplus(graph: _Graph, layer: Layer, x: ir.Value) -> ir.Value:
    """ONNX has neither beta nor a threshold; above 20 the logarithm is z to 10 digits."""
    beta, threshold = layer.arguments["beta"], layer.arguments["threshold"]
    if beta == 1:
        z, y = x, graph.node("Softplus", layer, x)
    else:
        scale = graph.constant(layer, "beta", beta)
        z = graph.node("Mul", layer, x, scale)
        y = graph.node("Div", layer, graph.node("Softplus", layer, z), scale)
    if threshold >= 20:
        return y
    above = graph.node("Greater", layer, z, graph.constant(layer, "threshold", threshold))
    above.dtype = ir.DataType.BOOL
    return graph.node("Where", layer, above, x, y)


def _gelu(graph: _Graph, layer: Layer, x: ir.Value) -> ir.Value:
    """GELU is x (1 + erf(x / √2)) / 2; its operator is of opset 20."""
    root, one, half = (
        graph.constant(layer, name, value) for name, value in [("root", sqrt(2)), ("one", 1.0), ("half", 0.5)]
    )
    erf = graph.node("Erf", layer, graph.node("Div", layer, x, root))
    return graph.node("Mul", layer, graph.node("Mul", layer, x, half), graph.node("Add", layer, erf, one))


def _silu(graph: _Graph, layer: Layer, x: ir.Value) -> ir.Value:
    return graph.node("Mul", layer, x, graph.node("Sigmoid", layer, x))


def _residual(graph: _Graph, layer: Layer, x: ir.Value) -> ir.Value:
    return graph.node("Add", layer, x, _chain(graph, layer, x))


LAYERS: dict[str, Writer] = {
    "Sequential": _chain,
    "Residual": _residual,
    "Embedding": _embedding,
    "Linear": _operator("Gemm", "weight", "bias"),
    **dict.fromkeys(("Conv1d", "Conv2d"), _conv),
    **dict.fromkeys(("MaxPool1d", "MaxPool2d"), _pool("MaxPool")),
    **dict.fromkeys(("AvgPool1d", "AvgPool2d"), _pool("AveragePool", count_include_pad=1)),
    **dict.fromkeys(("AdaptiveAvgPool1d", "AdaptiveAvgPool2d"), _operator("GlobalAveragePool")),
    "BatchNorm1d": _batch_norm,
    "BatchNorm2d": _batch_norm,
    "LayerNorm": _layer_norm,
    "Flatten": _operator("Flatten", axis=1),
    "Transpose": lambda graph, layer, x: graph.node("Transpose", layer, x, perm=[0, 2, 1]),
    "Dropout": lambda graph, layer, x: x,
    "Sigmoid": _operator("Sigmoid"),
    "Tanh": _operator("Tanh"),
    "ReLU": _operator("Relu"),
    "LeakyReLU": _leaky_relu,
    "ELU": _elu,
    "GELU": _gelu,
    "SiLU": _silu,
    "Softmax": _operator("Softmax", axis=-1),
    "Softplus": _softplus,
    "LogSoftmax": _operator("LogSoftmax", axis=-1),
}
