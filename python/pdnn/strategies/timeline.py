"""Timeline: what the ranks of a pipeline did in a step, or would do, second by second."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, NamedTuple

from pdnn import _core
from pdnn.drawing import new_figure, save_figure
from pdnn.files.atomic import replacing

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matplotlib.figure import Figure


#: Units of a time axis, and how many there are in a second.
UNITS = (("s", 1), ("ms", 1e3), ("µs", 1e6))


class Event(NamedTuple):
    """One instruction of a rank, with its time.

    Attributes
    ----------
    what : str
        "forward" or "backward": arithmetic. "recv_x" or "recv_dy": waiting for a neighbor's message.
        "send_y" or "send_dx": starting a send, which does not wait.
    micro : int
        The micro-batch.
    chunk : int
        Which of the rank's stages; with p ranks it is stage chunk · p + rank of the network.
    begin, end : float
        Seconds since the step began.
    """

    what: str
    micro: int
    chunk: int
    begin: float
    end: float


class Timeline:
    """One step, each rank a lane of events.

    Parameters
    ----------
    lanes : iterable of iterable of Event

    Attributes
    ----------
    lanes : list of list of Event
        In the order of ranks, and of time.
    """

    def __init__(self, lanes: Iterable[Iterable[tuple[str, int, int, float, float]]]) -> None:
        self.lanes = [[Event(*event) for event in lane] for lane in lanes]

    @property
    def seconds(self) -> float:
        """When the last rank is done."""
        return max((event.end for lane in self.lanes for event in lane), default=0.0)

    @property
    def bubble(self) -> float:
        """Fraction of all ranks' time in which they are idle."""
        return float(_core.pipeline_bubble(self.lanes))

    @property
    def in_flight(self) -> list[int]:
        """The largest number of micro-batches between forward and backward at one time, for each rank."""
        return _core.pipeline_in_flight([[event[:3] for event in lane] for lane in self.lanes])

    def chrome_trace(self, path: str | os.PathLike[str] | None = None) -> str:
        """The events for chrome://tracing or https://ui.perfetto.dev, each rank a process.

        Parameters
        ----------
        path : path, optional
            Where to write it, all or nothing.

        Returns
        -------
        str
            JSON, in the trace event format; times in microseconds.
        """
        events: list[dict[str, object]] = []
        for rank, lane in enumerate(self.lanes):
            name = {"name": f"rank {rank}"}
            events.append({"ph": "M", "name": "process_name", "pid": rank, "tid": 0, "args": name})
            events += [
                {
                    "ph": "X",
                    "name": f"{event.what} {event.micro}",
                    "cat": event.what,
                    "pid": rank,
                    "tid": 0,
                    "ts": event.begin * 1e6,
                    "dur": (event.end - event.begin) * 1e6,
                    "args": {"micro-batch": event.micro, "chunk": event.chunk},
                }
                for event in lane
            ]
        text = json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})
        if path is not None:
            with replacing(path) as file:
                file.write(text.encode())
        return text

    def plot(self, path: str | os.PathLike[str] | None = None, *, unit: str | None = None) -> Figure:
        """Forward and backward passes over time, with the number of their micro-batch; blank time is idle.

        Parameters
        ----------
        path : path, optional
            Where to write the picture; its ending names the format.
        unit : str, optional
            What 1 means in the times of the events; unless given they are seconds, drawn as s, ms or µs.

        Returns
        -------
        matplotlib.figure.Figure
            Made without pyplot: nothing stays open.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        figure = new_figure("Timeline.plot", figsize=(10, 1.2 + 0.5 * len(self.lanes)), layout="constrained")
        axes = figure.add_subplot()
        passes = {"forward": "tab:blue", "backward": "tab:green"}
        chunks = 1 + max((event.chunk for lane in self.lanes for event in lane), default=0)
        for what, color in passes.items():
            for rank, lane in enumerate(self.lanes):
                for chunk in range(chunks):
                    events = [event for event in lane if event.what == what and event.chunk == chunk]
                    axes.broken_barh(
                        [(event.begin, event.end - event.begin) for event in events],
                        (rank - 0.4, 0.8),
                        facecolors=color,
                        alpha=0.9 - 0.5 * chunk / chunks,
                        edgecolors="white",
                        label=what if rank == chunk == 0 else None,
                    )
                    for event in events:
                        if event.end - event.begin > 0.012 * self.seconds:
                            middle = (event.begin + event.end) / 2
                            axes.text(middle, rank, str(event.micro), ha="center", va="center", fontsize=8)
        axes.set_yticks(range(len(self.lanes)), [f"rank {rank}" for rank in range(len(self.lanes))])
        axes.set_xlim(0, self.seconds or 1)
        axes.set_ylim(len(self.lanes) - 0.5, -0.5)
        if unit is None:
            unit, per_second = next((each for each in UNITS if self.seconds * each[1] >= 10), UNITS[-1])
            axes.xaxis.set_major_formatter(lambda value, _: f"{value * per_second:g}")
        axes.set_xlabel(f"time ({unit})")
        axes.set_title(f"bubble {self.bubble:.1%}")
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        if path is not None:
            save_figure(figure, path, dpi=150)
        return figure

    def __repr__(self) -> str:
        return f"Timeline({len(self.lanes)} ranks, {self.seconds:.3g} s, bubble {self.bubble:.1%})"
