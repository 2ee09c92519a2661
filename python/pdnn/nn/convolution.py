"""Convolution and pooling of images, (n, channels, height, width), and lines, (n, channels, length)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any, ClassVar

from pdnn.checks import flag, integer
from pdnn.core import CoreLayer, Width
from pdnn.nn.init import Initializer, fan_in_uniform, initializer
from pdnn.nn.module import Module
from pdnn.store import Parameter

Size = int | tuple[int, ...]
"""A number for all axes of a window, or one for each."""


class _Windowed(Module):
    """What windows go over."""

    _axes: ClassVar[int]  # of a sample, beside the channels

    def _size(self, name: str, value: int | Sequence[int], least: int = 1) -> Size:
        """A number, or several that differ."""
        try:
            numbers = [*map(index, value)] if isinstance(value, Sequence) else [index(value)] * self._axes
        except TypeError:
            numbers = []
        if len(numbers) != self._axes or min(numbers) < least or max(numbers) >= 2**31:
            each = "" if self._axes == 1 else f", or {self._axes} of them"
            to = " to 2**31 - 1" if numbers and max(numbers) >= 2**31 else ""
            raise ValueError(
                f"{type(self).__name__}: {name} {value!r}; expected a whole number from {least}{to}{each}"
            )
        return numbers[0] if len(set(numbers)) == 1 else tuple(numbers)

    def _each(self, size: Size) -> list[int]:
        """The number of each axis."""
        return [*size] if isinstance(size, tuple) else [size] * self._axes


class _Conv(_Windowed):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
        *,
        bias: bool = True,
        weight_init: Initializer | None = None,
        bias_init: Initializer | None = None,
    ) -> None:
        in_channels = integer(self, "in_channels", in_channels, 1)
        out_channels = integer(self, "out_channels", out_channels, 1)
        groups = integer(self, "groups", groups, 1)
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"{type(self).__name__}: {groups} groups; must divide {in_channels} input and {out_channels} "
                "output channels"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = self._size("kernel_size", kernel_size)
        self.stride = self._size("stride", stride)
        self.padding = self._size("padding", padding, 0)
        self.dilation = self._size("dilation", dilation)
        self.groups = groups
        self.weight_init = initializer(self, "weight_init", weight_init, fan_in_uniform())
        self.bias_init = initializer(self, "bias_init", bias_init, fan_in_uniform())
        self.weight = Parameter(
            "weight", (*self._each(self.kernel_size), in_channels // groups, out_channels)
        )
        self.bias = Parameter("bias", (out_channels,)) if flag(self, "bias", bias) else None

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        taps = prod(self._each(self.kernel_size))
        fans = taps * self.in_channels // self.groups, taps * self.out_channels
        weight_init, bias_init = (init.resolve(*fans) for init in (self.weight_init, self.bias_init))
        return core.Conv2d(
            self.in_channels,
            self.out_channels,
            self._each(self.kernel_size),
            self._each(self.stride),
            self._each(self.padding),
            self._each(self.dilation),
            self.groups,
            self.bias is not None,
            weight_init,
            bias_init,
        )

    def config(self) -> dict[str, Any]:
        """Channels and windows; initializers are for new models only."""
        rare = {"dilation": self.dilation, "groups": self.groups}
        return {
            "in_channels": self.in_channels,
            "out_channels": self.out_channels,
            "kernel_size": self.kernel_size,
            "stride": self.stride,
            "padding": self.padding,
            **{name: value for name, value in rare.items() if value != 1},
            "bias": self.bias is not None,
        }


class Conv2d(_Conv):
    """y[:, o, p, q] = b[o] + Σ_ijc x[:, c, r, s] w[i, j, c, o].

    There, r = p·stride + i·dilation - padding, and s likewise of q and j along the other axis.

    Parameters
    ----------
    in_channels, out_channels : int
        Of x, shape (n, in_channels, height, width), and y, shape (n, out_channels, height', width') with
        height' = (height + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1.
    kernel_size : int or (int, int)
        Height and width of the window; here and below two numbers where they differ.
    stride : int or (int, int)
        From one window to the next.
    padding : int or (int, int)
        Rows and columns of zeros at each edge of an image.
    dilation : int or (int, int)
        From one element of a window to the next.
    groups : int
        Channels are divided into so many groups, and an output sees the inputs of its group alone; as many
        as there are channels: each sees itself (depthwise).
    bias : bool
        Whether there is a b.
    weight_init, bias_init : Initializer, optional
        See `pdnn.nn.init`; PyTorch's default, uniform in ±1/√fan_in with fan_in = elements of the window ·
        in_channels / groups, unless given.

    Attributes
    ----------
    weight : Parameter, shape (height of the window, its width, in_channels / groups, out_channels)
        PyTorch's, transposed: ``torch_weight.transpose(2, 3, 1, 0)``.
    bias : Parameter, shape (out_channels,), or None

    Raises
    ------
    TypeError
        If a number of channels or groups is no integer, or bias no bool.
    ValueError
        If a number of channels, of the kernel, stride or dilation is below 1, one of the padding below 0,
        one of the kernel, stride, padding or dilation above 2**31 - 1, or the groups do not divide both
        numbers of channels.
    """

    _axes = 2


class _Pool(_Windowed):
    padding: Size = 0  # of those in pickles of other versions

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
    ) -> None:
        self.kernel_size = self._size("kernel_size", kernel_size)
        self.stride = self.kernel_size if stride is None else self._size("stride", stride)
        self.padding = self._size("padding", padding, 0)
        each = zip(self._each(self.padding), self._each(self.kernel_size), strict=True)
        if any(2 * zeros > taps for zeros, taps in each):
            raise ValueError(
                f"{type(self).__name__}: padding {padding} of windows of {kernel_size}; at most half of the "
                "kernel is possible"
            )

    def config(self) -> dict[str, Any]:
        """The windows."""
        padding = {} if self.padding == 0 else {"padding": self.padding}
        return {"kernel_size": self.kernel_size, "stride": self.stride, **padding}

    def _windows(self) -> list[list[int]]:
        return [*map(self._each, (self.kernel_size, self.stride, self.padding))]


class _MaxPool(_Pool):
    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        if prod(self._each(self.kernel_size)) > 256:
            raise ValueError(
                f"{type(self).__name__}: kernel_size {kernel_size}; at most 256 elements are possible"
            )

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.MaxPool2d(*self._windows())


class _AvgPool(_Pool):
    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.AvgPool2d(*self._windows())


class MaxPool2d(_MaxPool):
    """The largest element of each window, for each channel; places that no window reaches are left out.

    Parameters
    ----------
    kernel_size : int or (int, int)
        Height and width of the window, of at most 256 elements.
    stride : int or (int, int), optional
        From one window to the next; kernel_size unless given.
    padding : int or (int, int)
        Places on each side that are never the largest; at most half of kernel_size.

    Raises
    ------
    ValueError
        If a size or stride is below 1, the window has more elements, or the padding is wider.
    """

    _axes = 2


class AvgPool2d(_AvgPool):
    """The mean of each window, for each channel; places that no window reaches are left out.

    Parameters
    ----------
    kernel_size : int or (int, int)
        Height and width of the window.
    stride : int or (int, int), optional
        From one window to the next; kernel_size unless given.
    padding : int or (int, int)
        Zeros on each side, which the mean counts; at most half of kernel_size.

    Raises
    ------
    ValueError
        If a size or stride is below 1, or the padding is wider.
    """

    _axes = 2


class _AdaptiveAvgPool(_Windowed):
    def __init__(self, output_size: int | Sequence[int] = 1) -> None:
        if self._size("output_size", output_size) != 1:
            name = type(self).__name__
            raise ValueError(
                f"{name}: output size {output_size}; only 1 is supported, use {name[8:]} for others"
            )
        self.output_size = 1

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.GlobalAvgPool2d(self._axes == 1)

    def config(self) -> dict[str, Any]:
        """The output size."""
        return {"output_size": self.output_size}


class AdaptiveAvgPool2d(_AdaptiveAvgPool):
    """The mean of each channel of an image of any size: (n, channels, h, w) becomes (n, channels, 1, 1).

    Parameters
    ----------
    output_size : int or (int, int)
        1.

    Raises
    ------
    ValueError
        If it is not 1.
    """

    _axes = 2


class Conv1d(_Conv):
    """`Conv2d` of lines: y[:, o, p] = b[o] + Σ_ic x[:, c, p·stride + i·dilation - padding] w[i, c, o].

    Parameters
    ----------
    in_channels, out_channels : int
        Of x, shape (n, in_channels, length), and y, shape (n, out_channels, length') with
        length' = (length + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1.
    kernel_size, stride, padding, dilation : int
        Length of the window; from one to the next; zeros at both ends of a line; from one element of a window
        to the next.
    groups, bias, weight_init, bias_init
        As for `Conv2d`.

    Attributes
    ----------
    weight : Parameter, shape (kernel_size, in_channels / groups, out_channels)
        PyTorch's, transposed: ``torch_weight.transpose(2, 1, 0)``.
    bias : Parameter, shape (out_channels,), or None

    Raises
    ------
    ValueError
        As for `Conv2d`.
    """

    _axes = 1


class MaxPool1d(_MaxPool):
    """`MaxPool2d` of lines: length becomes (length + 2 padding - kernel_size) // stride + 1.

    Parameters
    ----------
    kernel_size : int
        Length of the window, at most 256.
    stride, padding : int, optional
        As for `MaxPool2d`.

    Raises
    ------
    ValueError
        As for `MaxPool2d`.
    """

    _axes = 1


class AvgPool1d(_AvgPool):
    """`AvgPool2d` of lines: length becomes (length + 2 padding - kernel_size) // stride + 1.

    Parameters
    ----------
    kernel_size : int
        Length of the window.
    stride, padding : int, optional
        As for `AvgPool2d`.

    Raises
    ------
    ValueError
        As for `AvgPool2d`.
    """

    _axes = 1


class AdaptiveAvgPool1d(_AdaptiveAvgPool):
    """The mean of each channel of a line of any length: (n, channels, length) becomes (n, channels, 1).

    Parameters
    ----------
    output_size : int
        1.

    Raises
    ------
    ValueError
        If it is not 1.
    """

    _axes = 1
