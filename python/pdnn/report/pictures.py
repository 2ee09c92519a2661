"""The pictures of a report, a row of panels for each workload; made without pyplot: nothing stays open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from pdnn.drawing import new_figure
from pdnn.history import History
from pdnn.report.summary import PARTS, Line, Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLORS = [f"C{number}" for number in range(10)]
_MARKERS = "os^Dv*"
_RANKS = 8  # of a line that are drawn one by one
_PART_COLORS = {
    "gradient": "C0",
    "update": "C9",
    "exposed communication": "C3",
    "waiting for the slowest": "C1",
    "other": "lightgray",
}
_WORDS = {
    "val_accuracy": "validation accuracy",
    "accuracy": "accuracy",
    "val_loss": "validation loss",
    "loss": "loss",
}

_CAPTIONS = {
    "speedup": (
        "Speedup over the baseline, from the median epoch, with the extremes of the repeats (black); a gray "
        "mark is the number of workers. Efficiency is speedup over workers"
    ),
    "accuracy": (
        "Accuracy (or loss) after each epoch, against seconds of training and against updates; a curve for "
        "each repeat"
    ),
    "phases": (
        "What the time of an epoch went to, on each rank (of the first eight). Exposed communication is what "
        "even the rank that waits least has to wait, the rest is waiting for the slowest. Hidden "
        "communication took place beside other work: it is no part of the time and is drawn behind it"
    ),
    "bytes": (
        "What a rank (of the first eight) sends in a step, by the formulas of docs/algorithms.md, and what "
        "it reads where others wrote, in memory that ranks share (hatched); the ends of epochs are shared "
        "out among their steps"
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
            _draw(workloads, [_against_time, _against_updates], max(4.0, 0.6 + 0.19 * _lines(workloads))),
        ),
        "phases.png": (
            _CAPTIONS["phases"],
            _draw(workloads, [_phases], _height(_drawn_ranks(workloads))),
        ),
        "updates.png": (
            _CAPTIONS["updates"],
            _draw(workloads, [_updates], _height(_lines(workloads))),
        ),
    }
    talking = [work for work in workloads if any(line.ranks > 1 for line in work.lines)]
    if talking:
        drawn["bytes.png"] = (_CAPTIONS["bytes"], _draw(talking, [_bytes], _height(_drawn_ranks(talking, 2))))
    measured = [work for work in workloads if any(line.speedup is not None for line in work.lines)]
    if not measured:
        return drawn
    speedup = _draw(measured, [_speedup, _efficiency], _height(_lines(measured)))
    return {"speedup.png": (_CAPTIONS["speedup"], speedup), **drawn}


def _height(bars: int) -> float:
    """Of a row of panels with so many bars."""
    return 1.4 + 0.35 * bars


def _lines(workloads: Sequence[Workload]) -> int:
    """At most, of a workload."""
    return max(len(work.lines) for work in workloads)


def _drawn_ranks(workloads: Sequence[Workload], least: int = 1) -> int:
    """Those drawn, of the lines that have at least so many; at most, of a workload."""
    return max(sum(len(_names(line)) for line in work.lines if line.ranks >= least) for work in workloads)


def _names(line: Line) -> list[str]:
    """Of the ranks that are drawn one by one."""
    if line.ranks == 1:
        return [line.name]
    return [f"{line.name}, rank {rank}" for rank in range(min(line.ranks, _RANKS))]


def _draw(
    workloads: Sequence[Workload], panels: Sequence[Callable[[Axes, Workload], None]], height: float
) -> Figure:
    """A figure with these panels side by side, a row a workload."""
    figure = new_figure("report", figsize=(11, height * len(workloads)))
    figure.set_layout_engine("constrained", wspace=0.06)
    axes = figure.subplots(len(workloads), len(panels), squeeze=False)
    for row, work in zip(axes, workloads, strict=True):
        for panel, draw in zip(row, panels, strict=True):
            draw(panel, work)
            panel.set_title(work.name, fontsize="medium")
            panel.grid(alpha=0.3)
            panel.set_axisbelow(True)
    return figure


def _bars(
    axes: Axes, work: Workload, values: Sequence[float], label: str, ends: Sequence[float] | None = None
) -> None:
    """A bar for each line, the first on top, with its value behind it, or behind `ends`."""
    axes.barh(range(len(values)), values, color=[_color(index) for index in range(len(values))], alpha=0.5)
    _write_behind(axes, ends or values, [_number(value) for value in values])
    _name_bars(axes, [line.name for line in work.lines])
    axes.set_xlabel(label)


def _write_behind(axes: Axes, ends: Sequence[float], words: Sequence[str]) -> None:
    """Words behind each bar's end, and room for them."""
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    for index, (end, text) in enumerate(zip(ends, words, strict=True)):
        place: dict[str, Any] = {"xytext": (6, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(text, (end, index), bbox=ground, **place)
    axes.set_xlim(0, (1.1 + 0.03 * max(map(len, words))) * (max(ends) or 1.0))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _name_bars(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)  # the first on top


def _color(index: int) -> str:
    return _COLORS[index % len(_COLORS)]


def _speedup(axes: Axes, work: Workload) -> None:
    values = [line.speedup or 0.0 for line in work.lines]
    least, most = (
        [
            value * line.seconds / seconds
            for value, line, seconds in zip(values, work.lines, each, strict=True)
        ]
        for each in ([line.slowest for line in work.lines], [line.fastest for line in work.lines])
    )
    workers = [line.workers for line in work.lines]
    _bars(axes, work, values, "speedup", ends=[max(pair) for pair in zip(most, workers, strict=True)])
    reach = [
        [value - low for value, low in zip(values, least, strict=True)],
        [high - value for value, high in zip(values, most, strict=True)],
    ]
    places = range(len(values))
    axes.errorbar(values, places, xerr=reach, linestyle="none", color="black", capsize=3)
    axes.plot(workers, places, linestyle="none", marker="|", color="gray", markersize=14)


def _efficiency(axes: Axes, work: Workload) -> None:
    _bars(axes, work, [line.efficiency or 0.0 for line in work.lines], "efficiency")
    axes.axvline(1, color="gray", linestyle=":")


def _updates(axes: Axes, work: Workload) -> None:
    _bars(axes, work, [line.updates_per_second() for line in work.lines], "updates a second")


def _phases(axes: Axes, work: Workload) -> None:
    shares = [share for line in work.lines for share in line.shares()[:_RANKS]]
    begin = [0.0] * len(shares)
    for part in (*PARTS, "hidden"):
        values = [share[part] for share in shares]
        if part == "hidden" and max(values) < 0.001:
            continue
        look: dict[str, Any] = (
            {"color": "none", "edgecolor": "gray", "hatch": "///"}
            if part == "hidden"
            else {"color": _PART_COLORS[part]}
        )
        words = "hidden communication" if part == "hidden" else part
        some = [place for place, value in enumerate(values) if value > 0]
        width, left = ([numbers[place] for place in some] for numbers in (values, begin))
        axes.barh(some, width, left=left, label=words, **look)
        begin = [before + value for before, value in zip(begin, values, strict=True)]
    _name_bars(axes, [name for line in work.lines for name in _names(line)])
    axes.set_xlim(0, min(1.5, 1.02 * max(begin)))
    axes.set_xlabel("share of an epoch's time")
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))


