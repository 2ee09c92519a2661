"""Strategies in which a rank holds only a part of the network, and their products with data parallel."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pdnn.parallel.engines import Engine, Pool, Serial, check_positive, suffix
from pdnn.parallel.replicas import DataParallel

if TYPE_CHECKING:
    from pdnn.codec import Codec

SCHEDULES = ("1f1b", "gpipe", "interleaved")


@dataclass(frozen=True)
class TensorParallel:
    """Linears are cut among the ranks: of a pair, the first by columns and the second by rows.

    A pair needs one all-reduce forward, and one backward unless it is the first layer. Activations and
    Dropout may stand between the two. Whatever else the network has is computed by every rank. Shoeybi et
    al., "Megatron-LM", arXiv:1909.08053, 2019.

    Parameters
    ----------
    ranks : int
        Among which a replica of the network is cut; widths need not divide.
    engine : Serial or Team
        How a rank computes its part.
    """

    ranks: int
    engine: Engine = field(default_factory=Serial)

    def __post_init__(self) -> None:
        check_positive("TensorParallel: ranks", self.ranks)
        _check_engine("TensorParallel", self.engine)

    def __str__(self) -> str:
        return f"tp:{self.ranks}{suffix(self.engine)}"


@dataclass(frozen=True)
class Pipeline:
    """Every rank holds some layers; micro-batches pass through the ranks one behind another.

    BatchNorm normalises each micro-batch by itself, as ``pool:1/M`` does with its pieces.

    Parameters
    ----------
    stages : int
        Ranks that hold a replica of the network.
    micro_batches : int, optional
        Pieces of the rows of a replica; four a stage unless given. p stages idle for (p - 1) / (m + p - 1) of
        the time with m of them.
    schedule : "1f1b", "gpipe" or "interleaved"
        In which order a rank takes them: one forward and one backward in turn, which holds fewest
        activations; all forward first; or in turn with two stages a rank, which idles less and sends more.
    cut : tuple of int, optional
        The layers with which the second, third, … stage begin. None: so that the slowest stage, by the
        layers' measured times, takes least.
    engine : Serial or Team
        How a rank computes its stage.
    codec : str or Codec, optional
        How activations travel up and their gradients down: "fp16", "bf16", "int8", "1bit", "topk:0.1". What
        it loses is lost: nothing is fed back, as the next message is about other rows. `PowerSGD` is refused,
        whose factors are for sums.
    """

    stages: int
    micro_batches: int | None = None
    schedule: str = "1f1b"
    cut: tuple[int, ...] | None = None
    engine: Engine = field(default_factory=Serial)
    codec: str | Codec | None = None

    def __post_init__(self) -> None:
        check_positive("Pipeline: stages", self.stages)
        if self.micro_batches is not None:
            check_positive("Pipeline: micro_batches", self.micro_batches)
        if self.schedule not in SCHEDULES:
            raise ValueError(f'Pipeline: schedule "{self.schedule}"; expected one of {", ".join(SCHEDULES)}')
        cuts = self.stages * self.chunks - 1
        if self.cut is not None and len(self.cut) != cuts:
            raise ValueError(f"Pipeline: cut={self.cut}; expected {cuts} numbers of layers")
        _check_engine("Pipeline", self.engine)
        if self.codec is not None:
            object.__setattr__(self, "codec", _codec_of_messages(self.codec))

    @property
    def chunks(self) -> int:
        """Stages of a rank."""
        return 2 if self.schedule == "interleaved" else 1

    @property
    def micros(self) -> int:
        """Micro-batches of a step."""
        return self.micro_batches or 4 * self.stages

    def __str__(self) -> str:
        words = f"pipeline:{self.stages}"
        words += f"/{self.micro_batches}" if self.micro_batches else ""
        words += f":{self.schedule}" if self.schedule != "1f1b" else ""
        words += f":{self.codec}" if self.codec is not None else ""
        return words + suffix(self.engine)


@dataclass(frozen=True)
class Grid:
    """A product: replicas share the rows of a batch, and each is held by stages × tensor ranks.

    Rank = (replica · stages + stage) · tensor ranks + place in the stage.

    Parameters
    ----------
    pipeline : Pipeline, optional
    tensor : TensorParallel, optional
    data : DataParallel, optional
        Given, there are as many replicas as the world has room for; otherwise one.
    engine : Serial or Team
        How a rank computes its part. The factors have none of their own.
    """

    pipeline: Pipeline | None = None
    tensor: TensorParallel | None = None
    data: DataParallel | None = None
    engine: Engine = field(default_factory=Serial)

    def __post_init__(self) -> None:
        _check_engine("Grid", self.engine)
        for factor in self.factors:
            if not isinstance(factor.engine, Serial):
                raise ValueError(f"Grid: {factor} brings an engine of its own; pass Grid(…, engine=…)")
        if not self.factors:
            raise ValueError("Grid: no factors; pass pipeline=, tensor= or data=")

    @property
    def factors(self) -> list[Pipeline | TensorParallel | DataParallel]:
        """Those that are given."""
        return [factor for factor in (self.pipeline, self.tensor, self.data) if factor is not None]

    @property
    def stages(self) -> int:
        """Ranks, one behind another, of a replica."""
        return self.pipeline.stages if self.pipeline else 1

    @property
    def tensor_ranks(self) -> int:
        """Ranks of a stage."""
        return self.tensor.ranks if self.tensor else 1

    def fits(self, ranks: int) -> bool:
        """Whether the factors multiply to so many ranks."""
        replica = self.stages * self.tensor_ranks
        return ranks % replica == 0 if self.data else ranks == replica

    def __str__(self) -> str:
        return " x ".join(str(factor) for factor in self.factors) + suffix(self.engine)


def as_grid(strategy: object) -> Grid | None:
    """The same as a product, if ranks hold parts of the network."""
    if isinstance(strategy, TensorParallel):
        return Grid(tensor=TensorParallel(strategy.ranks), engine=strategy.engine)
    if isinstance(strategy, Pipeline):
        return Grid(pipeline=replace(strategy, engine=Serial()), engine=strategy.engine)
    return strategy if isinstance(strategy, Grid) else None


def _codec_of_messages(codec: str | Codec) -> Codec:
    """A codec for activations and their gradients, or a ValueError."""
    from pdnn.codec import PowerSGD, parse

    parsed = parse(codec)
    if isinstance(parsed, PowerSGD):
        raise ValueError(
            f'Pipeline: codec "{parsed}" makes factors that are added up over ranks, and activations are not '
            'added up; "int8" fits'
        )
    return parsed


def _check_engine(where: str, engine: Engine) -> None:
    if isinstance(engine, Pool):
        raise ValueError(
            f'{where}: engine "{engine}" takes the pieces of a batch side by side, but ranks that hold parts '
            "of a network meet in each; use a team"
        )
