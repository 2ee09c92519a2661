"""Epochs of steps that evaluate a batch several times: in the core, for an optimizer in Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from pdnn._core import EpochSums, OnNonfinite
from pdnn.data.block_source import BlockSource
from pdnn.data.sparse import core_source
from pdnn.epochs import Epochs
from pdnn.optim import LBFGS, SecondOrder
from pdnn.store import Array

if TYPE_CHECKING:
    from pdnn.data.source import Source
    from pdnn.training import Training


class ClosureEpochs(Epochs):
    """Epochs with an LBFGS: arguments and attributes are those of `Epochs`.

    An evaluation is a step of the core that moves no parameter; the sum of gradients goes the strategy's way.
    All ranks then have the same loss and gradient, and the optimizer makes the same step on each. All
    evaluations of a step draw the same dropout masks.
    """

    def run(self, poll: Callable[[EpochSums], bool], most_steps: int = 0, seconds: float = inf) -> EpochSums:
        """As `Epochs.run`."""
        training, began = self._training, time.monotonic()
        last = training.step + most_steps if most_steps else inf
        if self._augment is not None:
            self._augment.tell(self._source.core, training.seed, training.epoch)
        while True:
            at = training.position
            row, before = (0, EpochSums()) if at is None else (at.row, at.sums)
            self._last = sums = self._step(row, before)
            self._advance(row, before, sums)
            ending, due = training.agree_to_stop(poll(sums), time.monotonic() - began >= seconds, self.comm)
            if self.complete or ending or due or training.step == last:
                return sums

    def _step(self, row: int, before: EpochSums) -> EpochSums:
        """A step with the batch that begins at a row of the order; the sums with it."""
        training, optimizer = self._training, self._training.optimizer
        core, order, _ = self._part(row)
        assert isinstance(optimizer, LBFGS)
        optimizer.sync_groups()
        no_rates, made, began = np.zeros((0, 1)), [], time.perf_counter()

        def evaluate() -> tuple[float, Array]:
            optimizer.gradient[...] = 0
            sums = self.session.run_epoch(
                core,
                order,
                self._rows,
                training.seed % 2**64,
                training.step,
                no_rates,
                OnNonfinite.skip,
                lambda _: False,
                first_row=row,
                most_steps=1,
            )
            made.append(sums.numbers)
            loss = sums.loss if training.loss.reduction == "sum" else sums.loss / (sums.weight or 1)
            return (nan if sums.skipped else loss), optimizer.gradient

        first = [evaluate()]
        if made[0]["updates"] or made[0]["skipped"]:  # else the rows do not count
            with self._all_raising():
                optimizer.minimize(lambda: first.pop() if first else evaluate())
        return _added(before.numbers, made, time.perf_counter() - began)

    @contextmanager
    def _all_raising(self) -> Iterator[None]:
        """Says where a number that is not finite came from, which all ranks have seen."""
        training = self._training
        try:
            yield
        except FloatingPointError as error:
            training.position, self._begun, self._all_raise = None, None, True
            row = self._source.row_not_finite()
            raise FloatingPointError(
                f"fit: step {training.step} of the training, in epoch {training.epoch}, counted from 0: "
                f"{error}{'. ' + row if row else ''}"
            ) from error


class RowEpochs(ClosureEpochs):
    """Epochs with a SecondOrder: arguments and attributes are those of `Epochs`.

    Each rank reads the whole batch, and has a part of its matrix; all make the same step.
    """

    def __init__(self, training: Training, source: Source, batch_size: int, **options: Any) -> None:
        super().__init__(training, source, batch_size, **options)
        name = type(training.optimizer).__name__
        if isinstance(source, BlockSource) or self._augment is not None:
            what = "a BlockStream" if isinstance(source, BlockSource) else "augmented images"
            raise ValueError(
                f"fit: {name} takes rows in memory as they are, got {what}; use optim.LBFGS or Adam"
            )
        assert isinstance(training.optimizer, SecondOrder)
        self._batch = training.optimizer.batch_loss(
            training.model, training.loss, source.sample, training.strategy.engine.threads, self.comm.core
        )
        x, y, scale, shift, weights = source.arrays
        values = y if y.dtype == np.int32 else y.astype(np.float64, copy=False)
        self._rows_of = core_source("float64", x, values, scale, shift, weights)

    def _step(self, row: int, before: EpochSums) -> EpochSums:
        """A step with the batch that begins at a row of the order; the sums with it."""
        optimizer, began = self._training.optimizer, time.perf_counter()
        assert isinstance(optimizer, SecondOrder)
        rows = self._order(self._training.epoch)[row : row + self._rows]
        bytes_before, waited_before = self.comm.traffic.bytes, self.comm.traffic.seconds
        self._batch.take(self._rows_of, rows)
        with self._all_raising():
            optimizer.minimize(self._batch)
        loss, correct, weight = self._batch.first_sums
        seconds, waited = time.perf_counter() - began, self.comm.traffic.seconds - waited_before
        step = {
            "loss": loss,
            "correct": correct,
            "weight": weight,
            "rows": len(rows),
            "steps": 1,
            "updates": int(weight > 0),
        }
        step |= {"seconds": seconds, "phases.messages": waited, "phases.update": seconds - waited}
        step |= {"traffic.bytes": self.comm.traffic.bytes - bytes_before, "traffic.seconds": waited}
        return EpochSums({name: value + step.get(name, 0) for name, value in before.numbers.items()})


def _added(before: dict[str, float], made: list[dict[str, float]], seconds: float) -> EpochSums:
    """The sums after a step: its loss is the first evaluation's, its times and bytes are those of all."""
    step = dict(made[0])
    for name in step:
        if name.startswith(("phases.", "traffic.")):
            step[name] = sum(each[name] for each in made)
    step["phases.update"] += seconds - sum(each["seconds"] for each in made)  # what the optimizer computes
    step["seconds"] = seconds
    return EpochSums({name: value + step[name] for name, value in before.items()})
