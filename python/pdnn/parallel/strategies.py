"""All strategies: what the trainer and the core ask of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

from pdnn.parallel.engines import Engine, Pool, Serial, Team, threads_of
from pdnn.parallel.grid import Grid, Pipeline, TensorParallel, as_grid
from pdnn.parallel.replicas import Average, DataParallel, Hogwild, HogwildProcesses, ScatterGather

Strategy: TypeAlias = (
    Serial
    | Team
    | Pool
    | DataParallel
    | ScatterGather
    | Average
    | Hogwild
    | HogwildProcesses
    | TensorParallel
    | Pipeline
    | Grid
)


def engine_of(strategy: Strategy) -> Engine:
    """How one rank makes its gradient; of Hogwild, the threads that share other work."""
    if isinstance(strategy, (DataParallel, Average, TensorParallel, Pipeline, Grid)):
        return strategy.engine
    if isinstance(strategy, Hogwild):
        return Team(strategy.workers)
    return strategy if isinstance(strategy, (Serial, Team, Pool)) else Serial()


def rows_of_step(strategy: Strategy, batch_size: int, ranks: int) -> int:
    """Rows that one step takes from the epoch, over all ranks, for `batch_size` rows behind an update."""
    return batch_size * ranks if isinstance(strategy, Average) else batch_size


def common_part(strategy: Strategy) -> str:
    """What all ranks must have alike: the strategy without its engine, which may follow a rank's cores."""
    if isinstance(strategy, (DataParallel, Average, TensorParallel, Pipeline, Grid)):
        strategy = replace(strategy, engine=Serial())
    words = str(strategy)
    data = strategy.data if isinstance(strategy, Grid) else strategy
    if isinstance(data, DataParallel) and (data.bucket_bytes, data.shared_memory) != (None, None):
        words += f" with bucket_bytes={data.bucket_bytes}, shared_memory={data.shared_memory}"
    if isinstance(data, (DataParallel, Average)) and data.error_feedback is not None:
        words += f" with error_feedback={data.error_feedback}"
    pipeline = strategy.pipeline if isinstance(strategy, Grid) else strategy
    if isinstance(pipeline, Pipeline) and pipeline.cut is not None:
        words += f" with cut={pipeline.cut}"
    return words


def session_options(strategy: Strategy) -> dict[str, Any]:
    """What the core's Session must know of a strategy, by the names of its arguments."""
    engine = engine_of(strategy)
    scheme = "replicated"
    if isinstance(strategy, ScatterGather):
        scheme = "scatter-once" if strategy.once else "scatter"
    if isinstance(strategy, Average):
        scheme = "average-by-master" if strategy.by == "master" else "average"
    if isinstance(strategy, (Hogwild, HogwildProcesses)):
        scheme = "hogwild"
    grid = as_grid(strategy)
    if grid is not None:
        scheme = "grid"
    pipeline = grid.pipeline if grid else None
    data = grid.data if grid else strategy
    messages: dict[str, Any] = {"bucket_bytes": 0, "shared_memory": None, "codec": "", "error_feedback": None}
    if isinstance(data, DataParallel):
        scheme += "-sum" if data.average == "sum" else ""
        messages |= {"bucket_bytes": data.bucket_bytes or 0, "shared_memory": data.shared_memory}
    if isinstance(data, (DataParallel, Average)) and data.codec is not None:
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
        "every": (isinstance(strategy, Average) and strategy.every) or 0,
        "engine": "pool" if isinstance(engine, Pool) else "team",
        "threads": threads_of(engine),
        "pieces": engine.parallel_batches if isinstance(engine, Pool) else 1,
        **messages,
    }
