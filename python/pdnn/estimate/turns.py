"""Turns: which of some ways to make a training's steps is the fastest, found out by taking turns."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from math import ceil
from typing import TypeVar

import numpy as np

from pdnn.comm import Communicator
from pdnn.strategies import Strategy

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Result = TypeVar("Result")
Way = TypeVar("Way")
S = TypeVar("S", bound=Strategy)

BLOCK, LONG, MOST_STEPS = 0.002, 0.25, 4096
"""Seconds and steps of a block, at least and at most, and of all blocks."""

FEWEST, MOST, CLEAR = 3, 7, 1.1
"""Blocks of each way, and how many times as fast one must be each time for no more of them."""

SOON, FAR = 2, 3.0
"""The same, for one that is so much faster."""

SHORT, FIRST = 2e-6, 16
"""Seconds of a step of the first way in which other threads cannot even meet, the mean of so many."""

PAYS = 1.03
"""How many times as fast a step must be to be worth more threads."""

HOPELESS = 1.5
"""Where a team takes this many times as long as the best so far, larger ones are not tried."""


def turns(ways: Sequence[Way], comm: Communicator) -> Generator[tuple[Way, int], float, list[float]]:
    """Asks for steps of each way, in turns and on all ranks at once; returns the seconds of one of each.

    They are the slowest rank's. Each block of steps follows on an untimed one, and the median of a way's
    blocks counts: what it takes while others use the machine as they do now. It ends early where all ranks
    see which one is the fastest. Of steps that take longer than `LONG`, one is measured. Where steps of the
    first take less than `SHORT`, the others are not tried, and count as infinite.

    Yields
    ------
    (way, int)
        Which is to make how many steps; the seconds of one are sent.
    """
    warm = np.full(len(ways), np.inf)
    for index, way in enumerate(ways):
        yield way, 1
        warm[index] = yield way, 1
        comm.all_reduce(warm[index : index + 1], op="max", check=False)
        if index == 0 and len(ways) > 1 and warm[0] < FIRST * SHORT:
            warm[0] = yield way, FIRST
            comm.all_reduce(warm[:1], op="max", check=False)
            if warm[0] < SHORT:
                break
    if warm.max() > LONG:
        return [float(seconds) for seconds in warm]
    steps = [min(MOST_STEPS, ceil(BLOCK / max(float(seconds), 1e-7))) for seconds in warm]
    rounds = max(FEWEST, min(MOST, int(LONG / (2 * float(steps @ warm)))))
    blocks: list[list[float]] = [[] for _ in ways]
    for _ in range(rounds):
        for own, way, count in zip(blocks, ways, steps, strict=True):
            comm.barrier(check=False)
            yield way, count
            own.append((yield way, count))
        clear = np.array([float(_is_clear(blocks))])
        comm.all_reduce(clear, op="min", check=False)
        if clear[0]:
            break
    result = np.array([np.median(own) for own in blocks])
    comm.all_reduce(result, op="max", check=False)
    return [float(seconds) for seconds in result]


def _is_clear(blocks: list[list[float]]) -> bool:
    """Whether one way's block was faster than the others' of the same round, by `CLEAR` and in all rounds.

    Blocks of other rounds do not count: the machine may have become slower meanwhile.
    """
    best = min(blocks, key=max)
    others = [own for own in blocks if own is not best]
    rounds = list(zip(best, *others, strict=True))
    ahead = min((min(theirs) / own for own, *theirs in rounds if theirs), default=np.inf)
    return bool(others and ahead > (CLEAR if len(rounds) >= FEWEST else FAR) and len(rounds) >= SOON)


def as_many_as_pay(
    among: Sequence[S],
) -> Generator[Sequence[S], list[float], tuple[S, dict[str, float]]]:
    """The one with the fewest threads that no larger one beats by `PAYS`, and the seconds of all tried.

    Each is compared with the best so far, so that no more than two are in memory.

    Yields
    ------
    sequence of Strategy
        To be compared; the seconds a step of each are sent.
    """
    best, measured = among[0], dict[str, float]()
    if len(among) == 1:
        return best, {str(best): (yield among)[0]}
    for engine in among[1:]:
        own, other = yield [best, engine]
        measured |= {str(best): own}
        if other < np.inf:
            measured[str(engine)] = other
        if other > HOPELESS * own:
            break
        if other * PAYS < own:
            best = engine
    return best, measured


def answered(questions: Generator[Question, Answer, Result], answer: Callable[[Question], Answer]) -> Result:
    """What comes of questions if each is answered at once."""
    try:
        question = next(questions)
        while True:
            question = questions.send(answer(question))
    except StopIteration as end:
        result: Result = end.value
        return result


def in_turns(trials: Sequence[Callable[[int], float]], comm: Communicator) -> list[float]:
    """Seconds a step of each trial, which makes so many and returns the seconds of one; see `turns`."""
    return answered(turns(trials, comm), lambda turn: turn[0](turn[1]))
