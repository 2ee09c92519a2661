"""The handshake before training: every rank must have come with the same job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pdnn.comm.settings import compare
from pdnn.optim.optimizer import GROUP_KEYS

if TYPE_CHECKING:
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
