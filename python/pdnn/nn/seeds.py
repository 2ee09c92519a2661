"""Seeds of models that are given none of their own."""

from __future__ import annotations

from itertools import count

from pdnn.checks import integer

GOLDEN_RATIO = 0x9E3779B97F4A7C15
"""Of 2^64: its multiples lie far apart, so neighboring numbers give unrelated seeds."""


class _Seeds:
    """What models without a seed of their own draw from: manual_seed's number, and how many came before."""

    def __init__(self) -> None:
        self.base = 0
        self.models = count()

    def next(self) -> int:
        return (self.base * GOLDEN_RATIO + next(self.models)) % 2**64


_seeds = _Seeds()


def manual_seed(seed: int) -> None:
    """Makes the models built from here on reproducible; each gets another seed of the same sequence."""
    _seeds.base = integer("manual_seed", "seed", seed)
    _seeds.models = count()


def next_seed() -> int:
    """The seed of a model that was given none."""
    return _seeds.next()
