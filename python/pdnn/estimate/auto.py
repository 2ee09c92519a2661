"""Auto: as many threads as pay, by steps of the training itself, made on a copy of its model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Protocol

import numpy as np

from pdnn.codec.recommend import CODECS
from pdnn.comm import SELF, Communicator
from pdnn.comm.costs import text
from pdnn.estimate.instead import Alternatives
from pdnn.estimate.turns import answered, as_many_as_pay
from pdnn.strategies import DataParallel, Strategy
from pdnn.strategies.engines import engines_up_to


@dataclass(frozen=True)
class AutoChoice:
    """What `strategy="auto"` came to.

    Attributes
    ----------
    strategy : Strategy
    ranks : int
    measured : dict of str to float
        Seconds a step of each engine that was tried, with a rank's share of the rows; empty if there was
        nothing to choose from.
    seconds : float
        On several ranks: of a step that all of them make together.
    alternatives : Alternatives or None
        On several ranks: what a step takes without the exchange.
    reason : str
        Why nothing was measured.
    """

    strategy: Strategy
    ranks: int = 1
    measured: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    alternatives: Alternatives | None = None
    reason: str = ""

    @property
    def why(self) -> str:
        """A line with the figures that decided."""
        if self.reason:
            return f"auto: {self.strategy}; {self.reason}"
        tried = ", ".join(f"{name} {text(seconds)}" for name, seconds in self.measured.items())
        if self.alternatives is None:
            return f"auto: {self.strategy}; measured {tried} a step"
        words = f"auto: {self.strategy} on {self.ranks} ranks; measured {text(self.seconds)} a step"
        if len(self.measured) > 1:
            words += f" (a rank's share: {tried})"
        return f"{words}, {self.alternatives}"

    def __str__(self) -> str:
        return self.why


class Race(Protocol):
    """Seconds a step of each of some strategies, which take turns."""

    def __call__(
        self, strategies: Sequence[Strategy], rows: int, ranks: Communicator, everyone: Communicator
    ) -> list[float]:
        """Measured by `ranks` that train together, while all others of `everyone` do the same.

        The slowest rank's times, on every rank of `everyone`.
        """
        ...


def candidates(ranks: int, cores: int, leaves: int = 0) -> list[Strategy]:
    """What "auto" may come to, for so many ranks and cores of each."""
    found = engines_up_to(cores, leaves)
    return list(found) if ranks == 1 else [DataParallel(engine) for engine in found]


def choose(race: Race, rows: int, comm: Communicator, cores: int, leaves: int = 0) -> AutoChoice:
    """Serial or a team in one process; on several ranks data parallel, with what a rank alone would take.

    Collective; all ranks choose the same.

    Parameters
    ----------
    race : Race
    rows : int
        Of an update, over all ranks.
    comm : Communicator
    cores : int
        That every rank has.
    leaves : int
        By whose tree sums are made; 0: there are none.
    """
    among = engines_up_to(cores, leaves)
    if comm.size == 1:
        if cores == 1:
            return AutoChoice(among[0], reason="this process has one core")
        best, measured = answered(as_many_as_pay(among), lambda pair: race(pair, rows, SELF, SELF))
        return AutoChoice(best, measured=measured)
    share, best, measured = ceil(rows / comm.size), among[0], dict[str, float]()
    if cores > 1:
        own = [engine.with_leaves(ceil(leaves / comm.size)) if leaves else engine for engine in among]
        found, measured = answered(as_many_as_pay(own), lambda pair: race(pair, share, SELF, comm))
        best = among[own.index(found)]
    strategy = DataParallel(best)
    seconds = race([strategy], rows, comm, comm)[0]
    alone = np.zeros(1)
    if comm.rank == 0:
        engine, times = answered(as_many_as_pay(among), lambda pair: race(pair, rows, SELF, SELF))
        alone[0] = times[str(engine)]
    comm.broadcast(alone, root=0)
    ranks_of_node, of_node = _of_a_node(strategy, race, rows, comm)
    alternatives = Alternatives.of(
        strategy,
        comm.size,
        seconds,
        float(alone[0]),
        lambda other: race([other], rows, comm, comm)[0],
        ranks_of_node,
        of_node,
        CODECS if comm.core.all_reduce_name is None else (),  # by a program's own none is added up
    )
    return AutoChoice(strategy, comm.size, measured, seconds, alternatives)


def _of_a_node(
    strategy: Strategy, race: Race, rows: int, comm: Communicator
) -> tuple[int, Callable[[], float]]:
    """Ranks of a machine, where all machines have as many; and what a step of them alone takes."""
    node = comm.machine()
    sizes = np.array([node.size, -node.size])
    comm.all_reduce(sizes, op="max", check=False)
    alike = int(sizes[0]) if sizes[0] == -sizes[1] else 1
    return alike, lambda: race([strategy], rows, node, comm)[0]
