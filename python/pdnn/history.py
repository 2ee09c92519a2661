"""History: what training measured, one value per epoch, as numbers, a file and a picture."""

from __future__ import annotations

import json
import os
from math import nan
from typing import TYPE_CHECKING, Any

from pdnn.advice import HISTORY, Advising
from pdnn.drawing import new_figure, save_figure
from pdnn.files.atomic import replacing
from pdnn.moved import former

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from pdnn._core import CompressionStats
    from pdnn.estimate import Estimate
    from pdnn.strategies.timeline import Timeline

_COMMUNICATING = ("agreement", "messages", "scatter", "broadcast")
"""The phases in which a rank has to do with others."""


class History(Advising):
    """Lists with one value per epoch.

    Attributes
    ----------
    history : dict of str to list of float
        ``loss`` (mean over the epoch's rows, without the L2 term, as the parameters changed under way),
        ``accuracy`` (classification only), ``val_loss``, ``val_accuracy``, ``val_`` and the name of each of
        the trainer's metrics, ``seconds`` (training only). What was not measured in an epoch, as by a `fit`
        without validation, is NaN there.
    phases : list of dict of str to float
        Seconds of an epoch's steps on this rank (in a file: on rank 0): ``gradient``, computing it;
        ``messages``, waits during that for ranks that share the network or a batch; ``agreement``, waiting
        for the other ranks' gradients or models; ``update``, ``scatter``, ``broadcast``; and ``hidden``,
        the part of the agreements that overlapped with other work. If weights are updated as their gradient
        is made (in one process, or in memory that ranks share), that time is part of ``gradient``.
    ranks : list of list of dict of str to float
        For each epoch, what every rank measured: its ``seconds``, ``steps`` and `phases`; ``bytes``, which
        it sent (see "What is counted" in docs/algorithms.md); and ``shared_bytes``, which other ranks wrote
        to shared memory and it read. The same on all ranks.
    updates : list of dict of str to float
        An epoch's updates of parameters, by all ranks and workers: ``count`` and ``per_second``. With
        ``on_nonfinite="skip"`` also ``skipped``, those left out. Under Hogwild also ``mean_staleness`` and
        ``max_staleness``: updates that others began between a worker's copy of the parameters and its own
        update.
    compression : list of dict of str to float
        What this rank has sent by a codec in an epoch (gradients or averages), and between the stages of a
        pipeline (activations and their gradients): ``bytes``; ``bytes_uncompressed``, the bytes of the
        values themselves, or for sums the least that an all-reduce sends; ``encode_seconds``,
        ``decode_seconds``; the number of ``sums``; ``error``, the measured ‖x - decoded‖ / ‖x‖ of sums.
        Empty without such messages. The average at the end of `fit` belongs to the last epoch.
    fingerprint : str
        `Module.fingerprint` of the model when the last `fit` ended; empty before.
    test : dict of str to float
        Loss and metrics of the test data, where `pdnn train` measured them at its end.
    begun : int
        Epochs that it held when the last `fit` began, as those of a checkpoint.
    estimate : Estimate or None
        The estimate of a step, if one was made (`Trainer.estimate`, ``pdnn train``).
    timeline : Timeline or None
        The instructions of this rank's pipeline with their times, in the last epoch's last step of a whole
        batch; None without ``timeline=True``.
    """

    advice = HISTORY
    begun: int = 0  # of those in pickles of other versions
    books = former("books", "compression")

    def __init__(self) -> None:
        self.history: dict[str, list[float]] = {}
        self.phases: list[dict[str, float]] = []
        self.ranks: list[list[dict[str, float]]] = []
        self.updates: list[dict[str, float]] = []
        self.compression: list[dict[str, float]] = []
        self.fingerprint = ""
        self.test: dict[str, float] = {}
        self.begun = 0
        self.estimate: Estimate | None = None
        self.timeline: Timeline | None = None

    @property
    def hidden(self) -> list[float]:
        """Fraction of each epoch's communication that overlapped with other work; 0 if there was none.

        For the sums of gradients in `DataParallel`: their time without overlap (measured when `fit` begins)
        minus the time that this rank waited.
        """
        shares = []
        for phases in self.phases:
            hidden = phases.get("hidden", 0.0)
            whole = hidden + phases.get("agreement", 0.0)
            shares.append(hidden / whole if whole else 0.0)
        return shares

    @property
    def bytes(self) -> list[list[int]]:
        """What each rank sent in each epoch, ``bytes[epoch][rank]``."""
        return [[int(rank["bytes"]) for rank in epoch] for epoch in self.ranks]

    @property
    def times(self) -> list[list[dict[str, float]]]:
        """Seconds of each epoch and rank, ``times[epoch][rank]``, by purpose.

        ``compute`` is gradient and update. The least time of all ranks in agreements is exposed
        ``communication``: even the last rank to arrive waits that long. What a rank spent beyond that is
        ``waiting`` for the slowest. The same holds for messages (both parts then include a pipeline's idle
        time), scatters and broadcasts. The rest is ``other``, mostly between steps.
        """
        return [_times(epoch) for epoch in self.ranks]

    @property
    def epochs(self) -> int:
        """How many epochs it holds."""
        return len(self.history.get("loss", []))

    def add(
        self,
        values: dict[str, float],
        phases: dict[str, float],
        updates: dict[str, float] | None = None,
        compression: dict[str, float] | None = None,
        ranks: list[dict[str, float]] | None = None,
    ) -> None:
        """Appends an epoch."""
        epochs = self.epochs
        for name in dict.fromkeys([*self.history, *values]):
            column = self.history.setdefault(name, [])
            column += [nan] * (epochs - len(column)) + [values.get(name, nan)]
        self.phases.append(phases)
        self.updates.append(updates or {})
        self.compression.append(compression or {})
        self.ranks.append(ranks or [])

    def cut(self, epochs: int) -> None:
        """Forgets all but so many epochs."""
        columns: list[list[Any]] = [*self.history.values(), self.phases, self.updates, self.compression]
        for column in (*columns, self.ranks):
            del column[epochs:]

    def to_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        names = ("history", "phases", "updates", "compression", "ranks", "fingerprint", "test")
        content = {name: getattr(self, name) for name in names}
        if self.estimate is not None:
            content["estimate"] = self.estimate.to_dict()
        return content if self.timeline is None else content | {"timeline": self.timeline.lanes}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> History:
        """What `to_dict` gave.

        Raises
        ------
        AttributeError, KeyError, TypeError or ValueError
            If it is something else.
        """
        history = cls()
        history.history = {
            str(name): [float(v) for v in values] for name, values in content["history"].items()
        }
        history.phases = [{str(k): float(v) for k, v in phase.items()} for phase in content["phases"]]
        history.updates = [_counts(epoch) for epoch in content["updates"]]
        compression = content.get("compression", content.get("books"))
        if compression is None:  # in older files
            compression = [{} for _ in history.updates]
        history.compression = [_counts(epoch) for epoch in compression]
        ranks = content.get("ranks", [[] for _ in history.updates])
        history.ranks = [[_counts(rank) for rank in epoch] for epoch in ranks]
        history.fingerprint = str(content.get("fingerprint", ""))
        history.test = _counts(content.get("test", {}))
        if "estimate" in content:
            from pdnn.estimate import Estimate

            history.estimate = Estimate.from_dict(content["estimate"])
        if "timeline" in content:
            from pdnn.strategies.timeline import Timeline

            history.timeline = Timeline(content["timeline"])
        return history

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it as JSON, all or nothing."""
        with replacing(path) as file:
            file.write(json.dumps(self.to_dict(), indent=1).encode() + b"\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> History:
        """Reads what `save` wrote.

        Raises
        ------
        ValueError
            If the file holds something else.
        """
        try:
            with open(path, encoding="utf-8") as file:
                return cls.from_dict(json.load(file))
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: holds no training history") from error

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Loss, accuracy if there is one, and metrics, against epochs.

        Parameters
        ----------
        path : path, optional
            Where to write the picture; its ending names the format.

        Returns
        -------
        matplotlib.figure.Figure
            Made without pyplot: nothing stays open.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        names = (name.removeprefix("val_") for name in self.history if name != "seconds")
        panels = list(dict.fromkeys(names))
        figure = new_figure("History.plot", figsize=(5 * max(len(panels), 1), 3.5), layout="constrained")
        from matplotlib.ticker import MaxNLocator

        epochs = range(1, self.epochs + 1)
        for index, name in enumerate(panels):
            axes = figure.add_subplot(1, len(panels), index + 1)
            for key, label in ((name, "training"), (f"val_{name}", "validation")):
                if key in self.history:
                    axes.plot(epochs, self.history[key], marker="o", markersize=3, label=label)
            axes.set_xlabel("epoch")
            axes.set_ylabel(name, parse_math=False)
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.grid(alpha=0.3)
            axes.legend()
        if path is not None:
            save_figure(figure, path, dpi=150)
        return figure

    def __repr__(self) -> str:
        last = ", ".join(f"{name} {values[-1]:.4g}" for name, values in self.history.items())
        told = f"{self.epochs} epoch{'s'[: self.epochs > 1]}: {last}" if last else "no epochs"
        return f"History({told})"


def _counts(content: dict[str, Any]) -> dict[str, float]:
    """Numbers by name, of which those that count something are integers."""
    return {str(name): value if isinstance(value, int) else float(value) for name, value in content.items()}


def _times(ranks: list[dict[str, float]]) -> list[dict[str, float]]:
    """What the seconds of an epoch went to, for each rank."""
    least = {name: min(rank[name] for rank in ranks) for name in _COMMUNICATING} if ranks else {}
    times = []
    for rank in ranks:
        compute = rank["gradient"] + rank["update"]
        communication = sum(least.values())
        waiting = sum(rank[name] for name in _COMMUNICATING) - communication
        other = max(0.0, rank["seconds"] - compute - communication - waiting)
        times.append({"compute": compute, "communication": communication, "waiting": waiting, "other": other})
    return times


def sent(*counted: CompressionStats) -> dict[str, float]:
    """What `History.compression` keeps of an epoch, from what the core has counted."""
    if not sum([each.bytes_uncompressed for each in counted]):
        return {}
    from pdnn.codec import CompressionStats as Stats

    return sum(map(Stats.of, counted), Stats()).to_dict()
