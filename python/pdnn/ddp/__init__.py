"""Training loops over ranks in the style of Horovod: six lines make a loop by hand data parallel.

``init`` and the numbers of ranks; ``partition_dataset``; ``broadcast_parameters`` and
``broadcast_optimizer_state``; ``DistributedOptimizer`` and ``join``; ``allreduce``, ``allgather`` and
``broadcast`` for numbers of your own; ``check_parameter_closeness``; ``elastic`` and ``State`` for loops
that go on when a rank dies. Names and the order of arguments are Horovod's.
"""

from pdnn.ddp.buckets import Compression
from pdnn.ddp.closeness import Closeness, check_parameter_closeness
from pdnn.ddp.collectives import (
    Average,
    Max,
    Min,
    Sum,
    allgather,
    allreduce,
    broadcast,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from pdnn.ddp.optimizer import DistributedOptimizer
from pdnn.ddp.partition import partition_dataset
from pdnn.ddp.ranks import init, local_rank, local_size, rank, size
from pdnn.ddp.state import State, elastic
from pdnn.ddp.uneven import join

__all__ = [
    "Average",
    "Closeness",
    "Compression",
    "DistributedOptimizer",
    "Max",
    "Min",
    "State",
    "Sum",
    "allgather",
    "allreduce",
    "broadcast",
    "broadcast_optimizer_state",
    "broadcast_parameters",
    "check_parameter_closeness",
    "elastic",
    "init",
    "join",
    "local_rank",
    "local_size",
    "partition_dataset",
    "rank",
    "size",
]
