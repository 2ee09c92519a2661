"""The handshake before training: every rank must have come with the same job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pdnn.optim.optimizer import GROUP_KEYS

if TYPE_CHECKING:
    from pdnn.comm import Communicator
    from pdnn.trainer import Trainer


def agree(trainer: Trainer, settings: dict[str, Any], where: str = "fit") -> None:
    """Compares the job over ranks.

    Raises
    ------
    ValueError
        On every rank, if one differs: names the first rank that does, what differs, and both values.
    """
    comm, model = trainer.comm, trainer.model
    if comm.size == 1:
        return
    mine: dict[str, Any] = {
        "model": str([(name, parameter.shape) for name, parameter in model.named_parameters()]),
        "layers": str(model.config()),
        "dtype": model.dtype,
        "loss": repr(trainer.loss),
        "optimizer": str(trainer.optimizer.config()),
        "groups": str([{key: group[key] for key in GROUP_KEYS} for group in trainer.optimizer.param_groups]),
        "clipping": str((trainer.clip_norm, trainer.clip_value)),
        "schedule": str(trainer.schedule and (trainer.schedule.config(), trainer.schedule_per)),
        "strategy": trainer.strategy.identity(),
        "seed": trainer.seed,
        "epoch": trainer.epoch,
        **settings,
    }
    compare(comm, where, mine, "every rank must start the same job")


def share_model(trainer: Trainer) -> None:
    """Gives all ranks rank 0's parameters and state; and its optimizer's memory, where ranks update alike."""
    comm, model = trainer.comm, trainer.model
    if comm.size == 1:
        return
    comm.broadcast(model.flat_parameters, root=0)
    comm.broadcast(model.flat_state, root=0)
    if trainer.strategy.same_updates:
        optimizer = trainer.optimizer.bind(model)
        steps = np.array([optimizer.steps], np.int64)
        comm.broadcast(steps, root=0)
        optimizer.steps = int(steps[0])
        for memory in optimizer.memory:
            comm.broadcast(memory, root=0)


def compare(comm: Communicator, where: str, mine: Mapping[str, Any], advice: str) -> None:
    """Compares what ranks came with, by name; collective.

    Parameters
    ----------
    comm : Communicator
    where : str
        The function that was called.
    mine : mapping of str to what JSON can hold
        The same names mean the same things on all ranks.
    advice : str
        What to do about a difference.

    Raises
    ------
    ValueError
        On every rank, if one differs: names the first rank that does, what differs, and both values.
    """
    sent = np.frombuffer(json.dumps(mine).encode(), np.uint8)
    everyones = [json.loads(received.tobytes()) for received in comm.all_gather(sent)]
    first = everyones[0]
    for rank, theirs in enumerate(everyones):
        for name in first | theirs:
            value, expected = theirs.get(name), first.get(name)
            if value != expected:
                raise ValueError(f"{where}: rank {rank} has {name} {value}, rank 0 has {expected}; {advice}")
