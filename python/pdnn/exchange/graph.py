"""The structure of an ONNX graph: from its input to its output, one step after another."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import erf, sqrt
from typing import Any, TypeAlias

import numpy as np

from pdnn.exchange.network import Array

try:
    import onnx
    import onnx_ir as ir
    from onnx.reference import ReferenceEvaluator
    from onnx_ir.serde import SerdeError

    from pdnn.exchange.onnx_file import load
except ModuleNotFoundError as error:
    raise ImportError("ONNX files need onnx-ir: pip install onnx-ir") from error

Node: TypeAlias = ir.Node
Value: TypeAlias = ir.Value

FOLDED = {
    *("Add", "Cast", "Concat", "Constant", "Div", "Identity", "Mul", "Neg", "Pow", "Reciprocal", "Reshape"),
    *("Sqrt", "Squeeze", "Sub", "Transpose", "Unsqueeze"),
}
"""Operators that are evaluated where all their inputs are constants."""

WITH_GRAPHS = {"If", "Loop", "Scan"}
"""Operators that depend on more than their inputs: on all that the graphs in them take from outside."""

ELEMENTWISE = {
    *("Add", "Div", "Erf", "Exp", "Greater", "Mul", "Neg", "Pow", "Reciprocal", "Relu", "Sigmoid"),
    *("Softplus", "Sqrt", "Sub", "Tanh"),
}
"""Operators that an activation may be made of."""

POINTS = np.linspace(-6, 6, 193)
CURVES: dict[str, Callable[[float], float]] = {
    "GELU": lambda x: x * (1 + erf(x / sqrt(2))) / 2,
    "SiLU": lambda x: x / (1 + np.exp(-x)),
}

ORDERED = {
    *("AveragePool", "BatchNormalization", "Conv", "Flatten", "Gemm", "GlobalAveragePool", "MatMul"),
    *("MaxPool", "Reshape", "Transpose"),
}
"""Operators for which the order of axes matters."""

PASSED = {"Identity", "Cast", "Reshape", "Squeeze", "ArrayFeatureExtractor"}
DECIDED = {"ArgMax", "Binarizer", "ZipMap"}
"""What makes classes of probabilities, with what may stand behind it."""


MOST_OF_A_CURVE = 16
"""Nodes that may compute an activation together."""


@dataclass
class Step:
    """What happens to a value on its way.

    Attributes
    ----------
    kind : str
        The node's operator; or what several nodes compute: a residual, an activation, or the probabilities
        of two classes from that of one ("Residual", "GELU", "SiLU", "Softplus", "Complement"); or "Unknown".
    node : Node
        The last of the nodes.
    inside : list of Step
        What a residual adds.
    arguments : dict
        Of an activation of several nodes.
    """

    kind: str
    node: ir.Node
    inside: list[Step] = field(default_factory=list)
    arguments: dict[str, Any] = field(default_factory=dict)


class Graph:
    """A graph with one input, and one output beside the classes that follow from it.

    Parameters
    ----------
    path : path of an ONNX file

    Attributes
    ----------
    missed : dict of Node to str
        What is not understood, and why.
    metadata : dict of str to str
        With the names of the classes that it chooses from, if they have some.

    Raises
    ------
    ValueError
        If the file is no ONNX, its graph has several inputs or outputs, or the input is no batch.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        model = load(path)
        graph, self.opsets = model.graph, dict(model.graph.opset_imports)
        self.metadata = dict(model.metadata_props)
        self.nodes = list(graph)
        for node in self.nodes:
            if node.domain not in ("", "ai.onnx.ml"):  # another's, whatever it is called there
                node.op_type = f"{node.domain}.{node.op_type}"
        self.order = {node: index for index, node in enumerate(self.nodes)}
        self.missed: dict[ir.Node, str] = {}
        self.constants = {
            value: value.const_value.numpy()
            for value in graph.initializers.values()
            if value.const_value is not None
        }
        self.sizes: set[ir.Value] = set()
        self._passed: set[ir.Node] = set()
        for node in self.nodes:
            data = self.data(node)
            if node.op_type == "Shape" or (
                data and self.sizes.issuperset(data) and node.op_type not in WITH_GRAPHS
            ):
                self.sizes.update(node.outputs)
            elif not data and node.op_type in FOLDED and node.domain == "":
                self._fold(node)
        inputs = [value for value in graph.inputs if value not in self.constants]
        made = [value for value in graph.outputs if value not in self.constants]
        self._names: list[str] = []
        outputs = list(dict.fromkeys(map(self._decided, made)))
        for what, values in (("inputs", inputs), ("outputs", outputs)):
            if len(values) != 1:
                names = ", ".join(map(_origin, values)) or "none"
                raise ValueError(f"its {what} are {names}; expected one")
        if inputs[0].shape is None or len(inputs[0].shape) < 2:
            raise ValueError(f"its input has shape {inputs[0].shape}; expected a batch of samples")
        self.input, self.output = inputs[0], outputs[0]
        if self._names:
            self.metadata.setdefault("pdnn.classes", json.dumps(self._names))

    def _fold(self, node: ir.Node) -> None:
        """Makes the output of a node a constant, if its inputs are; a shape may be made of known sizes."""

        def known(value: ir.Value) -> list[int]:
            sizes = [*(value.shape or [None])]
            return [size if isinstance(size, int) else -1 for size in sizes]

        values = dict(self.constants)
        for value in node.inputs:
            if value is not None and value not in values:
                values[value] = self.size(value, known)
                if (values[value] < 0).any():
                    return
        self.constants[node.outputs[0]] = self.evaluate(node, values)

    def arithmetic(self, arrays: Iterable[Array]) -> str:
        """The dtype in which it computes: of these parameters or, if there are none, of the input."""
        of_arrays = {ir.DataType.from_numpy(array.dtype) for array in arrays}
        return "float64" if ir.DataType.DOUBLE in (of_arrays or [self.input.dtype]) else "float32"

    def constant(self, value: ir.Value | None) -> Array | None:
        """The array that a value always is."""
        return None if value is None else self.constants.get(value)

    def data(self, node: ir.Node) -> list[ir.Value]:
        """The inputs of a node that are no constants; of a Reshape not the shape, if only sizes tell it."""
        inputs = [value for value in node.inputs if value is not None and value not in self.constants]
        if node.op_type == "Reshape" and len(node.inputs) > 1 and node.inputs[1] in self.sizes:
            return inputs[:-1]
        return inputs

    def evaluate(self, node: ir.Node, values: dict[ir.Value, Array]) -> Array:
        """The first output of a node."""
        names = [value.name or "" for value in node.inputs if value is not None]
        infos = [onnx.helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(names)]
        output = onnx.helper.make_empty_tensor_value_info(node.outputs[0].name or "")
        feeds = {value.name or "": values[value] for value in node.inputs if value is not None}
        imports = [onnx.helper.make_opsetid(*item) for item in self.opsets.items()]
        try:
            proto: Any = ir.to_proto(node)
            graph = onnx.helper.make_graph([proto], "node", infos, [output])
            model = onnx.helper.make_model(graph, opset_imports=imports)
            result: list[Any] = ReferenceEvaluator(model).run(None, feeds)  # type: ignore[assignment]
        except (SerdeError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f'{node.op_type} "{node.name}": onnx does not evaluate it') from error
        return np.asarray(result[0])

    def size(self, value: ir.Value, shape: Callable[[ir.Value], Sequence[int]]) -> Array:
        """One of the `sizes`, where values have these shapes."""
        node = value.producer()
        if node is None or value is not node.outputs[0]:
            return self.constants[value]
        if node.op_type == "Shape":
            (source, *_), options = self.data(node) or node.inputs, node.attributes
            assert source is not None
            known = self.constants[source].shape if source in self.constants else shape(source)
            sizes = np.array(known, np.int64)
            return sizes[options.get_int("start", 0) : options.get_int("end", None)]
        return self.evaluate(node, {each: self.size(each, shape) for each in node.inputs if each is not None})

    def begins_with_channels_last(self) -> bool:
        """Whether a Transpose puts the channels of the samples first, before their order matters."""
        made = self._before(self.output) | {self.output}
        for node in self.nodes:
            if node.op_type in ORDERED and node.outputs[0] in made:
                return node.op_type == "Transpose" and node.attributes.get_ints("perm") == (0, 3, 1, 2)
        return False

    def steps(self) -> list[Step]:
        """From the input to the output. What is not understood is in `missed`."""
        return self._chain(self.output, self.input)

    # ---- structure, from a value back to one before it

    def _chain(self, value: ir.Value, stop: ir.Value | None) -> list[Step]:
        """From `stop`, or wherever the way begins, to a value."""
        steps: list[Step] = []
        while value is not stop:
            node = value.producer()
            if node is None or node in self._passed:
                if stop is not None and not self.missed:
                    self.missed[steps[-1].node] = "its branches begin at different places"
                break
            self._passed.add(node)
            if value is not node.outputs[0]:
                self.missed[node] = "another output than its first is used"
            step, value = self._step(node)
            steps.append(step)
        return steps[::-1]

    def _step(self, node: ir.Node) -> tuple[Step, ir.Value]:
        """The last step to a node's output, and the value before it."""
        data = self.data(node)
        if node.op_type == "Concat" and (before := self._complement(node)) is not None:
            return Step("Complement", node), before
        if node.op_type == "Squeeze" and (before := self._mean_of_lines(node)) is not None:
            return Step("GlobalAveragePool", node, arguments={"axes": 1}), before
        ends_curves = node.op_type in ("Add", "Div", "Mul", "Sub", "Where")
        if ends_curves and (found := self._curve(node)) is not None:
            return found
        if node.op_type == "Add" and len(data) == 2:
            sides = [self._plain(value) for value in data]
            integers = any(value.dtype is not None and value.dtype.is_integer() for value in data)
            for x, added in (sides, sides[::-1]):
                if not integers and (x is added or x in self._before(added)):
                    return Step("Residual", node, self._chain(added, x)), x
        if len(data) != 1:
            why = (
                f"{len(data)} of its inputs vary, expected 1" if data else "makes a constant that is not read"
            )
            if node.op_type == "Add" and data:
                why = "neither of its inputs is made of the other"
                why = "computes with integers, which wrap" if integers else why
            self.missed[node] = why
        others = [step for value in data[1:] for step in self._chain(value, None)]
        return Step(node.op_type if len(data) == 1 else "Unknown", node, others), [*data, self.input][0]

    def _plain(self, value: ir.Value) -> ir.Value:
        """The value that another is only another name or type of."""
        node = value.producer()
        return (
            value
            if node is None or node.op_type not in ("Cast", "Identity")
            else self._plain(*self.data(node))
        )

    def _before(self, value: ir.Value) -> set[ir.Value]:
        """All values that a value is made of."""
        found, waiting = set(), [value]
        while waiting:
            node = waiting.pop().producer()
            new = [] if node is None else [before for before in self.data(node) if before not in found]
            found.update(new)
            waiting += new
        return found

    def _curve(self, last: ir.Node) -> tuple[Step, ir.Value] | None:
        """The activation that some nodes compute together, known by its values, and its input."""
        region, ends = [last], set(self.data(last))
        while ends:
            if len(ends) == 1:
                (x,) = ends
                for name, curve in CURVES.items():
                    if self._computes(region, x, curve, POINTS):
                        return Step(name, last), x
                if (numbers := self._softplus(region, x)) is not None:
                    return Step("Softplus", last, arguments=numbers), x
            value = max(ends, key=lambda value: self.order.get(value.producer(), -1))  # type: ignore[arg-type]
            node = value.producer()
            if node is None or node.op_type not in ELEMENTWISE:
                return None
            if len(region) == MOST_OF_A_CURVE:  # each is evaluated with all before it
                return None
            region.append(node)
            ends = ends - {value} | set(self.data(node))
        return None

    def _softplus(self, region: Sequence[ir.Node], x: ir.Value) -> dict[str, float] | None:
        """Beta and the threshold of the Softplus that some nodes compute: ONNX's has neither."""
        made = {node.op_type: node for node in region}
        if "Softplus" not in made:
            return None
        numbers = {"beta": np.float64(1), "threshold": np.float64(20)}
        for name, kind in (("beta", "Mul"), ("threshold", "Greater")):
            if kind in made:
                constants = [self.constants[value] for value in made[kind].inputs if value in self.constants]
                if len(constants) != 1 or constants[0].size != 1 or constants[0].dtype.kind != "f":
                    return None
                numbers[name] = constants[0].reshape(())[()]
        beta, threshold = map(float, numbers.values())
        if not (0 < beta < np.inf and np.isfinite(threshold)):
            return None

        def curve(x: float) -> float:
            return x if beta * x > threshold else float(np.logaddexp(0, beta * x)) / beta

        points = POINTS * max(1.0, abs(threshold) / 3) / beta  # on both sides of the threshold
        if not self._computes(region, x, curve, points):
            return None
        return {name: float(str(number)) for name, number in numbers.items()}  # the shortest decimals

    def _computes(
        self, region: Sequence[ir.Node], x: ir.Value, curve: Callable[[float], float], points: Array
    ) -> bool:
        numbers = {value for node in region for value in node.inputs if value in self.constants}
        values = {value: np.float64(self.constants[value]) for value in numbers if value is not None}
        rank = 2 if x.shape is None else len(x.shape)  # a batch has at least two axes
        if any(array.size != 1 or array.ndim > rank for array in values.values()):
            return False
        values[x] = points
        with np.errstate(all="ignore"):
            for node in sorted(region, key=self.order.__getitem__):
                values[node.outputs[0]] = self.evaluate(node, values)
        rounded = any(self.constants[value].dtype.itemsize < 4 for value in numbers if value is not None)
        error = 2e-4 if rounded else 1e-5  # of √2 in 16 bits; GELU by tanh is 4.7e-4 off
        return np.allclose(values[region[0].outputs[0]].ravel(), [curve(point) for point in points], 0, error)

    def _complement(self, concat: ir.Node) -> ir.Value | None:
        """Z of (1 - p, p) with p = sigmoid(z), which scikit-learn's classifiers of two classes end in."""
        if len(concat.inputs) != 2 or concat.attributes.get_int("axis", 1) not in (1, -1):
            return None
        other, p = concat.inputs
        minus, sigmoid = (None if value is None else value.producer() for value in (other, p))
        if minus is None or sigmoid is None or (minus.op_type, sigmoid.op_type) != ("Sub", "Sigmoid"):
            return None
        one = self.constant(minus.inputs[0])
        return sigmoid.inputs[0] if minus.inputs[1] is p and one is not None and (one == 1).all() else None

    def _mean_of_lines(self, squeeze: ir.Node) -> ir.Value | None:
        """The lines whose mean is taken as one of images with one row, as PyTorch's newest exporter does."""
        nodes, at = [squeeze], squeeze.inputs[0]
        for kind in ("ReduceMean", "Unsqueeze"):
            node = None if at is None else at.producer()
            if node is None or node.op_type != kind or not node.attributes.get_int("keepdims", 1):
                return None
            nodes, at = [*nodes, node], node.inputs[0]
        axes = [self.constant(node.inputs[1]) if len(node.inputs) > 1 else None for node in nodes]
        found = [set() if each is None else {int(axis) % 4 for axis in each.ravel()} for each in axes]
        return at if found == [{2}, {2, 3}, {2}] else None

    def _decided(self, value: ir.Value) -> ir.Value:
        """The value that classes are chosen by, if the value is these classes; else the value."""
        at, node = value, value.producer()
        while node is not None and node.op_type in PASSED | DECIDED and len(self.data(node)) == 1:
            (at,) = self.data(node)
            if node.op_type == "ArgMax" and node.attributes.get_int("axis", 0) not in (1, -1):
                break  # of samples, not of classes
            table = self.constant(node.inputs[0]) if node.op_type == "ArrayFeatureExtractor" else None
            names = [] if table is None else [name.decode() for name in table.flat if isinstance(name, bytes)]
            self._names = [*(node.attributes.get_strings("classlabels_strings", names) or self._names)]
            if node.op_type in DECIDED or (node.op_type == "Identity" and node is value.producer()):
                value = at
            node = at.producer()
        return value


def _origin(value: ir.Value) -> str:
    """The name of a value, and the operator that makes it."""
    node = value.producer()
    return str(value.name) if node is None else f"{value.name} of {node.op_type}"
