"""Loaders of data sets; each returns (train, test), or one of them where ``train=`` says which."""

from pdnn.datasets.cifar_files import CIFAR10_CLASSES, cifar10
from pdnn.datasets.csv_files import csv
from pdnn.datasets.idx_files import idx, read_idx
from pdnn.datasets.mnist_embedded import mnist_mini
from pdnn.datasets.mnist_files import mnist
from pdnn.datasets.npz_files import npz
from pdnn.datasets.synthetic import make_classification
from pdnn.moved import moved

__all__ = [
    "CIFAR10_CLASSES",
    "cifar10",
    "csv",
    "idx",
    "make_classification",
    "mnist",
    "mnist_mini",
    "npz",
    "read_idx",
]

__getattr__ = moved(__name__, ex4="pdnn.exercises.ex4", ex4_weights="pdnn.exercises.ex4_weights")
