"""What a model consists of: a table of its layers, and what a batch of samples costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pdnn.core import Width
from pdnn.nn.module import Module
from pdnn.store import Parameter, TableParameter


@dataclass(frozen=True)
class Row:
    """A layer.

    Attributes
    ----------
    name : str
        Its path: ``"4.fn.0"``.
    layer : str
        Its type.
    depth : int
        How many layers it is inside.
    output : tuple of int
        Shape of a sample that it gives.
    parameters, flops : int
        Of it and all inside it.
    """

    name: str
    layer: str
    depth: int
    output: tuple[int, ...]
    parameters: int
    flops: int


@dataclass(frozen=True)
class Summary:
    """What `Sequential.summary` returns; `print` shows it as a table.

    Attributes
    ----------
    rows : list of Row
    parameters : int
    flops : int
        Floating-point operations of a forward pass over one sample, those of Linear and Conv2d: two for each
        multiplication. A training step takes nearly three times that.
    model_bytes : int
        Parameters, gradients and running statistics.
    batch_size : int
    batch_bytes : int
        What a training step over such a batch needs beside them, on one thread.
    """

    rows: list[Row]
    parameters: int
    flops: int
    model_bytes: int
    batch_size: int
    batch_bytes: int

    def __str__(self) -> str:
        lines = [("layer", "output", "parameters", "FLOPs")]
        for row in self.rows:
            own = f"{'  ' * row.depth}{row.name.rpartition('.')[2]}  {row.layer}"
            shape = " x ".join(map(str, row.output))
            lines.append((own, shape, f"{row.parameters:,}", f"{row.flops:,}"))
        lines.append(("total", "", f"{self.parameters:,}", f"{self.flops:,}"))
        widths = [max(len(line[column]) for line in lines) for column in range(4)]
        table = [
            f"{own:<{widths[0]}}  {shape:<{widths[1]}}  {parameters:>{widths[2]}}  {flops:>{widths[3]}}"
            for own, shape, parameters, flops in lines
        ]
        rule = "-" * len(table[0])
        return "\n".join(
            [
                table[0].rstrip(), rule, *table[1:-1], rule, table[-1],
                f"parameters, gradients and state: {_size(self.model_bytes)}",
                f"a training step of {self.batch_size} sample(s): {_size(self.batch_bytes)}",
            ]
        )  # fmt: skip

    __repr__ = __str__


def layer_rows(
    module: Module, core: Width, sample: tuple[int, ...], name: str = "", depth: int = -1
) -> Iterator[Row]:
    """A row for the module, then those of its parts, which pass the sample on from one to the next."""
    inside: list[Row] = []
    at = sample
    for part_name, part in module.named_children():
        rows = list(layer_rows(part, core, at, f"{name}.{part_name}" if name else part_name, depth + 1))
        inside += rows
        at = rows[0].output
    output = tuple(module.build(core).output_shape(list(sample)))
    flops = sum(row.flops for row in inside if row.depth == depth + 1)
    weight = vars(module).get("weight")
    table = isinstance(weight, TableParameter)
    if isinstance(weight, Parameter) and len(weight.shape) > 1 and not table:
        # a product, once for each pixel of the output
        flops += 2 * weight.size * prod(output[1:])
    parameters = sum(parameter.size for parameter in module.own_parameters())
    yield Row(name, type(module).__name__, depth, output, parameters, flops)
    yield from inside


def _size(count: int) -> str:
    value, unit = float(count), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:,.0f} {unit}" if unit == "bytes" else f"{value:,.1f} {unit}"
