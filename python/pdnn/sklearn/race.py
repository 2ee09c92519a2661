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
            del self.run  # which the next turn may not need
            self.run, self.steps = self._turns.send(seconds / steps)


def _turns(run: Epochs, engines: Sequence[Strategy]) -> Generator[tuple[Epochs, int], float]:
    """Yields what is to make how many steps, and is sent the seconds of one."""
    if len(engines) == 1:
        yield run, 0
    runs = {engines[0]: run}  # the one, but in a race; each has a model of its own
    del run
    seconds = yield runs[engines[0]], FIRST
    patience = PATIENCE
    while True:
        began = perf_counter()
        while (left := patience - (perf_counter() - began)) > 0:
            seconds = yield next(iter(runs.values())), ceil(left / max(seconds, 1e-7))
        patience *= AGAIN
        if seconds >= SHORT:
            yield from _race(runs, engines)


def _race(
    runs: dict[Strategy, Epochs], engines: Sequence[Strategy]
) -> Generator[tuple[Epochs, int], float, None]:
    """Yields and is sent the same; leaves in `runs` what trains by the fastest engine."""
    from pdnn.estimate.turns import as_many_as_pay, turns

    pairs = as_many_as_pay(engines)
    pair = next(pairs)
    try:
        while True:
            _bring(runs, pair)
            pair = pairs.send((yield from turns([runs[each] for each in pair], SELF)))
    except StopIteration as end:
        fastest, _ = end.value
        for each in runs.keys() - {fastest}:
            del runs[each]


def _bring(runs: dict[Strategy, Epochs], pair: Sequence[Strategy]) -> None:
    """Makes those of a pair, and lets all others go, so that no more than two are in memory."""
    for engine in pair:
        if engine not in runs:
            for other in list(runs.keys() - set(pair))[: len(runs) - 1]:
                del runs[other]
            runs[engine] = next(iter(runs.values())).by(engine)
    for other in runs.keys() - set(pair):
        del runs[other]
