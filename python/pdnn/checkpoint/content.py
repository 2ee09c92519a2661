"""Content: what a checkpoint holds of a training, whoever trains it: named arrays, and the rest as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from pdnn._core import EpochSums, build_info
from pdnn.checks import same_settings
from pdnn.files import safetensors
from pdnn.history import History
from pdnn.store import Array
from pdnn.training import APART, Best, Position, State, Training

FORMAT = 2
"""Of the files that this version writes; it reads those before, too. 1: only between epochs, not numbered."""

KEY = "pdnn.checkpoint"
CHECKSUM = "pdnn.checksum"  # not in files of the first versions
BEST = "best."  # names of what is kept of the best epochs: "best.val_loss.parameters"
RANK = "rank."  # names of what belongs to one rank: "rank.1.parameters"


def models_apart(training: Training) -> bool:
    """Whether the ranks train models of their own."""
    return training.comm.size > 1 and training.strategy.models_apart


@dataclass
class Content:
    """A file: arrays by name, and the state beside them, as JSON has it."""

    arrays: dict[str, Array]
    state: dict[str, Any] = field(default_factory=dict)

    @property
    def metadata(self) -> dict[str, str]:
        """The state as it is now, as the file has it beside its checksum."""
        return {KEY: json.dumps(self.state)}

    def write(self, path: str | os.PathLike[str]) -> None:
        """All or nothing."""
        safetensors.write(path, self.arrays, sealed(self.arrays, self.metadata))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Content:
        """What `write` wrote, in this version or an earlier one.

        Raises
        ------
        ValueError
            If the file is damaged, no checkpoint, or a later version's.
        """
        arrays, metadata = safetensors.read(path)
        if CHECKSUM in metadata and sealed(arrays, metadata) != metadata:
            raise ValueError(f"{path}: its checksum is not that of its content; the file is damaged")
        try:
            state = dict(json.loads(metadata[KEY]))
            number = int(state.get("format", 1))
            state["layout"] = dict(state["layout"])
        except (KeyError, OverflowError, RecursionError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: holds no checkpoint of a Trainer") from error
        if number > FORMAT:
            raise ValueError(
                f"{path}: was written by pdnn {state.get('pdnn')} in format {number}, this version "
                f"({build_info()['version']}) reads formats up to {FORMAT}; use a later one"
            )
        return cls(arrays, state)

    def of_rank(self, rank: int) -> dict[str, Array]:
        """The arrays that belong to one rank, by their names there."""
        prefix = f"{RANK}{rank}."
        return {
            name.removeprefix(prefix): values
            for name, values in self.arrays.items()
            if name.startswith(prefix)
        }


def sealed(arrays: dict[str, Array], metadata: dict[str, str]) -> dict[str, str]:
    """Metadata with the checksum of all that a file holds."""
    found = crc32(metadata.get(KEY, "").encode())
    for name, values in sorted(arrays.items()):
        found = crc32(f"{name} {values.dtype.name} {values.shape}".encode(), found)
        found = crc32(np.ascontiguousarray(values, values.dtype.newbyteorder("<")).data, found)
    return metadata | {CHECKSUM: f"{found:08x}"}


def content_of(training: Training) -> Content:
    """What a training is, in arrays that share its memory."""
    schedule, now = training.schedule, training.state()
    state = {
        "format": FORMAT,
        "pdnn": build_info()["version"],
        "epoch": now.epoch,
        "step": now.step,
        "seed": training.seed,
        "position": now.position,
        "optimizer": {**training.optimizer.config(), "steps": now.updates},
        "schedule": None if schedule is None else (schedule.config(), now.time),
        "history": training.history.to_dict(),
        "classes": None if training.classes_ is None else training.classes_.tolist(),
        "layout": {},
    }
    if training.notes:
        state["notes"] = training.notes
    if schedule is None and now.first_rates not in (None, now.rates):
        state["rates"] = {"first": now.first_rates, "now": now.rates}
    if now.best:
        state["best"] = {
            name: {"value": best.value, "epoch": best.epoch, "until": best.until}
            for name, best in now.best.items()
        }
    return Content(_arrays(training) | _arrays_of_best(now.best), state)


def _arrays_of_best(found: dict[str, Best]) -> dict[str, Array]:
    """What is kept of the best epochs."""
    kept = {name: best.model for name, best in found.items() if best.model is not None}
    parts = ("parameters", "buffers")
    return {f"{BEST}{name}.{part}": kept[name][place] for name in kept for place, part in enumerate(parts)}


def _arrays(training: Training) -> dict[str, Array]:
    model = {f"model.{name}": values for name, values in training.model.state_dict().items()}
    memory = training.optimizer.state_arrays()
    return model | {f"optimizer.{name}": values for name, values in memory.items()}


def save(training: Training, path: str | os.PathLike[str]) -> None:
    """Writes a training's state to one file, all or nothing."""
    content_of(training).write(path)


def load(training: Training, path: str | os.PathLike[str]) -> None:
    """Reads what `save` wrote, or the checkpoint of a `fit`; changes nothing unless all of it fits.

    Raises
    ------
    ValueError
        If the file is damaged, or belongs to another model or optimizer.
    """
    take(training, Content.read(path), path)
    deal_sums(training)
    training.checkpoints = Path(path).parent.resolve()


class _Told(NamedTuple):
    """The state beside the arrays, read and converted."""

    optimizer: dict[str, Any]
    steps: int
    schedule: Any
    time: int
    numbers: dict[str, int]
    history: History
    names: Any
    notes: dict[str, Any]
    position: Any
    place: Position | None
    rates: dict[str, list[float]]
    best: dict[str, Best]


