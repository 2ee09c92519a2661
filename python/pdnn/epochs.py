"""Epochs: a training's epochs of steps in the C++ core, over one source of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import ceil

import numpy as np

from pdnn import _core, strategies
from pdnn._core import CompressionStats, EpochSums
from pdnn.comm import Communicator
from pdnn.core import core_for
from pdnn.data import PadCropFlip
from pdnn.data.source import Source
from pdnn.training import Training


class Epochs:
    """Epochs over a source.

    Parameters
    ----------
    training : Training
        Its step, schedule and history advance with each epoch.
    source : Source
    batch_size : int
        Rows behind one update.
    shuffle : bool
        A new order each epoch, a function of (seed, epoch).
    augment : PadCropFlip, optional
    timeline : bool
        Keep in `history.timeline` what each rank of a pipeline did when, of a step an epoch.

    Attributes
    ----------
    steps : int
        Of an epoch.
    comm : Communicator
        The ranks that train together, as a group of their own: what an error leaves undone in it does not
        disturb later calls.
    session : object of the core
    """

    def __init__(
        self,
        training: Training,
        source: Source,
        batch_size: int,
        *,
        shuffle: bool,
        augment: PadCropFlip | None,
        timeline: bool,
    ) -> None:
        self._training, self._source = training, source
        self._shuffle, self._augment, self._timeline = shuffle, augment, timeline
        self._rows = min(training.strategy.rows_per_step(batch_size, training.comm.size), len(source))
        self.steps = ceil(len(source) / self._rows)
        self._last: EpochSums | None = None
        self.session = core_for(training.model.dtype).Session(
            model=training.model.core,
            loss=training.core_loss,
            optimizer=training.core_optimizer(),
            comm=training.comm.core,
            sample=list(source.sample),
            target_width=source.width,
            batch_size=self._rows,
            config=training.strategy.config(),
        )
        self.comm = Communicator(self.session.comm)
        if timeline:
            self.session.record()

    def run(self, poll: Callable[[EpochSums], bool]) -> EpochSums:
        """Makes the steps of an epoch, until `poll`, which is called at intervals, returns True."""
        training, source, seed = self._training, self._source, self._training.seed % 2**64
        if self._augment is not None:
            self._augment.tell(source.core, training.seed, training.epoch)
        order = source.rows
        if self._shuffle:
            order = source.rows[_core.epoch_order(seed, training.epoch, len(source))]
        training.optimizer.sync_groups()
        rates = np.zeros((0, len(training.optimizer.param_groups)))  # as the groups say
        schedule = training.schedule
        if schedule is not None and training.schedule_per == "step":
            rates = np.array([schedule.rates(schedule.last_epoch + step) for step in range(self.steps)])
        sums = self.session.run_epoch(source.core, order, self._rows, seed, training.step, rates, poll)
        training.step += sums.steps
        if schedule is not None:
            passed = 1 if training.schedule_per == "epoch" else sums.steps
            schedule.step_to(schedule.last_epoch + passed)
        if self._timeline and not sums.stopped:
            training.history.timeline = strategies.Timeline(self.session.timeline())
        self._last = sums
        return sums

    def logs(self, sums: EpochSums) -> dict[str, float]:
        """Loss, and accuracy for classification, of an epoch's rows as they were trained on."""
        logs = {"loss": sums.loss / sums.rows}
        if self._training.core_loss.classifies(self._source.width):
            logs["accuracy"] = sums.correct / sums.rows
        return logs

    def record(self, logs: dict[str, float], sums: EpochSums) -> None:
        """Adds an epoch to the history; collective."""
        updates = {"count": sums.updates, "per_second": sums.updates / max(sums.seconds, 1e-9)}
        if self._training.strategy.asynchronous:
            updates |= {"mean_staleness": sums.mean_staleness, "max_staleness": sums.max_staleness}
        self._training.history.add(logs, sums.phases, updates, _sent(sums.compression), self._ranks(sums))

    def _ranks(self, sums: EpochSums) -> list[dict[str, float]]:
        """What `History.ranks` keeps of an epoch; collective."""
        names = ("seconds", "steps", "bytes", "shared_bytes")
        mine = {name: float(getattr(sums, name)) for name in names} | sums.phases
        everyones = self.comm.all_gather(np.array(list(mine.values())), check=False)
        return [dict(zip(mine, values.tolist(), strict=True)) for values in everyones]

    @contextmanager
    def together(self) -> Iterator[None]:
        """An error on this rank meanwhile releases those that wait for it."""
        try:
            yield
        except (Exception, KeyboardInterrupt):
            self.session.leave()
            raise

    @contextmanager
    def common_model(self) -> Iterator[None]:
        """Meanwhile the model is what all ranks would agree on, where each trains a model of its own."""
        self.session.enter_evaluation()
        try:
            yield
        finally:
            self.session.leave_evaluation()

    def finish(self) -> None:
        """After the last epoch: all ranks hold the same model."""
        self.session.finish()
        late = self.session.take_compression()
        if self._last is not None and late.sums > 0:  # an average made just now
            self._training.history.compression[-1] = _sent(self._last.compression, late)


def _sent(*counted: CompressionStats) -> dict[str, float]:
    """What `History.compression` keeps of an epoch, from what the core has counted."""
    if not any(each.bytes_uncompressed for each in counted):
        return {}
    from pdnn.codec import CompressionStats as Stats

    return sum(map(Stats.of, counted), Stats()).to_dict()
