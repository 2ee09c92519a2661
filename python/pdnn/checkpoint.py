"""Checkpoints: all that a Trainer needs to continue bit for bit, in one file that is replaced as a whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from pdnn.comm import Communicator
from pdnn.core import CoreSession
from pdnn.files import safetensors
from pdnn.history import History
from pdnn.store import Array
from pdnn.training import Training

FILE = "checkpoint.safetensors"
KEY = "pdnn.checkpoint"
RANK = "rank."  # names of what belongs to one rank: "rank.1.parameters"
MEMORY = "codec"  # the name of what its strategy remembers, such as what a codec lost


def _arrays(trainer: Training) -> dict[str, Array]:
    model = {f"model.{name}": values for name, values in trainer.model.state_dict().items()}
    memory = trainer.optimizer.state_arrays()
    return model | {f"optimizer.{name}": values for name, values in memory.items()}


def _own(trainer: Training, counts: Array) -> dict[str, Array]:
    """What is a rank's own where each trains a model of its own."""
    model, memory = trainer.model, trainer.optimizer.state_arrays()
    return {"parameters": model.flat_parameters, "state": model.flat_buffers, **memory, "counts": counts}


def save(
    trainer: Training, path: str | os.PathLike[str], of_ranks: dict[str, Array] | None = None, **layout: Any
) -> None:
    """Writes a trainer's state; what is each rank's own and `layout` are kept beside it for resuming."""
    state = {
        "epoch": trainer.epoch,
        "step": trainer.step,
        "seed": trainer.seed,
        "optimizer": {**trainer.optimizer.config(), "steps": trainer.optimizer.core.steps},
        "schedule": _schedule(trainer),
        "history": trainer.history.to_dict(),
        "classes": None if trainer.classes_ is None else trainer.classes_.tolist(),
        "layout": layout,
    }
    safetensors.write(path, _arrays(trainer) | (of_ranks or {}), {KEY: json.dumps(state)})


def load(
    trainer: Training, path: str | os.PathLike[str], rank: dict[str, Array] | None = None, **layout: Any
) -> None:
    """Reads what `save` wrote; changes nothing unless all of it fits.

    `rank` names arrays of this rank's own, read after those of all ranks; others' are left alone.

    Raises
    ------
    ValueError
        If the file is damaged, belongs to another model or optimizer, or was written under another layout.
    """
    arrays, metadata = safetensors.read(path)
    try:
        state = json.loads(metadata[KEY])
        steps = state["optimizer"].pop("steps")
        schedule, time = state["schedule"] or (None, 0)
        numbers = {name: int(state[name]) for name in ("epoch", "step", "seed")}
        history, written = History.from_dict(state["history"]), state["layout"]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: holds no checkpoint of a Trainer") from error
    if state["optimizer"] != trainer.optimizer.config():
        raise ValueError(
            f"{path}: was trained with {state['optimizer']}, this trainer has {trainer.optimizer.config()}"
        )
    if schedule != (trainer.schedule and trainer.schedule.config()):
        raise ValueError(
            f"{path}: was trained with schedule {schedule}, this trainer has "
            f"{trainer.schedule and trainer.schedule.config()}"
        )
    names = state.get("classes")
    if trainer.classes_ is not None and names != trainer.classes_.tolist():
        raise ValueError(
            f"{path}: was trained with classes {names}, this trainer has {trainer.classes_.tolist()}"
        )
    for name, value in layout.items():
        if written.get(name) != value:
            raise ValueError(f"{path}: was written with {name} {written.get(name)}, this run has {value}")
    own = _arrays(trainer) | (rank or {})
    arrays = {name: values for name, values in arrays.items() if name in own or not name.startswith(RANK)}
    shapes = {name: values.shape for name, values in arrays.items()}
    if shapes != {name: values.shape for name, values in own.items()}:
        raise ValueError(f"{path}: holds {shapes}, this model needs { {n: v.shape for n, v in own.items()} }")
    for name, values in arrays.items():
        if values.dtype != own[name].dtype:
            raise ValueError(f"{path}: {name} is {values.dtype}, this model is {own[name].dtype}")
    for name, mine in own.items():
        mine[...] = arrays[name]
    trainer.optimizer.core.steps = steps
    if trainer.schedule is not None:
        trainer.schedule.step_to(time)
    trainer.classes_ = None if names is None else np.array(names, np.str_)
    trainer.epoch, trainer.step, trainer.seed = numbers["epoch"], numbers["step"], numbers["seed"]
    trainer.history.history, trainer.history.phases = history.history, history.phases
    trainer.history.updates, trainer.history.compression = history.updates, history.compression
    trainer.history.ranks, trainer.history.timeline = history.ranks, history.timeline


