"""Engines: what a rank's own step takes, by one thread, a team or a pool."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from pdnn.comm.costs import text
from pdnn.estimate.parts import Parts

if TYPE_CHECKING:
    from pdnn.estimate.clock import Clock
    from pdnn.estimate.machine import Machine
    from pdnn.estimate.network import Network
    from pdnn.strategies import Engine


def engine_parts(engine: Engine, network: Network, rows: int, clock: Clock, machine: Machine) -> Parts:
    """A rank's own step of so many rows.

    Serial: t(N). Team: t(N)/W and a meeting after each layer. Pool of K pieces, which queue to add their
    gradients, a = P / memory each: `pool_seconds`.
    """
    threads = engine.threads
    if engine.passes:
        pieces = min(engine.pieces, max(rows, 1))
        threads = min(threads, pieces)
        piece = clock.step(network, ceil(rows / pieces), threads)
        adding = network.size / machine.memory
        compute = ceil(pieces / threads) * piece
        whole = pool_seconds(pieces, threads, piece, adding)
        why = f"{pieces} pieces of {ceil(rows / pieces)} rows: {text(piece)} and {text(adding)} to join"
        return Parts(compute, 0.0, whole - compute, 0.0, why)
    whole = clock.step(network, rows, threads)
    if threads == 1:
        return Parts(whole, 0.0, 0.0, 0.0, f"{rows} rows in {text(whole)}")
    meeting = network.meetings * machine.barrier
    why = f"{rows} rows in {text(whole)} over {threads} threads, {network.meetings} meetings of them"
    return Parts(whole / threads, 0.0, meeting, 0.0, why)


def pool_seconds(pieces: int, workers: int, piece: float, adding: float) -> float:
    """When the last of K pieces has been added: max(⌈K/W⌉ (t + a) + (W−1) a, t + K a), for W ≤ K workers.

    Pieces join in their order, one at a time. The workers of the first round all wait for those before them;
    from then on they come one `adding` after another, unless adding takes all the time.
    """
    return max(ceil(pieces / workers) * (piece + adding) + (workers - 1) * adding, piece + pieces * adding)
