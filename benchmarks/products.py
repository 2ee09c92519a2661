"""Matrix products alone, as layers need them (y = x w, dw = xᵀ dy, dx = dy wᵀ), by pdnn, NumPy and Eigen.

A block makes one product a few times from the same arrays; what it returns beside its time is the mean square
of the result, so that a comparison can tell that all did the same work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

import eigen
from convolutions import mean_square, repeated
from measure import fastest_quarter
from workers import Runner

Array = npt.NDArray[Any]

PASSES = ("forward", "dw", "dx")
WIDTHS = (8, 10, 16, 32, 64, 100, 128, 256, 512, 1024)
"""Inputs and outputs of the heat map's layers."""


@dataclass(frozen=True)
class Layer:
    """A fully connected layer of a network.

    Parameters
    ----------
    network : str
    batch, inputs, outputs : int
    first : bool
        Of its network: its dx is not needed.
    """

    network: str
    batch: int
    inputs: int
    outputs: int
    first: bool = False

    @property
    def name(self) -> str:
        """Where it stands and what it does."""
        return f"{self.network} {self.inputs}→{self.outputs}, batch {self.batch}"

    @property
    def flop(self) -> int:
        """Operations of one pass."""
        return 2 * self.batch * self.inputs * self.outputs

    def arrays(self, dtype: str) -> tuple[Array, Array, Array]:
        """Arrays x (batch, inputs), w (inputs, outputs), dy (batch, outputs)."""
        rng = np.random.default_rng(1)
        shapes = ((self.batch, self.inputs), (self.inputs, self.outputs), (self.batch, self.outputs))
        x, w, dy = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
        return x, w, dy


LAYERS = (
    Layer("W0", 105, 784, 256, first=True),
    Layer("W0", 105, 256, 10),
    Layer("W3", 64, 1024, 256, first=True),
    Layer("W3", 64, 256, 256),
    Layer("W3", 64, 256, 32),
)


def pdnn_call(layer: Layer, which: str, dtype: str) -> Callable[[], Array]:
    """The product by pdnn."""
    from pdnn.core import core_for

    core = core_for(dtype)
    x, w, dy = layer.arrays(dtype)
    calls: dict[str, Callable[[], Array]] = {
        "forward": lambda: core.matmul(x, w),
        "dw": lambda: core.matmul(x, dy, transposed="a"),
        "dx": lambda: core.matmul(dy, w, transposed="b"),
    }
    return calls[which]


def pdnn_product(layer: Layer, which: str, dtype: str) -> Runner:
    """A block of it."""
    return repeated(layer.flop, pdnn_call(layer, which, dtype), mean_square)


def numpy_product(layer: Layer, which: str, dtype: str) -> Runner:
    """The product by NumPy's BLAS, into an array made once."""
    x, w, dy = layer.arrays(dtype)
    a, b = {"forward": (x, w), "dw": (x.T, dy), "dx": (dy, w.T)}[which]
    out = np.empty((a.shape[0], b.shape[1]), dtype)
    return repeated(layer.flop, lambda: np.matmul(a, b, out=out), mean_square)


def eigen_product(layer: Layer, which: str, dtype: str) -> Runner:
    """The product by Eigen, into an array made once."""
    x, w, dy = layer.arrays(dtype)
    calls = {
        "forward": lambda: eigen.product_into(np.empty_like(dy), x, w),
        "dw": lambda: eigen.product_into(np.empty_like(w), x, dy, "a"),
        "dx": lambda: eigen.product_into(np.empty_like(x), dy, w, "b"),
    }
    return repeated(layer.flop, calls[which](), mean_square)


def heat_map(dtype: str, batch: int, widths: Sequence[int] = WIDTHS) -> dict[str, list[list[float]]]:
    """Shares of the peak, [inputs][outputs], for each pass; this process is pinned to one core meanwhile.

    Each product and the peak are measured in turns, seven times a millisecond or more; a share is the ratio
    of the fastest quarters.
    """
    from pdnn.core import core_for

    core = core_for(dtype)
    mask = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(mask)[-1:])
    try:
        return {
            which: [
                [share(Layer("", batch, inputs, outputs), which, dtype, core) for outputs in widths]
                for inputs in widths
            ]
            for which in PASSES
        }
    finally:
        os.sched_setaffinity(0, mask)


def share(layer: Layer, which: str, dtype: str, core: Any) -> float:
    """The share of the peak that one product reaches."""
    call = pdnn_call(layer, which, dtype)
    calls = max(1, round(1e8 / layer.flop))
    seconds, peak_seconds = [], []
    for _ in range(7):
        peak_seconds.append(layer.flop / core.measure_peak(0.0005))
        start = perf_counter()
        for _ in range(calls):
            call()
        seconds.append((perf_counter() - start) / calls)
    return fastest_quarter(peak_seconds) / fastest_quarter(seconds)


def plot_heat_map(shares: dict[str, list[list[float]]], title: str, path: str) -> None:
    """A panel for each pass."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.6 * len(shares), 4.6), layout="constrained")
    for index, (which, values) in enumerate(shares.items()):
        axes = figure.add_subplot(1, len(shares), index + 1)
        axes.imshow(values, vmin=0, vmax=1, cmap="viridis")
        for row, cells in enumerate(values):
            for column, value in enumerate(cells):
                color = "black" if value > 0.6 else "white"
                axes.text(column, row, f"{value:.0%}", ha="center", va="center", fontsize=6, color=color)
        axes.set_xticks(range(len(WIDTHS)), [str(width) for width in WIDTHS], fontsize=7)
        axes.set_yticks(range(len(WIDTHS)), [str(width) for width in WIDTHS], fontsize=7)
        axes.set_xlabel("outputs")
        axes.set_ylabel("inputs")
        axes.set_title(which, fontsize=9)
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, dpi=130)
