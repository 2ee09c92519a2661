"""Race: an estimator's epochs, whose first steps one thread and teams of threads make in turns."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from math import ceil
from time import perf_counter

from pdnn.comm import SELF
from pdnn.epochs import Epochs
from pdnn.strategies import Strategy

PATIENCE = 0.01
"""Seconds that one thread trains before others may: what has lasted so long will often last as long again."""

AGAIN = 16
"""How many times as long it is until the next race: others may use the machine meanwhile."""

FIRST = 16
"""Steps, by which it is learned how long these are."""

SHORT = 2e-5
"""Seconds of a step of one thread that is too short for threads to wait for each other in it."""


class Race:
    """Which of some engines trains fastest, by the steps of the training itself.

    Each makes the same updates as the others, bit for bit, so it costs only what the slower ones lose.

    Parameters
    ----------
    run : Epochs
        That trains by the first engine.
    engines : sequence of Strategy
        One thread, and teams of more and more; or the only strategy.

    Attributes
    ----------
    run : Epochs
        That makes the next steps.
    steps : int
        How many; 0: all others.
    """

    def __init__(self, run: Epochs, engines: Sequence[Strategy]) -> None:
        self._turns = _turns(run, engines)
        self.run, self.steps = next(self._turns)

    def note(self, seconds: float, steps: int) -> None:
        """So many steps of this turn took so many seconds; the next turn begins."""
        if self.steps > 0:
            self.run, self.steps = self._turns.send(seconds / steps)


def _turns(run: Epochs, engines: Sequence[Strategy]) -> Generator[tuple[Epochs, int], float]:
    """Yields what is to make how many steps, and is sent the seconds of one."""
    if len(engines) == 1:
        yield run, 0
    engine, seconds = engines[0], (yield run, FIRST)
    patience = PATIENCE
    while True:
        began = perf_counter()
        while (left := patience - (perf_counter() - began)) > 0:
            seconds = yield run, ceil(left / max(seconds, 1e-7))
        patience *= AGAIN
        if seconds >= SHORT:
            engine, run = yield from _fastest(engine, run, engines)


def _fastest(
    engine: Strategy, run: Epochs, engines: Sequence[Strategy]
) -> Generator[tuple[Epochs, int], float, tuple[Strategy, Epochs]]:
    """Yields and is sent the same; returns the fastest engine, and what trains by it."""
    from pdnn.estimate.turns import as_many_as_pay, turns

    pairs, runs = as_many_as_pay(engines), {engine: run}
    pair = next(pairs)
    try:
        while True:
            runs = {each: runs.get(each) or run.by(each) for each in pair}
            pair = pairs.send((yield from turns(list(runs.values()), SELF)))
    except StopIteration as end:
        fastest, _ = end.value
        return fastest, runs[fastest]
