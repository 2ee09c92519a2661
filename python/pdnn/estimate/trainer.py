"""Estimates of a training's steps on the machine that it runs on, and the fastest strategy for it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pdnn.comm import Communicator, cores_of_rank
from pdnn.data.source import Source
from pdnn.estimate.choice import Choice, candidates, choose
from pdnn.estimate.compute import MeasuredCompute, Samples
from pdnn.estimate.formulas import Steps
from pdnn.estimate.network import Network
from pdnn.estimate.probes import measure
from pdnn.nn import Loss, Sequential
from pdnn.nn.tensor_parallel import PartOfLinear
from pdnn.optim import Optimizer
from pdnn.strategies import Strategy, parse

MOST_BYTES = 1 << 24
"""Samples that probes train on: the first of the data set, at most so many bytes of them, or a batch."""


class Calibration:
    """This machine's numbers, and a compute model for steps of a model; measured once for each kind of batch.

    Parameters
    ----------
    model : nn.Sequential
    loss : Loss
    optimizer : Optimizer
        Of the model's parameters.
    comm : Communicator
        The ranks that will train together; all of them must make the same calls.
    undoes : bool
        Whether what steps change is copied, to undo those that are not finite.
    """

    def __init__(
        self, model: Sequential, loss: Loss, optimizer: Optimizer, comm: Communicator, undoes: bool
    ) -> None:
        self._model, self._loss, self._optimizer, self._comm = model, loss, optimizer, comm
        self._undoes = undoes
        self._known: dict[tuple[int, tuple[int, ...]], Steps] = {}

    def knows(self, source: Source, batch_size: int) -> bool:
        """Whether steps on such samples, in such batches, were measured before."""
        return (batch_size, source.sample) in self._known

    def steps(self, source: Source, batch_size: int) -> Steps:
        """Estimates of steps on a source's rows; collective where it must measure.

        Raises
        ------
        ValueError
            If the model has layers of which ranks hold parts.
        """
        if not self.knows(source, batch_size):
            self._known[batch_size, source.sample] = self._measured(source, batch_size)
        return self._known[batch_size, source.sample]

    def fastest(self, source: Source, batch_size: int, had: str | None) -> Choice:
        """The strategy with the least estimated time, or the one of a resumed training; collective."""
        steps = self.steps(source, batch_size)
        least = np.array([cores_of_rank(self._comm)], np.int64)  # that every rank has
        if self._comm.size > 1:
            self._comm.all_reduce(least, op="min")
        among: Iterable[Strategy] = [parse(had)] if had else ()
        return choose(steps, among or candidates(steps.network, self._comm.size, int(least[0])), self._comm)

    def _measured(self, source: Source, batch_size: int) -> Steps:
        model, optimizer, comm = self._model, self._optimizer, self._comm
        if any(isinstance(module, PartOfLinear) for module in model.modules()):
            raise ValueError(
                "estimate: the model has layers that ranks hold together, which are not estimated"
            )
        raw, targets, scale, shift = source.arrays
        rows = source.rows[: max(batch_size, MOST_BYTES // max(raw[:1].nbytes, 1))]
        samples = Samples(np.ascontiguousarray(raw[rows]), targets[rows], source.width, scale, shift)
        network = Network(model, source.sample)
        compute = MeasuredCompute(self._loss, optimizer, samples, comm)
        machine = measure(comm, compute, network, max(1, -(-batch_size // comm.size)))
        momenta = len(optimizer.core.state)
        return Steps(network, batch_size, comm.size, compute, machine, momenta, self._undoes)
