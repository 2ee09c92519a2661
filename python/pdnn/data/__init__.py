"""Data sets in memory, their parts, and their batches."""

from pdnn.data.batches import legacy_batches, minibatches
from pdnn.data.dataset import Dataset, Subset
from pdnn.data.loader import DataLoader
from pdnn.data.split import train_test_split

__all__ = ["DataLoader", "Dataset", "Subset", "legacy_batches", "minibatches", "train_test_split"]
