"""Clock: what the arithmetic of a training step takes; here by a machine's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from pdnn import _core
from pdnn.estimate.machine import Machine
from pdnn.estimate.network import Network


class Clock(Protocol):
    """What estimates ask about arithmetic. All ranks ask the same, and get the same answers."""

    def step(self, network: Network, rows: int, threads: int = 1) -> float:
        """Seconds of forward, backward and update on one thread, while as many of each rank do the same."""
        ...

    def stages(self, network: Network, cut: tuple[int, ...], rows: int) -> list[tuple[float, float]]:
        """Seconds of each stage forward and backward, on one thread, while all ranks do the same."""
        ...

    def cut(self, network: Network, stages: int, rows: int) -> tuple[int, ...]:
        """Where a pipeline cuts the network."""
        ...


@dataclass(frozen=True)
class RatedClock:
    """Steps by a machine's numbers: (rows + half_rows) · flops of a row / rate, and the update's bytes.

    Parameters
    ----------
    machine : Machine
    ranks : int
        With one rank of one thread, no other core is at work.
    """

    machine: Machine
    ranks: int = 1

    def step(self, network: Network, rows: int, threads: int = 1) -> float:
        """By the formula; a core is crowded wherever it is not the only one at work."""
        crowding = self.machine.crowding if threads * self.ranks > 1 else 1.0
        return self._products(network.flops, rows) * crowding + network.size / self.machine.memory

    def stages(self, network: Network, cut: tuple[int, ...], rows: int) -> list[tuple[float, float]]:
        """By the stages' parameters: a third of the products forward, the rest backward."""
        ends = [0, *cut, len(network.layer_params)]
        flops = [sum(network.layer_flops[a:b]) for a, b in pairwise(ends)]
        times = [self._products(share, rows) * self.machine.crowding for share in flops]
        return [(time / 3, 2 * time / 3) for time in times]

    def cut(self, network: Network, stages: int, rows: int) -> tuple[int, ...]:
        """Where the stage with the most products has fewest."""
        return tuple(_core.cut_by_cost([float(flops) for flops in network.layer_flops], stages))

    def _products(self, flops: float, rows: float) -> float:
        return flops * (rows + self.machine.half_rows) / self.machine.flops
