"""What the core's Session must know of a strategy."""

from __future__ import annotations

from typing import Any

from pdnn.strategies.averaging import ModelAveraging
from pdnn.strategies.base import Strategy
from pdnn.strategies.data_parallel import DataParallel
from pdnn.strategies.engines import Pool
from pdnn.strategies.hogwild import Hogwild, HogwildProcesses
from pdnn.strategies.scatter_gather import ScatterGather


def session_options(strategy: Strategy) -> dict[str, Any]:
    """What the core's Session must know of a strategy, by the names of its arguments."""
    engine = strategy.engine
    scheme = "replicated"
    if isinstance(strategy, ScatterGather):
        scheme = "scatter-once" if strategy.once else "scatter"
    if isinstance(strategy, ModelAveraging):
        scheme = "average-by-master" if strategy.by == "master" else "average"
    if isinstance(strategy, (Hogwild, HogwildProcesses)):
        scheme = "hogwild"
    grid = strategy.grid
    if grid is not None:
        scheme = "grid"
    pipeline = grid.pipeline if grid else None
    data = grid.data if grid else strategy
    messages: dict[str, Any] = {"bucket_bytes": 0, "shared_memory": None, "codec": "", "error_feedback": None}
    if isinstance(data, DataParallel):
        scheme += "-sum" if data.average == "sum" else ""
        messages |= {"bucket_bytes": data.bucket_bytes or 0, "shared_memory": data.shared_memory}
    if isinstance(data, (DataParallel, ModelAveraging)) and data.codec is not None:
        messages |= {"codec": str(data.codec), "error_feedback": data.error_feedback}
    return {
        "scheme": scheme,
        "tensor": grid.tensor_ranks if grid else 1,
        "stages": grid.stages if grid else 1,
        "chunks": pipeline.chunks if pipeline else 1,
        "micros": pipeline.micros if pipeline else 1,
        "schedule": pipeline.schedule if pipeline else "",
        "pipeline_codec": str(pipeline.codec) if pipeline and pipeline.codec is not None else "",
        "cut": list((pipeline and pipeline.cut) or ()),
        "every": (isinstance(strategy, ModelAveraging) and strategy.every) or 0,
        "engine": "pool" if isinstance(engine, Pool) else "team",
        "threads": engine.threads,
        "pieces": engine.parallel_batches if isinstance(engine, Pool) else 1,
        **messages,
    }
