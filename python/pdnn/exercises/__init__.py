"""What the exercises alone need: data, batches, networks, products of ranks, published figures."""

from pdnn.exercises import published
from pdnn.exercises.batches import legacy_batches
from pdnn.exercises.digits import ex4, ex4_weights
from pdnn.exercises.networks import lenet_psgd
from pdnn.exercises.products import matmul, matmul_by_reduction, matmul_by_rows

__all__ = [
    "ex4",
    "ex4_weights",
    "legacy_batches",
    "lenet_psgd",
    "matmul",
    "matmul_by_reduction",
    "matmul_by_rows",
    "published",
]
