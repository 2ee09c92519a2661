"""Layers on images, (n, channels, height, width): convolution and pooling."""

from __future__ import annotations

from typing import Any

from pdnn.core import CoreLayer, Width
from pdnn.nn.init import Initializer, fan_in_uniform
from pdnn.nn.module import Module
from pdnn.store import Parameter


def _check_windows(layer: Module, kernel_size: int, stride: int, padding: int = 0) -> None:
    if kernel_size < 1 or stride < 1 or padding < 0:
        raise ValueError(
            f"{type(layer).__name__}: kernel {kernel_size}, stride {stride}, padding {padding}; "
            f"kernel and stride must be at least 1, padding at least 0"
        )


class Conv2d(Module):
    """y[:, o, p, q] = b[o] + Σ_ijc x[:, c, p·stride + i - padding, q·stride + j - padding] w[i, j, c, o].

    Parameters
    ----------
    in_channels, out_channels : int
        Of x, shape (n, in_channels, height, width), and y, shape (n, out_channels, height', width') with
        height' = (height + 2 padding - kernel_size) // stride + 1.
    kernel_size : int
        Height and width of the window.
    stride : int
        From one window to the next.
    padding : int
        Rows and columns of zeros around an image.
    bias : bool
        Whether there is a b.
    weight_init, bias_init : Initializer, optional
        See `pdnn.nn.init`; PyTorch's default, uniform in ±1/√fan_in with fan_in = kernel_size² in_channels,
        unless given.

    Attributes
    ----------
    weight : Parameter, shape (kernel_size, kernel_size, in_channels, out_channels)
        PyTorch's, transposed: ``torch_weight.transpose(2, 3, 1, 0)``.
    bias : Parameter, shape (out_channels,), or None

    Raises
    ------
    ValueError
        If a number of channels, the kernel or the stride is below 1, or the padding below 0.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        stride: int = 1,
        padding: int = 0,
        *,
        bias: bool = True,
        weight_init: Initializer | None = None,
        bias_init: Initializer | None = None,
    ) -> None:
        if in_channels < 1 or out_channels < 1:
            raise ValueError(
                f"Conv2d: {in_channels} input and {out_channels} output channels; both must be at least 1"
            )
        _check_windows(self, kernel_size, stride, padding)
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.weight_init = weight_init or fan_in_uniform()
        self.bias_init = bias_init or fan_in_uniform()
        self.weight = Parameter("weight", (kernel_size, kernel_size, in_channels, out_channels))
        self.bias = Parameter("bias", (out_channels,)) if bias else None

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        taps = self.kernel_size**2
        fans = taps * self.in_channels, taps * self.out_channels
        weight_init, bias_init = (init.resolve(*fans) for init in (self.weight_init, self.bias_init))
        return core.Conv2d(
            self.in_channels,
            self.out_channels,
            self.kernel_size,
            self.stride,
            self.padding,
            self.bias is not None,
            weight_init,
            bias_init,
        )

    def config(self) -> dict[str, Any]:
        """Channels and windows; initializers are for new models only."""
        return {
            "in_channels": self.in_channels,
            "out_channels": self.out_channels,
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "padding": self.padding,
            "bias": self.bias is not None,
        }


class MaxPool2d(Module):
    """The largest element of each window, for each channel; places that no window reaches are left out.

    Parameters
    ----------
    kernel_size : int
        Height and width of the window, at most 16.
    stride : int, optional
        From one window to the next; kernel_size unless given.

    Raises
    ------
    ValueError
        If the kernel is not in 1 … 16 or the stride below 1.
    """

    def __init__(self, kernel_size: int, stride: int | None = None) -> None:
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        _check_windows(self, kernel_size, self.stride)
        if kernel_size > 16:
            raise ValueError(f"MaxPool2d: kernel {kernel_size}; at most 16")

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.MaxPool2d(self.kernel_size, self.stride)

    def config(self) -> dict[str, Any]:
        """The windows."""
        return {"kernel_size": self.kernel_size, "stride": self.stride}


class AvgPool2d(Module):
    """The mean of each window, for each channel; places that no window reaches are left out.

    Parameters
    ----------
    kernel_size : int
        Height and width of the window.
    stride : int, optional
        From one window to the next; kernel_size unless given.

    Raises
    ------
    ValueError
        If the kernel or the stride is below 1.
    """

    def __init__(self, kernel_size: int, stride: int | None = None) -> None:
        self.kernel_size = kernel_size
        self.stride = kernel_size if stride is None else stride
        _check_windows(self, kernel_size, self.stride)

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.AvgPool2d(self.kernel_size, self.stride)

    def config(self) -> dict[str, Any]:
        """The windows."""
        return {"kernel_size": self.kernel_size, "stride": self.stride}


class AdaptiveAvgPool2d(Module):
    """The mean of each channel of an image of any size: (n, channels, h, w) becomes (n, channels, 1, 1).

    Parameters
    ----------
    output_size : int
        1.

    Raises
    ------
    ValueError
        If it is not 1.
    """

    def __init__(self, output_size: int = 1) -> None:
        if output_size != 1:
            raise ValueError(
                f"AdaptiveAvgPool2d: output size {output_size}; only 1 is supported, use AvgPool2d for others"
            )
        self.output_size = output_size

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.GlobalAvgPool2d()

    def config(self) -> dict[str, Any]:
        """The output size."""
        return {"output_size": self.output_size}
