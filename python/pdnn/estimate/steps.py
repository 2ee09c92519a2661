"""Steps: the closed form of every strategy, over a clock for arithmetic and a machine for all else.

N rows of a step, p ranks, W threads, t(r) the serial step of r rows by the clock, P parameters in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatchmethod
from math import ceil
from typing import NamedTuple

from pdnn import nn, parallel
from pdnn.estimate.clock import Clock, RatedClock
from pdnn.estimate.collectives import NOTHING, Cost, broadcast, scatter
from pdnn.estimate.estimate import Estimate
from pdnn.estimate.link import text
from pdnn.estimate.machine import Machine
from pdnn.estimate.network import Network, Pair
from pdnn.parallel import (
    Average,
    DataParallel,
    Engine,
    Grid,
    Hogwild,
    HogwildProcesses,
    Pipeline,
    Pool,
    ScatterGather,
    Serial,
    Strategy,
    Team,
    TensorParallel,
    as_grid,
    engine_of,
    schedule,
    threads_of,
)

HIDING = 2 / 3
"""The part of a step's arithmetic, its backward pass, beside which gradients can travel between nodes."""

OVERLAPPED = 8
"""Buckets of which the last has nothing beside it."""


class Parts(NamedTuple):
    """Seconds and bytes of a step; see `Estimate`."""

    compute: float
    communication: float
    waiting: float
    bytes: float
    why: str


