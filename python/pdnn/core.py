"""The C++ core by its width: one module for float32 and one for float64, which hold the same names."""

from __future__ import annotations

from typing import TypeAlias

from pdnn import _core

Width: TypeAlias = "_core.Width"
CoreEvaluator: TypeAlias = "_core.float32.Evaluator"
CoreLayer: TypeAlias = "_core.float32.Layer"
CoreLoss: TypeAlias = "_core.float32.Loss"
CoreModel: TypeAlias = "_core.float32.Model"
CoreNetwork: TypeAlias = "_core.float32.Network"
CoreOptimizer: TypeAlias = "_core.float32.Optimizer"
CoreSession: TypeAlias = "_core.float32.Session"
CoreSource: TypeAlias = "_core.float32.Source"
LayerCall: TypeAlias = "_core.float32.LayerCall"


def core_for(dtype: str) -> Width:
    """The core's submodule for "float32" or "float64"."""
    return {"float32": _core.float32, "float64": _core.float64}[dtype]
