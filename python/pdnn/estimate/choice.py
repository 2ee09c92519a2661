"""Fastest: of the strategies that equal serial training to rounding, the one estimated to be fastest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from pdnn.comm.costs import text
from pdnn.estimate.compute import MeasuredCompute, timed
from pdnn.estimate.estimate import Estimate
from pdnn.estimate.formulas import Steps
from pdnn.estimate.instead import Alternatives
from pdnn.estimate.network import Network
from pdnn.strategies import (
    DataParallel,
    Engine,
    Grid,
    Pipeline,
    Pool,
    Serial,
    Strategy,
    Team,
    TensorParallel,
    parse,
)

if TYPE_CHECKING:
    from pdnn.comm import Communicator

CLOSE = 1.3
"""Strategies whose estimates lie within this factor of the best are measured, three of them at most."""

MOST_MEASURED = 3


@dataclass(frozen=True)
class Choice:
    """What `strategy="fastest"` came to.

    Attributes
    ----------
    strategy : Strategy
    estimates : tuple of Estimate
        Of all candidates, the fastest first.
    measured : dict of str to float
        Seconds a step of those that were measured because their estimates were close; empty if none were.
    alternatives : Alternatives or None
        On several ranks that train: what a step takes without the exchange between them.
    """

    strategy: Strategy
    estimates: tuple[Estimate, ...]
    measured: dict[str, float]
    alternatives: Alternatives | None = None

    @property
    def seconds(self) -> float:
        """Of a step by the strategy: measured, or else estimated."""
        spec = str(self.strategy)
        estimated = {each.strategy: each.seconds for each in self.estimates}
        return self.measured.get(spec, estimated[spec])

    @property
    def why(self) -> str:
        """The best three with their times, and what decided."""
        best = ", ".join(f"{each.strategy} {text(each.seconds)}" for each in self.estimates[:3])
        sentence = f"fastest: {self.strategy}; estimated {best} a step"
        if self.measured:
            tried = ", ".join(f"{spec} {text(seconds)}" for spec, seconds in self.measured.items())
            sentence += f"; so close that they were measured: {tried}"
        if self.alternatives is not None and not self.alternatives.pays:
            sentence += f"; {self.alternatives}"
        return sentence

    def __str__(self) -> str:
        return self.why


def candidates(network: Network, ranks: int, threads: int) -> Iterator[Strategy]:
    """Strategies that train what one process does, for so many ranks and threads of each.

    Where BatchNorm normalizes over the rows of a batch, those that cut the batch into pieces are left out.
    """
    engines: list[Engine] = [Serial()]
    if threads > 1:
        engines.append(Team(threads))
    if ranks == 1:
        yield from engines
        if threads > 1 and not network.normalizes:
            yield Pool(threads)
        return
    for engine in engines:
        yield DataParallel(engine)
    layers = len(network.layer_params)
    divisors = [number for number in range(2, ranks + 1) if ranks % number == 0]
    for engine, held_by in product(engines, divisors):
        data = DataParallel() if held_by < ranks else None
        if network.normalizes and data:
            continue
        if network.pairs:
            yield _product(None, TensorParallel(held_by), data, engine)
        if held_by <= layers and not network.normalizes:
            yield _product(Pipeline(held_by), None, data, engine)


def _product(
    pipeline: Pipeline | None,
    tensor: TensorParallel | None,
    data: DataParallel | None,
    engine: Engine,
) -> Strategy:
    """As the shortest string spells it."""
    return parse(str(Grid(pipeline, tensor, data, engine)))


def choose(steps: Steps, among: Iterable[Strategy], comm: Communicator) -> Choice:
    """The fastest of the candidates, by estimate and, where estimates are close, by a short measurement.

    Collective; rank 0 decides.

    Parameters
    ----------
    steps : Steps
        With a `MeasuredCompute` close ones are measured, otherwise not.
    among : iterable of Strategy
        Such as `candidates`.
    comm : Communicator

    Raises
    ------
    ValueError
        If none fits.
    """
    considered = {}
    for strategy in among:
        considered[str(strategy)] = (steps.estimate(strategy), strategy)
    if not considered:
        raise ValueError(f"fastest: no strategy fits {steps.ranks} ranks")
    ranked = sorted((estimate for estimate, _ in considered.values()), key=lambda each: each.seconds)
    order = _from_root([each.strategy for each in ranked], comm)
    ranked = [considered[spec][0] for spec in order]
    close = [each.strategy for each in ranked if each.seconds <= CLOSE * ranked[0].seconds][:MOST_MEASURED]
    close = _from_root(close, comm)
    measured: dict[str, float] = {}
    if len(close) > 1 and isinstance(steps.compute, MeasuredCompute):
        for spec in close:
            trial = steps.compute.trial(steps.network, considered[spec][1], comm, steps.rows)
            measured[spec] = timed([trial], comm)
    best = _from_root([min(measured, key=lambda spec: measured[spec])] if measured else order[:1], comm)[0]
    return Choice(considered[best][1], tuple(ranked), measured)


def _from_root(words: list[str], comm: Communicator) -> list[str]:
    """Rank 0's words, on all ranks."""
    if comm.size == 1:
        return words
    own = np.frombuffer("\n".join(words).encode(), np.uint8)
    return str(comm.all_gather(own, check=True)[0].tobytes(), "utf-8").split("\n")