@dataclass(frozen=True)
class Steps:
    """Estimates of steps of one network, `rows` behind each update.

    Parameters
    ----------
    network : Network
    rows : int
        The batch size.
    ranks : int
    clock : Clock
    machine : Machine
    momenta : int
        Arrays as long as the parameters that the optimizer remembers.
    """

    network: Network
    rows: int
    ranks: int
    clock: Clock
    machine: Machine
    momenta: int = 0

    def estimate(self, strategy: Strategy) -> Estimate:
        """A step under a strategy.

        Raises
        ------
        ValueError
            If the strategy does not fit the ranks or the network, or the machine tells no link that it needs.
        """
        parallel.specs.check_ranks(strategy, self.ranks)
        threads = threads_of(engine_of(strategy))
        if self.ranks * threads > self.machine.nodes * self.machine.cores and not isinstance(
            engine_of(strategy), Pool
        ):
            raise ValueError(
                f'estimate: strategy "{strategy}" on {self.ranks} ranks needs {self.ranks * threads} cores, '
                f"{self.machine.name} has {self.machine.nodes * self.machine.cores}"
            )
        parts = self.parts(strategy)
        return Estimate(
            str(strategy), self.ranks, self.rows, *parts[:4], memory=self.memory(strategy), why=parts.why
        )

    # ---- how a rank makes its gradient

    def engine(self, engine: Engine, rows: int, network: Network | None = None) -> Parts:
        """A rank's own step of so many rows.

        Serial: t(N). Team: t(N)/W and a meeting after each layer. Pool of K pieces, which queue to add their
        gradients, a = P / memory each: max(⌈K/W⌉ (t(N/K) + a) + (W−1) a, t(N/K) + K a).
        """
        network = network or self.network
        threads = threads_of(engine)
        if isinstance(engine, Pool):
            pieces = min(engine.parallel_batches, max(rows, 1))
            threads = min(threads, pieces)
            piece = self.clock.step(network, ceil(rows / pieces), threads)
            adding = network.size / self.machine.memory
            compute = ceil(pieces / threads) * piece
            whole = pool_seconds(pieces, threads, piece, adding)
            why = f"{pieces} pieces of {ceil(rows / pieces)} rows: {text(piece)} and {text(adding)} to join"
            return Parts(compute, 0.0, whole - compute, 0.0, why)
        whole = self.clock.step(network, rows, threads)
        if threads == 1:
            return Parts(whole, 0.0, 0.0, 0.0, f"{rows} rows in {text(whole)}")
        meeting = network.meetings * self.machine.barrier
        why = f"{rows} rows in {text(whole)} over {threads} threads, {network.meetings} meetings of them"
        return Parts(whole / threads, 0.0, meeting, 0.0, why)

    # ---- strategies

    @singledispatchmethod
    def parts(self, strategy: Strategy) -> Parts:
        """What a step consists of; one form for each kind of strategy."""
        raise TypeError(f"estimate: strategy is a {type(strategy).__name__}, expected one of pdnn.parallel's")

    @parts.register(Serial)
    @parts.register(Team)
    @parts.register(Pool)
    def _alone(self, strategy: Engine) -> Parts:
        return self.engine(strategy, self.rows)

    @parts.register
    def _data_parallel(self, strategy: DataParallel) -> Parts:
        """t(⌈N/p⌉) and an agreement on P bytes."""
        own = self.engine(strategy.engine, ceil(self.rows / self.ranks))
        return self._agreed(own, strategy, self.network.size, self.ranks)

    @parts.register
    def _average(self, strategy: Average) -> Parts:
        """t(N), and every K-th step a sum of parameters and state over ranks, or through rank 0."""
        own = self.engine(strategy.engine, self.rows)
        size = (self.network.params + self.network.state + 1) * self.network.itemsize
        if strategy.every is None or self.ranks == 1:
            return own
        if strategy.by == "master":
            link = self.machine.message(self.ranks, threads_of(strategy.engine))
            turns = 2 * (self.ranks - 1)
            cost = Cost(link.seconds(turns * size, turns), (self.ranks - 1) * size)
        else:
            cost = self.machine.all_reduce(self.ranks, size, threads_of(strategy.engine))
        cost *= 1 / strategy.every
        return _and(own, cost, f"an average every {strategy.every} steps")

    @parts.register
    def _hogwild(self, strategy: Hogwild) -> Parts:
        """Nobody waits: (t(N) + 2 P / memory) / W from one update to the next."""
        return self._unlocked(self.clock.step(self.network, self.rows, strategy.workers), strategy.workers)

    @parts.register
    def _hogwild_processes(self, strategy: HogwildProcesses) -> Parts:
        return self._unlocked(self.clock.step(self.network, self.rows), strategy.workers)

    def _unlocked(self, step: float, workers: int) -> Parts:
        shared = 2 * self.network.size / self.machine.memory
        why = (
            f"{workers} workers, {text(step)} an update and {text(shared)} to read and write what they share"
        )
        return Parts((step + shared) / workers, 0.0, 0.0, 0.0, why)

    @parts.register
    def _scatter_gather(self, strategy: ScatterGather) -> Parts:
        """Rank 0 sends rows, collects (p−1) P, adds p P, and sends P."""
        own = self.engine(Serial(), ceil(self.rows / self.ranks))
        if self.ranks == 1:
            return own
        network, link = self.network, self.machine.message(self.ranks)
        rows = self.rows * (network.widths[0] * network.itemsize + 4)
        there = NOTHING if strategy.once else scatter(link, self.ranks, rows)
        back = scatter(link, self.ranks, self.ranks * network.size)
        model = broadcast(link, self.ranks, network.size)
        sent = there.bytes + network.size
        cost = Cost((there + back + model).seconds, sent)
        own = own._replace(compute=own.compute + self.ranks * network.size / self.machine.memory)
        return _and(own, cost, "rows out, gradients in, parameters out through rank 0")

    @parts.register(TensorParallel)
    @parts.register(Pipeline)
    @parts.register(Grid)
    def _grid(self, strategy: TensorParallel | Pipeline | Grid) -> Parts:
        grid = as_grid(strategy)
        assert grid is not None
        replicas = self.ranks // (grid.stages * grid.tensor_ranks)
        rows = ceil(self.rows / replicas)
        part, size = self._within_replica(grid, rows)
        data = grid.data or DataParallel()
        return self._agreed(part, data, size, replicas) if replicas > 1 else part

    def _within_replica(self, grid: Grid, rows: int) -> tuple[Parts, float]:
        """A replica's step, and the bytes of parameters of the rank that holds most."""
        network = self.network
        pairs: list[Pair] = []
        if grid.tensor:
            network, pairs = self.network.tensor_part(grid.tensor_ranks)
            if not pairs and not grid.pipeline:
                raise ValueError(f'estimate: "{grid}" finds no two Linears to cut in this network')
        sums = NOTHING
        for pair in pairs:
            for elements in filter(None, (pair.forward, pair.backward)):
                sums += self._tensor_sum(grid, rows * elements * network.itemsize)
        if grid.pipeline:
            return self._pipeline(grid, network, rows, sums)
        own = self.engine(grid.engine, rows, network)
        small = self._tensor_sum(grid, 24)
        own = _and(own, sums + small, f"{len(pairs)} pairs of Linears whose outputs are added up")
        return own, network.size

    def _tensor_sum(self, grid: Grid, size: float) -> Cost:
        return self.machine.all_reduce(grid.tensor_ranks, size, threads_of(grid.engine))

    def _pipeline(self, grid: Grid, network: Network, rows: int, sums: Cost) -> tuple[Parts, float]:
        """The schedule against the clock, with each stage's time for a micro-batch and a border's message."""
        pipeline, itemsize = grid.pipeline, network.itemsize
        assert pipeline is not None
        micros = min(pipeline.micros, rows)
        each = ceil(rows / micros)
        cut = pipeline.cut or self.clock.cut(self.network, grid.stages * pipeline.chunks, each)
        threads = threads_of(grid.engine)
        shared = (
            sums.seconds / micros / 2 / (len(cut) + 1)
        )  # of sums over tensor ranks, a stage and direction
        times = [
            (forward / threads + shared, backward / threads + shared)
            for forward, backward in self.clock.stages(network, cut, each)
        ]
        widest = max((network.widths[layer] for layer in cut), default=0)
        link = self.machine.message(self.ranks, threads) if grid.stages > 1 else None
        message = link.seconds(each * widest * itemsize) if link else 0.0
        plan = schedule(pipeline.schedule, grid.stages, micros, pipeline.chunks)
        forward, backward = [f for f, _ in times], [b for _, b in times]
        whole = plan.simulate(forward, backward, message).seconds
        busy = micros * max(sum(f + b for f, b in times[rank :: grid.stages]) for rank in range(grid.stages))
        params = [sum(network.stage_params(cut)[rank :: grid.stages]) for rank in range(grid.stages)]
        update = max(params) * itemsize / self.machine.memory
        borders = min(2, len(cut)) if grid.stages > 1 else 0
        sent = borders * micros * each * widest * itemsize + sums.bytes
        why = (
            f"{micros} micro-batches of {each} rows, cut before layer {', '.join(map(str, cut))}: "
            f"stages of {', '.join(text(f + b) for f, b in times)}, messages of {text(message)}"
        )
        return Parts(busy + update, 0.0, max(0.0, whole - busy), sent, why), max(params) * itemsize

    # ---- agreements

    def _agreed(self, own: Parts, data: DataParallel, size: float, ranks: int) -> Parts:
        """With an agreement of `ranks` replicas on `size` bytes of parameters, in whichever way is faster."""
        if ranks == 1:
            return own
        threads = threads_of(data.engine)
        travelling = self.machine.all_reduce(ranks, size, threads)
        if self.machine.ranks_a_node(ranks, threads) < ranks:  # network cards move bytes while cores compute
            hidden = max(travelling.seconds - HIDING * own.compute, travelling.seconds / OVERLAPPED)
            travelling = Cost(hidden, travelling.bytes)
        shared = self.machine.agreement(ranks, size, threads)
        by_messages = data.shared_memory is False or data.bucket_bytes is not None
        if by_messages or (data.shared_memory is None and travelling.seconds < shared.seconds):
            return _and(own, travelling, f"an all-reduce of {size:,.0f} bytes")
        return _and(own, shared, f"{size:,.0f} bytes of parameters updated in shares")

    # ---- memory

    def memory(self, strategy: Strategy) -> int:
        """Bytes that a rank keeps, as the table in docs/algorithms.md has them."""
        network, each = self.network, ceil(self.rows / self.ranks)
        model = (2 + self.momenta) * network.params + 3
        engine = engine_of(strategy)
        grid = as_grid(strategy)
        elements, rows = float(model), each
        batches = 1.0
        if isinstance(strategy, (Average, Hogwild, HogwildProcesses)):
            rows = self.rows
            elements += network.params + network.state + 1
        if isinstance(strategy, Hogwild):
            elements = network.params + strategy.workers * model
            batches = strategy.workers
        if isinstance(strategy, ScatterGather):
            elements += self.ranks * (network.params + 3)
            rows = self.rows
        if isinstance(engine, Pool) and grid is None:
            rows = ceil(rows / engine.parallel_batches)
            batches = min(engine.workers, engine.parallel_batches)
            elements += batches * network.params
        if grid is not None:
            held_by = grid.stages * grid.tensor_ranks
            rows = ceil(self.rows * held_by / self.ranks)
            elements += model / held_by
            batches = 1 / held_by
            if grid.pipeline:
                in_flight = schedule(
                    grid.pipeline.schedule, grid.stages, grid.pipeline.micros, grid.pipeline.chunks
                ).in_flight
                rows = ceil(rows / grid.pipeline.micros)
                batches = max(in_flight) / held_by
        return int(elements * network.itemsize + batches * network.batch_bytes(rows))