def _bytes(axes: Axes, work: Workload) -> None:
    lines = [(index, line) for index, line in enumerate(work.lines) if line.ranks > 1]
    sent = [value for _, line in lines for value in line.per_step("bytes")[:_RANKS]]
    read = [value for _, line in lines for value in line.per_step("shared_bytes")[:_RANKS]]
    colors = [_color(index) for index, line in lines for _ in range(min(line.ranks, _RANKS))]
    places = range(len(sent))
    axes.barh(places, sent, color=colors, alpha=0.5)
    if any(read):
        look: dict[str, Any] = {"color": "none", "edgecolor": "gray", "hatch": "///"}
        reading = [place for place in places if read[place] > 0]
        begin, width = ([values[place] for place in reading] for values in (sent, read))
        axes.barh(reading, width, left=begin, label="read in shared memory", **look)
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    both = list(zip(sent, read, strict=True))
    words = [_amount(out) + (f" + {_amount(shared)}" if shared else "") for out, shared in both]
    _write_behind(axes, [sum(pair) for pair in both], words)
    axes.xaxis.set_major_formatter(lambda value, _: _amount(value))
    _name_bars(axes, [name for _, line in lines for name in _names(line)])
    axes.set_xlabel("bytes a step")


def _amount(count: float) -> str:
    """``"814 kB"``."""
    for unit in ("B", "kB", "MB"):
        if float(f"{count:.3g}") < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def _against_time(axes: Axes, work: Workload) -> None:
    _curves(axes, work, lambda history: list(accumulate(history.history["seconds"])))
    axes.set_xlabel("seconds of training")


def _against_updates(axes: Axes, work: Workload) -> None:
    _curves(axes, work, lambda history: list(accumulate(epoch["count"] for epoch in history.updates)))
    axes.set_xlabel("updates")
    axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1, 1))  # of both panels


def _curves(axes: Axes, work: Workload, across: Callable[[History], list[float]]) -> None:
    for index, line in enumerate(work.lines):
        _curve(axes, work.measure, line, across, index)
    axes.set_ylabel(_WORDS[work.measure])


def _curve(
    axes: Axes, measure: str, line: Line, across: Callable[[History], list[float]], index: int
) -> None:
    for repeat, history in enumerate(line.histories):
        axes.plot(
            across(history),
            history.history[measure],
            color=_color(index),
            linestyle="-" if index < len(_COLORS) else "--",
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=4,
            label=line.name if repeat == 0 else None,
        )
