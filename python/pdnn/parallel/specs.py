"""The strings that spell strategies, and which strategy fits a world of ranks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pdnn.parallel.cores import cores_of_rank, warn_if_crowded
from pdnn.parallel.engines import Engine, Pool, Serial, Team
from pdnn.parallel.grid import SCHEDULES, Grid, Pipeline, TensorParallel, as_grid
from pdnn.parallel.replicas import Average, DataParallel, Hogwild, HogwildProcesses, ScatterGather
from pdnn.parallel.strategies import Strategy

if TYPE_CHECKING:
    from pdnn.codec import Codec
    from pdnn.comm import Communicator

SPECS = (
    '"auto", "fastest", "serial", "team:2", "pool:5", "pool:5/25", "ddp", "ddp+team:2", "ddp:sum", '
    '"ddp:int8", "average:end", "average:8", "average:8+team:2", "average:8:topk:0.01", '
    '"hogwild:4", "hogwild-processes:4", "scatter-gather", '
    '"tp:2", "pipeline:2", "pipeline:2/8:gpipe", "pipeline:2/8:int8", "pipeline:2/8:gpipe:bf16", '
    'and products like "pipeline:2 x tp:2 x ddp+team:2"'
)


def parse(spec: str) -> Strategy:
    """The strategy that a string spells; see `SPECS` for the forms.

    Raises
    ------
    ValueError
        If it is none of them.
    """
    words = spec.strip()
    if len(factors := re.split(r"\s+x\s+", words)) > 1:
        return _product(spec, factors)
    if words == "serial":
        return Serial()
    if words in ("scatter-gather", "scatter-gather:once"):
        return ScatterGather(once=words.endswith(":once"))
    across, plus, inner = words.partition("+")
    engine = parse(inner) if plus else Serial()
    if isinstance(engine, (Serial, Team, Pool)):
        if match := re.fullmatch(r"ddp(:sum)?(?::(.+))?", across):
            return DataParallel(engine, "sum" if match[1] else "mean", codec=_codec(spec, match[2]))
        if match := re.fullmatch(r"average:(end|\d+)(:master)?(:own-init)?(?::(.+))?", across):
            return Average(
                every=None if match[1] == "end" else int(match[1]),
                by="master" if match[2] else "all_reduce",
                same_init=not match[3],
                engine=engine,
                codec=_codec(spec, match[4]),
            )
        if match := re.fullmatch(r"tp:(\d+)", across):
            return TensorParallel(int(match[1]), engine)
        if match := re.fullmatch(r"pipeline:(\d+)(?:/(\d+))?((?::[\w.-]+)*)", across):
            return _pipeline(int(match[1]), match[2], match[3].split(":")[1:], engine)
    if match := re.fullmatch(r"hogwild(-processes)?:(\d+)", words):
        return HogwildProcesses(int(match[2])) if match[1] else Hogwild(int(match[2]))
    if match := re.fullmatch(r"team:(\d+)", words):
        return Team(int(match[1]))
    if match := re.fullmatch(r"pool:(\d+)(?:/(\d+))?", words):
        return Pool(int(match[1]), int(match[2])) if match[2] else Pool(int(match[1]))
    raise ValueError(f'strategy "{spec}"; expected one of {SPECS}')


def _codec(spec: str, words: str | None) -> Codec | None:
    """The codec that the last words of a strategy spell, if there are any."""
    if words is None:
        return None
    from pdnn import codec

    try:
        return codec.parse(words)
    except ValueError as error:
        raise ValueError(f'strategy "{spec}": {error}') from None


def _pipeline(stages: int, micros: str | None, words: list[str], engine: Engine) -> Pipeline:
    """Of the words after the numbers the first may be a schedule; the others spell a codec."""
    schedule = words.pop(0) if words and words[0] in SCHEDULES else "1f1b"
    codec = ":".join(words) or None
    try:
        return Pipeline(stages, int(micros) if micros else None, schedule, engine=engine, codec=codec)
    except ValueError as error:
        if codec is None or not str(error).startswith("codec "):
            raise
        raise ValueError(
            f'Pipeline: schedule "{codec}"; expected one of {", ".join(SCHEDULES)}, or a {error}'
        ) from error


def _product(spec: str, factors: list[str]) -> Grid:
    """The product of strategies that the factors spell, each at most once; the last may end in an engine."""
    last, plus, inner = factors[-1].partition("+")
    engine = parse(inner) if plus else Serial()
    found: dict[type, Strategy] = {}
    for factor in map(parse, [*factors[:-1], last]):
        if not isinstance(factor, (Pipeline, TensorParallel, DataParallel)) or type(factor) in found:
            raise ValueError(
                f'strategy "{spec}"; a product has one each of "pipeline:N", "tp:N" and "ddp" at most, '
                'and may end in "+team:N"'
            )
        found[type(factor)] = factor
    if not isinstance(engine, (Serial, Team, Pool)):
        raise ValueError(f'strategy "{spec}"; a product may end in "+team:N", not in "+{inner}"')
    return Grid(found.get(Pipeline), found.get(TensorParallel), found.get(DataParallel), engine)  # type: ignore[arg-type]


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
    check_ranks(chosen, comm.size)
    warn_if_crowded(chosen, comm)
    return chosen


def check_ranks(strategy: Strategy, ranks: int) -> None:
    """Raises ValueError, with a strategy that would fit, if this one does not fit so many ranks."""
    fits: Strategy
    if isinstance(strategy, HogwildProcesses) and strategy.workers != ranks:
        fits = HogwildProcesses(ranks) if ranks > 1 else Hogwild(strategy.workers)
        raise ValueError(
            f'Trainer: strategy "{strategy}" is for {strategy.workers} ranks, this world has {ranks}; '
            f'"{fits}" fits'
        )
    grid = as_grid(strategy)
    if grid is not None and not grid.fits(ranks):
        held_by = grid.stages * grid.tensor_ranks
        words = " x ".join(str(factor) for factor in (grid.pipeline, grid.tensor) if factor)
        advice = f"start a multiple of {held_by}" if grid.data else f"start {held_by}"
        if not grid.data and ranks % held_by == 0:
            advice = f'"{words} x ddp" fits'
        raise ValueError(
            f'Trainer: strategy "{strategy}" deals the network out to {held_by} ranks, this world has '
            f"{ranks}; {advice}"
        )
    if ranks > 1 and isinstance(strategy, (Serial, Team, Pool, Hogwild)):
        fits = HogwildProcesses(ranks) if isinstance(strategy, Hogwild) else DataParallel(strategy)
        raise ValueError(
            f'Trainer: strategy "{strategy}" is for one process, this world has {ranks} ranks; '
            f'"{fits}" fits, or pass comm=pdnn.comm.SELF to train on each rank by itself'
        )
