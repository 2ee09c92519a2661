"""Describe: this machine's numbers, measured by ranks that are started for it."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from platform import node

import numpy as np

import pdnn
from pdnn import _core, nn, optim
from pdnn.estimate.machine import Machine
from pdnn.estimate.measuring import MeasuredClock, Samples
from pdnn.estimate.network import Network
from pdnn.estimate.probes import barrier, measure

MOST_RANKS = 8
"""Ranks that are started; more would show how a larger node crowds, and take longer."""


def describe(model: nn.Sequential, loss: nn.Loss, sample: tuple[int, ...], rows: int) -> Machine:
    """This machine: as many ranks as cores, at most `MOST_RANKS`, measure links and steps of the network.

    Parameters
    ----------
    model : nn.Sequential
        A classifier; what a core comes to is told for its steps.
    loss : Loss
        Its.
    sample : tuple of int
    rows : int
        Of a rank's step.

    Raises
    ------
    RuntimeError
        If there are several cores, and no mpiexec.
    """
    cores = _core.available_cores()
    ranks = min(cores, MOST_RANKS)
    if ranks == 1 or find_spec("mpi4py") is None:
        found = _on_a_rank(model, loss, sample, rows)
    else:
        found = pdnn.run(_on_a_rank, model, loss, sample, rows, ranks=ranks, timeout=120)[0]
    return replace(found, name=node() or "this machine", cores=cores, barrier=barrier(pdnn.comm.SELF))


def _on_a_rank(model: nn.Sequential, loss: nn.Loss, sample: tuple[int, ...], rows: int) -> Machine:
    rng = np.random.default_rng(0)
    dtype, count = model.dtype, max(2, 2 * rows)
    outputs = int(np.prod(model.output_shape(sample)))
    x = rng.random((count, *sample)).astype(dtype)
    samples = Samples(x, rng.integers(0, outputs, count).astype(np.int32), 0)
    sgd = optim.SGD(model.parameters(), lr=0.1)
    clock = MeasuredClock(loss, sgd, samples, pdnn.world())
    return measure(pdnn.world(), clock, Network(model, sample), rows)
