"""Estimates of a training's steps on the machine that it runs on, and the fastest strategy for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np

from pdnn.comm import Communicator, cores_of_every_rank
from pdnn.data import PadCropFlip
from pdnn.data.source import Source
from pdnn.data.sparse import dense_rows, is_sparse
from pdnn.estimate import auto
from pdnn.estimate.auto import AutoChoice
from pdnn.estimate.choice import Choice, candidates, choose
from pdnn.estimate.compute import MeasuredCompute, Samples, Trial
from pdnn.estimate.formulas import Steps
from pdnn.estimate.instead import Alternatives
from pdnn.estimate.network import Network
from pdnn.estimate.probes import measure
from pdnn.estimate.turns import in_turns
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
    clip : (float or None, float or None)
        Norm or value to which gradients are clipped.
    """

    def __init__(
        self,
        model: Sequential,
        loss: Loss,
        optimizer: Optimizer,
        comm: Communicator,
        undoes: bool,
        clip: tuple[float | None, float | None] = (None, None),
    ) -> None:
        self._model, self._loss, self._optimizer, self._comm = model, loss, optimizer, comm
        self._undoes, self._clip = undoes, clip
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
        among: Iterable[Strategy] = ()
        if had:
            with suppress(ValueError):  # it needs more cores than there are, or is not estimated
                steps.estimate(parse(had))
                among = [parse(had)]
        among = among or candidates(steps.network, self._comm.size, cores_of_every_rank(self._comm))
        choice = choose(steps, among, self._comm)
        if self._comm.size == 1:
            return choice
        instead = Alternatives.estimated(steps, choice.strategy, choice.seconds)
        return replace(choice, alternatives=instead)

    def auto(
        self, source: Source, batch_size: int, augment: PadCropFlip | None, leaves: int, had: str | None
    ) -> AutoChoice:
        """As many threads as pay, or what a resumed training had of what "auto" chooses from; collective."""
        comm, cores = self._comm, cores_of_every_rank(self._comm)
        possible = {str(strategy): strategy for strategy in auto.candidates(comm.size, cores, leaves)}
        if had in possible:
            return AutoChoice(possible[had], comm.size, reason="as the checkpoint has it")
        if self._shared():
            most = list(possible.values())[-1]
            return AutoChoice(most, comm.size, reason="not measured: the model has layers that ranks share")
        network, samples = Network(self._model, source.sample), _samples(source, batch_size, augment)

        def race(
            strategies: Sequence[Strategy], rows: int, ranks: Communicator, everyone: Communicator
        ) -> list[float]:
            compute = MeasuredCompute(self._loss, self._optimizer, samples, ranks, self._clip)
            return in_turns(
                [
                    Trial(compute, network, each, ranks, each.rows_per_step(rows, ranks.size))
                    for each in strategies
                ],
                everyone,
            )

        return auto.choose(race, batch_size, comm, cores, leaves)

    def _shared(self) -> bool:
        """Whether the model has layers of which ranks hold parts, so that no rank can have a copy of it."""
        return any(isinstance(module, PartOfLinear) for module in self._model.modules())

    def _measured(self, source: Source, batch_size: int) -> Steps:
        model, optimizer, comm = self._model, self._optimizer, self._comm
        if self._shared():
            raise ValueError(
                "estimate: the model has layers that ranks hold together, which are not estimated"
            )
        network, samples = Network(model, source.sample), _samples(source, batch_size)
        compute = MeasuredCompute(self._loss, optimizer, samples, comm, self._clip)
        machine = measure(comm, compute, network, max(1, -(-batch_size // comm.size)))
        momenta = len(optimizer.core.state)
        return Steps(network, batch_size, comm.size, compute, machine, momenta, self._undoes)


def _samples(source: Source, batch_size: int, augment: PadCropFlip | None = None) -> Samples:
    """The first rows of a source."""
    raw, targets, scale, shift, _ = source.arrays
    rows = source.rows[: max(batch_size, MOST_BYTES // max(dense_rows(raw, slice(1)).nbytes, 1))]
    x = raw[rows] if is_sparse(raw) else np.ascontiguousarray(raw[rows])
    return Samples(x, targets[rows], source.width, scale, shift, augment)
