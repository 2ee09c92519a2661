"""Instead: where the exchange between ranks costs more than it brings, what would pay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import ceil, log2
from typing import TYPE_CHECKING

from pdnn.codec.recommend import CODECS
from pdnn.comm.costs import text
from pdnn.strategies import DataParallel, ModelAveraging, Strategy

if TYPE_CHECKING:
    from pdnn.estimate.formulas import Steps

WORTH = 1.05
"""How many times as long a step of all ranks must take, for one of a rank alone to be called better."""

SHARE = 0.1
"""The part of a step that averages may take, at most, where averaging is proposed."""

MOST_STEPS = 1024
"""From one average to the next, at most."""


@dataclass(frozen=True)
class Alternatives:
    """A step of one rank alone, beside one that all ranks make together.

    Attributes
    ----------
    alone : float
        Seconds of a step of all rows by one rank, while the others do nothing.
    pays : bool
        Whether a step of all ranks takes less, or at most `WORTH` times as long.
    instead : dict of str to float
        If it does not: what would pay, and the seconds of a step of it.
    """

    alone: float
    pays: bool
    instead: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        strategy: Strategy,
        ranks: int,
        seconds: float,
        alone: float,
        seconds_of: Callable[[Strategy], float],
        ranks_of_node: int = 1,
        of_node: Callable[[], float] | None = None,
        codecs: Iterable[str] = CODECS,
    ) -> Alternatives:
        """Looks for what would pay, if a step of all ranks does not; collective where the callables are.

        Parameters
        ----------
        strategy : Strategy
            By which the ranks share the rows of an update.
        ranks : int
        seconds, alone : float
            Of a step by it, and by one rank.
        seconds_of : callable
            Of a step by another strategy.
        ranks_of_node : int
            Ranks of each machine.
        of_node : callable, optional
            Seconds of a step that only they make together.
        codecs : iterable of str
            What gradients may be sent by.
        """
        if seconds <= WORTH * alone:
            return cls(alone, True)
        found = {"1 rank": alone}
        if 1 < ranks_of_node < ranks and of_node is not None and (fewer := of_node()) < alone:
            found[f"{ranks_of_node} ranks of one machine"] = fewer
        if strategy.leaves:  # neither averages nor codecs have reproducible sums
            return cls(alone, False, found)
        engine = strategy.engine
        average = max(seconds_of(ModelAveraging(1, engine=engine)) - alone, 0.0)
        every = 2 ** max(0, ceil(log2(max(average / (SHARE * alone), 1.0))))
        averaged = alone + average / every
        if every <= MOST_STEPS and averaged < ranks * alone:
            found[f"{ModelAveraging(every, engine=engine)}"] = averaged
        coded = {other: seconds_of(other) for other in (DataParallel(engine, codec=code) for code in codecs)}
        best = min(coded, key=lambda other: coded[other], default=None)
        if best is not None and coded[best] < alone:
            found[str(best)] = coded[best]
        return cls(alone, False, found)

    @classmethod
    def estimated(cls, steps: Steps, strategy: Strategy, seconds: float) -> Alternatives:
        """By estimates of a step, where one by `strategy` takes so many seconds."""
        engine, machine = strategy.engine, steps.machine
        of_node = machine.ranks_a_node(steps.ranks, engine.threads)
        node = replace(steps, ranks=of_node, machine=replace(machine, nodes=1, between=None))
        return cls.of(
            strategy,
            steps.ranks,
            seconds,
            replace(steps, ranks=1).estimate(engine).seconds,
            lambda other: steps.estimate(other).seconds,
            of_node,
            lambda: node.estimate(DataParallel(engine)).seconds,
        )

    def __str__(self) -> str:
        words = f"one rank alone {text(self.alone)}"
        if self.pays:
            return words
        others = ", ".join(
            f"{name} {text(seconds)}" + " (each rank a step of its own)" * name.startswith("average")
            for name, seconds in self.instead.items()
        )
        return f"{words}: the exchange costs more than it brings; what would pay: {others}"
