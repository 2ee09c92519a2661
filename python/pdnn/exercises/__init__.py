"""What the exercises alone need: data, batches, networks, products of ranks, published figures."""

from pdnn.exercises import published
from pdnn.exercises.batches import legacy_batches
from pdnn.exercises.cifar import CIFAR10Dataset
from pdnn.exercises.digits import ex4, ex4_own_weights, ex4_weights
from pdnn.exercises.minibatch_gradients import (
    L,
    backpropagate,
    backpropogate,
    compute_minibatch_gradients,
    computeMinibatchGradients,
    computeMinibatchGradientsTuple,
    convert_to_one_hot,
    cost,
    feedforward,
    mini_batch,
    sigmoid,
    softmax,
)
from pdnn.exercises.networks import lenet_psgd
from pdnn.exercises.products import matmul, matmul_by_reduction, matmul_by_rows

__all__ = [
    "CIFAR10Dataset",
    "L",
    "backpropagate",
    "backpropogate",
    "computeMinibatchGradients",
    "computeMinibatchGradientsTuple",
    "compute_minibatch_gradients",
    "convert_to_one_hot",
    "cost",
    "ex4",
    "ex4_own_weights",
    "ex4_weights",
    "feedforward",
    "legacy_batches",
    "lenet_psgd",
    "matmul",
    "matmul_by_reduction",
    "matmul_by_rows",
    "mini_batch",
    "published",
    "sigmoid",
    "softmax",
]
