"""How a training step is made parallel: strategies, their spelling, and pipelines' schedules as data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdnn.deferred import deferred
from pdnn.strategies.averaging import ModelAveraging
from pdnn.strategies.base import Engine, Strategy
from pdnn.strategies.data_parallel import DataParallel
from pdnn.strategies.elastic import ElasticAveraging
from pdnn.strategies.engines import Pool, Serial, Team
from pdnn.strategies.grid import Grid, Pipeline, TensorParallel
from pdnn.strategies.hogwild import Hogwild, HogwildProcesses
from pdnn.strategies.scatter_gather import ScatterGather
from pdnn.strategies.spec import choose, parse, specs

if TYPE_CHECKING:
    from pdnn.strategies.schedules import Schedule, schedule, schedule_of_passes
    from pdnn.strategies.timeline import Timeline

__all__ = [
    "DataParallel",
    "ElasticAveraging",
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
    "choose",
    "parse",
    "schedule",
    "schedule_of_passes",
    "specs",
]


if not TYPE_CHECKING:
    __getattr__, __dir__ = deferred(
        __name__,
        {"schedules": ["Schedule", "schedule", "schedule_of_passes"], "timeline": ["Timeline"]},
    )
