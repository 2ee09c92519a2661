"""Networks as one file of C99: weights, loops, and a function from a sample to its outputs."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from pdnn.exchange.network import Array, Layer, Network
from pdnn.files.atomic import replacing

TEXTS = {
    re.findall(r"static void (\w+)", text)[0]: text
    for text in Path(__file__).with_name("layers.c").read_text().strip().split("\n\n")
}
"""The functions of layers.c."""

FUNCTIONS = {
    "Embedding": "embedding",
    "Transpose": "transpose",
    "Linear": "linear",
    **dict.fromkeys(("Conv1d", "Conv2d"), "conv2d"),
    **dict.fromkeys(("MaxPool1d", "MaxPool2d"), "max_pool2d"),
    **dict.fromkeys(("AvgPool1d", "AvgPool2d"), "avg_pool2d"),
    **dict.fromkeys(("AdaptiveAvgPool1d", "AdaptiveAvgPool2d"), "global_avg_pool2d"),
    "BatchNorm1d": "batch_norm",
    "BatchNorm2d": "batch_norm",
    "LayerNorm": "layer_norm",
    "ReLU": "relu",
    "LeakyReLU": "leaky_relu",
    "Sigmoid": "sigmoid",
    "Tanh": "hyperbolic_tangent",
    "ELU": "elu",
    "Softplus": "softplus",
    "GELU": "gelu",
    "SiLU": "silu",
    "Softmax": "softmax",
    "LogSoftmax": "log_softmax",
    "Residual": "add",
}
"""What layers call."""

ELSEWHERE = (
    *("embedding", "transpose", "linear"),
    *("conv2d", "max_pool2d", "avg_pool2d", "global_avg_pool2d"),
)
"""Functions that may not write where they read."""


def write(path: str | os.PathLike[str], network: Network) -> None:
    """Writes a network, all or nothing.

    Raises
    ------
    ValueError
        If a layer cannot be written, or a parameter is not finite.
    """
    name = re.sub(r"\W", "_", Path(path).stem, flags=re.ASCII)
    text = _text("model_" + name if name[:1].isdigit() else name, network)
    with replacing(path) as file:
        file.write(text.encode())


@dataclass(eq=False)
class _Value:
    """What a call of a function writes: so many numbers, and the pointer to them once that is chosen."""

    size: int
    place: str = ""


@dataclass
class _Call:
    """A call of a function: what it reads, its other arguments, what it writes."""

    layer: Layer
    function: str
    inputs: list[_Value]
    arguments: list[str | int]
    output: _Value


class _Program:
    """Calls and arrays so far."""

    def __init__(self, dtype: np.dtype[np.generic]) -> None:
        self.dtype = dtype
        self.calls: list[_Call] = []
        self.arrays: dict[str, Array] = {}

    def add(self, layer: Layer, x: _Value) -> _Value:
        """What a layer makes of a value."""
        y = x
        for part in layer.inside:
            y = self.add(part, y)
        if layer.type in ("Sequential", "Flatten", "Dropout"):
            return y
        if layer.type not in FUNCTIONS:
            raise layer.unknown("C")
        inputs = [x, y] if layer.type == "Residual" else [x]
        return self.call(layer, FUNCTIONS[layer.type], inputs, self.arguments(layer))

    def call(self, layer: Layer, function: str, inputs: list[_Value], arguments: list[str | int]) -> _Value:
        """The output of a new call."""
        output = _Value(prod(layer.outputs))
        self.calls.append(_Call(layer, function, inputs, arguments, output))
        return output

    def array(self, layer: Layer, name: str, array: Array | None = None) -> str:
        """The name in C of an array, or of the layer's own of this name; 0 if it has none."""
        array = layer.arrays.get(name) if array is None else array
        if array is None:
            return "0"
        if not np.isfinite(array).all():
            raise ValueError(f"layer {layer.name}, {layer.type}: its {name} is not finite")
        whole = f"{name}_{layer.name}".replace(".", "_")
        self.arrays[whole] = array
        return whole

    def arguments(self, layer: Layer) -> list[str | int]:
        """Those of a layer's function between its inputs and its output."""
        own, count = layer.arguments, prod(layer.outputs)
        match layer.type:
            case "Linear":
                arrays = [self.array(layer, "weight"), self.array(layer, "bias")]
                return [*arrays, *layer.inputs, *layer.outputs]
            case "Embedding":
                sizes = own["num_embeddings"], own["embedding_dim"]
                return [self.array(layer, "weight"), *layer.inputs, *sizes]
            case "Transpose":
                return [*layer.inputs]
            case "Conv1d" | "Conv2d":
                weight = self.array(layer, "weight", np.moveaxis(layer.arrays["weight"], (-1, -2), (0, 1)))
                sizes = *_image(layer), own["out_channels"], own.get("groups", 1)
                rest = [*_each(layer, "padding", 0), *_each(layer, "dilation")]
                windows = [*_each(layer, "kernel_size"), *_each(layer, "stride"), *rest]
                return [weight, self.array(layer, "bias"), *sizes, *windows]
            case "MaxPool1d" | "MaxPool2d" | "AvgPool1d" | "AvgPool2d":
                windows = [*_each(layer, "kernel_size"), *_each(layer, "stride"), *_each(layer, "padding", 0)]
                return [*_image(layer), *windows]
            case "AdaptiveAvgPool1d" | "AdaptiveAvgPool2d":
                return [layer.inputs[0], prod(layer.inputs[1:])]
            case "BatchNorm1d" | "BatchNorm2d":
                deviation = np.sqrt(layer.arrays["running_var"].astype(np.float64) + own["eps"])
                scale = (layer.arrays["weight"] / deviation).astype(self.dtype)
                arrays = [self.array(layer, "running_mean"), self.array(layer, "scale", scale)]
                return [*arrays, self.array(layer, "bias"), layer.inputs[0], prod(layer.inputs[1:])]
            case "LayerNorm":
                arrays = [self.array(layer, "weight"), self.array(layer, "bias")]
                return [*arrays, _number(self.dtype.type(own["eps"])), count]
            case "LeakyReLU" | "ELU" | "Softplus":
                with np.errstate(over="ignore"):
                    numbers = [self.dtype.type(number) for number in own.values()]
                return [*map(_number, numbers), count]
        return [count]

    def place(self, x: _Value, y: _Value) -> list[int]:
        """Chooses where values are: in x, in y, and in parts of the workspace, whose sizes are returned."""
        last_use = {value: index for index, call in enumerate(self.calls) for value in call.inputs}
        x.place, y.place = "x", "y"
        for index, call in reversed([*enumerate(self.calls)]):  # what ends in y begins there
            source = call.inputs[-1]
            if call.output.place == "y" and not source.place and call.function not in ELSEWHERE:
                source.place = "y" if last_use[source] == index else ""
        sizes: list[int] = []
        free: set[int] = set()
        parts: dict[_Value, int] = {}
        for index, call in enumerate(self.calls):
            ended = {parts[value] for value in call.inputs if value in parts and last_use[value] == index}
            if not call.output.place:
                part = parts.get(call.inputs[-1])
                if part is None or part not in ended or call.function in ELSEWHERE:
                    part = min(free, key=lambda part: abs(sizes[part] - call.output.size), default=len(sizes))
                if part == len(sizes):
                    sizes.append(0)
                sizes[part] = max(sizes[part], call.output.size)
                parts[call.output] = part
                call.output.place = f"t{part}"
                ended.discard(part)
                free.discard(part)
            free |= ended
        return sizes


