"""Here: estimates of a trainer's steps on the machine that it runs on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pdnn.comm import cores_of_rank
from pdnn.estimate.measuring import Array, MeasuredClock, Samples
from pdnn.estimate.network import Network
from pdnn.estimate.probes import measure
from pdnn.estimate.steps import Steps
from pdnn.nn.tensor_parallel import PartOfLinear

if TYPE_CHECKING:
    from pdnn.trainer import Trainer

MOST_BYTES = 1 << 24
"""Samples that probes train on: the first of the data set, at most so many bytes of them, or a batch."""


def steps_of(
    trainer: Trainer, arrays: tuple[Array, Array, float, float], rows: Array, width: int, batch_size: int
) -> Steps:
    """Calibrates: measures the machine and the network's steps on it; collective over the trainer's ranks.

    Parameters
    ----------
    trainer : Trainer
    arrays : (raw samples, targets, scale, shift)
        Of the data set that will be trained on.
    rows : ndarray
        Those of it that belong.
    width : int
        Of the targets.
    batch_size : int

    Raises
    ------
    ValueError
        If the model has layers of which ranks hold parts.
    """
    if any(isinstance(module, PartOfLinear) for module in trainer.model.modules()):
        raise ValueError("estimate: the model has layers that ranks hold together, which are not estimated")
    raw, targets, scale, shift = arrays
    most = max(batch_size, MOST_BYTES // max(raw[:1].nbytes, 1))
    rows = rows[:most]
    samples = Samples(np.ascontiguousarray(raw[rows]), targets[rows], width, scale, shift)
    comm = trainer.comm
    network = Network(trainer.model, raw.shape[1:])
    clock = MeasuredClock(trainer.loss, trainer.optimizer, samples, comm)
    each = max(1, -(-batch_size // comm.size))
    machine = measure(comm, clock, network, each)
    return Steps(
        network, batch_size, comm.size, clock, machine, len(trainer.optimizer.bind(trainer.model).memory)
    )


def threads_here(trainer: Trainer) -> int:
    """Cores that every rank of a trainer has."""
    least = np.array([cores_of_rank(trainer.comm)], np.int64)
    if trainer.comm.size > 1:
        trainer.comm.all_reduce(least, op="min")
    return int(least[0])
