"""The figures of a report: repeats taken together, and set beside a baseline on the same workload."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import mean, median

from pdnn.history import History
from pdnn.sweep.results import MEASURES, Run

PARTS = ("gradient", "update", "exposed communication", "waiting for the slowest", "other")
"""What the time of an epoch goes to on a rank."""


@dataclass(frozen=True)
class Line:
    """A strategy on some ranks, over its repeats.

    Attributes
    ----------
    strategy : str
    ranks, workers : int
        Processes; processes times threads.
    histories : tuple of History
        One a repeat.
    seconds, fastest, slowest : float
        An epoch: the median over repeats of each one's median epoch, and their extremes.
    speedup : float or None
        The baseline's `seconds` over these; None without a baseline.
    """

    strategy: str
    ranks: int
    workers: int
    histories: tuple[History, ...]
    seconds: float
    fastest: float
    slowest: float
    speedup: float | None

    @property
    def name(self) -> str:
        """Strategy, and ranks if there are several."""
        return self.strategy if self.ranks == 1 else f"{self.strategy} on {self.ranks} ranks"

    @property
    def efficiency(self) -> float | None:
        """Speedup over workers."""
        return None if self.speedup is None else self.speedup / self.workers

    def shares(self) -> list[dict[str, float]]:
        """What the time of each rank went to in all epochs, by the words of `PARTS`.

        A rank's add up to 1. Beside them hidden: communication that took place beside other work, as a share
        of the same time.
        """
        phases = [epoch for history in self.histories for epoch in history.ranks]
        times = [epoch for history in self.histories for epoch in history.times]
        return [
            _shares([epoch[rank] for epoch in phases], [epoch[rank] for epoch in times])
            for rank in range(self.ranks)
        ]

    def mean_share(self, part: str) -> float:
        """Of all ranks."""
        return mean(shares[part] for shares in self.shares())

    def per_step(self, name: str) -> list[float]:
        """``bytes`` or ``shared_bytes`` of `History.ranks` in a step of each rank, the mean over epochs."""
        epochs = [epoch for history in self.histories for epoch in history.ranks]
        steps = max(1.0, sum(epoch[0]["steps"] for epoch in epochs))
        return [sum(epoch[rank][name] for epoch in epochs) / steps for rank in range(self.ranks)]

    @property
    def estimated(self) -> tuple[str, float, float] | None:
        """The strategy that was estimated, and seconds of an epoch by its estimate and measured.

        Medians over the repeats that were estimated; None if none was.
        """
        known = [history for history in self.histories if history.estimate is not None]
        pairs = [(h.estimate.epoch, median(h.history["seconds"])) for h in known if h.estimate]
        if not pairs:
            return None
        names = dict.fromkeys(history.estimate.strategy for history in known if history.estimate)
        expected, measured = (median(column) for column in zip(*pairs, strict=True))
        return " or ".join(names), expected, measured

    def updates_per_second(self) -> float:
        """Median over repeats of updates over seconds of all epochs."""
        return median(
            sum(epoch["count"] for epoch in history.updates) / max(sum(history.history["seconds"]), 1e-9)
            for history in self.histories
        )

    def last(self, measure: str) -> float:
        """A measure after the last epoch, median over repeats."""
        return median(history.history[measure][-1] for history in self.histories)


def _shares(phases: list[dict[str, float]], times: list[dict[str, float]]) -> dict[str, float]:
    """Of a rank, from its `History.ranks` and `History.times` in all epochs."""
    whole = sum(sum(epoch.values()) for epoch in times) or 1.0
    sums = {name: sum(epoch[name] for epoch in phases) for name in ("gradient", "update", "hidden")}
    sums["exposed communication"] = sum(epoch["communication"] for epoch in times)
    sums["waiting for the slowest"] = sum(epoch["waiting"] for epoch in times)
    sums["other"] = sum(epoch["other"] for epoch in times)
    return {name: seconds / whole for name, seconds in sums.items()}


@dataclass(frozen=True)
class Workload:
    """A model and a batch size, and all that was trained of it.

    Attributes
    ----------
    name : str
    measure : str
        What all runs have of ``val_accuracy``, ``accuracy``, ``val_loss`` and ``loss``, the first of them.
    metrics : tuple of str
        What else all runs have measured on the validation data.
    lines : tuple of Line
    """

    name: str
    measure: str
    metrics: tuple[str, ...]
    lines: tuple[Line, ...]


def summary(runs: Iterable[Run], baseline: str = "serial") -> list[Workload]:
    """Takes the finished runs together, by model and batch size, in the order in which they were made.

    Parameters
    ----------
    runs : iterable of Run
        Failed ones are left out.
    baseline : str
        The strategy, on one rank, whose seconds an epoch are over the others' in `Line.speedup`.
    """
    groups: dict[str, dict[tuple[str, int, int], list[History]]] = {}
    for run in runs:
        if run.history is not None:
            what = run.configuration
            group = groups.setdefault(f"{what.model}, {what.batch}", {})
            group.setdefault((what.strategy, what.ranks, run.workers), []).append(run.history)
    workloads = []
    for name, group in groups.items():
        epochs = {key: [median(h.history["seconds"]) for h in histories] for key, histories in group.items()}
        base = next((median(epochs[key]) for key in group if key[:2] == (baseline, 1)), None)
        lines = tuple(
            Line(
                *key,
                histories=tuple(histories),
                seconds=median(epochs[key]),
                fastest=min(epochs[key]),
                slowest=max(epochs[key]),
                speedup=None if base is None else base / median(epochs[key]),
            )
            for key, histories in group.items()
        )
        kept = [set(history.history) for line in lines for history in line.histories]
        measure = next(measure for measure in MEASURES if all(measure in each for each in kept))
        others = (other for other in lines[0].histories[0].history if other.startswith("val_"))
        metrics = [other for other in others if other not in MEASURES and all(other in each for each in kept)]
        workloads.append(Workload(name, measure, tuple(metrics), lines))
    return workloads
