"""Strategies in which a rank has only a part of the network, and their products with data parallel."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, cast

from pdnn import _core
from pdnn.checks import integer
from pdnn.moved import former
from pdnn.strategies.base import (
    LEAVES,
    CostModel,
    Engine,
    Strategy,
    codec_suffix,
    not_reproducible,
    refuse_leaves,
    waiting_of,
)
from pdnn.strategies.data_parallel import DataParallel
from pdnn.strategies.engines import Serial
from pdnn.strategies.schedules import SCHEDULES, Passes, Schedule, schedule, schedule_of_passes
from pdnn.strategies.step_cost import StepCost

if TYPE_CHECKING:
    from pdnn.codec import Codec


class PartOfGrid(Strategy):
    """A strategy whose ranks hold parts of the network."""

    takes_spares = True

    if TYPE_CHECKING:

        @property
        def grid(self) -> Grid:
            """The strategy as a product."""

    def __post_init__(self) -> None:
        refuse_leaves(self, "the leaves of a pipeline are its micro-batches")
        if self.engine.passes:
            raise ValueError(
                f'{type(self).__name__}: engine "{self.engine}" takes the pieces of a batch side by side, '
                "but ranks that hold parts of a network meet in each; use a team"
            )

    def reproducible(self) -> Strategy:
        """Refused, but for a pipeline."""
        raise not_reproducible(self, "its sums go over the ranks that hold parts of the network")

    @property
    def whole_gradient(self) -> bool:
        """Unless a codec changes it, or it is a sum of the replicas' means."""
        pipeline, data = self.grid.pipeline, self.grid.data
        return not (pipeline and pipeline.codec) and (data is None or data.whole_gradient)

    def misfit(self, ranks: int) -> str | None:
        """The factors multiply to the number of ranks."""
        grid, held_by = self.grid, self.grid.held_by
        if ranks % held_by == 0 if grid.data else ranks == held_by:
            replicas = ranks // held_by
            if not (grid.data and 0 < grid.leaves < replicas):
                return None
            fits = replace(grid, data=replace(grid.data, engine=Serial(replicas)))
            return f'cuts a batch into {grid.leaves} leaves for {replicas} replicas; "{fits}" fits'
        words = " x ".join(str(factor) for factor in (grid.pipeline, grid.tensor) if factor)
        advice = f"start a multiple of {held_by}" if grid.data else f"start {held_by}"
        if not grid.data and ranks % held_by == 0:
            advice = f'"{words} x ddp" fits'
        elif not grid.data and ranks > 1 and words.count(f":{held_by}") == 1:
            advice += f', or take "{words.replace(f":{held_by}", f":{ranks}")}"'
        return f"deals the network out to {held_by} ranks, this world has {ranks}; {advice}"

    def config(self) -> _core.GridConfig:
        """The core's."""
        grid, pipeline = self.grid, self.grid.pipeline or Pipeline(1, 1)
        data, codec = grid.data or DataParallel(), cast("Codec | None", pipeline.codec)
        return _core.GridConfig(
            grid.stages,
            grid.tensor_ranks,
            pipeline.chunks,
            _core.PipelineConfig(
                pipeline.schedule_name,
                pipeline.num_micro_batches,
                grid.engine.threads,
                _core.CodecSpec("") if codec is None else codec.spec,
                [] if pipeline.passes is None else pipeline.plan().programs,
            ),
            list(pipeline.cut or ()),
            data.average == "sum",
            data.reducer_options(),
            data.leaves,
        )

    def estimate(self, steps: CostModel) -> StepCost:
        """A replica's step, and an agreement of the replicas."""
        return steps.grid(self.grid)

    def memory(self, steps: CostModel) -> int:
        """A rank's part, beside the whole model."""
        grid, held_by, passes, more = self.grid, self.grid.held_by, 1.0, 0.0
        rows = ceil(steps.rows * held_by / steps.ranks)
        if pipeline := grid.pipeline_of(steps.ranks // held_by):
            rows, passes = ceil(rows / pipeline.num_micro_batches), max(pipeline.plan().in_flight)
            nodes = grid.data.more_gradients(steps.ranks // held_by) if grid.data else 0.0
            more = (waiting_of(pipeline.num_micro_batches) + nodes) * steps.params / held_by
        return steps.memory(self.engine, rows, more, passes=passes / held_by, held=1 / held_by)


@dataclass(frozen=True)
class TensorParallel(PartOfGrid):
    """Pairs of Linears are divided among the ranks: the first by columns and the second by rows.

    A pair needs one all-reduce forward, and one backward unless it is the first layer. Activations and
    Dropout may be between the two. All other layers are computed by every rank. Shoeybi et al.,
    "Megatron-LM", arXiv:1909.08053, 2019.

    Parameters
    ----------
    ranks : int
        Number of ranks of a replica of the network; it need not divide the widths.
    engine : Serial or Team
        How a rank computes its part.
    """

    ranks: int
    engine: Engine = field(default_factory=Serial)

    pattern = r"tp:(\d+)"
    examples = ("tp:2",)
    factor = "tensor"

    def __post_init__(self) -> None:
        integer(self, "ranks", self.ranks, 1)
        super().__post_init__()

    @property
    def grid(self) -> Grid:
        """The only factor."""
        return Grid(tensor=TensorParallel(self.ranks), engine=self.engine)

    def __str__(self) -> str:
        return f"tp:{self.ranks}{self.engine.suffix}"


@dataclass(frozen=True)
class Pipeline(PartOfGrid):
    """Every rank has some layers; micro-batches pass through the ranks one after another.

    BatchNorm normalizes each micro-batch by itself, as ``pool:1/M`` does with its pieces.

    Parameters
    ----------
    stages : int
        Ranks that hold a replica of the network.
    micro_batches : int, optional
        Pieces of the rows of a replica; four per stage by default. p stages idle for (p - 1) / (m + p - 1)
        of the time with m of them.
    schedule : "1f1b", "gpipe", "interleaved", or passes
        The order of a rank's passes: one forward and one backward by turns, which stores fewest
        activations; all forward first; or by turns with two stages per rank, which idles less and sends
        more. Or a schedule of your own: for each rank a list of passes ``("forward", micro-batch)`` and
        ``("backward", micro-batch)``, with the number of the rank's stage behind if it has several; see
        `strategies.schedule_of_passes`.
    cut : tuple of int, optional
        The layers with which the second, third, … stage begin. None: so that the slowest stage, by the
        layers' measured times, takes least.
    engine : Serial or Team
        How a rank computes its stage.
    codec : str or Codec, optional
        Encodes activations and their gradients between stages: one of `pdnn.codec.SPECS`. There is no error
        feedback, because the next message is about other rows. `PowerSGD` is refused: its factors are for
        sums.
    """

    stages: int
    micro_batches: int | None = None
    schedule: str | Passes = "1f1b"
    cut: tuple[int, ...] | None = None
    engine: Engine = field(default_factory=Serial)
    codec: str | Codec | None = None

    pattern = r"pipeline:(\d+)(?:/(\d+))?((?::[\w.-]+)*)"
    examples = ("pipeline:2", "pipeline:2/8:gpipe", "pipeline:2/8:int8", "pipeline:2/8:gpipe:bf16")
    factor = "pipeline"
    unspelled = ("cut", "passes")

    def __post_init__(self) -> None:
        integer(self, "stages", self.stages, 1)
        if self.micro_batches is not None:
            integer(self, "micro_batches", self.micro_batches, 1, bits=32)
        if not isinstance(self.schedule, str):
            self._take_passes(self.schedule)
        elif self.schedule not in SCHEDULES:
            raise ValueError(f'Pipeline: schedule "{self.schedule}"; expected one of {", ".join(SCHEDULES)}')
        cuts = self.stages * self.chunks - 1
        if self.cut is not None and len(self.cut) != cuts:
            raise ValueError(f"Pipeline: cut={self.cut}; expected {cuts} numbers of layers")
        super().__post_init__()
        if self.codec is not None:
            object.__setattr__(self, "codec", _codec_of_messages(self.codec))

    @classmethod
    def spelled(cls, match: re.Match[str]) -> Pipeline:
        """Of the words after the numbers the first may be a schedule; the others spell a codec."""
        words = match[3].split(":")[1:]
        schedule = words.pop(0) if words and words[0] in SCHEDULES else "1f1b"
        codec = ":".join(words) or None
        try:
            return cls(int(match[1]), int(match[2]) if match[2] else None, schedule, codec=codec)
        except ValueError as error:
            if codec is None or not str(error).startswith("codec "):
                raise
            expected = f"expected one of {', '.join(SCHEDULES)}, or a codec ({error})"
            raise ValueError(f'Pipeline: schedule "{codec}"; {expected}') from error

    @property
    def grid(self) -> Grid:
        """The only factor."""
        return Grid(pipeline=replace(self, engine=Serial()), engine=self.engine)

    @property
    def leaves(self) -> int:
        """The micro-batches, unless a codec changes what they pass on."""
        return 0 if self.codec is not None else self.num_micro_batches

    def reproducible(self) -> Pipeline:
        """With `LEAVES` micro-batches, if it does not say with how many."""
        if self.codec is not None:
            raise not_reproducible(self, "what a codec loses depends on the stages")
        return self if self.micro_batches else replace(self, micro_batches=LEAVES)

    def _take_passes(self, passes: Passes) -> None:
        """Checks a schedule given as passes, and keeps it as tuples."""
        plan = schedule_of_passes(passes)
        own = tuple(tuple(tuple(pass_) for pass_ in rank) for rank in passes)
        object.__setattr__(self, "schedule", own)
        micro_batches = 1 + max(instruction.micro for instruction in plan.programs[0])
        if len(own) != self.stages:
            raise ValueError(f"Pipeline: a schedule of {len(own)} ranks for stages={self.stages}")
        if self.micro_batches not in (None, micro_batches):
            raise ValueError(
                f"Pipeline: a schedule of {micro_batches} micro-batches, for micro_batches="
                f"{self.micro_batches}"
            )
        object.__setattr__(self, "micro_batches", micro_batches)

    @property
    def passes(self) -> Passes | None:
        """A schedule of the program's own; None for one with a name."""
        return None if isinstance(self.schedule, str) else self.schedule

    @property
    def schedule_name(self) -> str:
        """The name of the schedule; "custom" for one of the program's own."""
        return self.schedule if isinstance(self.schedule, str) else "custom"

    @property
    def chunks(self) -> int:
        """Stages of a rank."""
        if self.passes is not None:
            return self.plan().chunks
        return 2 if self.schedule == "interleaved" else 1

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches of a step."""
        return self.micro_batches or 4 * self.stages

    micros = former("micros", "num_micro_batches")

    def plan(self) -> Schedule:
        """What every rank does in one step."""
        return self.plan_of(self.num_micro_batches)

    def plan_of(self, micro_batches: int) -> Schedule:
        """The same for another number of micro-batches, unless the schedule is the program's own."""
        if self.passes is not None:
            return schedule_of_passes(self.passes)
        return schedule(self.schedule_name, self.stages, micro_batches, self.chunks)

    def __str__(self) -> str:
        words = f"pipeline:{self.stages}" + (f"/{self.micro_batches}" if self.micro_batches else "")
        words += f":{self.schedule_name}" if self.schedule != "1f1b" else ""
        return words + codec_suffix(self.codec) + self.engine.suffix


@dataclass(frozen=True)
class Grid(PartOfGrid):
    """A product: replicas share the rows of a batch, and each consists of stages × tensor ranks.

    Rank = (replica · stages + stage) · tensor ranks + place in the stage.

    Parameters
    ----------
    pipeline : Pipeline, optional
    tensor : TensorParallel, optional
    data : DataParallel, optional
        If given, the number of replicas follows from the number of ranks; otherwise there is one. With
        leaves, each replica is a pipeline, and takes a run of the leaves as its micro-batches.
    engine : Serial or Team
        How a rank computes its part. The factors have none of their own.
    """

    pipeline: Pipeline | None = None
    tensor: TensorParallel | None = None
    data: DataParallel | None = None
    engine: Engine = field(default_factory=Serial)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, kind in {"pipeline": Pipeline, "tensor": TensorParallel, "data": DataParallel}.items():
            if not isinstance(given := getattr(self, name), kind | None):
                raise TypeError(f"Grid: {name} is {given!r}, expected a {kind.__name__} or None")
        for factor in self.factors:
            if factor.engine != Serial(factor.leaves if factor is self.data else 0):
                raise ValueError(f"Grid: {factor} brings an engine of its own; pass Grid(…, engine=…)")
        if not self.factors:
            raise ValueError("Grid: no factors; pass pipeline=, tensor= or data=")
        if self.leaves and (why := self._apart()):
            raise not_reproducible(self, why)

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

    @property
    def held_by(self) -> int:
        """Ranks that hold a replica together."""
        return self.stages * self.tensor_ranks

    @property
    def grid(self) -> Grid:
        """Itself."""
        return self

    def _apart(self) -> str:
        """Why its sums are not made over leaves of the whole batch; "" if they can be."""
        if self.pipeline is None or self.tensor is not None:
            return "its sums go over the ranks that hold parts of the network"
        if self.data is not None and self.pipeline.micro_batches is not None:
            return "the micro-batches of all replicas are its leaves; name their number behind ddp alone"
        return "" if self.pipeline.leaves else "what a codec loses depends on the stages"

    @property
    def leaves(self) -> int:
        """Of all replicas; or the micro-batches of the only one."""
        if self.data is not None:
            return self.data.leaves
        return self.pipeline.leaves if self.pipeline and not self.tensor else 0

    def pipeline_of(self, replicas: int) -> Pipeline | None:
        """The pipeline, with the micro-batches that a replica takes of the leaves."""
        if self.pipeline is None or self.data is None or not self.leaves:
            return self.pipeline
        return replace(self.pipeline, micro_batches=ceil(self.leaves / replicas))

    def reproducible(self) -> Strategy:
        """A pipeline, or replicas of one, with leaves, if it has none."""
        if why := self._apart():
            raise not_reproducible(self, why)
        if self.data is not None:
            return replace(self, data=self.data.reproducible())
        assert self.pipeline is not None
        return replace(self, pipeline=self.pipeline.reproducible())

    def identity(self) -> str:
        """What must be equal on all ranks, for each factor."""
        return " x ".join(factor.identity() for factor in self.factors)

    def __str__(self) -> str:
        return " x ".join(str(factor) for factor in self.factors) + self.engine.suffix


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