def _text(name: str, network: Network) -> str:
    program = _Program(network.dtype)
    whole = network.whole
    x = _Value(prod(whole.inputs))
    y = program.add(whole, x)
    if y is x:
        y = program.call(whole, "copy", [x], [x.size])
    sizes = program.place(x, y)
    parts = [f"*t{part} = work + {sum(sizes[:part])}" for part in range(len(sizes))]
    body = [f"float {', '.join(parts)};" if parts else "(void)work;"]
    for call in program.calls:
        arguments = [*(value.place for value in call.inputs), *map(str, call.arguments), call.output.place]
        body.append(f"{call.function}({', '.join(arguments)});  /* {_said(call.layer)} */")
    called = {call.function for call in program.calls}
    signature = f"void {name}_predict(const float *x, float *y, float *work)"
    sizes_said = {"INPUTS": x.size, "OUTPUTS": y.size, "WORK": max(1, sum(sizes))}
    arrays = {key: _numbers(array) for key, array in program.arrays.items()}
    declared, defined = [f"{signature};"], []
    if network.classes:
        sizes_said["CLASSES"] = len(network.classes)
        names = f"const char *const {name}_classes[{len(network.classes)}]"
        declared.append(f"extern {names};")
        defined.append(f"{names} = {{\n@names\n}};")
        arrays["names"] = "\n".join(f"    {_quoted(each)}," for each in network.classes)
    code = "\n\n".join(
        [
            _comment(name, network),
            "#include <math.h>",
            "\n".join(f"#define {name.upper()}_{what} {size}" for what, size in sizes_said.items()),
            "\n".join(declared),
            *defined,
            *(f"static const float {key}[{a.size}] = {{\n@{key}\n}};" for key, a in program.arrays.items()),
            *(text for function, text in TEXTS.items() if function in called),
            "\n    ".join([signature + "\n{", *body]) + "\n}\n",
        ]
    )
    if network.dtype == np.float64:
        code = re.sub(r"\bfloat\b", "double", code)
        code = re.sub(r"\b(exp|expm1|tanh|erfc|sqrt|log|log1p|floor)f\(", r"\1(", code)
        code = re.sub(r"(\d\.\d+)f\b", r"\1", code)
    return re.sub(r"^@(\w+)$", lambda found: arrays[found[1]], code, flags=re.MULTILINE)


