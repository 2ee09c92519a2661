"""Replicas: steps of ranks and workers that each hold the whole network."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from pdnn.comm.costs import NOTHING, Cost, all_reduce, broadcast, scatter, text
from pdnn.estimate.coding import coded, coded_sum
from pdnn.estimate.parts import Parts
from pdnn.strategies import Serial

if TYPE_CHECKING:
    from pdnn.codec import Codec
    from pdnn.estimate.steps import Steps
    from pdnn.strategies import DataParallel, Engine

HIDING = 2 / 3
"""The part of a step's arithmetic, its backward pass, beside which gradients can travel between nodes."""

TAIL = 3
"""Elements that travel behind a gradient: the loss, right predictions, and a wish to stop."""

OVERLAPPED = 8
"""Buckets of which the last has nothing beside it."""


def data_parallel(steps: Steps, strategy: DataParallel) -> Parts:
    """t(⌈N/p⌉) and an agreement on P bytes."""
    own = steps.engine(strategy.engine, ceil(steps.rows / steps.ranks))
    return agreed(steps, own, strategy, steps.network.size, steps.ranks, strategy.engine.threads)


def agreed(steps: Steps, own: Parts, data: DataParallel, size: float, ranks: int, threads: int = 1) -> Parts:
    """With an agreement of `ranks` replicas on `size` bytes of parameters, in whichever way is faster.

    In shared memory; or as an all-reduce, of which between nodes all but the last bucket can hide behind the
    backward pass, because there network cards move the bytes. With a codec nothing but messages is possible.
    """
    if ranks == 1:
        return own
    machine, itemsize = steps.machine, steps.network.itemsize
    if data.codec is not None:
        code = coded(data.codec, int(size) // itemsize, itemsize)
        link = machine.message(ranks, threads)
        cost, coding = coded_sum(code, link, ranks)
        cost += all_reduce(link, ranks, TAIL * itemsize)
        return own.and_compute(coding).and_cost(cost, f"a sum by {data.codec}, {text(coding)} to code")
    travelling = machine.all_reduce(ranks, size + TAIL * itemsize, threads)
    if machine.ranks_a_node(ranks, threads) < ranks:
        hidden = max(travelling.seconds - HIDING * own.compute, travelling.seconds / OVERLAPPED)
        travelling = Cost(hidden, travelling.bytes)
    shared = machine.agreement(ranks, size, threads)
    by_messages = data.shared_memory is False or data.bucket_bytes is not None
    if by_messages or (data.shared_memory is None and travelling.seconds < shared.seconds):
        return own.and_cost(travelling, f"an all-reduce of {size:,.0f} bytes")
    return own.and_cost(shared, f"{size:,.0f} bytes of parameters updated in shares")


def averaging(
    steps: Steps, engine: Engine, every: int | None, codec: str | Codec | None, by_master: bool
) -> Parts:
    """t(N), and every K-th step a sum of parameters and state over ranks, or through rank 0."""
    own = steps.engine(engine, steps.rows)
    if every is None or steps.ranks == 1:
        return own
    network, machine, threads = steps.network, steps.machine, engine.threads
    elements = network.params + network.state + 1
    size, coding = elements * network.itemsize, 0.0
    if by_master:
        link, turns = machine.message(steps.ranks, threads), 2 * (steps.ranks - 1)
        cost = Cost(link.seconds(turns * size, turns), (steps.ranks - 1) * size)
    elif codec is not None:
        code, link = coded(codec, elements - 1, network.itemsize), machine.message(steps.ranks, threads)
        cost, coding = coded_sum(code, link, steps.ranks)
        cost += all_reduce(link, steps.ranks, network.itemsize)  # whether to stop
    else:
        cost = machine.all_reduce(steps.ranks, size, threads)
    own = own.and_compute(coding / every)
    return own.and_cost(cost * (1 / every), f"an average every {every} steps")


def hogwild(steps: Steps, workers: int, threads: int) -> Parts:
    """Nobody waits: (t(N) + 2 P / memory) / W from one update to the next."""
    alone = steps.clock.step(steps.network, steps.rows, threads)
    shared = 2 * steps.network.size / steps.machine.memory
    why = f"{workers} workers: {text(alone)} an update, {text(shared)} to share it"
    return Parts((alone + shared) / workers, 0.0, 0.0, 0.0, why)


def scatter_gather(steps: Steps, once: bool) -> Parts:
    """Rank 0 sends rows, collects (p−1) P, adds p P, and sends P."""
    own = steps.engine(Serial(), ceil(steps.rows / steps.ranks))
    if steps.ranks == 1:
        return own
    network, link = steps.network, steps.machine.message(steps.ranks)
    rows = steps.rows * (network.widths[0] * network.itemsize + 4)
    there = NOTHING if once else scatter(link, steps.ranks, rows)
    back = scatter(link, steps.ranks, steps.ranks * network.size)
    model = broadcast(link, steps.ranks, network.size + TAIL * network.itemsize)
    cost = Cost((there + back + model).seconds, there.bytes + network.size + TAIL * network.itemsize)
    own = own.and_compute(steps.ranks * network.size / steps.machine.memory)
    return own.and_cost(cost, "rows out, gradients in, parameters out through rank 0")
