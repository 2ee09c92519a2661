"""What to write in the place of torch's attributes that pdnn has none of, as their errors say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

#: Of everything that torch has on some device.
PLACE = {
    **dict.fromkeys(("to", "cpu", "cuda"), "all arrays are in the memory of the CPU, so leave it out"),
    "device": "it is always the CPU",
}
_DTYPE = 'pass dtype="float64", "float32" or "bfloat16" when the outermost module is made'
MODULE = {
    **PLACE,
    **dict.fromkeys(("double", "float", "half", "bfloat16"), _DTYPE),
    "zero_grad": "call zero_grad() of the optimizer, or write flat_gradients[...] = 0",
    "requires_grad_": "to keep parameters as they are, pass the optimizer the others only",
}
HANDLE = {
    **{name: f"its array has one, data.{name}" for name in dir(np.ndarray)},
    **dict.fromkeys(("detach", "numpy", "clone"), "its values are the array data; data.copy() is a copy"),
    "numel": "write size",
    "dim": "write len(shape)",
    **PLACE,
    "requires_grad_": MODULE["requires_grad_"],
}
TENSOR = {
    **{name: f"its array has one, tensor.data.{name}, without a gradient" for name in dir(np.ndarray)},
    **PLACE,
    "view": "write reshape",
    "size": "write shape",
    "grad": "only Parameters have one",
}


class Advising:
    """Base of what errors about an attribute give advice for.

    Attributes
    ----------
    advice : dict
        Names of attributes that it lacks, and what to write.
    """

    __slots__ = ()
    advice: ClassVar[dict[str, str]] = PLACE

    if not TYPE_CHECKING:  # types know all attributes

        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if hasattr(kind, name):  # a property's own AttributeError
                return object.__getattribute__(self, name)
            hint = f"; {kind.advice[name]}" if name in kind.advice else ""
            raise AttributeError(
                f"{kind.__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self
            )
