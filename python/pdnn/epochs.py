"""Epochs: a training's epochs of steps in the C++ core, over one source of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from math import ceil, inf, nan
from time import monotonic
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from pdnn import _core, strategies
from pdnn._core import EpochSums, OnNonfinite
from pdnn.comm import Communicator
from pdnn.core import core_for
from pdnn.data import PadCropFlip
from pdnn.data.block_source import BlockSource
from pdnn.data.source import Source
from pdnn.data.stream import reading_ahead
from pdnn.history import sent
from pdnn.nonfinite import tell_nonfinite
from pdnn.store import Array
from pdnn.strategies import Strategy
from pdnn.training import Position, Training

LOOK = 0.04
"""Seconds that epochs ahead take, about: in one that takes longer, the core looks for a Ctrl-C as often."""

_EpochMade: TypeAlias = tuple[EpochSums, list[float]]
_Made: TypeAlias = tuple[list[_EpochMade], BaseException | None]
_NOTHING = EpochSums()
_RULES = {"raise": OnNonfinite.stop, "skip": OnNonfinite.skip, "ignore": OnNonfinite.ignore}


class _Begun(NamedTuple):
    """Where an epoch began: its number, the steps and the schedule's time, and how many were recorded."""

    epoch: int
    step: int
    time: int
    recorded: int


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
    complete : bool
        Whether the epoch of the last `run` is over.
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
        self.complete = False
        self._last: EpochSums | None = None
        self._begun: _Begun | None = None  # of the last epoch of which steps were noted
        self._all_raise = False
        self._no_rates = np.zeros((0, len(training.optimizer.param_groups)))
        self._drawn: tuple[int, Array] | None = None
        self._begin(training.strategy)
        if timeline:
            self.session.record()

    def _begin(self, strategy: Strategy) -> None:
        training, source = self._training, self._source
        self.session = core_for(training.model.dtype).Session(
            model=training.model.core,
            loss=training.core_loss,
            optimizer=training.core_optimizer(),
            comm=training.comm.core,
            sample=list(source.sample),
            target_width=source.width,
            batch_size=self._rows,
            config=strategy.config(),
        )
        self.comm = Communicator(self.session.comm)

    def by(self, strategy: Strategy) -> Epochs:
        """The same by another strategy, in steps of as many rows; either may make the next ones."""
        other = copy(self)
        other._begin(strategy)
        return other

    def run(self, poll: Callable[[EpochSums], bool], most_steps: int = 0, seconds: float = inf) -> EpochSums:
        """Makes the steps of an epoch, or of what is left of it; `complete` then says whether it is over.

        Of rows that come in parts, it makes the steps of one part after another.

        Parameters
        ----------
        poll : callable
            Called at intervals; True stops all ranks.
        most_steps : int
            After so many all ranks pause; 0: never.
        seconds : float
            After them rank 0 asks all ranks to pause.

        Raises
        ------
        FloatingPointError
            On all ranks, if a loss or gradient is not finite and the training is to raise then.
        """
        training, began = self._training, monotonic()
        last = training.step + most_steps if most_steps else inf
        while True:
            left = max(0.0, seconds - (monotonic() - began))
            sums, end = self._run_part(poll, last, left)
            at = training.position
            if at is None or at.row != end or sums.stopped or training.step == last:
                return sums

    @property
    def ahead(self) -> bool:
        """Whether `run_ahead` can make the next epochs."""
        training, source = self._training, self._source
        return (
            self.comm.size == 1  # others would have to agree
            and training.position is None
            and (training.schedule is None or training.schedule_per == "epoch")
            and not (self._timeline or self._augment or training.optimizer.needs_closure)
            and not (source.dataset.blocks or isinstance(source, BlockSource))
        )

    def run_ahead(self, epochs: int, note: Callable[[EpochSums], object]) -> None:
        """Makes the steps of whole epochs, as `run` would, and then calls `note` with the sums of each.

        Nobody looks at the model between them. That spares most of what an epoch takes beside its steps, as
        long as a hundred steps of a small network.

        Raises
        ------
        FloatingPointError
            As `run`, after `note` with the epochs before that step.
        """
        training, schedule, rates = self._training, self._training.schedule, self._no_rates
        if schedule is not None:
            times = range(schedule.last_epoch, schedule.last_epoch + epochs)
            rates = schedule.table(times)
            epochs = len(rates) or 1  # until the optimizer refuses a rate, as it does one of this epoch
        orders = np.stack([self._order(training.epoch + epoch) for epoch in range(epochs)])
        made, end = self._make(orders, rates, np.ones(epochs), squares=False)
        for sums, _ in made:
            number = training.epoch
            while training.epoch == number:  # once more after a Ctrl-C: the model has these steps
                try:
                    self._advance(0, _NOTHING, sums)
                    note(sums)
                except KeyboardInterrupt as interrupt:
                    end = interrupt
                    self._begin_again()
        if end is not None:
            raise end

    def run_several(self, orders: Array, rates: Array, scales: Array) -> Iterator[_EpochMade]:
        """Makes the steps of whole epochs, as `run_ahead`, with orders and rates of one's own.

        Parameters
        ----------
        orders : ndarray, shape (epochs, rows of the source), int64
            The rows of each as they are taken.
        rates : ndarray, shape (epochs, groups)
            Learning rates; of no epochs, if they are the groups'.
        scales : ndarray, shape (epochs,)
            What the optimizer's state is multiplied by before each.

        Returns
        -------
        iterator of (EpochSums, list of float)
            Of each the sums, and Σ w² over each group's parameters after it. Behind the last it raises what
            ended the call, such as a KeyboardInterrupt, or FloatingPointError, as `run`.
        """
        return self._each(*self._make(orders, rates, scales, squares=True))

    def _make(self, orders: Array, rates: Array, scales: Array, squares: bool) -> _Made:
        """The epochs made, as `run_several` takes them, and what ended the call before the last one."""
        made = list[_EpochMade]()
        try:
            self._run_epochs(orders, rates, scales, squares, made)
        except BaseException as end:
            return made, end
        return made, None

    def _run_epochs(
        self, orders: Array, rates: Array, scales: Array, squares: bool, made: list[_EpochMade]
    ) -> None:
        training = self._training
        training.optimizer.sync_groups()
        seed, rule = training.seed % 2**64, _RULES[training.on_nonfinite]
        self.session.run_epochs(
            self._source.core, orders, self._rows, seed, training.step, rates, scales, rule, squares, made
        )

    def _each(self, made: list[_EpochMade], end: BaseException | None) -> Iterator[_EpochMade]:
        for sums, squares in made:
            self._advance(0, _NOTHING, sums)
            yield sums, squares
        if end is not None:
            raise end

    def _run_part(
        self, poll: Callable[[EpochSums], bool], last: float, seconds: float
    ) -> tuple[EpochSums, int]:
        """Makes the steps for which rows are in memory, up to a last; also returns where these rows end."""
        training, source, seed = self._training, self._source, self._training.seed % 2**64
        if self._augment is not None:
            self._augment.tell(source.core, training.seed, training.epoch)
        began = training.position
        row, before = (0, _NOTHING) if began is None else (began.row, began.sums)
        training.optimizer.sync_groups()
        waiting = monotonic()
        core, order, end = self._part(row)
        if isinstance(source, BlockSource):
            before = EpochSums(before.numbers | {"seconds": before.seconds + monotonic() - waiting})
        steps = int(min(ceil((end - row) / self._rows), last - training.step))
        rates = self._no_rates  # as the groups say
        schedule = training.schedule
        if schedule is not None and training.schedule_per == "step":
            rates = schedule.table(range(schedule.last_epoch, schedule.last_epoch + steps))
            if len(rates) < steps:
                schedule.check(schedule.last_epoch + len(rates))
        with reading_ahead(source.dataset, order, row) as taken:

            def look(sums: EpochSums) -> bool:
                taken(row + (sums.steps - before.steps) * self._rows)
                return poll(sums)

            sums = self.session.run_epoch(
                core,
                order,
                self._rows,
                seed,
                training.step,
                rates,
                _RULES[training.on_nonfinite],
                look,
                first_row=row,
                before=before,
                most_steps=steps,
                pause_after=seconds,
            )
        self._advance(row, before, sums)
        self._last = sums
        return sums, end

    def _part(self, row: int) -> tuple[Any, Array, int]:
        """What has the row at a place of the epoch, the epoch's order, and the place behind those it has."""
        training, source = self._training, self._source
        if isinstance(source, BlockSource):
            return source.part(training.epoch, training.seed % 2**64, row, self._rows, self._shuffle)
        return source.core, self._order(training.epoch), len(source)

    def _order(self, epoch: int) -> Array:
        """The rows of the source in the order of an epoch."""
        source = self._source
        if not self._shuffle:
            return source.rows
        if self._drawn is None or self._drawn[0] != epoch:
            self._drawn = None  # a stream has many rows
            drawn = source.dataset.epoch_order(len(source), self._training.seed, epoch)
            self._drawn = epoch, source.rows[drawn]
        return self._drawn[1]

    def _advance(self, row: int, before: EpochSums, sums: EpochSums) -> None:
        """Notes how far the training has come; ranks of their own that stop have no common place.

        Raises FloatingPointError if a step was not finite.
        """
        training, schedule = self._training, self._training.schedule
        if self._begun is None or self._begun.epoch != training.epoch:
            time = schedule.last_epoch if schedule is not None else 0
            time -= before.steps if training.schedule_per == "step" else 0
            self._begun = _Begun(training.epoch, training.step - before.steps, time, training.history.epochs)
        steps, rows = sums.steps - before.steps, len(self._source)
        row = min(row + steps * self._rows, rows)
        scattered = sums.stopped and training.strategy.models_apart
        complete = row == rows and not scattered
        if schedule is not None and (complete or training.schedule_per == "step"):  # first, as it may raise
            schedule.step_to(schedule.last_epoch + (steps if training.schedule_per == "step" else 1))
        training.step += steps
        self.complete = complete
        if self._timeline and complete:
            training.history.timeline = strategies.Timeline(self.session.timeline())
        training.position = None
        if not self.complete and not scattered:
            training.position = Position(row, rows, self._source.shuffled(self._shuffle), sums)
        if sums.nonfinite is not None:
            training.position, self._begun, self._all_raise = None, None, True
            training.take_root_updates()
            raise FloatingPointError(tell_nonfinite(training, self._source, self.comm.size, *sums.nonfinite))

    def _begin_again(self) -> None:
        """An error, at whatever moment, ended an epoch that does not count yet: it begins again."""
        training, begun = self._training, self._begun
        if begun is not None and begun.epoch == training.epoch:
            training.step = begun.step
            if training.schedule is not None:
                training.schedule.step_to(begun.time)
            training.history.cut(begun.recorded)
        elif training.position is not None:  # that of a checkpoint, from which no step was made
            training.step -= training.position.sums.steps
            if training.schedule is not None and training.schedule_per == "step":
                training.schedule.step_to(training.schedule.last_epoch - training.position.sums.steps)
        training.position = None

    def logs(self, sums: EpochSums) -> dict[str, float]:
        """Loss, and accuracy for classification, of an epoch's rows as they were trained on.

        Means in which each row counts its weight; 0 if all are 0.
        """
        weight = sums.weight or (1 if sums.rows else nan)  # nan: all were skipped
        logs = {"loss": sums.loss / weight}
        if self._training.core_loss.classifies(self._source.width):
            logs["accuracy"] = sums.correct / weight
        return logs

    def record(self, logs: dict[str, float], sums: EpochSums) -> None:
        """Adds an epoch to the history; collective."""
        updates = {"count": sums.updates, "per_second": sums.updates / max(sums.seconds, 1e-9)}
        if self._training.strategy.asynchronous:
            updates |= {"mean_staleness": sums.mean_staleness, "max_staleness": sums.max_staleness}
        if self._training.on_nonfinite == "skip":
            updates["skipped"] = sums.skipped
        phases = sums.phases
        counts = {"steps": sums.steps, "bytes": sums.bytes, "shared_bytes": sums.shared_bytes}
        ranks = self._ranks({"seconds": sums.seconds, **counts, **phases})
        self._training.history.add(logs, phases, updates, sent(sums.compression), ranks)

    def _ranks(self, mine: dict[str, float]) -> list[dict[str, float]]:
        """What `History.ranks` keeps of an epoch, from what this rank measured; collective."""
        if self.comm.size == 1:
            return [mine]
        everyones = self.comm.all_gather(np.array(list(mine.values())), check=False)
        return [dict(zip(mine, values.tolist(), strict=True)) for values in everyones]

    @contextmanager
    def together(self) -> Iterator[None]:
        """An error on this rank meanwhile releases those that wait for it, unless all have it."""
        try:
            yield
        except _core.RankFailed:
            raise  # which all ranks hear
        except (Exception, KeyboardInterrupt, SystemExit):
            if not self._all_raise:
                self.session.leave()
            self._begin_again()
            raise
        finally:
            if isinstance(self._source, BlockSource):
                self._source.close()

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
        self._training.take_root_updates()
        late = self.session.take_compression()
        if self._last is not None and late.sums > 0:  # an average made just now
            self._training.history.compression[-1] = sent(self._last.compression, late)
