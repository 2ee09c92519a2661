"""Replicas: steps of ranks and workers that each hold the whole network."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from pdnn.estimate.coding import coded, coded_sum
from pdnn.estimate.collectives import NOTHING, Cost, all_reduce, broadcast, scatter
from pdnn.estimate.link import text
from pdnn.estimate.parts import Parts
from pdnn.parallel import Average, DataParallel, Hogwild, HogwildProcesses, ScatterGather, Serial, threads_of

if TYPE_CHECKING:
    from pdnn.estimate.steps import Steps

HIDING = 2 / 3
"""The part of a step's arithmetic, its backward pass, beside which gradients can travel between nodes."""

TAIL = 3
"""Elements that travel behind a gradient: the loss, right predictions, and a wish to stop."""

OVERLAPPED = 8
"""Buckets of which the last has nothing beside it."""


def data_parallel(steps: Steps, strategy: DataParallel) -> Parts:
    """t(⌈N/p⌉) and an agreement on P bytes."""
    own = steps.engine(strategy.engine, ceil(steps.rows / steps.ranks))
    return agreed(steps, own, strategy, steps.network.size, steps.ranks, threads_of(strategy.engine))


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


def average(steps: Steps, strategy: Average) -> Parts:
    """t(N), and every K-th step a sum of parameters and state over ranks, or through rank 0."""
    own = steps.engine(strategy.engine, steps.rows)
    if strategy.every is None or steps.ranks == 1:
        return own
    network, machine, threads = steps.network, steps.machine, threads_of(strategy.engine)
    elements = network.params + network.state + 1
    size, coding = elements * network.itemsize, 0.0
    if strategy.by == "master":
        link, turns = machine.message(steps.ranks, threads), 2 * (steps.ranks - 1)
        cost = Cost(link.seconds(turns * size, turns), (steps.ranks - 1) * size)
    elif strategy.codec is not None:
        code, link = (
            coded(strategy.codec, elements - 1, network.itemsize),
            machine.message(steps.ranks, threads),
        )
        cost, coding = coded_sum(code, link, steps.ranks)
        cost += all_reduce(link, steps.ranks, network.itemsize)  # whether to stop
    else:
        cost = machine.all_reduce(steps.ranks, size, threads)
    own = own.and_compute(coding / strategy.every)
    return own.and_cost(cost * (1 / strategy.every), f"an average every {strategy.every} steps")


def hogwild(steps: Steps, strategy: Hogwild | HogwildProcesses) -> Parts:
    """Nobody waits: (t(N) + 2 P / memory) / W from one update to the next."""
    threads = strategy.workers if isinstance(strategy, Hogwild) else 1
    alone = steps.clock.step(steps.network, steps.rows, threads)
    shared = 2 * steps.network.size / steps.machine.memory
    why = f"{strategy.workers} workers: {text(alone)} an update, {text(shared)} to share it"
    return Parts((alone + shared) / strategy.workers, 0.0, 0.0, 0.0, why)


def scatter_gather(steps: Steps, strategy: ScatterGather) -> Parts:
    """Rank 0 sends rows, collects (p−1) P, adds p P, and sends P."""
    own = steps.engine(Serial(), ceil(steps.rows / steps.ranks))
    if steps.ranks == 1:
        return own
    network, link = steps.network, steps.machine.message(steps.ranks)
    rows = steps.rows * (network.widths[0] * network.itemsize + 4)
    there = NOTHING if strategy.once else scatter(link, steps.ranks, rows)
    back = scatter(link, steps.ranks, steps.ranks * network.size)
    model = broadcast(link, steps.ranks, network.size + TAIL * network.itemsize)
    cost = Cost((there + back + model).seconds, there.bytes + network.size + TAIL * network.itemsize)
    own = own.and_compute(steps.ranks * network.size / steps.machine.memory)
    return own.and_cost(cost, "rows out, gradients in, parameters out through rank 0")
