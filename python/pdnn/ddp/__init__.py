"""Training loops over ranks in the style of Horovod: six lines make a loop by hand data parallel.

``init`` and the numbers of ranks; ``partition_dataset``; ``broadcast_parameters`` and
``broadcast_optimizer_state``; ``DistributedOptimizer`` and ``join``; ``allreduce``, ``allgather`` and
``broadcast`` for numbers of your own; ``check_parameter_closeness``; ``elastic`` and ``State`` for loops
that go on when a rank dies. Names are Horovod's, and the order of arguments but for its `average`, which is
``op=``.
"""

from typing import Any

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

_ELSEWHERE = {
    **dict.fromkeys(
        ("broadcast_object", "allgather_object"), "MPI.COMM_WORLD of mpi4py has bcast, allgather"
    ),
    **dict.fromkeys(("alltoall", "reducescatter"), "pdnn.world() has reduce_scatter, send and recv"),
    **dict.fromkeys(("cross_rank", "cross_size"), "divide rank() and size() by local_size()"),
    **dict.fromkeys(
        ("is_initialized", "shutdown"), "init() may be called again, and MPI ends with the program"
    ),
    "Adasum": "take Average or Sum",
    "barrier": "write pdnn.world().barrier()",
}


def __getattr__(name: str) -> Any:
    told = f"; {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{told}")


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
