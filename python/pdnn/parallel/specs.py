"""The strings that spell strategies, and which strategy fits a world of ranks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pdnn.parallel.cores import cores_of_rank, warn_if_crowded
from pdnn.parallel.strategies import (
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
)

if TYPE_CHECKING:
    from pdnn.comm import Communicator

SPECS = (
    '"auto", "serial", "team:2", "pool:5", "pool:5/25", "ddp", "ddp+team:2", "ddp:sum", '
    '"average:end", "average:8", "average:8+team:2", '
    '"hogwild:4", "hogwild-processes:4", "scatter-gather"'
)


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
    across, plus, inner = words.partition("+")
    engine = parse(inner) if plus else Serial()
    if isinstance(engine, (Serial, Team, Pool)):
        if across in ("ddp", "ddp:sum"):
            return DataParallel(engine, average="sum" if across.endswith(":sum") else "mean")
        if match := re.fullmatch(r"average:(end|\d+)(:master)?(:own-init)?", across):
            return Average(
                every=None if match[1] == "end" else int(match[1]),
                by="master" if match[2] else "all_reduce",
                same_init=not match[3],
                engine=engine,
            )
    if match := re.fullmatch(r"hogwild(-processes)?:(\d+)", words):
        return HogwildProcesses(int(match[2])) if match[1] else Hogwild(int(match[2]))
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
    if not isinstance(chosen, Strategy):
        raise TypeError(
            f"Trainer: strategy is a {type(chosen).__name__}, expected a string or one of pdnn.parallel's"
        )
    _check_ranks(chosen, comm.size)
    warn_if_crowded(chosen, comm)
    return chosen


def _check_ranks(strategy: Strategy, ranks: int) -> None:
    fits: Strategy
    if isinstance(strategy, HogwildProcesses) and strategy.workers != ranks:
        fits = HogwildProcesses(ranks) if ranks > 1 else Hogwild(strategy.workers)
        raise ValueError(
            f'Trainer: strategy "{strategy}" is for {strategy.workers} ranks, this world has {ranks}; '
            f'"{fits}" fits'
        )
    if ranks > 1 and isinstance(strategy, (Serial, Team, Pool, Hogwild)):
        fits = HogwildProcesses(ranks) if isinstance(strategy, Hogwild) else DataParallel(strategy)
        raise ValueError(
            f'Trainer: strategy "{strategy}" is for one process, this world has {ranks} ranks; '
            f'"{fits}" fits, or pass comm=pdnn.comm.SELF to train on each rank by itself'
        )
