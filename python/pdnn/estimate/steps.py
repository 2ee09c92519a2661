"""Steps: what a step takes under each strategy, over a clock for arithmetic and a machine for all else.

N rows of a step, p ranks, W threads, t(r) the serial step of r rows by the clock, P parameters in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from pdnn import nn, strategies
from pdnn.estimate import grids, replicas
from pdnn.estimate.clock import Clock, RatedClock
from pdnn.estimate.engines import engine_parts
from pdnn.estimate.estimate import Estimate
from pdnn.estimate.machine import Machine
from pdnn.estimate.network import Network
from pdnn.estimate.parts import Parts

if TYPE_CHECKING:
    from pdnn.codec import Codec
    from pdnn.strategies import DataParallel, Engine, Grid, Strategy


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
        strategy.check_ranks(self.ranks)
        cores = self.machine.nodes * self.machine.cores
        workers = self.ranks * strategy.engine.threads
        if workers > cores and strategy.engine.needs_cores:
            raise ValueError(
                f'estimate: strategy "{strategy}" on {self.ranks} ranks needs {workers} cores, '
                f"{self.machine.name} has {cores}"
            )
        parts = strategy.estimate(self)
        return Estimate(
            str(strategy), self.ranks, self.rows, *parts[:4], memory=strategy.memory(self), why=parts.why
        )

    def engine(self, engine: Engine, rows: int, network: Network | None = None) -> Parts:
        """A rank's own step of so many rows, of the network or of a part of it."""
        return engine_parts(engine, network or self.network, rows, self.clock, self.machine)

    def data_parallel(self, strategy: DataParallel) -> Parts:
        """Shares of the rows, and a sum of gradients."""
        return replicas.data_parallel(self, strategy)

    def averaging(
        self, engine: Engine, every: int | None, codec: str | Codec | None = None, *, by_master: bool = False
    ) -> Parts:
        """A step of each rank's own on all rows, and every so many steps an average of models."""
        return replicas.averaging(self, engine, every, codec, by_master)

    def hogwild(self, workers: int, threads: int = 1) -> Parts:
        """From one update to the next of so many workers, `threads` of them in each process."""
        return replicas.hogwild(self, workers, threads)

    def scatter_gather(self, once: bool) -> Parts:
        """A step that rank 0 drives; with `once` the rows are there already."""
        return replicas.scatter_gather(self, once)

    def grid(self, grid: Grid) -> Parts:
        """A step of replicas that several ranks hold together."""
        return grids.grid_parts(self, grid)

    @property
    def model_elements(self) -> float:
        """Parameters, gradients and their tail, optimizer state: (2 + v) P + 3."""
        return (2 + self.momenta) * self.network.params + 3

    def memory(self, engine: Engine, rows: int, more: float = 0.0, passes: float = 1.0) -> int:
        """Bytes that a rank keeps, as the table in docs/algorithms.md has them, without its data set.

        Parameters
        ----------
        engine : Engine
        rows : int
            Of a gradient of this rank.
        more : float
            Elements beside a model's own.
        passes : float
            Through the network that are on their way at once.
        """
        elements = self.model_elements + more + engine.passes * self.network.params
        each = self.network.batch_bytes(ceil(rows / engine.pieces))
        return int(elements * self.network.itemsize + (engine.passes or passes) * each)


def step(
    model: nn.Sequential,
    sample: tuple[int, ...],
    strategy: str | Strategy,
    batch_size: int,
    ranks: int,
    machine: Machine,
) -> Estimate:
    """A training step on a described machine, with nothing measured (but codecs, on the machine at hand).

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
    chosen = strategies.parse(strategy) if isinstance(strategy, str) else strategy
    clock = RatedClock(machine, ranks)
    return Steps(Network(model, sample), batch_size, ranks, clock, machine).estimate(chosen)
