"""Strategy: what the trainer, the estimates and the core ask of each way to make a training step parallel."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from pdnn.codec import Codec
    from pdnn.estimate.parts import Parts
    from pdnn.estimate.steps import Steps
    from pdnn.strategies.engines import Engine
    from pdnn.strategies.grid import Grid

KINDS: list[type[Strategy]] = []
"""The strategies that strings can spell."""


class Strategy:
    """A way to make a training step parallel.

    Each subclass is a frozen dataclass that answers for itself. One with a `pattern` is also spelled by
    strings: `pdnn.strategies.parse` tries the patterns, and `spelled` makes the strategy.

    Attributes
    ----------
    engine : Engine
        How one rank makes its gradient.
    pattern : str
        A regular expression for its strings, without the "+team:2" of an engine.
    examples : tuple of str
        Strings to show in messages.
    factor : str
        Which argument of `Grid` it can be in a product; "" for none.
    unspelled : tuple of str
        Fields that the string leaves out and all ranks must have alike.
    same_init : bool
        Training begins with rank 0's parameters on all ranks.
    models_apart : bool
        Between two averages each rank trains a model of its own.
    same_updates : bool
        All ranks make the same updates, so their optimizers hold the same state.
    asynchronous : bool
        Workers do not wait for each other; the staleness of their updates is counted.
    grid : Grid or None
        The strategy as a product, if ranks hold parts of the network.
    """

    pattern: ClassVar[str] = ""
    examples: ClassVar[tuple[str, ...]] = ()
    factor: ClassVar[str] = ""
    unspelled: ClassVar[tuple[str, ...]] = ()
    models_apart: ClassVar[bool] = False
    same_updates: ClassVar[bool] = True
    asynchronous: ClassVar[bool] = False

    if TYPE_CHECKING:  # fields of some subclasses, properties of others

        @property
        def engine(self) -> Engine:
            """How one rank makes its gradient."""

        @property
        def same_init(self) -> bool:
            """Training begins with rank 0's parameters on all ranks."""

    else:
        same_init = True

    def __init_subclass__(cls) -> None:
        if cls.pattern:
            KINDS.append(cls)

    @classmethod
    def spelled(cls, match: re.Match[str]) -> Strategy:
        """The strategy of a string that matched `pattern`; by default, its numbers are the arguments."""
        return cls(*(int(number) for number in match.groups() if number is not None))

    def with_engine(self, engine: Engine) -> Strategy | None:
        """The same by another engine; None if it has an engine of its own."""
        if all(field.name != "engine" for field in fields(self)):  # type: ignore[arg-type]
            return None
        return replace(self, engine=engine)  # type: ignore[type-var]

    def rows_per_step(self, batch_size: int, ranks: int) -> int:
        """Rows that a step takes from the epoch, over all ranks, with `batch_size` rows behind an update."""
        return batch_size

    def misfit(self, ranks: int) -> str | None:
        """Why it does not fit so many ranks, and what does; None if it fits."""
        return None

    def fits(self, ranks: int) -> bool:
        """Whether so many ranks can train by it."""
        return self.misfit(ranks) is None

    def check_ranks(self, ranks: int) -> None:
        """Raises ValueError, with what would fit, if the strategy does not fit so many ranks."""
        if why := self.misfit(ranks):
            raise ValueError(f'Trainer: strategy "{self}" {why}')

    def check_rows(self, rows: int, batch_size: int, augmented: bool) -> None:
        """Raises ValueError if it cannot train on so many rows in such batches, or on augmented ones."""

    def identity(self) -> str:
        """What all ranks must have alike: all but the engine, which may follow a rank's cores."""
        from pdnn.strategies.engines import Serial

        words = str(self.with_engine(Serial()) or self)
        values = {name: getattr(self, name) for name in self.unspelled}
        told = ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)
        return f"{words} with {told}" if told else words

    @property
    def grid(self) -> Grid | None:
        """The strategy as a product, if ranks hold parts of the network."""
        return None

    @property
    def has_pipeline(self) -> bool:
        """Whether micro-batches pass from rank to rank, so that there is a timeline to keep."""
        return self.grid is not None and self.grid.pipeline is not None

    def estimate(self, steps: Steps) -> Parts:
        """What a step takes."""
        raise NotImplementedError

    def memory(self, steps: Steps) -> int:
        """Bytes that a rank keeps, its data set apart."""
        return steps.memory(self.engine, -(-steps.rows // steps.ranks))


def check_positive(what: str, value: int) -> None:
    """Raises ValueError unless the value is at least 1."""
    if value < 1:
        raise ValueError(f"{what} = {value}; expected at least 1")


def spelled_codec(spec: str, words: str | None) -> Codec | None:
    """The codec that the last words of a strategy's string spell, if there are any."""
    if words is None:
        return None
    from pdnn import codec

    try:
        return codec.parse(words)
    except ValueError as error:
        raise ValueError(f'strategy "{spec}": {error}') from None


def take_codec(strategy: Any) -> None:
    """Makes the `codec` of a strategy an object if a string spells it; checks that feedback is of a codec."""
    if strategy.codec is not None:
        from pdnn.codec import parse

        object.__setattr__(strategy, "codec", parse(strategy.codec))
    elif strategy.error_feedback is not None:
        raise ValueError(f"{type(strategy).__name__}: error_feedback is of a codec; pass codec=")


def codec_suffix(codec: str | Codec | None) -> str:
    """How a strategy's string names its codec: ":int8", or nothing."""
    return "" if codec is None else f":{codec}"