def _read_state(state: dict[str, Any]) -> _Told:
    """The state of a file; AttributeError, KeyError, TypeError or ValueError if it is that of nothing."""
    optimizer = dict(state["optimizer"])
    steps = int(optimizer.pop("steps"))
    schedule, time = state["schedule"] or (None, 0)
    numbers = {name: int(state[name]) for name in ("epoch", "step", "seed")}
    place = Position.from_dict(state.get("position"))  # a damaged one is refused here
    counts = steps, int(time), numbers["epoch"], numbers["step"], 0 if place is None else place.row
    if not all(0 <= found < 2**63 for found in counts):
        raise ValueError(f"steps, time, epoch, step and row {counts}")
    best = {
        name: Best(float(found["value"]), int(found["epoch"]), int(found["until"]), None)
        for name, found in dict(state.get("best", {})).items()
    }
    return _Told(
        optimizer,
        steps,
        schedule,
        int(time),
        numbers,
        History.from_dict(state["history"]),
        state.get("classes"),
        dict(state.get("notes", {})),
        state.get("position"),
        place,
        {name: list(map(float, found)) for name, found in dict(state.get("rates", {})).items()},
        best,
    )


def _compare(path: str | os.PathLike[str], told: _Told, training: Training) -> None:
    """Raises ValueError if it was another training's."""
    if not (told.names is None or _are_names(told.names)):
        raise ValueError(f"{path}: has classes {told.names}; expected their names")
    schedule = training.schedule
    compared = {
        "": (told.optimizer, training.optimizer.config()),
        "schedule ": (told.schedule, schedule and schedule.config()),
    }
    if training.classes_ is not None:
        compared["classes "] = (told.names, training.classes_.tolist())
    noted = {name: has for name, has in training.notes.items() if name in told.notes and has is not None}
    compared |= {f"{name} ": (told.notes[name], has) for name, has in noted.items()}
    for what, (had, has) in compared.items():
        if not same_settings(had, has):
            raise ValueError(f"{path}: was trained with {what}{had}, this trainer has {has}")


def take(
    training: Training,
    content: Content,
    path: str | os.PathLike[str],
    own: dict[str, Array] | None = None,
    mine: dict[str, Array] | None = None,
    check: Callable[[Position | None], None] = lambda _: None,
) -> None:
    """Makes a training what a checkpoint says, or changes nothing.

    Parameters
    ----------
    training : Training
    content : Content
    path : path
        For messages.
    own, mine : dict of str to ndarray, optional
        Arrays of this rank's own, and what the checkpoint has for them; copied after all others.
    check : function of Position or None
        Raises ValueError if the training cannot go on there.

    Raises
    ------
    ValueError
        If it belongs to another model or optimizer.
    """
    began = training.first_rates or training.rates
    try:
        told = _read_state(content.state)
        goes_on = training.schedule is None and told.rates.get("first") == began
        for rate, _ in zip(told.rates["now"], told.rates["first"], strict=True) if goes_on else ():
            training.optimizer.checked_number("lr", rate)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: holds no checkpoint of a Trainer") from error
    _compare(path, told, training)
    check(told.place)
    arrays = {name: values for name, values in content.arrays.items() if not name.startswith(RANK)}
    parameters, buffers = training.model.flat_parameters, training.model.flat_buffers
    for name in told.best:
        if f"{BEST}{name}.parameters" in arrays:
            told.best[name].model = np.empty_like(parameters), np.empty_like(buffers)
    needed = _arrays(training) | _arrays_of_best(told.best)
    pairs = [(needed, arrays), (own or {}, mine or {})]
    for needed, given in pairs:
        _check(path, needed, given)
    for needed, given in pairs:
        for name, values in needed.items():
            values[...] = given[name]
    # With what a callback made of the rates, unless others are wanted now:
    now, first_rates = (told.rates["now"], told.rates["first"]) if goes_on else (None, began)
    where = told.numbers["epoch"], told.numbers["step"], told.position
    training.go_to(State(*where, told.steps, told.time, now, first_rates, told.best))
    training.seed, training.model.classes = told.numbers["seed"], told.names
    for name in ("history", "phases", "updates", "compression", "ranks", "timeline", "fingerprint"):
        setattr(training.history, name, getattr(told.history, name))


def deal_sums(training: Training) -> None:
    """Deals the sums of an epoch under way to the ranks; seconds and bytes are counted anew."""
    position = training.position
    if position is None:
        return
    numbers = {name: value for name, value in position.sums.numbers.items() if "." not in name}
    if models_apart(training) and training.comm.rank > 0:  # they will be added up at the end of the epoch
        numbers |= dict.fromkeys(APART, 0)
    position.sums = EpochSums(numbers)


def _are_names(names: Any) -> bool:
    """Whether these are names, each there once."""
    return (
        isinstance(names, list)
        and all(isinstance(name, str) for name in names)
        and 0 < len(set(names)) == len(names)
    )


def _check(path: str | os.PathLike[str], needed: dict[str, Array], given: dict[str, Array]) -> None:
    """Raises ValueError unless arrays have the same names, shapes and types."""
    had, has = ({name: values.shape for name, values in arrays.items()} for arrays in (given, needed))
    if had != has:
        raise ValueError(f"{path}: holds {had}, this model needs {has}")
    for name, values in given.items():
        if values.dtype != needed[name].dtype:
            raise ValueError(f"{path}: {name} is {values.dtype}, this model is {needed[name].dtype}")
