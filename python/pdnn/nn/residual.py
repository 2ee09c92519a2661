"""Residual: what a module makes of x, added to x."""

from __future__ import annotations

from typing import Any

from pdnn.checks import kind_of
from pdnn.core import CoreLayer, Width
from pdnn.nn.module import Module


class Residual(Module):
    """y = x + fn(x) (He, Zhang, Ren, Sun, CVPR 2016).

    Parameters
    ----------
    fn : Module
        A layer or a Sequential; its output has the shape of its input.

    Raises
    ------
    TypeError
        If fn is not a Module.
    """

    def __init__(self, fn: Module) -> None:
        super().__init__()
        if not isinstance(fn, Module):
            raise TypeError(f"Residual: fn is of type {kind_of(fn)}, expected an nn.Module")
        self.fn = fn

    def forward(self, x: Any) -> Any:
        """The sum, where fn has its forward in Python."""
        return x + self.fn(x)

    def build(self, core: Width) -> CoreLayer:
        """The layer of the core."""
        return core.Residual(self.fn.build(core))

    def config(self) -> dict[str, Any]:
        """The inner module's type and arguments."""
        return {"fn": {"type": type(self.fn).__name__, **self.fn.config()}}
