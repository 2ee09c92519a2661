"""Optimizers and schedules of their learning rates, under torch's names."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pdnn.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    SequentialLR,
    StepLR,
)
from pdnn.optim.optimizer import Optimizer
from pdnn.optim.rules import SGD, Adam, AdamW, Lion, RMSprop

if TYPE_CHECKING:
    from pdnn.optim.lbfgs import LBFGS
    from pdnn.optim.second_order import GaussNewton, LevenbergMarquardt, NaturalGradient, SecondOrder

__all__ = [
    "LBFGS",
    "SGD",
    "Adam",
    "AdamW",
    "ConstantLR",
    "CosineAnnealingLR",
    "GaussNewton",
    "LRScheduler",
    "LambdaLR",
    "LevenbergMarquardt",
    "LinearLR",
    "Lion",
    "NaturalGradient",
    "Optimizer",
    "RMSprop",
    "SecondOrder",
    "SequentialLR",
    "StepLR",
]


def __getattr__(name: str) -> Any:  # what not every program needs is imported when it is first asked for
    if name == "LBFGS":
        return import_module("pdnn.optim.lbfgs").LBFGS
    if name in ("GaussNewton", "LevenbergMarquardt", "NaturalGradient", "SecondOrder"):
        return getattr(import_module("pdnn.optim.second_order"), name)
    raise AttributeError(f"module 'pdnn.optim' has no attribute {name!r}")


def __dir__() -> list[str]:  # for completion: these names too
    return sorted({*globals(), *__all__})
