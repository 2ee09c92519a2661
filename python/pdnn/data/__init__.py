"""Data sets in memory and on disk, their parts, and their batches."""

from pdnn.data.batches import minibatches
from pdnn.data.blocks import BlockStream
from pdnn.data.dataset import Dataset, Subset
from pdnn.data.distributed import DataPartitioner, DistributedSampler
from pdnn.data.images import PadCropFlip, resize
from pdnn.data.loader import DataLoader
from pdnn.data.samplers import BatchSampler, RandomSampler, SequentialSampler
from pdnn.data.split import train_test_split
from pdnn.data.stream import Stream
from pdnn.moved import moved

__all__ = [
    "BatchSampler",
    "BlockStream",
    "DataLoader",
    "DataPartitioner",
    "Dataset",
    "DistributedSampler",
    "PadCropFlip",
    "RandomSampler",
    "SequentialSampler",
    "Stream",
    "Subset",
    "minibatches",
    "resize",
    "train_test_split",
]

__getattr__ = moved(__name__, legacy_batches="pdnn.exercises.legacy_batches")
