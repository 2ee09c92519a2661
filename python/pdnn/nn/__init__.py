"""Layers, losses and initializers, under torch's names."""

from pdnn.nn import init, utils
from pdnn.nn.convolution import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AvgPool1d,
    AvgPool2d,
    Conv1d,
    Conv2d,
    MaxPool1d,
    MaxPool2d,
)
from pdnn.nn.custom import CustomLayer
from pdnn.nn.embedding import Embedding
from pdnn.nn.layers import (
    ELU,
    GELU,
    Dropout,
    Flatten,
    LeakyReLU,
    Linear,
    LogSoftmax,
    ReLU,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
    Transpose,
)
from pdnn.nn.loss import Loss
from pdnn.nn.losses import (
    BCELoss,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    HuberLoss,
    L1Loss,
    MSELoss,
    NLLLoss,
    PoissonNLLLoss,
    QuantileLoss,
    SmoothL1Loss,
    SoftmaxLoss,
)
from pdnn.nn.module import Module
from pdnn.nn.module_list import ModuleList
from pdnn.nn.normalization import BatchNorm1d, BatchNorm2d, LayerNorm
from pdnn.nn.residual import Residual
from pdnn.nn.seeds import manual_seed
from pdnn.nn.sequential import Sequential
from pdnn.nn.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from pdnn.nn.utils import clip_grad_norm_, clip_grad_value_
from pdnn.store import Buffer, Parameter

__all__ = [
    "ELU",
    "GELU",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AvgPool1d",
    "AvgPool2d",
    "BCELoss",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Buffer",
    "ColumnParallelLinear",
    "Conv1d",
    "Conv2d",
    "CrossEntropyLoss",
    "CustomLayer",
    "Dropout",
    "Embedding",
    "Flatten",
    "HuberLoss",
    "L1Loss",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "LogSoftmax",
    "Loss",
    "MSELoss",
    "MaxPool1d",
    "MaxPool2d",
    "Module",
    "ModuleList",
    "NLLLoss",
    "Parameter",
    "PoissonNLLLoss",
    "QuantileLoss",
    "ReLU",
    "Residual",
    "RowParallelLinear",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "SmoothL1Loss",
    "Softmax",
    "SoftmaxLoss",
    "Softplus",
    "Tanh",
    "Transpose",
    "clip_grad_norm_",
    "clip_grad_value_",
    "init",
    "manual_seed",
    "utils",
]
