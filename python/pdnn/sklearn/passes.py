"""Passes: an estimator's epochs over its rows, several at once where nobody need look between them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import ceil, inf
from time import perf_counter
from typing import NamedTuple

import numpy as np

from pdnn._core import EpochSums
from pdnn.epochs import LOOK, Epochs
from pdnn.sklearn.race import Race
from pdnn.sklearn.rows import Feed, Table
from pdnn.sklearn.workers import Workers
from pdnn.store import Array
from pdnn.training import Training


@dataclass
class Work:
    """What a call of `fit` or `partial_fit` trains on.

    Attributes
    ----------
    table : Table
    rows : ndarray of int64
        Numbers of those of its rows to train on.
    held_out : Table or None
        Scored after each epoch.
    workers : Workers
    random : RandomState
        The orders of rows are drawn from it.
    incremental : bool
        One epoch, which goes on with the optimizer of the last one.
    """

    table: Table
    rows: Array
    held_out: Table | None
    workers: Workers
    random: np.random.RandomState
    incremental: bool


class Sums(NamedTuple):
    """Of the updates of an epoch.

    Attributes
    ----------
    loss, weight : float
        The losses of its rows, and what these count.
    rows, steps : int
    squares : float or None
        Σ w² over the weights after it, if it was taken then.
    """

    loss: float
    weight: float
    rows: int
    steps: int
    squares: float | None


class Passes:
    """Epochs over the rows that an estimator trains on.

    Parameters
    ----------
    work : Work
    training : Training
        The optimizer's first group are the weights, which the penalty is of.
    race : Race
        What makes the steps.
    feed : Feed
    batch : int
        Rows of an update.
    shuffle : bool
    """

    def __init__(
        self, work: Work, training: Training, race: Race, feed: Feed, batch: int, shuffle: bool
    ) -> None:
        self._training, self._race = training, race
        self._table, self._random, self._shuffle = work.table, work.random, shuffle
        self._optimizer, self._feed, self._batch = training.optimizer, feed, batch
        self._rows, self._count = work.rows, work.table.count(work.rows)
        self._params = training.optimizer.store().flat_parameters
        # Others would have to agree; a score needs the model.
        self._ahead = feed.whole and work.workers.comm.size == 1 and work.held_out is None
        self._seconds = inf  # an epoch takes

    def make(self, certain: float, decay: float, rate: Callable[[int], float | None]) -> Iterator[Sums]:
        """Trains on an epoch, or on several; returns the sums of each.

        Parameters
        ----------
        certain : float
            Epochs at most.
        decay : float
            The weight decay of a row.
        rate : callable
            The learning rate when so many more rows have been trained on, None if it stays. Velocities
            contain the rate of their time.
        """
        race, count = self._race, 1
        if self._ahead:
            count = int(min(certain, LOOK / self._seconds))
            if race.steps:
                count = min(count, ceil(race.steps / race.run.steps))
        began = perf_counter()
        if count > 1:
            made = self._several(count, decay, rate)
            race.note(perf_counter() - began, count * race.run.steps)
        else:
            made = iter([self._one(decay)])
        self._seconds = (perf_counter() - began) / max(count, 1)
        self._feed.note(max(count, 1))
        return made

    @property
    def run(self) -> Epochs:
        """What makes the next steps."""
        return self._race.run

    def squares(self) -> float:
        """Σ w² over the weights now."""
        return self._optimizer.core.squares(self._params)[0]

    def _one(self, decay: float) -> Sums:
        loss, weight, steps = 0.0, 0.0, 0
        for part in self._feed.parts(self._order()):
            whole = len(part) == len(self._rows)
            self._decay(decay, len(part), self._count if whole else self._table.count(part))
            self._feed.source.rows = part
            sums = self._steps()
            loss, weight, steps = loss + sums.loss, weight + sums.weight, steps + sums.steps
        return Sums(loss, weight, len(self._rows), steps, None)

    def _steps(self) -> EpochSums:
        """Makes the steps of the source's rows."""
        race, training = self._race, self._training
        while True:
            before = EpochSums() if training.position is None else training.position.sums
            sums = race.run.run(lambda _: False, race.steps)
            race.note(sums.seconds - before.seconds, sums.steps - before.steps)
            if training.position is None:
                return sums

    def _several(self, count: int, decay: float, rate: Callable[[int], float | None]) -> Iterator[Sums]:
        groups, rows = self._optimizer.param_groups, len(self._rows)
        self._decay(decay, rows, self._count)
        orders, rates, scales = np.empty((count, rows), np.int64), np.empty((0, len(groups))), np.ones(count)
        for order in orders:
            order[:] = self._order()
        lrs = np.array([groups[0]["lr"]])
        if rate(0) is not None:
            lrs = np.append(lrs, [rate(epoch * rows) for epoch in range(1, count)])
            rates, scales[1:] = np.repeat(lrs[:, None], len(groups), axis=1), lrs[:-1] / lrs[1:]
        made = self.run.run_several(orders, rates, scales)
        for group in groups:
            group["lr"] = float(lrs[-1])
        return (Sums(sums.loss, sums.weight, rows, sums.steps, squares[0]) for sums, squares in made)

    def _order(self) -> Array:
        """The rows of the next epoch as they are taken."""
        if self._shuffle:
            self._rows = self._rows[self._random.permutation(len(self._rows))]
        return self._rows

    def _decay(self, decay: float, rows: int, count: float) -> None:
        """Sets the weight decay of updates from so many rows, which count so much."""
        update = count * min(self._batch, rows) / rows
        self._optimizer.param_groups[0]["weight_decay"] = decay / update if update else 0.0