def pool_seconds(pieces: int, workers: int, piece: float, adding: float) -> float:
    """When the last of K pieces has been added: max(⌈K/W⌉ (t + a) + (W−1) a, t + K a), for W ≤ K workers.

    Pieces join in their order, one at a time. The workers of the first round all wait for those before them;
    from then on they come one `adding` after another, unless adding takes all the time.
    """
    return max(ceil(pieces / workers) * (piece + adding) + (workers - 1) * adding, piece + pieces * adding)


def _and(own: Parts, cost: Cost, why: str) -> Parts:
    return own._replace(
        communication=own.communication + cost.seconds,
        bytes=own.bytes + cost.bytes,
        why=f"{own.why}; {why}, {text(cost.seconds)}",
    )


def step(
    model: nn.Sequential,
    sample: tuple[int, ...],
    strategy: str | Strategy,
    batch_size: int,
    ranks: int,
    machine: Machine,
) -> Estimate:
    """A training step on a described machine, with nothing measured.

    Parameters
    ----------
    model : nn.Sequential
    sample : tuple of int
        Shape of a sample.
    strategy : str or Strategy
    batch_size : int
        Rows behind one update.
    ranks : int
    machine : Machine

    Raises
    ------
    ValueError
        If they do not fit each other.
    """
    chosen = parallel.parse(strategy) if isinstance(strategy, str) else strategy
    clock = RatedClock(machine, ranks)
    return Steps(Network(model, sample), batch_size, ranks, clock, machine).estimate(chosen)
