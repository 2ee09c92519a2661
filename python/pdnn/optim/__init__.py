"""Optimizers and schedules of their learning rates, under torch's names."""

from pdnn.optim.lbfgs import LBFGS
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

__all__ = [
    "LBFGS",
    "SGD",
    "Adam",
    "AdamW",
    "ConstantLR",
    "CosineAnnealingLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "Lion",
    "Optimizer",
    "RMSprop",
    "SequentialLR",
    "StepLR",
]
