"""How a training step is made parallel: strategies, their spelling, and tools to write one by hand."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pdnn.parallel.closeness import Closeness, check_parameter_closeness
from pdnn.parallel.cores import cores_of_rank
from pdnn.parallel.engines import Engine, Pool, Serial, Team, threads_of
from pdnn.parallel.grid import Grid, Pipeline, TensorParallel, as_grid
from pdnn.parallel.products import matmul, matmul_by_reduction, matmul_by_rows
from pdnn.parallel.replicas import Average, DataParallel, Hogwild, HogwildProcesses, ScatterGather
from pdnn.parallel.specs import SPECS, choose, parse
from pdnn.parallel.strategies import (
    Strategy,
    common_part,
    engine_of,
    rows_of_step,
    session_options,
)

if TYPE_CHECKING:
    from pdnn.parallel.schedules import Schedule, schedule
    from pdnn.parallel.timeline import Timeline

__all__ = [
    "SPECS",
    "Average",
    "Closeness",
    "DataParallel",
    "Engine",
    "Grid",
    "Hogwild",
    "HogwildProcesses",
    "Pipeline",
    "Pool",
    "ScatterGather",
    "Schedule",
    "Serial",
    "Strategy",
    "Team",
    "TensorParallel",
    "Timeline",
    "as_grid",
    "check_parameter_closeness",
    "choose",
    "common_part",
    "cores_of_rank",
    "engine_of",
    "matmul",
    "matmul_by_reduction",
    "matmul_by_rows",
    "parse",
    "rows_of_step",
    "schedule",
    "session_options",
    "threads_of",
]


def __getattr__(name: str) -> Any:  # what not every program needs is imported when it is first asked for
    if name in ("Schedule", "schedule"):
        return getattr(import_module("pdnn.parallel.schedules"), name)
    if name == "Timeline":
        return import_module("pdnn.parallel.timeline").Timeline
    raise AttributeError(f"module 'pdnn.parallel' has no attribute {name!r}")
