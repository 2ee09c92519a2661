"""The C++ core by the dtype of a model: modules that hold the same names."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from pdnn import _core

Width: TypeAlias = "_core.Width"
CoreCustom: TypeAlias = "_core.float32.Custom"
CoreEvaluator: TypeAlias = "_core.float32.Evaluator"
CoreLayer: TypeAlias = "_core.float32.Layer"
CoreLoss: TypeAlias = "_core.float32.Loss"
CoreModel: TypeAlias = "_core.float32.Model"
CoreNetwork: TypeAlias = "_core.float32.Network"
CoreOptimizer: TypeAlias = "_core.float32.Optimizer"
CoreSession: TypeAlias = "_core.float32.Session"
CoreSource: TypeAlias = "_core.float32.Source"
CoreStepper: TypeAlias = "_core.float32.Stepper"
LayerCall: TypeAlias = "_core.float32.LayerCall"


DTYPES = ("float32", "float64", "bfloat16")

_NAMES = {np.dtype(name): name for name in ("float32", "float64")}

# Everything of float32, but layers whose products round their factors.
_bfloat16 = SimpleNamespace(
    **vars(_core.float32)
    | {name: partial(getattr(_core.float32, name), bfloat16=True) for name in ("Linear", "Conv2d")},
)


def core_for(dtype: str) -> Width:
    """The core's submodule for a model's dtype."""
    width = {"float32": _core.float32, "float64": _core.float64, "bfloat16": _bfloat16}[dtype]
    return cast("Width", width)


def array_dtype(dtype: str) -> str:
    """The dtype of the arrays of such a model: float32 if its products are bfloat16."""
    return "float32" if dtype == "bfloat16" else dtype


def name_of(dtype: np.dtype[Any]) -> str:
    """Its name; NumPy makes it anew each time, which takes longer than a small layer."""
    return _NAMES.get(dtype) or str(dtype)


def kernels_of(dtype: str) -> str:
    """The instruction sets with whose kernels such a model has the bits that it has here."""
    isa = _core.active_isa()
    return isa if isa == "v2" or (dtype == "bfloat16" and "-" in isa) else "v3, v4 and neon"


def model_dtype(where: str, dtype: npt.DTypeLike) -> str:
    """The name of a model's dtype; NumPy itself has no bfloat16.

    Raises
    ------
    TypeError, ValueError
        If it is no dtype, or none of models.
    """
    try:
        name = dtype if isinstance(dtype, str) and dtype in DTYPES else str(np.dtype(dtype))
    except TypeError:
        raise TypeError(f"{where}: dtype is {dtype!r}, expected float32, float64 or bfloat16") from None
    if name not in DTYPES:
        raise ValueError(f"{where}: dtype {name}; expected float32, float64 or bfloat16")
    return name
