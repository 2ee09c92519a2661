"""Random networks: descriptions that are drawn, and what is built of them."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from pdnn import models, nn


class Part(NamedTuple):
    """A layer: the name of its class and its arguments; or layers, one after another, of which it is made."""

    name: str
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = {}  # noqa: RUF012  never changed

    def static(self) -> nn.Module:
        """The layer of `pdnn.nn`."""
        if self.name == "Sequential":
            return nn.Sequential(*(part.static() for part in self.arguments))
        if self.name == "Residual":
            return nn.Residual(nn.Sequential(*(part.static() for part in self.arguments)))
        return getattr(nn, self.name)(*self.arguments, **self.options)  # type: ignore[no-any-return]

    def by_hand(self) -> nn.Module:
        """The same, whose parts run one by one in Python."""
        if self.name == "Sequential":
            return Chain([part.by_hand() for part in self.arguments])
        if self.name == "Residual":
            return Added(Chain([part.by_hand() for part in self.arguments]))
        return self.static()


class Chain(nn.Module):
    """A Sequential in Python."""

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x: Any) -> Any:
        for part in self.parts:
            x = part(x)
        return x


class Added(nn.Module):
    """A Residual in Python."""

    def __init__(self, f: nn.Module) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: Any) -> Any:
        return x + self.f(x)


def draw_parts(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    count: int,
    depth: int,
    norms: dict[str, Any] | None,
    dropout: bool = False,
) -> tuple[tuple[Part, ...], tuple[int, ...]]:
    """At most `count` layers that take samples of this shape, and the shape that they make.

    With `depth` above 0 some are networks. `norms`: what BatchNorm gets; None: there is none.
    """
    parts: list[Part] = []
    for _ in range(count):
        drawn = _draw_part(rng, shape, depth, norms, dropout)
        if drawn is not None:
            part, shape = drawn
            parts.append(part)
    return tuple(parts), shape


def _draw_part(
    rng: np.random.Generator,
    shape: tuple[int, ...],
    depth: int,
    norms: dict[str, Any] | None,
    dropout: bool,
) -> tuple[Part, tuple[int, ...]] | None:
    """None where what was drawn does not fit."""
    image = len(shape) == 3
    placed = len(shape) > 1  # an image or a line
    kind = rng.choice(
        ["activation", "linear", "linear", "norm", "layer norm", "dropout", "flatten", "network", "residual"]
        + ["convolution", "convolution", "pooling", "mean"] * placed
        + ["transpose"] * (len(shape) == 2)
    )
    if kind == "activation":
        if rng.integers(6) == 0:
            part = Part("ELU", (float(rng.uniform(0.5, 2)),)) if rng.integers(2) else Part("Softplus")
            return part, shape
        name = str(rng.choice(["ReLU", "ReLU", "Tanh", "Sigmoid", "LeakyReLU", "GELU"]))
        return Part(name, (0.2,) if name == "LeakyReLU" else ()), shape
    if kind == "linear" and not placed:
        width = int(rng.integers(33, 200) if rng.integers(4) == 0 else rng.integers(1, 33))
        return Part("Linear", (shape[0], width), {"bias": bool(rng.integers(4))}), (width,)
    if kind == "norm" and norms is not None:
        return Part("BatchNorm2d" if image else "BatchNorm1d", (shape[0],), norms), shape
    if kind == "layer norm" and not placed and shape[0] > 2:
        return Part("LayerNorm", (shape[0], 0.01)), shape
    if kind == "dropout" and dropout:
        return Part("Dropout", (0.3,)), shape
    if kind == "flatten":
        return Part("Flatten"), (prod(shape),)
    if kind == "transpose":
        return Part("Transpose"), shape[::-1]
    if kind == "network" and depth > 0:
        inner, out = draw_parts(rng, shape, int(rng.integers(4)), depth - 1, norms, dropout)
        return Part("Sequential", inner), out
    if kind == "residual" and depth > 0:
        inner, out = draw_parts(rng, shape, int(rng.integers(3)), depth - 1, norms, dropout)
        return (Part("Residual", inner), shape) if out == shape else None
    if kind in ("convolution", "pooling"):
        return _draw_windows(rng, shape, kind == "pooling")
    if kind == "mean" and rng.integers(3) == 0:
        return Part(f"AdaptiveAvgPool{len(shape) - 1}d", (1,)), (shape[0], *(1 for _ in shape[1:]))
    return None


def _draw_windows(
    rng: np.random.Generator, shape: tuple[int, ...], pooling: bool
) -> tuple[Part, tuple[int, ...]] | None:
    channels, *extents = shape
    square = bool(rng.integers(3))

    def each(low: int, high: int) -> list[int]:
        numbers = [int(number) for number in rng.integers(low, high, len(extents))]
        return [numbers[0]] * len(extents) if square else numbers

    kernel, stride = each(1, 4), each(1, 4)
    padding = [
        min(zeros, taps // 2) if pooling else zeros for zeros, taps in zip(each(0, 3), kernel, strict=True)
    ]
    dilation = [1] * len(extents) if pooling or rng.integers(3) else each(1, 3)
    reach = [(taps - 1) * apart + 1 for taps, apart in zip(kernel, dilation, strict=True)]
    room = [
        extent + 2 * zeros - all_taps for extent, zeros, all_taps in zip(extents, padding, reach, strict=True)
    ]
    if min(room) < 0:
        return None
    places = [left // step + 1 for left, step in zip(room, stride, strict=True)]
    if pooling:
        pool = f"{rng.choice(['MaxPool', 'AvgPool'])}{len(extents)}d"
        return Part(pool, (kernel, stride, padding)), (channels, *places)
    groups = channels if rng.integers(3) == 0 else 1
    outputs = groups * int(rng.choice([1, 1, 2]) if groups > 1 else rng.choice([1, 2, 3, 5, 8, 9]))
    options = {"bias": bool(rng.integers(2)), "dilation": dilation, "groups": groups}
    windows = channels, outputs, kernel, stride, padding
    return Part(f"Conv{len(extents)}d", windows, options), (outputs, *places)


def draw_shape(rng: np.random.Generator) -> tuple[int, ...]:
    """Of a sample: features, an image, or a line."""
    if rng.integers(2):
        return (int(rng.integers(1, 40)),)
    if rng.integers(2):
        return int(rng.integers(1, 4)), int(rng.integers(2, 20))
    return int(rng.integers(1, 4)), int(rng.integers(2, 10)), int(rng.integers(2, 10))


def draw_trained(rng: np.random.Generator) -> tuple[nn.Sequential, tuple[int, ...]]:
    """A network, with statistics as if it were trained, and the shape of its samples.

    Its numbers are none that ONNX or C would have without being told.
    """
    norms = {"eps": 0.01}
    layers: list[nn.Module] = []
    kind = rng.choice(["nested", "wide", "images", "lines"])
    if kind == "wide":
        sizes = [int(size) for size in rng.integers(1, 300, 3)]
        layers = [models.mlp(sizes, str(rng.choice([*models.ACTIVATIONS])))]
        shape, out = (sizes[0],), (sizes[-1],)
    else:
        places = rng.integers(6, 33, 1 if kind == "lines" else 2)
        shape = out = draw_shape(rng) if kind == "nested" else (3, *map(int, places))
    while kind in ("images", "lines") and len(layers) < 5:
        parts, after = draw_parts(rng, out, 1, 1, norms)
        if len(after) == len(shape):
            layers, out = [*layers, *(part.static() for part in parts)], after
    parts, out = draw_parts(rng, out, int(rng.integers(7)), 2, norms, dropout=True)
    ends = ["SiLU", "Dropout"] + ["Softmax", "LogSoftmax"] * (len(out) == 1)
    layers += [*(part.static() for part in parts), getattr(nn, str(rng.choice(ends)))()]
    model = nn.Sequential(*layers, seed=int(rng.integers(1000)))
    for name, buffer in model.named_buffers():
        variance = name.endswith("var")
        buffer.data = rng.uniform(0.5, 2, buffer.shape) if variance else rng.standard_normal(buffer.shape)
    for parameter in model.parameters():
        parameter.data = parameter.data + 0.1 * rng.standard_normal(parameter.shape)
    return model, shape
