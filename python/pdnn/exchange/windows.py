"""Windows of convolutions and pools, as ONNX describes them."""

from __future__ import annotations

from typing import Any, NamedTuple

from pdnn.exchange.graph import Node
from pdnn.exchange.samples import Shape, Unknown


class Windows(NamedTuple):
    """How windows go over the axes of a sample behind its channels."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]

    @classmethod
    def of(cls, node: Node, sizes: Shape, kernel: tuple[int, ...]) -> Windows:
        """Those of a node.

        Parameters
        ----------
        node : Node
        sizes : tuple
            The extents of the axes, on which padding may depend.
        kernel : tuple of int
            Where the node does not say it.

        Raises
        ------
        Unknown
            If pdnn has no such windows.
        """
        options, axes = node.attributes, len(kernel)
        stride, dilation = (
            tuple(options.get_ints(name, (1,) * axes) or ()) for name in ("strides", "dilations")
        )
        kernel = tuple(options.get_ints("kernel_shape", kernel) or ())
        for name, numbers in (("kernel_shape", kernel), ("strides", stride), ("dilations", dilation)):
            if len(numbers) != axes or min(numbers) < 1:
                raise Unknown(f"its {name} is {[*numbers]}, expected {axes} numbers from 1")
        pads = [*(options.get_ints("pads", (0, 0) * axes) or ())]
        automatic = options.get_string("auto_pad", "NOTSET") or "NOTSET"
        if automatic.startswith("SAME"):
            wholes = []
            for size, taps, step, apart in zip(sizes, kernel, stride, dilation, strict=True):
                if size is None:
                    raise Unknown("its padding depends on the size of images, which the file does not say")
                wholes.append(max((-(-size // step) - 1) * step + (taps - 1) * apart + 1 - size, 0))
            pads = [*(whole // 2 for whole in wholes), *(whole - whole // 2 for whole in wholes)]
        elif automatic == "VALID":
            pads = [0] * (2 * axes)
        elif automatic != "NOTSET":
            raise Unknown(f"its auto_pad is {automatic!r}")
        if len(pads) != 2 * axes or min(pads) < 0:
            raise Unknown(f"its pads are {pads}, expected {2 * axes} numbers from 0")
        if pads[:axes] != pads[axes:]:
            raise Unknown("its padding is not the same on opposite sides")
        return cls(kernel, stride, tuple(pads[:axes]), dilation)

    def arguments(self) -> dict[str, Any]:
        """Those that convolutions and pools have."""
        names = ("kernel_size", "stride", "padding")
        return dict(zip(names, map(one_or_each, self[:3]), strict=True))

    def places(self, sizes: Shape) -> Shape:
        """Their numbers on samples of these extents."""
        return tuple(
            None if size is None else (size + 2 * padding - (kernel - 1) * dilation - 1) // stride + 1
            for size, kernel, stride, padding, dilation in zip(sizes, *self, strict=True)
        )


def one_or_each(numbers: tuple[int, ...]) -> int | list[int]:
    """One for all axes, if they are the same."""
    return numbers[0] if len({*numbers}) == 1 else [*numbers]
