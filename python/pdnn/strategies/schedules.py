"""Pipeline schedules as data: drawn, counted and timed without running them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from pdnn import _core
from pdnn.checks import integer
from pdnn.moved import former_argument

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pdnn.strategies.timeline import Timeline

SCHEDULES = ("1f1b", "gpipe", "interleaved")

Pass = tuple[str, int] | tuple[str, int, int]
Passes = Sequence[Sequence[Pass]]
"""Of every rank: ("forward" or "backward", micro-batch), and which of the rank's stages if it has several."""


class Instruction(NamedTuple):
    """What a rank does next.

    Attributes
    ----------
    what : str
        "recv_x", "forward", "send_y", "recv_dy", "backward" or "send_dx".
    micro : int
        The micro-batch.
    chunk : int
        Which of the rank's stages; with p ranks it is stage chunk · p + rank of the network.
    """

    what: str
    micro: int
    chunk: int = 0


class Schedule(NamedTuple):
    """What every rank of a pipeline does in one step, in which order.

    Attributes
    ----------
    name : str
        "gpipe", "1f1b", "interleaved" or "custom".
    programs : list of list of Instruction
        One per rank. They may be edited; `simulate` refuses programs that cannot run.
    chunks : int
        Stages of each rank.
    """

    name: str
    programs: list[list[Instruction]]
    chunks: int = 1

    @property
    def in_flight(self) -> list[int]:
        """The largest number of micro-batches between forward and backward at one time, for each rank.

        Each is in memory, with the arrays that its layers saved; that of a chunk has only its own layers.
        """
        return _core.pipeline_in_flight(self.programs)

    @property
    def bubble(self) -> float:
        """Fraction of all ranks' time in which they are idle, with equal stages and free messages.

        (p - 1) / (v m + p - 1) for p ranks with v stages each and m micro-batches, a multiple of p if v > 1.
        """
        return self.simulate().bubble

    def simulate(
        self,
        forward: float | Sequence[float] = 1.0,
        backward: float | Sequence[float] = 2.0,
        message: float = 0.0,
    ) -> Timeline:
        """The times of a step in which each instruction begins as early as its rank and its message allow.

        Parameters
        ----------
        forward, backward : float or sequence of float
            Seconds of a micro-batch in each stage of the network; a number: equal stages, as long as that for
            all stages of a rank together.
        message : float
            Seconds from the start of a send until the message is there.

        Returns
        -------
        Timeline

        Raises
        ------
        ValueError
            If ranks would wait forever, messages do not match, or a micro-batch is left out; or if the
            number of times is not that of the stages.
        """
        from pdnn.strategies.timeline import Timeline

        stages = len(self.programs) * self.chunks

        def of_stages(times: float | Sequence[float]) -> Sequence[float]:
            return [times / self.chunks] * stages if isinstance(times, (int, float)) else times

        return Timeline(
            _core.simulate_pipeline(self.programs, of_stages(forward), of_stages(backward), message)
        )

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """A picture of equal stages whose backward pass takes twice as long; see `Timeline.plot`."""
        return self.simulate().plot(path, unit="1: forward pass of a micro-batch")

    def chrome_trace(self, path: str | os.PathLike[str] | None = None) -> str:
        """The same for a browser's tracing page; see `Timeline.chrome_trace`."""
        return self.simulate().chrome_trace(path)


@former_argument("micros", "micro_batches")
def schedule(name: str, stages: int, micro_batches: int, chunks: int | None = None) -> Schedule:
    """What every rank of a pipeline does in one step.

    Parameters
    ----------
    name : "gpipe", "1f1b" or "interleaved"
        All forward passes, then all backward passes (Huang et al. 2019). Or, after the forward passes that
        fill the pipeline, one of each by turns: as fast, and a rank stores at most as many micro-batches as
        there are ranks from it to the end (Narayanan et al. 2019). Or the same with several stages per
        rank, which divides the idle time by that factor and multiplies the messages by about it (Narayanan
        et al. 2021).
    stages : int
        Ranks of the pipeline.
    micro_batches : int
        Micro-batches of a step; any number.
    chunks : int, optional
        Stages of each rank, of which "interleaved" has two or more (2 unless given), the others one.

    Returns
    -------
    Schedule

    Raises
    ------
    TypeError, ValueError
        If the name is another, or a number does not fit.
    """
    if chunks is None:
        chunks = 2 if name == "interleaved" else 1
    counts = {"stages": stages, "micro_batches": micro_batches, "chunks": chunks}
    numbers = [integer("schedule", what, count) for what, count in counts.items()]
    programs = _core.pipeline_programs(name, *numbers)
    return Schedule(
        name, [[Instruction(*instruction) for instruction in program] for program in programs], chunks
    )


def schedule_of_passes(passes: Passes) -> Schedule:
    """A schedule of your own, checked: what every rank does whose passes are these.

    Parameters
    ----------
    passes : sequence of sequences of tuples
        For each rank its passes in order: ``("forward", micro-batch)`` or ``("backward", micro-batch)``, with
        the chunk behind (see `Instruction`) if a rank has several stages. Both the forward and the backward
        passes of a stage are in the order 0, 1, … of micro-batches, in which gradients are added up.

    Returns
    -------
    Schedule
        With the messages between stages. Named "custom".

    Raises
    ------
    TypeError
        If it is no sequence of sequences.
    ValueError
        Naming stage and micro-batch: if one does not go forward once and backward once through every stage,
        in that order, or if stages would wait for each other forever.
    """
    if not isinstance(passes, Sequence) or not all(isinstance(own, Sequence) for own in passes):
        raise TypeError(f"schedule: got {passes!r}, expected the name of one, or for each rank its passes")
    read = []
    for rank, own in enumerate(passes):
        read.append([_read_pass(rank, number, each) for number, each in enumerate(own)])
    programs = [[Instruction(*each) for each in program] for program in _core.pipeline_with_messages(read)]
    return Schedule("custom", programs, 1 + max(each.chunk for each in programs[0]))


def _read_pass(rank: int, number: int, given: Pass) -> tuple[str, int, int]:
    fits = isinstance(given, (tuple, list)) and len(given) in (2, 3)
    what, micro, chunk = (*given, 0)[:3] if fits else (given, None, 0)
    if what not in ("forward", "backward") or not all(isinstance(each, int) for each in (micro, chunk)):
        raise ValueError(
            f"schedule: pass {number} of rank {rank} is {given!r}; expected such as ("
            '"forward", 0) or ("backward", 0): what, and the number of the micro-batch'
        )
    return what, micro, chunk
