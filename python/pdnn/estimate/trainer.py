"""Estimates of a training's steps on the machine that it runs on."""

from __future__ import annotations

import numpy as np

from pdnn.comm import Communicator, cores_of_rank
from pdnn.estimate.compute import Array, MeasuredCompute, Samples
from pdnn.estimate.formulas import Steps
from pdnn.estimate.network import Network
from pdnn.estimate.probes import measure
from pdnn.nn import Loss, Sequential
from pdnn.nn.tensor_parallel import PartOfLinear
from pdnn.optim import Optimizer

MOST_BYTES = 1 << 24
"""Samples that probes train on: the first of the data set, at most so many bytes of them, or a batch."""


def calibrate(
    model: Sequential, loss: Loss, optimizer: Optimizer, samples: Samples, batch_size: int, comm: Communicator
) -> Steps:
    """Measures the machine and the network's steps on it; collective over the ranks that will train.

    Parameters
    ----------
    model : nn.Sequential
    loss : Loss
    optimizer : Optimizer
        Of the model's parameters.
    samples : Samples
        See `samples_of`.
    batch_size : int
    comm : Communicator

    Raises
    ------
    ValueError
        If the model has layers of which ranks hold parts.
    """
    if any(isinstance(module, PartOfLinear) for module in model.modules()):
        raise ValueError("estimate: the model has layers that ranks hold together, which are not estimated")
    network = Network(model, samples.x.shape[1:])
    compute = MeasuredCompute(loss, optimizer, samples, comm)
    machine = measure(comm, compute, network, max(1, -(-batch_size // comm.size)))
    return Steps(network, batch_size, comm.size, compute, machine, len(optimizer.bind(model).memory))


def samples_of(
    arrays: tuple[Array, Array, float, float], rows: Array, width: int, batch_size: int
) -> Samples:
    """The first rows of a data set, for probes: at most `MOST_BYTES` of samples, but a batch.

    Parameters
    ----------
    arrays : (raw samples, targets, scale, shift)
        Of the data set that will be trained on.
    rows : ndarray
        Those of it that belong.
    width : int
        Of the targets.
    batch_size : int
    """
    raw, targets, scale, shift = arrays
    rows = rows[: max(batch_size, MOST_BYTES // max(raw[:1].nbytes, 1))]
    return Samples(np.ascontiguousarray(raw[rows]), targets[rows], width, scale, shift)


def threads_of_ranks(comm: Communicator) -> int:
    """Cores that every one of the ranks has; collective."""
    least = np.array([cores_of_rank(comm)], np.int64)
    if comm.size > 1:
        comm.all_reduce(least, op="min")
    return int(least[0])
