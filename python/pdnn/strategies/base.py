"""Strategy: the interface of each way to make a training step parallel."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pdnn import _core
from pdnn.strategies.step_cost import StepCost

if TYPE_CHECKING:
    from pdnn.codec import Codec

KINDS: list[type[Strategy]] = []
"""The strategies that strings can spell."""

LEAVES = 8
"""Leaves of a batch under ``Trainer(reproducible=True)``, unless the strategy says how many."""


class Strategy:
    """A way to make a training step parallel.

    Each subclass is a frozen dataclass with everything about its strategy. One with a `pattern` can also be
    spelled as a string: `pdnn.strategies.parse` tries the patterns, and `spelled` makes the strategy.

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
        Fields that the string leaves out and that must be equal on all ranks.
    same_init : bool
        Training begins with rank 0's parameters on all ranks.
    models_apart : bool
        Between two averages each rank trains a model of its own.
    same_updates : bool
        All ranks make the same updates, so their optimizers have the same state.
    root_updates : bool
        Rank 0 makes the updates of all, so its optimizer alone has their state until the end of `fit`.
    survives : bool
        Whether every rank has all that training needs, so that those left can go on when one dies.
    takes_spares : bool
        Whether a rank that has waited can take the place of one that dies: between steps the others have all
        that it needs.
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
    root_updates: ClassVar[bool] = False
    survives: ClassVar[bool] = False
    takes_spares: ClassVar[bool] = False
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

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        if cls.pattern:
            path = f"{cls.__module__}.{cls.__qualname__}"  # known before where Ctrl-C has ended its import
            KINDS[:] = [kind for kind in KINDS if f"{kind.__module__}.{kind.__qualname__}" != path] + [cls]

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

    def warn_of_steps(self, first: int, end: int) -> None:
        """Warns if training from step `first` to `end`, on several ranks, would leave the model as it is."""

    def identity(self) -> str:
        """What must be equal on all ranks: all but the engine, which may depend on a rank's cores."""
        words = str(self).removesuffix(self.engine.suffix)
        values = {name: getattr(self, name) for name in self.unspelled}
        told = ", ".join(f"{name}={value}" for name, value in values.items() if value is not None)
        return f"{words} with {told}" if told else words

    @property
    def grid(self) -> Any:
        """The strategy as a `Grid`, if ranks hold parts of the network; else None."""
        return None

    @property
    def whole_gradient(self) -> bool:
        """Whether a step gives every rank the gradient of the mean loss over its rows, as it was computed."""
        return self.same_updates

    @property
    def leaves(self) -> int:
        """Fixed pieces of a batch, by whose tree its sums are made, whatever the ranks; 0: there are none."""
        return 0

    def reproducible(self) -> Strategy:
        """The same with sums that have the same bits whoever computes them.

        Raises
        ------
        ValueError
            If the strategy does not take part.
        """
        raise not_reproducible(self)

    @property
    def has_pipeline(self) -> bool:
        """Whether micro-batches pass from rank to rank, so that there is a timeline to keep."""
        return self.grid is not None and self.grid.pipeline is not None

    def config(self) -> Any:
        """The core's configuration, one of those in cpp/pdnn/strategy/config.hpp."""
        raise NotImplementedError

    def estimate(self, steps: CostModel) -> StepCost:
        """What a step takes."""
        raise NotImplementedError

    def memory(self, steps: CostModel) -> int:
        """Bytes of memory of a rank, without its data set."""
        return steps.memory(self.engine, -(-steps.rows // steps.ranks))


class Engine(Strategy):
    """How one rank makes its gradient.

    Attributes
    ----------
    threads : int
        That it keeps busy.
    pieces : int
        Into which it cuts the rows of a gradient.
    passes : int
        Passes that run at the same time, each with a gradient of its own; 0: all threads share one pass.
    needs_cores : bool
        Its threads wait for each other so often that each needs a core of its own.
    waiting : int
        Gradients of pieces that wait, in the tree that adds them up, for those of later pieces.
    suffix : str
        How a strategy's string ends in it: "+team:2".
    """

    pieces: ClassVar[int] = 1
    passes: ClassVar[int] = 0
    waiting: ClassVar[int] = 0
    needs_cores: ClassVar[bool] = True

    if TYPE_CHECKING:

        @property
        def threads(self) -> int:
            """That it keeps busy."""

    @property
    def engine(self) -> Engine:
        """Itself."""
        return self

    @property
    def suffix(self) -> str:
        """How a strategy's string ends in it: "+team:2"."""
        return f"+{self}"

    def misfit(self, ranks: int) -> str | None:
        """An engine alone is for one process."""
        return alone(ranks, f"ddp{self.suffix}")

    def reproducible(self) -> Engine:
        """With leaves, if it has none."""
        return self if self.leaves else self.with_leaves(LEAVES)

    def with_leaves(self, leaves: int) -> Engine:
        """With so many leaves."""
        return replace(self, leaves=leaves)  # type: ignore[type-var]

    def identity(self) -> str:
        """All of it."""
        return str(self)

    def engine_config(self) -> _core.TeamConfig | _core.PoolConfig:
        """The core's configuration of an engine."""
        return _core.TeamConfig(self.threads)

    def config(self) -> _core.DataParallelConfig:
        """Of one replica."""
        return _core.DataParallelConfig(self.engine_config(), False, _core.ReducerOptions(), self.leaves)

    def estimate(self, steps: CostModel) -> StepCost:
        """A step of all rows."""
        return steps.engine(self, steps.rows)


class CostModel(Protocol):
    """A network, the rows of a step and the ranks that make it: what each kind of step costs them.

    Attributes
    ----------
    rows, ranks : int
    params, buffers : int
        Elements of the network's parameters and of its running statistics.
    model_elements : float
        Parameters, gradients and their tail, optimizer state.
    """

    @property
    def rows(self) -> int: ...  # noqa: D102
    @property
    def ranks(self) -> int: ...  # noqa: D102
    @property
    def params(self) -> int: ...  # noqa: D102
    @property
    def buffers(self) -> int: ...  # noqa: D102
    @property
    def model_elements(self) -> float: ...  # noqa: D102

    def engine(self, engine: Engine, rows: int) -> StepCost:
        """A rank's own step of so many rows."""

    def data_parallel(self, strategy: Any) -> StepCost:
        """Shares of the rows, and a sum of gradients, by a `DataParallel`."""

    def averaging(
        self, engine: Engine, every: int | None, codec: str | Codec | None, *, by_master: bool
    ) -> StepCost:
        """A step of each rank's own on all rows, and every so many steps an average of models."""

    def hogwild(self, workers: int, threads: int = 1) -> StepCost:
        """From one update to the next of so many workers, `threads` of them in each process."""

    def scatter_gather(self, once: bool) -> StepCost:
        """A step that rank 0 drives; with `once` the rows are there already."""

    def grid(self, grid: Any) -> StepCost:
        """A step of replicas that several ranks hold together, by a `Grid`."""

    def memory(
        self,
        engine: Engine,
        rows: int,
        more: float = 0.0,
        passes: float = 1.0,
        held: float = 1.0,
        copied: float = 1.0,
    ) -> int:
        """Bytes that a rank keeps, its data set apart.

        Parameters
        ----------
        engine : Engine
        rows : int
            Of a gradient of this rank.
        more : float
            Elements beside those of the model that users see, and of what is trained of it.
        passes : float
            Through the network that are on their way at once.
        held : float
            Which part of the model a rank trains.
        copied : float
            Which part of that it copies, to undo steps that are not finite.
        """


def not_reproducible(strategy: Strategy, why: str = "") -> ValueError:
    """Says that a strategy does not take part in reproducible sums."""
    return ValueError(
        f'strategy "{strategy}" does not take part in reproducible sums{why and ": "}{why}; "serial", '
        '"team:N", "pool:N", "ddp", "ddp+team:N", "ddp+pool:N", "pipeline:N" and "pipeline:N x ddp" do'
    )


def check_engine(strategy: Strategy) -> None:
    """Raises TypeError unless the engine is one."""
    if not isinstance(strategy.engine, Engine):
        raise TypeError(
            f"{type(strategy).__name__}: engine is {strategy.engine!r}, expected an engine, such as Team(2)"
        )


def refuse_leaves(strategy: Strategy, why: str = "") -> None:
    """Raises ValueError if the engine's sums go over leaves of a batch, which this strategy does not have."""
    check_engine(strategy)
    if strategy.engine.leaves and not strategy.engine.passes:
        raise not_reproducible(strategy, why)


def alone(ranks: int, fits: str) -> str | None:
    """Why a strategy for one process does not fit several ranks."""
    if ranks == 1:
        return None
    return (
        f'is for one process, this world has {ranks} ranks; "{fits}" fits, or pass comm=pdnn.comm.SELF to '
        "train on each rank by itself"
    )


def waiting_of(pieces: int) -> int:
    """Gradients that wait for those of later pieces while so many are added up by a binary tree."""
    return pieces.bit_length() - 1


def spelled_codec(spec: str, words: str | None) -> Codec | None:
    """The codec that the last words of a strategy's string spell, if there are any."""
    if words is None:
        return None
    from pdnn import codec

    if spec.startswith("ddp:") and words.isdigit():
        raise ValueError(
            f'strategy "{spec}": ddp takes all ranks; write "ddp", or "ddp+team:{words}" for threads on each'
        )
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


def compression(strategy: Any, measure_every: int) -> _core.Compression | None:
    """The codec of a strategy as the core takes it; one in `measure_every` encodings measures its error."""
    if strategy.codec is None:
        return None
    return _core.Compression(strategy.codec.spec, strategy.error_feedback, measure_every)


def codec_suffix(codec: str | Codec | None) -> str:
    """How a strategy's string names its codec: ":int8", or nothing."""
    return "" if codec is None else f":{codec}"