def _image(layer: Layer) -> tuple[int, ...]:
    """The shape of its samples; lines are images of one row."""
    return layer.inputs if len(layer.inputs) == 3 else (layer.inputs[0], 1, layer.inputs[1])


def _each(layer: Layer, argument: str, of_row: int = 1) -> list[int]:
    """The two numbers of windows on images, of_row where there are none; on lines, the first is of_row."""
    return [of_row] * (3 - len(layer.inputs)) + layer.each(argument, of_row)


def _comment(name: str, network: Network) -> str:
    upper, whole = name.upper(), network.whole
    own = (
        f"its {whole.inputs[0]} features"
        if len(whole.inputs) == 1
        else f"{' x '.join(map(str, whole.inputs))} numbers, the last axis quickest"
    )
    return f"""/* A trained network in C99, with nothing but <math.h>: no library, no allocation, no state.
 *
 *     float y[{upper}_OUTPUTS], work[{upper}_WORK];
 *     {name}_predict(x, y, work);
 *
 * x: a sample, {own}
 * y: its outputs{_about_classes(name, network)}
 * work: is overwritten; calls at the same time need one each
 *
 * Written by pdnn {network.version} of the model with the fingerprint
 * {network.fingerprint}
 */"""


def _about_classes(name: str, network: Network) -> str:
    if not network.classes:
        return ""
    if prod(network.whole.outputs) == 1:
        return f"; {name}_classes names what it says below and above a threshold"
    return f", one for each of {name}_classes"


def _said(layer: Layer) -> str:
    """What a call is for: "4.fn.0 Conv2d: 8 x 32 x 32"."""
    return f"{layer.name} {layer.type}: {' x '.join(map(str, layer.outputs))}".strip()


def _number(value: np.float32 | np.float64) -> str:
    """A float32 or float64, to its last bit."""
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    return f"{value}f" if value.dtype == np.float32 else str(value)


def _quoted(text: str) -> str:
    """A string of C, its bytes UTF-8; what C99 would read as something else is written in octal."""
    plain = [chr(b) if 32 <= b < 127 and chr(b) not in '"?\\' else f"\\{b:03o}" for b in text.encode()]
    return f'"{"".join(plain)}"'


def _numbers(array: Array) -> str:
    end = "f" if array.dtype == np.float32 else ""
    words = [f"{value}{end}" for value in array.ravel().tolist()]
    for at in np.flatnonzero(np.isinf(array)):
        words[at] = _number(array.flat[at])
    return "\n".join("    " + ", ".join(words[at : at + 8]) + "," for at in range(0, len(words), 8))
