"""Optimizers and schedules of their learning rates, under torch's names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdnn.deferred import deferred
from pdnn.optim.lr_scheduler import (
    ConstantLR,
    CosineAnnealingLR,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
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
    "ExponentialLR",
    "GaussNewton",
    "LRScheduler",
    "LambdaLR",
    "LevenbergMarquardt",
    "LinearLR",
    "Lion",
    "MultiStepLR",
    "NaturalGradient",
    "Optimizer",
    "RMSprop",
    "SecondOrder",
    "SequentialLR",
    "StepLR",
]


if not TYPE_CHECKING:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "lbfgs": ["LBFGS"],
            "second_order": ["GaussNewton", "LevenbergMarquardt", "NaturalGradient", "SecondOrder"],
        },
    )
