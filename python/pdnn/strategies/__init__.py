"""How a training step is made parallel: strategies, their spelling, and pipelines' schedules as data."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:  # what not every program needs is imported when it is first asked for
    if name in ("Schedule", "schedule", "schedule_of_passes"):
        return getattr(import_module("pdnn.strategies.schedules"), name)
    if name == "Timeline":
        return import_module("pdnn.strategies.timeline").Timeline
    raise AttributeError(f"module 'pdnn.strategies' has no attribute {name!r}")


def __dir__() -> list[str]:  # for completion: these names too
    return sorted({*globals(), *__all__})
