"""The former name of `pdnn.strategies`, kept for one release, with what has moved to other places."""

from pdnn.comm import cores_of_rank
from pdnn.ddp import Closeness, check_parameter_closeness
from pdnn.exercises import matmul, matmul_by_reduction, matmul_by_rows
from pdnn.strategies import (
    DataParallel,
    Engine,
    Grid,
    Hogwild,
    HogwildProcesses,
    ModelAveraging,
    Pipeline,
    Pool,
    ScatterGather,
    Schedule,
    Serial,
    Strategy,
    Team,
    TensorParallel,
    Timeline,
    choose,
    parse,
    schedule,
    specs,
)

Average = ModelAveraging
SPECS = specs()

__all__ = [
    "SPECS",
    "Average",
    "Closeness",
    "DataParallel",
    "Engine",
    "Grid",
    "Hogwild",
    "HogwildProcesses",
    "ModelAveraging",
    "Pipeline",
    "Pool",
    "ScatterGather",
    "Schedule",
    "Serial",
    "Strategy",
    "Team",
    "TensorParallel",
    "Timeline",
    "check_parameter_closeness",
    "choose",
    "cores_of_rank",
    "matmul",
    "matmul_by_reduction",
    "matmul_by_rows",
    "parse",
    "schedule",
]
