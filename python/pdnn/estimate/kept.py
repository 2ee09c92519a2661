"""Kept: bytes that a rank keeps, as the table in docs/algorithms.md has them, without its data set."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from pdnn.parallel import (
    Average,
    Hogwild,
    HogwildProcesses,
    Pool,
    ScatterGather,
    Strategy,
    as_grid,
    engine_of,
    schedule,
)

if TYPE_CHECKING:
    from pdnn.estimate.steps import Steps


def kept(steps: Steps, strategy: Strategy) -> int:
    """(2 + v) P + 3 for parameters, gradients and memory, and what passes and strategies add."""
    network, rows, passes = steps.network, ceil(steps.rows / steps.ranks), 1.0
    model = (2 + steps.momenta) * network.params + 3
    elements = float(model)
    engine, grid = engine_of(strategy), as_grid(strategy)
    if isinstance(strategy, (Average, Hogwild, HogwildProcesses)):
        rows = steps.rows
        elements += network.params + network.state + 1
    if isinstance(strategy, Hogwild):
        elements = network.params + strategy.workers * model
        passes = strategy.workers
    if isinstance(strategy, ScatterGather):
        rows = steps.rows  # the root's
        elements += steps.ranks * (network.params + 3)
    if isinstance(engine, Pool) and grid is None:
        rows = ceil(rows / engine.parallel_batches)
        passes = min(engine.workers, engine.parallel_batches)
        elements += passes * network.params
    if grid is not None:
        held_by = grid.stages * grid.tensor_ranks
        rows = ceil(steps.rows * held_by / steps.ranks)
        elements += model / held_by  # its part, beside the whole model
        passes = 1 / held_by
        if pipeline := grid.pipeline:
            plan = schedule(pipeline.schedule, grid.stages, pipeline.micros, pipeline.chunks)
            rows = ceil(rows / pipeline.micros)
            passes = max(plan.in_flight) / held_by
    return int(elements * network.itemsize + passes * network.batch_bytes(rows))
