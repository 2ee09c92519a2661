"""The strings that spell strategies, and which strategy fits a world of ranks."""

from __future__ import annotations

import re
import warnings
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pdnn import _core
from pdnn.comm import cores_of_rank
from pdnn.strategies.base import KINDS, Engine, Strategy
from pdnn.strategies.data_parallel import DataParallel
from pdnn.strategies.engines import Serial, Team
from pdnn.strategies.grid import Grid

if TYPE_CHECKING:
    from pdnn.comm import Communicator


def _examples() -> list[str]:
    return ["auto", "fastest", *(example for kind in KINDS for example in kind.examples)]


def specs() -> str:
    """Examples of all strings that spell strategies."""
    words = ", ".join(f'"{word}"' for word in _examples())
    return f'{words}, and products like "pipeline:2 x tp:2 x ddp+team:2"'


def parse(spec: str) -> Strategy:
    """The strategy that a string spells; see `specs` for the forms.

    Raises
    ------
    TypeError
        If it is no string.
    ValueError
        If it is none of them.
    """
    if not isinstance(spec, str):
        raise TypeError(f"strategy {spec!r} is of type {type(spec).__name__}, expected a string")
    words = spec.strip()
    if spec in ("auto", "fastest"):
        raise ValueError(f'strategy "{spec}" is chosen when `fit` begins, and means nothing here; name one')
    if len(factors := re.split(r"\s+x\s+", words)) > 1:
        return _product(spec, factors)
    across, plus, inner = words.partition("+")
    engine = parse(inner) if plus else Serial()
    if re.search(r"/0+(:|$)", across):
        raise ValueError(f'strategy "{spec}": after "/" comes 0; expected an integer from 1, or no "/"')
    for kind in KINDS:
        if match := re.fullmatch(kind.pattern, across):
            strategy: Strategy | None = kind.spelled(match)
            if strategy is not None and plus:
                strategy = strategy.with_engine(engine) if isinstance(engine, Engine) else None
            if strategy is not None:
                return strategy
    near = get_close_matches(spec, _examples(), 1)
    meant = f', which may mean "{near[0]}"' if near else ""
    raise ValueError(f'strategy "{spec}"{meant}; expected one of {specs()}')


def _product(spec: str, factors: list[str]) -> Grid:
    """The product of strategies that the factors spell, each at most once; the last may end in an engine."""
    last, plus, inner = factors[-1].partition("+")
    engine = parse(inner) if plus else Serial()
    found: dict[str, Any] = {}
    for factor in map(parse, [*factors[:-1], last]):
        if factor.factor in ("", *found):
            raise ValueError(
                f'strategy "{spec}"; a product has one each of "pipeline:N", "tp:N" and "ddp" at most, '
                'and may end in "+team:N"'
            )
        found[factor.factor] = factor
    if not isinstance(engine, Engine):
        raise ValueError(f'strategy "{spec}"; a product may end in "+team:N", not in "+{inner}"')
    return Grid(**found, engine=engine)


def choose(strategy: str | Strategy, comm: Communicator, reproducible: bool = False) -> Strategy:
    """The strategy for a world: parses, and refuses what does not fit.

    "auto" takes all cores; how many pay is measured when `fit` begins.
    With `reproducible` it has leaves, by whose tree its sums are made: as many as it says, or `LEAVES`.

    Raises
    ------
    ValueError
        If the string is no strategy, the strategy is for one process and the world has more, or it does not
        take part in reproducible sums that are asked for.
    TypeError
        If it is neither a string nor a strategy.
    """
    if strategy == "auto":
        threads = cores_of_rank(comm)
        engine: Engine = Team(threads) if threads > 1 else Serial()
        strategy = DataParallel(engine) if comm.size > 1 else engine
    chosen = parse(strategy) if isinstance(strategy, str) else strategy
    if not isinstance(chosen, Strategy):
        raise TypeError(
            f"Trainer: strategy is of type {type(chosen).__name__}, "
            "expected a string or one of pdnn.strategies'"
        )
    if reproducible:
        chosen = chosen.reproducible()
    chosen.check_ranks(comm.size - comm.spares)
    _warn_if_crowded(chosen, comm)
    return chosen


def _warn_if_crowded(strategy: Strategy, comm: Communicator) -> None:
    """Warns if a strategy uses more threads than this rank has cores."""
    engine, cores = strategy.engine, cores_of_rank(comm)
    if (engine.needs_cores or comm.size > 1) and engine.threads > cores:
        online, mask, _ = _core.read_cores()
        bound = comm.size > 1 and mask < engine.threads <= online
        hint = "; mpiexec bound it, add --bind-to none" if bound else ""
        warnings.warn(
            f'strategy "{strategy}": {engine.threads} threads share {cores} core(s) of this process{hint}',
            stacklevel=4,
        )
