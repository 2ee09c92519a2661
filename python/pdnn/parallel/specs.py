"""The strings that spell strategies, and which strategy fits a world of ranks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pdnn.parallel.cores import cores_of_rank, warn_if_crowded
from pdnn.parallel.strategies import DataParallel, Engine, Pool, ScatterGather, Serial, Strategy, Team

if TYPE_CHECKING:
    from pdnn.comm import Communicator

SPECS = '"auto", "serial", "team:2", "pool:5", "pool:5/25", "ddp", "ddp+team:2", "scatter-gather"'


def parse(spec: str) -> Strategy:
    """The strategy that a string spells; see `SPECS` for the forms.

    Raises
    ------
    ValueError
        If it is none of them.
    """
    words = spec.strip()
    if words == "serial":
        return Serial()
    if words in ("scatter-gather", "scatter-gather:once"):
        return ScatterGather(once=words.endswith(":once"))
    if words == "ddp":
        return DataParallel()
    if words.startswith("ddp+"):
        inner = parse(words[4:])
        if isinstance(inner, (Serial, Team, Pool)):
            return DataParallel(inner)
    if match := re.fullmatch(r"team:(\d+)", words):
        return Team(int(match[1]))
    if match := re.fullmatch(r"pool:(\d+)(?:/(\d+))?", words):
        return Pool(int(match[1]), int(match[2])) if match[2] else Pool(int(match[1]))
    raise ValueError(f'strategy "{spec}"; expected one of {SPECS}')


def choose(strategy: str | Strategy, comm: Communicator) -> Strategy:
    """The strategy for a world: parses, resolves "auto", and refuses what does not fit.

    Raises
    ------
    ValueError
        If the string is no strategy, or the strategy is for one process and the world has more.
    TypeError
        If it is neither a string nor a strategy.
    """
    if strategy == "auto":
        threads = cores_of_rank(comm)
        engine: Engine = Team(threads) if threads > 1 else Serial()
        return DataParallel(engine) if comm.size > 1 else engine
    chosen = parse(strategy) if isinstance(strategy, str) else strategy
    if not isinstance(chosen, (Serial, Team, Pool, DataParallel, ScatterGather)):
        raise TypeError(
            f"Trainer: strategy is a {type(chosen).__name__}, expected a string or one of pdnn.parallel's"
        )
    if comm.size > 1 and isinstance(chosen, (Serial, Team, Pool)):
        fits = DataParallel(chosen)
        raise ValueError(
            f'Trainer: strategy "{chosen}" is for one process, this world has {comm.size} ranks; '
            f'"{fits}" fits, or pass comm=pdnn.comm.SELF to train on each rank by itself'
        )
    warn_if_crowded(chosen, comm)
    return chosen
