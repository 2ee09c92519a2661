"""What a sweep has measured: one JSON file, replaced whole after each run."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from pdnn.files.atomic import replacing
from pdnn.files.locks import lock
from pdnn.history import History
from pdnn.sweep.configuration import Configuration

_FORMAT = "pdnn sweep 2"

MEASURES = ("val_accuracy", "accuracy", "val_loss", "loss")
"""A run is judged by the first of these that it has."""


@dataclass(frozen=True)
class Run:
    """One training of a sweep.

    Attributes
    ----------
    configuration : Configuration
    seed, workers : int
        The seed it trained with; ranks times threads.
    began : str
        When, in UTC.
    seconds : float
        From the start of the launch to its end.
    history : History or None
        What `Trainer.fit` measured, on the first rank; None if the run failed.
    message : str
        Why it failed; else the warnings of the launch, if any.
    machine, versions : dict
        Where, and what ran.
    """

    configuration: Configuration
    seed: int
    workers: int
    began: str
    seconds: float
    history: History | None
    message: str
    machine: Mapping[str, Any]
    versions: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """The run as JSON has it."""
        plain = {name: value for name, value in vars(self).items() if name != "history"}
        plain["configuration"] = asdict(self.configuration)
        return plain | {"result": None if self.history is None else self.history.to_dict()}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> Run:
        """What `to_dict` gave; KeyError, TypeError or ValueError if it is something else."""
        rest = {name: value for name, value in content.items() if name not in ("configuration", "result")}
        result = content["result"]
        configuration = Configuration(**content["configuration"])
        history = None if result is None else History.from_dict(result)
        if history is not None:
            check(history, configuration)
        return cls(configuration=configuration, history=history, **rest)


@dataclass
class Results:
    """The runs of a sweep, by their configurations, and the settings that all of them share.

    Attributes
    ----------
    settings : dict of str to str
        What was given to every training, and the machine: figures of others do not belong into one file.
    runs : dict of Configuration to Run
    """

    settings: dict[str, str]
    runs: dict[Configuration, Run] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Results:
        """Reads a sweep's file.

        Raises
        ------
        OSError
            If it cannot be read.
        ValueError
            If it holds something else.
        """
        try:
            with open(path, encoding="utf-8") as file:
                content = json.load(file)
            if not isinstance(content, dict) or "format" not in content:
                raise ValueError("it names no format")
            if content["format"] != _FORMAT:
                raise ValueError(f"format {content['format']!r}, expected {_FORMAT!r}")
            runs = [Run.from_dict(run) for run in content["runs"]]
            return cls(dict(content["settings"]), {run.configuration: run for run in runs})
        except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: holds no results of pdnn sweep ({error})") from error

    @classmethod
    def open(cls, path: str | os.PathLike[str], settings: dict[str, str]) -> Results:
        """The results so far: those of the file, or none if there is no file.

        Raises
        ------
        ValueError
            If the file holds something else, or was made with other settings, or is a folder, pipe or device.
        """
        if not os.path.exists(path):
            return cls(settings)
        if not os.path.isfile(path):
            raise ValueError(f"{path}: is no regular file, which a sweep reads and replaces; name another")
        results = cls.load(path)
        other = [
            f"{name} is {results.settings.get(name, '(default)')} in the file, "
            f"{settings.get(name, '(default)')} now"
            for name in {**results.settings, **settings}
            if results.settings.get(name) != settings.get(name)
            and not (name.startswith("checksum") and name not in results.settings)  # of a former version
        ]
        if other:
            raise ValueError(
                f"{path}: made with other settings: {'; '.join(other)}. "
                "Give the same settings to continue it, or another file"
            )
        return results

    def add(self, run: Run, path: str | os.PathLike[str]) -> None:
        """Adds a run, also to the file, which keeps what another sweep has added to it meanwhile.

        Raises
        ------
        ValueError
            If the file holds something else by now, or was made with other settings.
        """
        with _alone(path):
            self.runs |= Results.open(path, self.settings).runs | {run.configuration: run}
            self.save(path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all of it, all or nothing."""
        runs = [run.to_dict() for run in self.runs.values()]
        head = json.dumps({"format": _FORMAT, "settings": self.settings})
        lines = ",\n".join(map(json.dumps, runs))  # a line a run: json's indent= takes five times as long
        with replacing(path) as file:
            file.write(f'{head[:-1]}, "runs": [\n{lines}\n]}}\n'.encode())

    def save_csv(self, path: str | os.PathLike[str]) -> None:
        """Writes a table with a line an epoch, and one line for a failed run; all or nothing."""
        lines = [line for run in self.runs.values() for line in _csv_lines(run)]
        columns = list(dict.fromkeys(name for line in lines for name in line))
        text = io.StringIO(newline="")
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(lines)
        with replacing(path) as file:
            file.write(text.getvalue().encode())


OF_RANK = (
    *("seconds", "steps", "bytes", "shared_bytes", "hidden", "gradient"),
    *("update", "agreement", "messages", "scatter", "broadcast"),
)


def check(history: History, configuration: Configuration) -> None:
    """Raises ValueError unless a run has all of what each epoch, and each of its ranks, has."""
    lists: list[Sized] = [*history.history.values(), history.phases, history.updates, history.ranks]
    if any(len(values) != history.epochs for values in lists) or not history.epochs:
        raise ValueError(f"{configuration}: its lists are not of one length")
    for updates, ranks in zip(history.updates, history.ranks, strict=True):
        if len(ranks) != configuration.ranks:
            raise ValueError(f"{configuration}: an epoch of {len(ranks)} ranks")
        lacks = {"count"} - updates.keys() | {"seconds"} - history.history.keys()
        for rank in ranks:
            lacks |= set(OF_RANK) - rank.keys()
        if lacks:
            raise ValueError(f"{configuration}: an epoch without {min(lacks)}")


@contextmanager
def _alone(path: str | os.PathLike[str]) -> Iterator[None]:
    """Meanwhile no other sweep adds to a file of this folder, if it has locks, and for 5 s at most."""
    folder = os.open(os.path.dirname(os.path.realpath(path)), os.O_RDONLY)
    try:
        lock(folder, 5)
        yield
    finally:
        os.close(folder)


def _csv_lines(run: Run) -> list[dict[str, Any]]:
    """A run's epochs as lines of a table, from column to value."""
    common = asdict(run.configuration) | {"workers": run.workers, "seed": run.seed, "message": run.message}
    if run.history is None:
        return [common]
    if (expected := run.history.estimate) is not None:
        common |= {"estimated strategy": expected.strategy, "estimated seconds": expected.epoch}
    common |= {f"test {name}": value for name, value in run.history.test.items()}
    return [
        common
        | {"epoch": epoch + 1}
        | {name: values[epoch] for name, values in run.history.history.items()}
        | {f"phase {name}": value for name, value in run.history.phases[epoch].items()}
        | {f"updates {name}": value for name, value in run.history.updates[epoch].items()}
        | {
            f"rank {number} {name}": value
            for number, rank in enumerate(run.history.ranks[epoch])
            for name, value in rank.items()
        }
        for epoch in range(run.history.epochs)
    ]
