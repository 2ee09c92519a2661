"""Steps: what a step takes under each strategy, over a clock for arithmetic and a machine for all else.

N rows of a step, p ranks, W threads, t(r) the serial step of r rows by the clock, P parameters in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from pdnn import nn, parallel
from pdnn.estimate import grids, replicas
from pdnn.estimate.clock import Clock, RatedClock
from pdnn.estimate.engines import engine_parts
from pdnn.estimate.estimate import Estimate
from pdnn.estimate.kept import kept
from pdnn.estimate.machine import Machine
from pdnn.estimate.network import Network
from pdnn.estimate.parts import Parts
from pdnn.parallel import (
    Average,
    DataParallel,
    Engine,
    Hogwild,
    HogwildProcesses,
    Pool,
    ScatterGather,
    Serial,
    Strategy,
    Team,
    as_grid,
)
from pdnn.parallel.specs import check_ranks


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
        check_ranks(strategy, self.ranks)
        engine, cores = parallel.engine_of(strategy), self.machine.nodes * self.machine.cores
        workers = self.ranks * parallel.threads_of(engine)
        if workers > cores and not isinstance(engine, Pool):
            raise ValueError(
                f'estimate: strategy "{strategy}" on {self.ranks} ranks needs {workers} cores, '
                f"{self.machine.name} has {cores}"
            )
        parts = self._parts(strategy)
        return Estimate(
            str(strategy), self.ranks, self.rows, *parts[:4], memory=kept(self, strategy), why=parts.why
        )

    def engine(self, engine: Engine, rows: int, network: Network | None = None) -> Parts:
        """A rank's own step of so many rows, of the network or of a part of it."""
        return engine_parts(engine, network or self.network, rows, self.clock, self.machine)

    def _parts(self, strategy: Strategy) -> Parts:
        if isinstance(strategy, (Serial, Team, Pool)):
            return self.engine(strategy, self.rows)
        if isinstance(strategy, DataParallel):
            return replicas.data_parallel(self, strategy)
        if isinstance(strategy, Average):
            return replicas.average(self, strategy)
        if isinstance(strategy, (Hogwild, HogwildProcesses)):
            return replicas.hogwild(self, strategy)
        if isinstance(strategy, ScatterGather):
            return replicas.scatter_gather(self, strategy)
        grid = as_grid(strategy)
        assert grid is not None, strategy
        return grids.grid_parts(self, grid)


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
    chosen = parallel.parse(strategy) if isinstance(strategy, str) else strategy
    clock = RatedClock(machine, ranks)
    return Steps(Network(model, sample), batch_size, ranks, clock, machine).estimate(chosen)
