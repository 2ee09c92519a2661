"""Samples: the layers read so far, and how the values after them lie."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from math import prod
from typing import Any

import numpy as np

from pdnn.exchange.graph import Graph, Node, Step, Value
from pdnn.exchange.network import Array

Shape = tuple[int | None, ...]
"""Of a sample; None for what a file does not say."""

CHANNELS_FIRST = (0, 1, 2, 3)
CHANNELS_LAST = (0, 2, 3, 1)
LINES_LAST = (0, 2, 1)
"""Which of pdnn's axes each axis of an array of images, or of lines, is."""

ROWS = 2**20 + 7, 2**21 + 17
"""Two numbers of samples, which no other size is."""

ONE_NUMBER = "makes outputs of shape (n,), which in pdnn have shape (n, 1); export the network without it"

FAR = 1000
"""How many deviations from 0 the mean of samples may be where float32 weights take up both."""


class Unknown(Exception):
    """Why a step is not understood."""


class Samples:
    """Layers of `pdnn.nn`, and the samples that they make.

    Parameters
    ----------
    graph : Graph
    prefix : str
        Of the names of its arrays: "4.fn.".
    shape : tuple or None
        Of a sample, in pdnn's order of axes; None where it is not known.

    Attributes
    ----------
    layers : list of dict
        Types and arguments, as `Sequential.config` lists them.
    arrays : dict of str to ndarray
        As `state_dict` names and shapes them.
    axes : tuple of int
        Which of pdnn's axes each axis of an image, or a line, in the file is.
    rows : ndarray or None
        Which of the file's features each of pdnn's is, if their order differs.
    waiting : (scale, shift, Step) or None
        A step y = x scale + shift that the next weights may take up.
    """

    def __init__(self, graph: Graph, prefix: str, shape: Shape | None) -> None:
        self.graph, self.prefix, self.shape = graph, prefix, shape
        self.layers: list[dict[str, Any]] = []
        self.arrays: dict[str, Array] = {}
        self.axes: tuple[int, ...] = CHANNELS_FIRST
        self.rows: Array | None = None
        self.waiting: tuple[Array, Array, Step] | None = None

    def emit(self, type: str, arrays: dict[str, Array | None] | None = None, **arguments: Any) -> None:
        """Adds a layer."""
        number = self.waiting is not None and self.waiting[0].size == self.waiting[1].size == 1
        if not (number and type == "Flatten"):
            self.flush()
        for name, array in (arrays or {}).items():
            if array is not None:
                self.arrays[f"{self.prefix}{len(self.layers)}.{name}"] = array
        self.layers.append({"type": type, **arguments})

    def flush(self) -> None:
        """Makes a BatchNorm of what waits for weights and does not find them."""
        if self.waiting is None:
            return
        scale, shift, step = self.waiting
        self.waiting = None
        channels = self.shape[0] if self.shape is not None and len(self.shape) <= 3 else None
        if channels is None:
            self.graph.missed.setdefault(step.node, "no Linear, convolution or BatchNorm takes it up")
            return
        image, eps, ones = len(self.shape or ()) == 3, 1e-5, np.ones(channels)
        scale, shift = scale * ones, shift * ones
        mean = np.divide(-shift, scale, out=0 * ones, where=(scale != 0) & (abs(shift) > FAR))
        numbers = {"weight": scale * np.sqrt(1 + eps), "bias": np.where(mean == 0, shift, 0)}
        numbers |= {"running_mean": mean, "running_var": ones}
        constants = map(self.graph.constant, step.node.inputs)
        dtype = np.result_type(np.float32, *(array for array in constants if array is not None))
        arrays = {name: number.astype(dtype) for name, number in numbers.items()}
        ordered = {name: array if image else self.own_order(array) for name, array in arrays.items()}
        self.emit("BatchNorm2d" if image else "BatchNorm1d", {**ordered}, num_features=channels, eps=eps)

    def turn(self) -> None:
        """Makes a Transpose where lines have their channels last in the file, and the next step minds."""
        if self.axes == LINES_LAST:
            self.emit("Transpose")
            self.axes, self.shape = CHANNELS_FIRST, self.shape and self.shape[::-1]

    def forget(self) -> None:
        """What follows is no longer known."""
        self.shape = self.rows = self.waiting = None
        self.axes = CHANNELS_FIRST

    # ---- what layers need

    def weights(self, step: Step, index: int, rank: int) -> Array:
        """An input of a step that has to be constant and of this rank."""
        values = step.node.inputs
        array = self.graph.constant(values[index] if index < len(values) else None)
        if array is None or array.ndim != rank:
            raise Unknown(f"its input {index} is no constant with {rank} axes")
        return array

    def decimal(self, step: Step, name: str, default: float) -> float:
        """An attribute, which is a float32 in the file, as the shortest decimal number that rounds to it."""
        return float(str(np.float32(step.node.attributes.get_float(name, default) or 0.0)))

    def features(self) -> None:
        """Raises Unknown where samples are images."""
        if self.shape is not None and len(self.shape) != 1:
            raise Unknown(f"takes samples of shape {self.shape}, expected features")

    def images(self, axes: int = 2) -> Shape:
        """The shape of images with their channels first; or of lines, with one axis beside them."""
        self.turn()
        shape = (None,) * (1 + axes) if self.shape is None else self.shape
        if axes > 2 or len(shape) != 1 + axes or self.axes != CHANNELS_FIRST:
            expected = {1: "(channels, length)", 2: "(channels, height, width)"}.get(axes, "images or lines")
            raise Unknown(f"takes samples of shape {self.seen()}, expected {expected}")
        return shape

    def seen(self) -> Shape | None:
        """The shape of a sample in the order of the file."""
        if self.shape is None or len(self.shape) + 1 != len(self.axes):
            return self.shape
        return tuple(self.shape[axis - 1] for axis in self.axes[1:])

    def own_order(self, array: Array) -> Array:
        """An array over the file's features, over pdnn's."""
        return array if self.rows is None else array[self.rows]

    # ---- products and sums with constants

    def per_channel(self, array: Array) -> Array:
        """A constant that has one number, or one for each feature or channel."""
        rank = array.ndim if self.shape is None else 1 + len(self.shape)
        if array.ndim > rank:
            raise Unknown(f"its constant has shape {array.shape}, more axes than the {rank} of a batch")
        shape = (1,) * (rank - array.ndim) + array.shape
        others = [size for axis, size in enumerate(shape) if rank > len(self.axes) or self.axes[axis] != 1]
        if self.axes == LINES_LAST and prod(others) != 1:
            self.turn()
            return self.per_channel(array)
        channels = None if self.shape is None else self.shape[0]
        if prod(others) != 1 or (array.size > 1 and channels not in (None, array.size)):
            raise Unknown(f"its constant has shape {array.shape}, expected a number a feature or channel")
        return array.ravel()

    def affine(self, step: Step, scale: Array, shift: Array) -> None:
        """Takes y = x scale + shift into the weights before it, or lets it wait for the next ones."""
        index = len(self.layers) - 1
        if self.waiting is not None:
            before, moved, _ = self.waiting
            self.waiting = before * scale, moved * scale + shift, step
        elif index < 0 or self.layers[index]["type"] not in ("Linear", "Conv1d", "Conv2d"):
            self.waiting = scale, shift, step
        else:
            name = f"{self.prefix}{index}."
            weight = self.arrays[f"{name}weight"]
            if not {scale.size, shift.size} <= {1, weight.shape[-1]}:  # behind what was not understood
                raise Unknown(f"scales {max(scale.size, shift.size)} of {weight.shape[-1]} outputs")
            bias = np.float64(self.arrays.get(f"{name}bias", np.zeros(weight.shape[-1]))) * scale + shift
            self.arrays[f"{name}weight"] = (weight * scale).astype(weight.dtype)
            self.arrays[f"{name}bias"] = bias.astype(weight.dtype)
            self.layers[index]["bias"] = True

    def taken_up(self, weight: Array, bias: Array | None) -> tuple[Array, Array | None]:
        """Weights, inputs on their axis -2, and a bias that do what waits, too."""
        if self.waiting is None:
            return weight, bias
        scale, shift, _ = self.waiting
        if weight.dtype != np.float64 and (abs(shift) > FAR).any():
            return weight, bias  # the sums would lose what is left of samples without their means
        self.waiting = None
        inputs, outputs = weight.shape[-2:]
        if not {scale.size, shift.size} <= {1, inputs}:
            raise Unknown(f"takes {inputs} inputs, {max(scale.size, shift.size)} are scaled before it")
        total = np.float64(weight).reshape(-1, inputs, outputs).sum(axis=0)
        moved = np.broadcast_to(shift, inputs) @ total + (0 if bias is None else bias)
        scaled = weight * np.broadcast_to(scale, inputs)[:, None]
        return scaled.astype(weight.dtype), moved.astype(weight.dtype)

    # ---- shapes

    def transpose(self, step: Step) -> None:
        """Another order of an image's or a line's axes, which the next layers have to know."""
        order = step.node.attributes.get_ints("perm", None)
        rank = len(order or CHANNELS_FIRST) if self.shape is None else 1 + len(self.shape)
        order = tuple(reversed(range(rank)) if order is None else order)
        if order == (0, 2, 1) and rank == 3:
            self.axes = CHANNELS_FIRST if self.axes == LINES_LAST else LINES_LAST
            return
        if rank not in (2, 4) or sorted(order) != [*range(rank)] or order[0] != 0:
            raise Unknown(f"puts the axes of {rank - 1}-dimensional samples in the order {order}")
        if rank == 4:
            self.turn()
            self.axes = tuple(self.axes[axis] for axis in order)

    def flatten(self, step: Step) -> None:
        """A Flatten; where channels are last in the file, the next weights are put in pdnn's order."""
        if step.kind == "Flatten" and step.node.attributes.get_int("axis", 1) != 1:
            raise Unknown("flattens other axes than those of a sample")
        if self.shape is not None and len(self.shape) == 1:
            return
        if self.axes == LINES_LAST and self.shape is not None and 1 in self.shape:
            self.axes = CHANNELS_FIRST  # either order is the same
        self.turn()
        sizes = [size for size in self.shape or () if size is not None]
        known = self.shape is not None and len(sizes) == len(self.shape)
        if self.axes != CHANNELS_FIRST:
            if not known:
                raise Unknown("flattens images of a size that the file does not say, with channels last")
            ours = np.arange(prod(sizes)).reshape(1, *sizes).transpose(self.axes).ravel()
            self.rows = None if (np.diff(ours) == 1).all() else np.argsort(ours)
            self.axes = CHANNELS_FIRST
        self.emit("Flatten")
        self.shape = (prod(sizes),) if known else (None,)

    def reshape(self, step: Step) -> None:
        """A Flatten, or nothing; the model's samples get the shape where no layer came before."""
        self.turn()
        target, shape = self.target(step), self.seen()
        if target == [-1] and shape == (1,):
            raise Unknown(ONE_NUMBER)
        if shape is None:
            return self.flatten(step)
        rest: list[int | None] = [*target[1:]]
        for axis, size in enumerate(shape[: len(rest)]):
            rest[axis] = size if rest[axis] == 0 else rest[axis]
        sizes = [size for size in shape if size is not None]
        count = prod(sizes) if len(sizes) == len(shape) else None
        if count is not None and rest.count(-1) == 1:
            rest[rest.index(-1)] = count // max(1, -prod(size or 1 for size in rest))
        if rest == [*shape]:
            return None
        if len(rest) == 1 and rest[0] in (count, -1, None):
            return self.flatten(step)
        scaled = {1} if self.waiting is None else {part.size for part in self.waiting[:2]}
        begins = not (self.layers or self.prefix) and len(shape) < 3 == len(rest) and scaled <= {1, rest[0]}
        if not begins or prod(size or 0 for size in rest) != count:
            raise Unknown(f"makes {target} of samples of shape {shape}")
        self.shape = tuple(rest)

    def target(self, step: Step) -> list[int]:
        """The shape that a Reshape makes; 0 or -1 for the number of samples."""
        value = step.node.inputs[1] if len(step.node.inputs) > 1 else None
        if value is None:
            raise Unknown("has its shape in an attribute, as before opset 5")
        constant = self.graph.constant(value)
        sizes = self.computed(step, value) if constant is None else [*map(int, constant)]
        if sizes[:1] > [0] and sizes[:1] != list(self.graph.input.shape or ())[:1]:
            raise Unknown(f"makes {sizes} of a batch of any number of samples")
        return sizes

    def computed(self, step: Step, value: Value) -> list[int]:
        """What a graph computes of the shapes of samples; 0 in the first place for their number."""
        try:  # what is the same for few and for many samples does not depend on their number
            few, many = ([*map(int, self.graph.size(value, partial(self.sizes, step, n)))] for n in ROWS)
        except (KeyError, IndexError, TypeError, ValueError):
            few = many = []
        if (few[:1], many[:1]) == ([ROWS[0]], [ROWS[1]]):
            few[0] = many[0] = 0
        if not few or few != many:
            raise Unknown("makes a shape that is computed")
        return few

    def sizes(self, step: Step, rows: int, value: Value) -> list[int]:
        """The shape of a value of so many samples; what the file does not say changes with them, too."""
        shape: Iterable[object] = (None,) * 3
        if value in self.graph.data(step.node):
            shape = self.seen() or shape
        elif value.shape is not None:
            shape = value.shape[1:]
        return [
            rows,
            *(size if isinstance(size, int) else rows + 1 + axis for axis, size in enumerate(shape)),
        ]

    def squeeze(self, step: Step) -> None:
        """A Flatten of images or lines of one place; the last of several does what all of them do."""
        if self.shape == (1,):
            raise Unknown(ONE_NUMBER)
        if self.shape is not None and {*self.shape[1:]} != {1}:
            raise Unknown(f"takes samples of shape {self.seen()}, expected images of one pixel")
        if _squeezed_again(step.node):
            return
        nodes = [step.node]
        while (before := self.graph.data(nodes[0])[0].producer()) is not None and _squeezed_again(before):
            nodes.insert(0, before)
        if (shape := self.seen()) is None:
            return self.flatten(step)
        kept = [*range(1 + len(shape))]
        for node in nodes:
            given = self.graph.constant(node.inputs[1]) if len(node.inputs) > 1 else None
            axes = node.attributes.get_ints("axes", None) if given is None else [*map(int, given)]
            if axes is None:
                kept = [axis for axis in kept if axis == 0 or shape[axis - 1] != 1]
            else:
                kept = [axis for at, axis in enumerate(kept) if not {at, at - len(kept)} & {*axes}]
        if kept != [0, self.axes.index(1)]:
            raise Unknown(f"leaves the axes {kept} of {shape} a sample, expected those of channels alone")
        self.flatten(step)


def _squeezed_again(node: Node) -> bool:
    """Whether a node is a Squeeze before others only."""
    return node.op_type == "Squeeze" and {use.node.op_type for use in node.outputs[0].uses()} == {"Squeeze"}
