"""Checkpoints: all that a Trainer needs to go on bit for bit, in one file that is replaced whole."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pdnn.files import safetensors

if TYPE_CHECKING:
    from pdnn.nn.module import Array
    from pdnn.trainer import Trainer

FILE = "checkpoint.safetensors"
KEY = "pdnn.checkpoint"


def _arrays(trainer: Trainer) -> dict[str, Array]:
    model = {f"model.{name}": values for name, values in trainer.model.state_dict().items()}
    memory = trainer.optimizer.state_arrays(trainer.model)
    return model | {f"optimizer.{name}": values for name, values in memory.items()}


def save(trainer: Trainer, path: str | os.PathLike[str], **layout: Any) -> None:
    """Writes a trainer's state; `layout` is kept beside it and compared on resuming."""
    core = trainer.optimizer.bind(trainer.model)
    state = {
        "epoch": trainer.epoch,
        "step": trainer.step,
        "seed": trainer.seed,
        "optimizer": {**trainer.optimizer.config(), "steps": core.steps},
        "schedule": _schedule(trainer),
        "history": trainer.history.history,
        "phases": trainer.history.phases,
        "layout": layout,
    }
    safetensors.write(path, _arrays(trainer), {KEY: json.dumps(state)})


def load(trainer: Trainer, path: str | os.PathLike[str], **layout: Any) -> None:
    """Reads what `save` wrote; changes nothing unless all of it fits.

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
        history, phases, written = state["history"], state["phases"], state["layout"]
    except (AttributeError, KeyError, TypeError, json.JSONDecodeError) as error:
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
    for name, value in layout.items():
        if written.get(name) != value:
            raise ValueError(f"{path}: was written with {name} {written.get(name)}, this run has {value}")
    own = _arrays(trainer)
    shapes = {name: values.shape for name, values in arrays.items()}
    if shapes != {name: values.shape for name, values in own.items()}:
        raise ValueError(f"{path}: holds {shapes}, this model needs { {n: v.shape for n, v in own.items()} }")
    for name, values in arrays.items():
        if values.dtype != own[name].dtype:
            raise ValueError(f"{path}: {name} is {values.dtype}, this model is {own[name].dtype}")
    for name, values in arrays.items():
        own[name][...] = values
    trainer.optimizer.bind(trainer.model).steps = steps
    if trainer.schedule is not None:
        trainer.schedule.step_to(time)
    trainer.epoch, trainer.step, trainer.seed = numbers["epoch"], numbers["step"], numbers["seed"]
    trainer.history.history, trainer.history.phases = history, phases


def write(trainer: Trainer, directory: str | os.PathLike[str], batch_size: int) -> None:
    """Writes the checkpoint of a directory, by rank 0; it returns on every rank when the file is there."""
    if trainer.comm.rank == 0:
        Path(directory).mkdir(parents=True, exist_ok=True)
        save(trainer, Path(directory) / FILE, **_layout(trainer, batch_size))
    trainer.comm.barrier()


def resume(trainer: Trainer, directory: str | os.PathLike[str], batch_size: int) -> None:
    """Reads the checkpoint of a directory on every rank, if there is one."""
    path = Path(directory) / FILE
    if path.exists():
        load(trainer, path, **_layout(trainer, batch_size))


def _schedule(trainer: Trainer) -> tuple[dict[str, Any], int] | None:
    """What a schedule is recognised by, and its time."""
    schedule = trainer.schedule
    return None if schedule is None else (schedule.config(), schedule.last_epoch)


def _layout(trainer: Trainer, batch_size: int) -> dict[str, Any]:
    return {"strategy": str(trainer.strategy), "ranks": trainer.comm.size, "batch size": batch_size}
