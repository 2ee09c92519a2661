"""The convolutions of two networks, alone: forward, dw (with db) and dx, by pdnn's kernels and by PyTorch.

A block calls one of them a few times on the same arrays. What it returns beside its time is the mean square
of the result, so that a comparison can tell that all did the same work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from pytorch import take_threads
from workers import Runner

Array = npt.NDArray[Any]

PASSES = ("forward", "dw", "dx")
BLOCK_FLOP = 4e9
"""Operations of a block: some 20 ms."""


@dataclass(frozen=True)
class Convolution:
    """A layer of a network on square images.

    Parameters
    ----------
    network : str
    batch, size, inputs, outputs, kernel, stride, padding : int
        `size` is the height and width of an image.
    first : bool
        Of its network: its dx is not needed.
    """

    network: str
    batch: int
    size: int
    inputs: int
    outputs: int
    kernel: int
    stride: int = 1
    padding: int = 0
    first: bool = False

    @property
    def name(self) -> str:
        """Where it stands and what it does."""
        return (
            f"{self.network} {self.inputs}→{self.outputs}, {self.kernel}x{self.kernel}/{self.stride} "
            f"on {self.size}x{self.size}"
        )

    @property
    def out_size(self) -> int:
        """Height and width of the output."""
        return (self.size + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def flop(self) -> int:
        """Operations of one pass, for the taps that meet the image; those on the padding do not count."""
        places = range(self.out_size)
        meet = sum(
            0 <= place * self.stride + tap - self.padding < self.size
            for place in places
            for tap in range(self.kernel)
        )
        return 2 * self.batch * meet**2 * self.inputs * self.outputs

    def arrays(self, dtype: str) -> tuple[Array, Array, Array, Array]:
        """Images x (n, size, size, inputs), w (kernel, kernel, inputs, outputs), b, and a slope dy like y."""
        rng = np.random.default_rng(1)
        shapes = (
            (self.batch, self.size, self.size, self.inputs),
            (self.kernel, self.kernel, self.inputs, self.outputs),
            (self.outputs,),
            (self.batch, self.out_size, self.out_size, self.outputs),
        )
        x, w, b, dy = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
        return x, w, b, dy


LENET = "W1"
RESNET = "ResNet9"
CONVOLUTIONS = (
    Convolution(LENET, 256, 32, 1, 16, 5, first=True),
    Convolution(LENET, 256, 14, 16, 32, 5),
    Convolution(RESNET, 128, 32, 3, 16, 7, 4, 3, first=True),
    Convolution(RESNET, 128, 8, 16, 32, 3, 2, 1),
    Convolution(RESNET, 128, 4, 32, 32, 3, 1, 1),
    Convolution(RESNET, 128, 4, 32, 64, 3, 2, 1),
    Convolution(RESNET, 128, 2, 64, 128, 3, 2, 1),
    Convolution(RESNET, 128, 1, 128, 128, 3, 1, 1),
)


def repeated(flop: int, call: Callable[[], Any], check: Callable[[Any], float]) -> Runner:
    """A runner whose block calls a function several times; the check is made of its last result."""
    calls = max(1, round(BLOCK_FLOP / flop))

    def run() -> tuple[float, float]:
        start = perf_counter()
        for _ in range(calls):
            result = call()
        seconds = (perf_counter() - start) / calls
        return seconds, check(result)

    return run


def mean_square(result: Any) -> float:
    """Of all elements of an array."""
    return float(np.mean(np.square(np.asarray(result, np.float64))))


def pdnn_convolution(shape: Convolution, which: str, dtype: str) -> Runner:
    """The kernel of pdnn, channels last."""
    from pdnn.core import core_for

    core = core_for(dtype)
    x, w, b, dy = shape.arrays(dtype)
    stride, padding = shape.stride, shape.padding
    calls: dict[str, Callable[[], Any]] = {
        "forward": lambda: core.conv2d(x, w, b, stride=stride, padding=padding),
        "dw": lambda: core.conv2d_backward(x, w, dy, stride=stride, padding=padding, dx=False)[1],
        "dx": lambda: core.conv2d_backward(x, w, dy, stride=stride, padding=padding, dw=False)[0],
    }
    return repeated(shape.flop, calls[which], mean_square)


def torch_convolution(shape: Convolution, which: str, dtype: str, channels_last: bool) -> Runner:
    """PyTorch's operation without autograd, on one thread, images in either memory format."""
    import torch

    take_threads(1)
    layout = torch.channels_last if channels_last else torch.contiguous_format
    x, w, b, dy = (torch.from_numpy(array) for array in shape.arrays(dtype))
    x, dy = (t.permute(0, 3, 1, 2).contiguous(memory_format=layout) for t in (x, dy))
    w = w.permute(3, 2, 0, 1).contiguous(memory_format=layout)
    stride, padding = (shape.stride,) * 2, (shape.padding,) * 2

    def backward(wanted: list[bool]) -> Any:
        return torch.ops.aten.convolution_backward(
            dy, x, w, [shape.outputs], stride, padding, (1, 1), False, (0, 0), 1, wanted
        )

    calls: dict[str, Callable[[], Any]] = {
        "forward": lambda: torch.conv2d(x, w, b, stride, padding),
        "dw": lambda: backward([False, True, True])[1],
        "dx": lambda: backward([True, False, False])[0],
    }

    def call() -> Any:
        with torch.inference_mode():
            return calls[which]()

    return repeated(shape.flop, call, lambda result: mean_square(result.numpy()))
