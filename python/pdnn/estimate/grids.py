"""Grids: steps of ranks that hold a network together, by tensor pairs, as a pipeline, or both."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from pdnn.comm.costs import NOTHING, Cost, text
from pdnn.estimate.coding import coded
from pdnn.estimate.network import Network, Pair
from pdnn.estimate.parts import Parts
from pdnn.estimate.replicas import agreed
from pdnn.strategies import DataParallel, Grid, schedule

if TYPE_CHECKING:
    from pdnn.estimate.steps import Steps


def grid_parts(steps: Steps, grid: Grid) -> Parts:
    """A replica's step on ⌈N/replicas⌉ rows, and an agreement of the replicas on what a rank holds."""
    replicas = steps.ranks // grid.held_by
    rows = ceil(steps.rows / replicas)
    network: Network = steps.network
    pairs: list[Pair] = []
    if grid.tensor:
        network, pairs = network.tensor_part(grid.tensor_ranks)
        if not pairs and not grid.pipeline:
            raise ValueError(f'estimate: "{grid}" finds no two Linears to cut in this network')
    sums = NOTHING
    for pair in pairs:
        for elements in filter(None, (pair.forward, pair.backward)):
            sums += _sum(steps, grid, grid.tensor_ranks, rows * elements * network.itemsize)
    if grid.pipeline:
        part, size = _pipeline(steps, grid, network, rows, sums)
    else:
        own, size = steps.engine(grid.engine, rows, network), float(network.size)
        part = own.and_cost(sums, f"outputs of pairs of Linears added up: {len(pairs)}")
    part = part.and_cost(_sum(steps, grid, grid.held_by, 24), "what the step came to")
    return agreed(steps, part, grid.data or DataParallel(), size, replicas, grid.engine.threads)


def _sum(steps: Steps, grid: Grid, ranks: int, size: float) -> Cost:
    """An all-reduce among so many neighbours."""
    return steps.machine.all_reduce(ranks, size, grid.engine.threads) if ranks > 1 else NOTHING


def _pipeline(steps: Steps, grid: Grid, network: Network, rows: int, sums: Cost) -> tuple[Parts, float]:
    """The schedule against the clock, with each stage's time for a micro-batch and a border's message.

    Also the bytes of parameters of the rank that holds most. Sums over tensor ranks are shared out among the
    stages. A codec's times are added to the stages that send and receive by it; on a node the message's too.
    """
    pipeline, itemsize = grid.pipeline, network.itemsize
    assert pipeline is not None
    micros = min(pipeline.micros, rows)
    each = ceil(rows / micros)
    if (stages := grid.stages * pipeline.chunks) > len(network.layer_params):  # on all ranks alike
        raise ValueError(
            f"estimate: {stages} stages of {len(network.layer_params)} layers; a stage has at least one"
        )
    cut = pipeline.cut or steps.clock.cut(steps.network, grid.stages * pipeline.chunks, each)
    widest = max((network.widths[layer] for layer in cut), default=0)
    message, coding = each * widest * itemsize, 0.0
    if pipeline.codec is not None and cut:
        code = coded(pipeline.codec, each * widest, itemsize)
        message, coding = code.bytes, code.encode + code.decode
    threads = grid.engine.threads
    travel = steps.machine.message(steps.ranks, threads).seconds(message) if grid.stages > 1 else 0.0
    beside = sums.seconds / micros / 2 / (len(cut) + 1) + (coding if grid.stages > 1 else 0.0)
    if steps.machine.ranks_a_node(steps.ranks, threads) == steps.ranks:
        beside += travel  # a node's ranks move their bytes themselves
    times = [
        (forward / threads + beside, backward / threads + beside)
        for forward, backward in steps.clock.stages(network, cut, each)
    ]
    plan = schedule(pipeline.schedule, grid.stages, micros, pipeline.chunks)
    whole = plan.simulate([f for f, _ in times], [b for _, b in times], travel).seconds
    of_ranks = [times[rank :: grid.stages] for rank in range(grid.stages)]
    busy = micros * max(sum(f + b for f, b in own) for own in of_ranks)
    params = max(sum(network.stage_params(cut)[rank :: grid.stages]) for rank in range(grid.stages))
    update = params * itemsize / steps.machine.memory
    borders = min(2, len(cut)) if grid.stages > 1 else 0
    sent = borders * micros * message + sums.bytes
    why = (
        f"{micros} micro-batches of {each} rows, cut before layer {', '.join(map(str, cut))}: "
        f"stages of {', '.join(text(f + b) for f, b in times)}, messages of {text(travel)}"
    )
    return Parts(busy + update, 0.0, max(0.0, whole - busy), sent, why), params * itemsize
