"""Seeds of models that are given none of their own."""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any

from pdnn.checks import integer
from pdnn.comm.threads import CURRENT

GOLDEN_RATIO = 0x9E3779B97F4A7C15
"""Of 2^64: its multiples lie far apart, so neighboring numbers give unrelated seeds."""


class Seeds:
    """What models without a seed of their own draw from: manual_seed's number, and how many came before."""

    def __init__(self, base: int = 0, models: int = 0) -> None:
        self.base, self.models = base, models

    def next(self) -> int:
        """The seed of one more model."""
        number = self.models
        self.models += 1
        return (self.base * GOLDEN_RATIO + number) % 2**64


_seeds = Seeds()
_rank_seeds: ContextVar[Seeds | None] = ContextVar("pdnn_seeds", default=None)


def seeds() -> Seeds:
    """The process's; a rank that is a thread goes on from them by itself, as one that is a process does."""
    if CURRENT.get() is None:
        return _seeds
    if (own := _rank_seeds.get()) is None:
        own = Seeds(_seeds.base, _seeds.models)
        _rank_seeds.set(own)
    return own


def manual_seed(seed: int) -> None:
    """Makes the models built from here on reproducible; each gets another seed of the same sequence.

    They take them in the order of their first use.
    """
    global _seeds
    begun = Seeds(integer("manual_seed", "seed", seed))
    if CURRENT.get() is None:
        _seeds = begun
    else:
        _rank_seeds.set(begun)


def settled_seed(modules: Iterable[Any]) -> int:
    """The seed of a model without memory, for its copies, too; its other modules get some that follow."""
    model, *parts = modules
    seed = int((model._seeds or seeds()).next() if model.seed is None else model.seed)
    for number, module in enumerate((model, *parts)):
        if module.seed is None and module._place is None:
            module.seed = (seed + number * GOLDEN_RATIO) % 2**64
    return seed
