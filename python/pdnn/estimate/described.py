"""Described machines: a step of one strategy, or of several against the number of ranks."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from pdnn import comm, nn
from pdnn.checks import integer
from pdnn.comm.costs import text
from pdnn.drawing import new_figure, save_figure
from pdnn.estimate.choice import candidates, choose
from pdnn.estimate.compute import AnalyticCompute
from pdnn.estimate.estimate import Estimate
from pdnn.estimate.formulas import Steps
from pdnn.estimate.machine import Machine
from pdnn.estimate.network import Network
from pdnn.strategies import Serial, Strategy, parse

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def step(
    model: nn.Sequential,
    sample: tuple[int, ...],
    strategy: str | Strategy,
    batch_size: int,
    ranks: int,
    machine: Machine,
) -> Estimate:
    """A training step on a described machine, without measuring (except codecs, on this machine).

    Parameters
    ----------
    model : nn.Sequential
    sample : tuple of int
        Shape of a sample.
    strategy : str or Strategy
    batch_size : int
        Rows behind one update.
    ranks : int
    machine : Machine

    Raises
    ------
    ValueError
        If they do not fit each other.
    """
    chosen = parse(strategy) if isinstance(strategy, str) else strategy
    compute = AnalyticCompute(machine, ranks)
    return Steps(Network(model, sample), batch_size, ranks, compute, machine).estimate(chosen)


@dataclass(frozen=True)
class Point:
    """A strategy on some ranks.

    Attributes
    ----------
    words : str
        The strategy as it was given: ``"tp:N"``.
    estimate : Estimate
    workers : int
        Ranks times threads.
    speedup : float
        Rows a second, over those of one core.
    """

    words: str
    estimate: Estimate
    workers: int
    speedup: float

    @property
    def efficiency(self) -> float:
        """Speedup over workers."""
        return self.speedup / self.workers

    def to_dict(self) -> dict[str, Any]:
        """Flat, as JSON and CSV have it."""
        numbers = asdict(self.estimate) | {"seconds": self.estimate.seconds}
        del numbers["steps"]
        own = {"asked": self.words, "workers": self.workers, "speedup": self.speedup}
        return own | {"efficiency": self.efficiency} | numbers


def scaling(
    network: Network,
    batch_size: int,
    strategies: Iterable[str],
    ranks: Sequence[int],
    machine: Machine,
    *,
    weak: bool = False,
    momenta: int = 0,
) -> tuple[list[Point], list[str]]:
    """Estimates all strategies on all numbers of ranks.

    Parameters
    ----------
    network : Network
    batch_size : int
        Rows behind one update; with `weak` of each rank.
    strategies : iterable of str
        As `pdnn.strategies` spells them; N stands for the number of ranks, "fastest" for the best of them.
    ranks : sequence of int
    machine : Machine
    weak : bool
        Batches grow with the ranks.
    momenta : int
        Arrays as long as the parameters that the optimizer remembers.

    Returns
    -------
    points : list of Point
    left_out : list of str
        A sentence for each combination that does not fit.

    Raises
    ------
    ValueError
        If a string spells no strategy, whatever the number of ranks.
    """
    for number in ranks:
        integer("estimate", "ranks", number, 1)
    asked = list(dict.fromkeys(strategies))
    for words in asked:
        if words != "fastest":
            parse(words.replace(":N", ":2"))

    def steps(rows: int, number: int) -> Steps:
        return Steps(network, rows, number, AnalyticCompute(machine, number), machine, momenta)

    def estimated(words: str, number: int) -> Estimate:
        rows = batch_size * number if weak else batch_size
        if words == "fastest":
            threads = max(1, machine.cores // -(-number // machine.nodes))
            among = candidates(network, number, threads)
            return choose(steps(rows, number), among, comm.SELF).estimates[0]
        strategy = parse(words.replace(":N", f":{number}"))
        if strategy.asynchronous or strategy.rows_per_step(1, number) > 1:
            rows = batch_size  # behind an update are one rank's
        return steps(rows, number).estimate(strategy)

    alone = steps(batch_size, 1).estimate(Serial()).seconds / batch_size
    points, left_out = [], []
    for words in asked:
        for number in dict.fromkeys(ranks):
            try:
                found = estimated(words, number)
            except ValueError as error:
                sentence = str(error)
                for prefix in ("estimate: ", "Trainer: "):
                    sentence = sentence.removeprefix(prefix)
                sentence = sentence.partition(", or pass comm=")[0]  # nothing is trained here
                left_out.append(f"{words} on {number} rank{'s'[: number > 1]}: {sentence}")
                continue
            strategy = parse(found.strategy)
            done = strategy.rows_per_step(found.batch_size, number)
            workers = number * strategy.engine.threads
            points.append(Point(words, found, workers, alone * done / found.seconds))
    return points, left_out


def table(points: Sequence[Point]) -> str:
    """A line for each point."""
    head = ["strategy", "ranks", "a step", "compute", "communication", "waiting", "speedup", "efficiency"]
    lines = [head]
    for point in points:
        each = point.estimate
        name = each.strategy if point.words != "fastest" else f"fastest: {each.strategy}"
        times = (each.seconds, each.compute, each.communication, each.waiting)
        gains = (f"{point.speedup:.2f}", f"{point.efficiency:.0%}")
        lines.append([name, str(each.ranks), *map(text, times), *gains])
    widths = [max(len(line[column]) for line in lines) for column in range(8)]
    return "\n".join(
        "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))]
        )
        for line in lines
    )


def to_csv(points: Sequence[Point]) -> str:
    """The points as a table for other programs."""
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, list(points[0].to_dict()), lineterminator="\n")
    writer.writeheader()
    writer.writerows(point.to_dict() for point in points)
    return out.getvalue()


def plot(points: Sequence[Point], title: str, path: str | os.PathLike[str] | None = None) -> Figure:
    """Seconds a step, speedup and efficiency against ranks, a line for each strategy.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    figure = new_figure("estimate", figsize=(13, 4), layout="constrained")
    figure.suptitle(title, fontsize=10, parse_math=False)
    most = max(point.workers for point in points)
    panels = (
        ("seconds a step", lambda point: point.estimate.seconds, True),
        ("speedup over one core", lambda point: point.speedup, True),
        ("efficiency", lambda point: point.efficiency, False),
    )
    for number, (label, value, logarithmic) in enumerate(panels, 1):
        axes = figure.add_subplot(1, 3, number)
        for index, words in enumerate(dict.fromkeys(point.words for point in points)):
            own = sorted((p for p in points if p.words == words), key=lambda point: point.estimate.ranks)
            look = ("o-", "s--", "^:")[index // 10 % 3]  # there are ten colors
            axes.plot([p.estimate.ranks for p in own], list(map(value, own)), look, markersize=3, label=words)
        if label.startswith("speedup"):
            axes.plot(
                [1, most], [1, most], color="gray", linewidth=0.8, linestyle=":", label="as many as cores"
            )
        axes.set_xscale("log", base=2)
        if logarithmic:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.set_xlabel("ranks")
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    known = figure.axes[1].get_legend_handles_labels()  # of all panels
    axes.legend(*known, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))
    if path is not None:
        save_figure(figure, path, dpi=130, bbox_inches="tight")
    return figure
