"""The handshake before training: every rank must have come with the same job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from pdnn import parallel
from pdnn.optim.optimizer import GROUP_KEYS

if TYPE_CHECKING:
    from pdnn.trainer import Trainer


def agree(trainer: Trainer, settings: dict[str, Any]) -> None:
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
        "strategy": parallel.common_part(trainer.strategy),
        "seed": trainer.seed,
        "epoch": trainer.epoch,
        **settings,
    }
    sent = np.frombuffer(json.dumps(mine).encode(), np.uint8)
    for rank, received in enumerate(comm.all_gather(sent)):
        theirs = json.loads(received.tobytes())
        if rank == 0:
            first = theirs
        for name, value in theirs.items():
            if value != first[name]:
                raise ValueError(
                    f"fit: rank {rank} has {name} {value}, rank 0 has {first[name]}; "
                    "every rank must start the same job"
                )


def share_model(trainer: Trainer) -> None:
    """Gives all ranks rank 0's parameters and state."""
    if trainer.comm.size > 1:
        trainer.comm.broadcast(trainer.model.flat_parameters, root=0)
        trainer.comm.broadcast(trainer.model.flat_state, root=0)
