"""Data sets in memory, their parts, and their batches."""

from pdnn.data.batches import legacy_batches, minibatches
from pdnn.data.dataset import Dataset, Subset
from pdnn.data.distributed import DataPartitioner, DistributedSampler
from pdnn.data.images import PadCropFlip, resize
from pdnn.data.loader import DataLoader
from pdnn.data.samplers import BatchSampler, RandomSampler, SequentialSampler
from pdnn.data.split import train_test_split

__all__ = [
    "BatchSampler",
    "DataLoader",
    "DataPartitioner",
    "Dataset",
    "DistributedSampler",
    "PadCropFlip",
    "RandomSampler",
    "SequentialSampler",
    "Subset",
    "legacy_batches",
    "minibatches",
    "resize",
    "train_test_split",
]
