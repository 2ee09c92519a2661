"""Network: what estimates need to know of a model for samples of one shape."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import prod

from pdnn import models, nn
from pdnn.core import core_for


@dataclass(frozen=True)
class Pair:
    """Two Linears that tensor parallel cuts: elements a row that ranks add up forward and backward."""

    forward: int
    backward: int


class Network:
    """A model and the shape of its samples.

    Parameters
    ----------
    model : nn.Sequential
    sample : tuple of int

    Attributes
    ----------
    params, buffers : int
        Elements of parameters, and of running statistics.
    itemsize : int
        Bytes of an element.
    flops : int
        Of the products of a step, a row: forward, the weights' gradient, and dx but for the first layer's.
    layer_flops, layer_params : list of int
        Of each layer.
    widths : list of int
        Elements of a sample before the first layer and behind each.
    """

    def __init__(self, model: nn.Sequential, sample: tuple[int, ...]) -> None:
        self.model, self.sample = model, tuple(sample)
        layers = [row for row in model.summary(self.sample).rows if row.depth == 0]
        self.itemsize = model.flat_parameters.itemsize
        self.params, self.buffers = model.flat_parameters.size, model.flat_buffers.size
        self.widths = [prod(self.sample), *(prod(layer.output) for layer in layers)]
        self.layer_params = [layer.parameters for layer in layers]
        products = [3 * layer.flops for layer in layers]
        first = next((number for number, layer in enumerate(layers) if layer.flops), 0)
        products[first] = 2 * products[first] // 3  # the first layer's dx is not needed
        self.layer_flops, self.flops = products, sum(products)

    @property
    def size(self) -> int:
        """Bytes of the parameters."""
        return self.params * self.itemsize

    @property
    def barriers(self) -> int:
        """How often the threads of a team meet in a step: after each layer both ways, loss and batch."""
        return 2 * sum(count > 0 for count in self.layer_params) + 2

    @property
    def normalizes(self) -> bool:
        """Whether a batch's rows depend on each other, so that dividing them changes the result."""
        return any(isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)) for module in self.model.modules())

    @property
    def synchronized(self) -> bool:
        """Whether a normalization waits for all rows of a batch."""
        return any(getattr(module, "sync", False) for module in self.model.modules())

    def batch_bytes(self, rows: int) -> int:
        """What a pass over so many rows needs beside the parameters."""
        return int(self.model.core.batch_bytes(list(self.sample), max(1, rows)))

    @cached_property
    def pairs(self) -> list[tuple[int, int]]:
        """Numbers of the Linears that tensor parallel cuts together, as the core pairs them."""
        return core_for(self.model.dtype).linear_pairs(self.model.core)

    def most_stages(self, reproducible: bool) -> int:
        """How many stages a pipeline may have: layers that are computed as one share theirs."""
        core = core_for(self.model.dtype)
        together = core.inseparable(self.model.core, list(self.sample)) if reproducible else []
        return len(self.layer_params) - sum(end - begin - 1 for begin, end in together)

    def tensor_part(self, ranks: int) -> tuple[Network, list[Pair]]:
        """What the first of so many ranks holds, as a network by itself, and what a row costs in sums."""
        configs = [dict(layer) for layer in self.model.config()["layers"]]
        pairs = []
        for first, second in self.pairs:
            width = self.widths[first + 1]
            own = -(-width // ranks)
            configs[first]["out_features"] = configs[second]["in_features"] = own
            wanted = any(self.layer_params[:first])
            pairs.append(Pair(self.widths[second + 1], self.widths[first] if wanted else 0))
        layers = [models.build_layer(**config) for config in configs]
        return Network(nn.Sequential(*layers, dtype=self.model.dtype, seed=0), self.sample), pairs

    def stage_params(self, cut: tuple[int, ...]) -> list[int]:
        """Parameters of each stage that a cut makes."""
        ends = [0, *cut, len(self.layer_params)]
        return [sum(self.layer_params[a:b]) for a, b in pairwise(ends)]
