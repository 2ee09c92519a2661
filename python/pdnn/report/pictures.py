"""The pictures of a report, a row of panels for each workload; made without pyplot: nothing stays open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pdnn.history import History
from pdnn.report.summary import PHASES, Line, Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = [f"C{number}" for number in range(10)]
_MARKERS = "os^Dv*"
_WORDS = {
    "val_accuracy": "validation accuracy",
    "accuracy": "accuracy",
    "val_loss": "validation loss",
    "loss": "loss",
}

_CAPTIONS = {
    "speedup": (
        "Speedup over the baseline, from the median epoch, with the extremes of the repeats (black); a grey "
        "mark is the number of workers. Efficiency is speedup over workers"
    ),
    "accuracy": (
        "Accuracy (or loss) after each epoch, against seconds of training and against updates; a curve for "
        "each repeat"
    ),
    "phases": (
        "What the time of an epoch went to on the first rank. Hidden communication took place beside other "
        "work: it is no part of the time and is drawn behind it"
    ),
    "updates": "Updates of parameters a second, by all ranks and workers",
}


def pictures(workloads: Sequence[Workload]) -> dict[str, tuple[str, Figure]]:
    """Draws what the workloads have.

    Returns
    -------
    dict of str to (str, Figure)
        From file name to what is seen and the picture. Without a baseline there is no ``speedup.png``.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If there are no workloads.
    """
    if not workloads:
        raise ValueError("report: no run has finished, there is nothing to draw")
    drawn = {
        "accuracy.png": (
            _CAPTIONS["accuracy"],
            _draw(workloads, [_against_time, _against_updates], 4.0),
        ),
        "phases.png": (
            _CAPTIONS["phases"],
            _draw(workloads, [_phases], _height(workloads)),
        ),
        "updates.png": (
            _CAPTIONS["updates"],
            _draw(workloads, [_updates], _height(workloads)),
        ),
    }
    measured = [work for work in workloads if any(line.speedup is not None for line in work.lines)]
    if not measured:
        return drawn
    speedup = _draw(measured, [_speedup, _efficiency], _height(measured))
    return {"speedup.png": (_CAPTIONS["speedup"], speedup), **drawn}


def _height(workloads: Sequence[Workload]) -> float:
    return 1.4 + 0.35 * max(len(work.lines) for work in workloads)


def _draw(
    workloads: Sequence[Workload], panels: Sequence[Callable[[Axes, Workload], None]], height: float
) -> Figure:
    """A figure with these panels side by side, a row a workload."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("report: matplotlib is missing; pip install matplotlib") from error

    figure = Figure(figsize=(11, height * len(workloads)), layout="constrained")
    axes = figure.subplots(len(workloads), len(panels), squeeze=False)
    for row, work in zip(axes, workloads, strict=True):
        for panel, draw in zip(row, panels, strict=True):
            draw(panel, work)
            panel.set_title(work.name, fontsize="medium")
            panel.grid(alpha=0.3)
            panel.set_axisbelow(True)
    return figure


def _bars(axes: Axes, work: Workload, values: Sequence[float], label: str, **options: Any) -> None:
    """A bar for each line, the first on top."""
    axes.barh(
        range(len(values)),
        values,
        color=[_colour(index) for index in range(len(values))],
        alpha=0.5,
        **options,
    )
    for index, value in enumerate(values):
        axes.annotate(f"{value:.3g}", (0, index), xytext=(3, 0), textcoords="offset points", va="center")
    _name_bars(axes, work)
    axes.set_xlabel(label)


def _name_bars(axes: Axes, work: Workload) -> None:
    axes.set_yticks(range(len(work.lines)), [line.name for line in work.lines])
    axes.invert_yaxis()


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def _speedup(axes: Axes, work: Workload) -> None:
    values = [line.speedup or 0.0 for line in work.lines]
    reach = [
        [value - value * line.seconds / line.slowest for value, line in zip(values, work.lines, strict=True)],
        [value * line.seconds / line.fastest - value for value, line in zip(values, work.lines, strict=True)],
    ]
    _bars(axes, work, values, "speedup", xerr=reach, capsize=3)
    axes.plot(
        [line.workers for line in work.lines],
        range(len(values)),
        linestyle="none",
        marker="|",
        color="grey",
        markersize=14,
    )


def _efficiency(axes: Axes, work: Workload) -> None:
    _bars(axes, work, [line.efficiency or 0.0 for line in work.lines], "efficiency")
    axes.axvline(1, color="grey", linestyle=":")


def _updates(axes: Axes, work: Workload) -> None:
    _bars(axes, work, [line.updates_per_second() for line in work.lines], "updates a second")


def _phases(axes: Axes, work: Workload) -> None:
    shares = [line.shares() for line in work.lines]
    begin = [0.0] * len(shares)
    parts = [*PHASES.values(), "other", "hidden"]
    for part in parts:
        values = [share[part] for share in shares]
        if part in ("scatter", "broadcast", "hidden") and max(values) < 0.001:
            continue
        behind: dict[str, Any] = (
            {"color": "none", "edgecolor": "grey", "hatch": "///"} if part == "hidden" else {}
        )
        words = "hidden communication" if part == "hidden" else part
        axes.barh(range(len(values)), values, left=begin, label=words, **behind)
        begin = [left + value for left, value in zip(begin, values, strict=True)]
    _name_bars(axes, work)
    axes.set_xlabel("share of an epoch's time, first rank")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _against_time(axes: Axes, work: Workload) -> None:
    _curves(axes, work, lambda history: list(accumulate(history.history["seconds"])))
    axes.set_xlabel("seconds of training")


def _against_updates(axes: Axes, work: Workload) -> None:
    _curves(axes, work, lambda history: list(accumulate(epoch["count"] for epoch in history.updates)))
    axes.set_xlabel("updates")


def _curves(axes: Axes, work: Workload, across: Callable[[History], list[float]]) -> None:
    for index, line in enumerate(work.lines):
        _curve(axes, work.measure, line, across, _colour(index), _MARKERS[index % len(_MARKERS)])
    axes.set_ylabel(_WORDS[work.measure])
    axes.legend(fontsize="small")


def _curve(
    axes: Axes, measure: str, line: Line, across: Callable[[History], list[float]], colour: str, marker: str
) -> None:
    for repeat, history in enumerate(line.histories):
        axes.plot(
            across(history),
            history.history[measure],
            color=colour,
            marker=marker,
            markersize=4,
            label=line.name if repeat == 0 else None,
        )