def write(
    trainer: Training,
    directory: str | os.PathLike[str],
    batch_size: int,
    session: CoreSession,
    comm: Communicator,
) -> None:
    """Writes the checkpoint of a directory, by rank 0; it returns on every rank when the file is there.

    Where ranks train models of their own, it holds all of those, and as the model what they would agree on.
    """
    of_ranks: dict[str, Array] = {}
    if remembered := session.memory:
        parts = comm.gather(np.concatenate(remembered), root=0) or []
        of_ranks.update({f"{RANK}{rank}.{MEMORY}": part for rank, part in enumerate(parts)})
    if _apart(trainer):
        counts = np.array([*session.rows_apart, trainer.optimizer.core.steps])
        for name, mine in _own(trainer, counts).items():
            parts = comm.gather(mine, root=0) or []
            of_ranks.update({f"{RANK}{rank}.{name}": part for rank, part in enumerate(parts)})
    session.enter_evaluation()
    try:
        if comm.rank == 0:
            Path(directory).mkdir(parents=True, exist_ok=True)
            save(trainer, Path(directory) / FILE, of_ranks, **_layout(trainer, batch_size))
    finally:
        session.leave_evaluation()
    comm.barrier()


def resume(trainer: Training, directory: str | os.PathLike[str], batch_size: int) -> tuple[int, int] | None:
    """Reads the checkpoint of a directory on every rank, if there is one.

    Returns
    -------
    (int, int) or None
        The `rows_apart` of the session that goes on; None if there is no checkpoint.
    """
    path = Path(directory) / FILE
    if not path.exists():
        return None
    counts = np.zeros(3, np.int64)
    mine = {}
    if _apart(trainer):
        mine = {f"{RANK}{trainer.comm.rank}.{k}": v for k, v in _own(trainer, counts).items()}
    load(trainer, path, mine, **_layout(trainer, batch_size))
    if mine:
        trainer.optimizer.core.steps = int(counts[2])
    return int(counts[0]), int(counts[1])


def strategy_of(directory: str | os.PathLike[str]) -> str | None:
    """How the strategy is spelled with which a directory's checkpoint was written; None if there is none."""
    path = Path(directory) / FILE
    if not path.exists():
        return None
    _, metadata = safetensors.read(path)
    try:
        return str(json.loads(metadata[KEY])["layout"]["strategy"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: holds no checkpoint of a Trainer") from error


def resume_session(
    trainer: Training, directory: str | os.PathLike[str], session: CoreSession, rows_apart: tuple[int, int]
) -> None:
    """Tells a session what `resume` returned, and what sums by a codec remembered on this rank.

    Raises
    ------
    ValueError
        If it was written with other codecs, buckets or feedback.
    """
    session.rows_apart = rows_apart
    remembered = session.memory
    count = sum(part.size for part in remembered)
    if not remembered:
        return
    path = Path(directory) / FILE
    name = f"{RANK}{trainer.comm.rank}.{MEMORY}"
    kept = safetensors.read(path)[0].get(name)
    if kept is None or kept.size != count:
        raise ValueError(
            f"{path}: holds {0 if kept is None else kept.size} values that a codec remembers on rank "
            f"{trainer.comm.rank}, this run needs {count}; use the codec, error_feedback= and bucket_bytes= "
            "that it was written with"
        )
    begin = 0
    for part in remembered:
        part[...] = kept[begin : begin + part.size]
        begin += part.size


def _apart(trainer: Training) -> bool:
    """Whether the ranks train models of their own."""
    return trainer.comm.size > 1 and trainer.strategy.models_apart


def _schedule(trainer: Training) -> tuple[dict[str, Any], int] | None:
    """What a schedule is recognized by, and its time."""
    schedule = trainer.schedule
    return None if schedule is None else (schedule.config(), schedule.last_epoch)


def _layout(trainer: Training, batch_size: int) -> dict[str, Any]:
    return {"strategy": str(trainer.strategy), "ranks": trainer.comm.size, "batch size": batch_size}
