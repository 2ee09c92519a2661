"""Formulas: what a step takes under each strategy, by a compute model and a machine for all else.

N rows of a step, p ranks, W threads, t(r) the serial step of r rows by the model, P parameters in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import NamedTuple

from pdnn import _core
from pdnn import codec as codecs
from pdnn.checks import integer
from pdnn.codec import Codec, PowerSGD
from pdnn.codec.recommend import coding_seconds
from pdnn.comm import costs
from pdnn.comm.costs import NOTHING, Cost, Link, text
from pdnn.estimate.compute import ComputeModel
from pdnn.estimate.estimate import Estimate
from pdnn.estimate.machine import Machine
from pdnn.estimate.network import Network, Pair
from pdnn.strategies import DataParallel, Engine, Grid, Serial, Strategy
from pdnn.strategies.step_cost import StepCost

HIDING = 2 / 3
"""The part of a step's arithmetic, its backward pass, beside which gradients can travel between nodes."""

TAIL = _core.float32.TAIL
"""Elements that travel behind a gradient: the loss, right predictions, and a wish to stop."""

OVERLAPPED = 8
"""Buckets of which the last has nothing beside it."""


@dataclass(frozen=True)
class Steps:
    """Estimates of steps of one network, `rows` behind each update.

    Parameters
    ----------
    network : Network
    rows : int
        The batch size.
    ranks : int
    compute : ComputeModel
    machine : Machine
    momenta : int
        Arrays as long as the parameters that the optimizer remembers.
    undoes : bool
        Whether what steps change is copied, to undo those that are not finite.
    """

    network: Network
    rows: int
    ranks: int
    compute: ComputeModel
    machine: Machine
    momenta: int = 0
    undoes: bool = True

    def __post_init__(self) -> None:
        integer("estimate", "batch_size", self.rows, 1)
        integer("estimate", "ranks", self.ranks, 1)

    def estimate(self, strategy: Strategy) -> Estimate:
        """A step under a strategy.

        Raises
        ------
        ValueError
            If the strategy does not fit the ranks or the network, or the machine has no link that it needs.
        """
        if why := strategy.misfit(self.ranks):
            raise ValueError(f'estimate: strategy "{strategy}" {why.partition(", or pass comm=")[0]}')
        machine, threads = self.machine, strategy.engine.threads
        if self.ranks > machine.nodes * (machine.cores // threads) and strategy.engine.needs_cores:
            each = f", {machine.cores} a node, and those of a rank are on one" * (machine.nodes > 1 < threads)
            raise ValueError(
                f'estimate: strategy "{strategy}" on {self.ranks} rank{"s"[: self.ranks > 1]} needs '
                f"{self.ranks * threads} cores, {machine.name} has {machine.nodes * machine.cores}{each}"
            )
        step, memory = strategy.estimate(self), strategy.memory(self)
        return Estimate(str(strategy), self.ranks, self.rows, *step[:4], memory=memory, why=step.why)

    # ---- what a strategy asks, as its `CostModel` lists it

    @property
    def params(self) -> int:
        """Elements of the parameters."""
        return self.network.params

    @property
    def buffers(self) -> int:
        """Elements of the running statistics."""
        return self.network.buffers

    @property
    def model_elements(self) -> float:
        """Parameters, gradients and their tail, optimizer state: (2 + v) P + 3."""
        return (2 + self.momenta) * self.network.params + 3

    def memory(
        self,
        engine: Engine,
        rows: int,
        more: float = 0.0,
        passes: float = 1.0,
        held: float = 1.0,
        copied: float = 1.0,
    ) -> int:
        """Bytes that a rank keeps, as the table in docs/algorithms.md has them, without its data set."""
        elements = (1 + held) * self.model_elements + more
        elements += (engine.passes + engine.waiting) * self.network.params
        if engine.leaves and not engine.passes:  # sums of leaves that wait, of one layer at a time
            elements += (engine.leaves - 1).bit_length() * max(self.network.layer_params)
        if self.undoes:
            elements += copied * held * ((1 + self.momenta) * self.network.params + self.network.buffers)
        each = self.network.batch_bytes(ceil(rows / engine.pieces))
        return int(elements * self.network.itemsize + (engine.passes or passes) * each)

    def engine(self, engine: Engine, rows: int, network: Network | None = None) -> StepCost:
        """A rank's own step of so many rows, of the network or of a part of it.

        Serial: t(N). Team: t(N)/W and a barrier after each layer. Pool of K pieces, which queue to add their
        gradients, a = P / memory each: `pool_seconds`.
        """
        network, threads = network or self.network, engine.threads
        if engine.passes:
            pieces = min(engine.pieces, max(rows, 1))
            threads = min(threads, pieces)
            piece = self.compute.step(network, ceil(rows / pieces), threads)
            adding = network.size / self.machine.memory
            compute = ceil(pieces / threads) * piece
            whole = pool_seconds(pieces, threads, piece, adding)
            why = f"{pieces} pieces of {ceil(rows / pieces)} rows: {text(piece)} and {text(adding)} to join"
            return StepCost(compute, 0.0, whole - compute, 0.0, why)
        whole = self.compute.step(network, rows, threads)
        if threads == 1:
            return StepCost(whole, 0.0, 0.0, 0.0, f"{rows} rows in {text(whole)}")
        waiting = network.barriers * self.machine.barrier
        why = f"{rows} rows in {text(whole)} over {threads} threads, {network.barriers} meetings of them"
        return StepCost(whole / threads, 0.0, waiting, 0.0, why)

    def data_parallel(self, strategy: DataParallel) -> StepCost:
        """t(⌈N/p⌉) and an agreement on P bytes."""
        own = self.engine(strategy.engine_of_rank(self.ranks), ceil(self.rows / self.ranks))
        return self._agreed(own, strategy, self.network.size, self.ranks, strategy.engine.threads)

    def averaging(
        self, engine: Engine, every: int | None, codec: str | Codec | None = None, *, by_master: bool = False
    ) -> StepCost:
        """t(N), and every K-th step a sum of parameters and buffers over ranks, or through rank 0."""
        own = self.engine(engine, self.rows)
        if every is None or self.ranks == 1:
            return own
        network, machine, threads = self.network, self.machine, engine.threads
        elements = network.params + network.buffers + 1
        size, coding = elements * network.itemsize, 0.0
        if by_master:
            link, turns = machine.message(self.ranks, threads), 2 * (self.ranks - 1)
            cost = Cost(link.seconds(turns * size, turns), (self.ranks - 1) * size)
        elif codec is not None:
            code, link = coded(codec, elements - 1, network.itemsize), machine.message(self.ranks, threads)
            cost, coding = coded_sum(code, link, self.ranks)
            cost += costs.all_reduce(link, self.ranks, network.itemsize)  # whether to stop
        else:
            cost = machine.all_reduce(self.ranks, size, threads)
        own = own.and_compute(coding / every)
        return own.and_cost(cost * (1 / every), f"an average every {every} steps")

    def hogwild(self, workers: int, threads: int = 1) -> StepCost:
        """Without waits: (t(N) + 2 P / memory) / W from one update to the next.

        Raises
        ------
        ValueError
            If the ranks are on several nodes, which share no memory.
        """
        if self.machine.ranks_a_node(self.ranks, threads) < self.ranks:
            raise ValueError(
                f"estimate: Hogwild's workers share memory, and {self.ranks} ranks of {self.machine.name} "
                "are on several nodes"
            )
        alone = self.compute.step(self.network, self.rows, threads)
        shared = 2 * self.network.size / self.machine.memory
        why = f"{workers} workers: {text(alone)} an update, {text(shared)} to share it"
        return StepCost((alone + shared) / workers, 0.0, 0.0, 0.0, why)

    def scatter_gather(self, once: bool) -> StepCost:
        """Rank 0 sends rows, collects (p−1) P, adds p P, and sends P."""
        own = self.engine(Serial(), ceil(self.rows / self.ranks))
        if self.ranks == 1:
            return own
        network, link = self.network, self.machine.message(self.ranks)
        rows = self.rows * (network.widths[0] * network.itemsize + 4)
        there = NOTHING if once else costs.scatter(link, self.ranks, rows)
        back = costs.scatter(link, self.ranks, self.ranks * network.size)
        model = costs.broadcast(link, self.ranks, network.size + TAIL * network.itemsize)
        sent = there.bytes + network.size + TAIL * network.itemsize
        own = own.and_compute(self.ranks * network.size / self.machine.memory)
        return own.and_cost(
            Cost((there + back + model).seconds, sent),
            "rows out, gradients in, parameters out through rank 0",
        )

    def grid(self, grid: Grid) -> StepCost:
        """A replica's step on ⌈N/replicas⌉ rows, and an agreement of the replicas on what a rank holds."""
        replicas = self.ranks // grid.held_by
        rows = ceil(self.rows / replicas)
        network: Network = self.network
        pairs: list[Pair] = []
        if grid.tensor:
            network, pairs = network.tensor_part(grid.tensor_ranks)
            if not pairs and not grid.pipeline:
                raise ValueError(f'estimate: "{grid}" finds no two Linears to cut in this network')
        sums = NOTHING
        for pair in pairs:
            for elements in filter(None, (pair.forward, pair.backward)):
                sums += self._sum(grid, grid.tensor_ranks, rows * elements * network.itemsize)
        if grid.pipeline:
            step, size = self._pipeline(grid, network, rows, sums)
        else:
            own, size = self.engine(grid.engine, rows, network), float(network.size)
            step = own.and_cost(sums, f"outputs of pairs of Linears added up: {len(pairs)}")
        step = step.and_cost(self._sum(grid, grid.held_by, 24), "what the step came to")
        return self._agreed(step, grid.data or DataParallel(), size, replicas, grid.engine.threads)

    def _sum(self, grid: Grid, ranks: int, size: float) -> Cost:
        """An all-reduce among so many neighbors."""
        return self.machine.all_reduce(ranks, size, grid.engine.threads) if ranks > 1 else NOTHING

    def _agreed(self, own: StepCost, data: DataParallel, size: float, ranks: int, threads: int) -> StepCost:
        """With an agreement of `ranks` replicas on `size` bytes of parameters, in whichever way is faster.

        In shared memory; or as an all-reduce, of which between nodes all but the last bucket can hide behind
        the backward pass, because there network cards move the bytes. With a codec nothing but messages is
        possible.
        """
        if ranks == 1:
            return own
        machine, itemsize = self.machine, self.network.itemsize
        if data.codec is not None:
            code = coded(data.codec, int(size) // itemsize, itemsize)
            link = machine.message(ranks, threads)
            cost, coding = coded_sum(code, link, ranks)
            cost += costs.all_reduce(link, ranks, TAIL * itemsize)
            return own.and_compute(coding).and_cost(cost, f"a sum by {data.codec}, {text(coding)} to code")
        if data.leaves:
            nodes = max(_core.nodes_of_ranks(data.leaves, ranks))
            traveling = costs.summed_nodes(machine.message(ranks, threads), ranks, size, nodes)
            traveling += machine.all_reduce(ranks, 8 * (2 * data.leaves + 1), threads)
        else:
            traveling = machine.all_reduce(ranks, size + TAIL * itemsize, threads)
        apart = machine.ranks_a_node(ranks, threads) < ranks
        if apart:
            hidden = max(traveling.seconds - HIDING * own.compute, traveling.seconds / OVERLAPPED)
            traveling = Cost(hidden, traveling.bytes)
        shared = machine.agreement(ranks, size, threads)
        by_messages = data.shared_memory is False or data.bucket_bytes is not None or (apart and data.leaves)
        if by_messages or (data.shared_memory is None and traveling.seconds < shared.seconds):
            what = "a sum over leaves" if data.leaves else "an all-reduce"
            return own.and_cost(traveling, f"{what} of {size:,.0f} bytes")
        return own.and_cost(shared, f"{size:,.0f} bytes of parameters updated in shares")

    def _pipeline(self, grid: Grid, network: Network, rows: int, sums: Cost) -> tuple[StepCost, float]:
        """The schedule against the clock, with each stage's time for a micro-batch and a border's message.

        Also the bytes of parameters of the rank that holds most. Sums over tensor ranks are shared out among
        the stages. A codec's times are added to the stages that send and receive by it; on a node the
        message's too.
        """
        pipeline, itemsize = grid.pipeline_of(self.ranks // grid.held_by), network.itemsize
        assert pipeline is not None
        micro_batches = min(pipeline.num_micro_batches, rows)
        each = ceil(rows / micro_batches)
        stages, layers = grid.stages * pipeline.chunks, len(network.layer_params)
        if stages > (most := self.network.most_stages(reproducible=grid.leaves > 0)):  # on all ranks alike
            joined = f", and {layers - most} are computed as one with the layer before" * (most < layers)
            raise ValueError(
                f"estimate: {stages} stages of {layers} layers; a stage has at least one{joined}"
            )
        cut = pipeline.cut or self.compute.cut(self.network, stages, each)
        if any(end <= begin for begin, end in pairwise((0, *cut, layers))):
            raise ValueError(
                f"estimate: a cut before layers {', '.join(map(str, cut))} of {layers}; it rises, from "
                f"at least 1 to at most {layers - 1}"
            )
        widest = max((network.widths[layer] for layer in cut), default=0)
        message, coding = each * widest * itemsize, 0.0
        if pipeline.codec is not None and cut:
            code = coded(pipeline.codec, each * widest, itemsize)
            message, coding = code.bytes, code.encode + code.decode
        threads = grid.engine.threads
        travel = self.machine.message(self.ranks, threads).seconds(message) if grid.stages > 1 else 0.0
        beside = sums.seconds / micro_batches / 2 / (len(cut) + 1) + (coding if grid.stages > 1 else 0.0)
        if self.machine.ranks_a_node(self.ranks, threads) == self.ranks:
            beside += travel  # a node's ranks move their bytes themselves
        times = [
            (forward / threads + beside, backward / threads + beside)
            for forward, backward in self.compute.stages(network, cut, each)
        ]
        plan = pipeline.plan_of(micro_batches)
        whole = plan.simulate([f for f, _ in times], [b for _, b in times], travel).seconds
        of_ranks = [times[rank :: grid.stages] for rank in range(grid.stages)]
        busy = micro_batches * max(sum(f + b for f, b in own) for own in of_ranks)
        params = max(sum(network.stage_params(cut)[rank :: grid.stages]) for rank in range(grid.stages))
        update = params * itemsize / self.machine.memory
        borders = min(2, len(cut)) if grid.stages > 1 else 0
        sent = borders * micro_batches * message + sums.bytes
        why = (
            f"{micro_batches} micro-batches of {each} rows"
            f"{', cut before layer ' * bool(cut)}{', '.join(map(str, cut))}: "
            f"stages of {', '.join(text(f + b) for f, b in times)}, messages of {text(travel)}"
        )
        waiting = whole - busy if whole - busy > 1e-9 * whole else 0.0  # not the rounding of a sum
        return StepCost(busy + update, 0.0, waiting, sent, why), params * itemsize


def pool_seconds(pieces: int, workers: int, piece: float, adding: float) -> float:
    """When the last of K pieces has been added: max(⌈K/W⌉ (t + a) + (W−1) a, t + K a), for W ≤ K workers.

    Pieces join in their order, one at a time. The workers of the first round all wait for those before them;
    from then on they come one `adding` after another, unless adding takes all the time.
    """
    return max(ceil(pieces / workers) * (piece + adding) + (workers - 1) * adding, piece + pieces * adding)


class Coded(NamedTuple):
    """An array as a code: its bytes, and seconds to encode and to decode it, measured on this machine."""

    bytes: int
    encode: float
    decode: float


def coded(codec: str | Codec, elements: int, itemsize: int) -> Coded:
    """So many elements by a codec.

    Raises
    ------
    ValueError
        If it is PowerSGD, whose bytes and times depend on the shapes of matrices.
    """
    parsed, dtype = codecs.parse(codec), f"float{8 * itemsize}"
    if isinstance(parsed, PowerSGD):
        raise ValueError(f'estimate: codec "{parsed}" is not estimated; others are, and no codec is')
    encode, decode = coding_seconds(parsed, max(elements, 1), dtype)
    return Coded(parsed.bytes(elements, dtype), encode, decode)


def coded_sum(code: Coded, link: Link, ranks: int) -> tuple[Cost, float]:
    """A sum over ranks by a codec, and the seconds of coding: gathered for two ranks, else in shares.

    Gathered, a rank encodes once and decodes p times; in shares (2p − 1)/p times, and encodes a share more.
    """
    if ranks == 2:
        return costs.gathered_codes(link, 2, code.bytes), code.encode + 2 * code.decode
    coding = (1 + 1 / ranks) * code.encode + (2 * ranks - 1) / ranks * code.decode
    return costs.shared_codes(link, ranks, code.bytes), coding
