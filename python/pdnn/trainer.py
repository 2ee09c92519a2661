"""Trainer: epochs of steps in the C++ core, and around them validation, progress, history and checkpoints."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy.typing as npt

from pdnn import checkpoint as checkpoints
from pdnn import strategies
from pdnn.comm import Communicator
from pdnn.comm.ending import stop_on_sigterm
from pdnn.data import Dataset, PadCropFlip, Subset
from pdnn.data.source import (
    Data,
    Source,
    classes_of,
    data_of,
    epochs_may_come_second,
    source_of,
)
from pdnn.epochs import Epochs
from pdnn.evaluation import Evaluation
from pdnn.history import History
from pdnn.progress import Progress
from pdnn.store import Array

if TYPE_CHECKING:
    from pdnn._core import EpochSums
    from pdnn.estimate import Estimate, Steps
    from pdnn.estimate.trainer import Calibration


class Callback(Protocol):
    """What `fit` calls between epochs; `pdnn.callbacks.Callback` has empty ones."""

    def on_train_begin(self, trainer: Trainer, /) -> None:
        """Before the first epoch."""

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: dict[str, float], /) -> None:
        """After each epoch, counted from 0."""

    def on_train_end(self, trainer: Trainer, /) -> None:
        """After the last epoch."""


class Trainer(Evaluation):
    """Trains and evaluates a model.

    Parameters
    ----------
    model : nn.Sequential
    loss : Loss
    optimizer : Optimizer
        Of the model's parameters.
    strategy : str or a strategy of `pdnn.strategies`
        ``"auto"``: in one process a team of threads on all cores; on several ranks data parallel with a
        team on each rank's cores. ``"fastest"``: chosen when `fit` first begins, of the strategies that
        equal serial training to rounding, by the least estimated time; close ones are measured. Others: see
        `pdnn.strategies`.
    seed : int
        Orders of rows and dropout masks are functions of it.
    comm : Communicator, optional
        The ranks that train together; `pdnn.world()` unless given.
    schedule : LRScheduler, optional
        Of the optimizer's learning rates; see `pdnn.optim.lr_scheduler`.
    schedule_per : "epoch" or "step"
        When the schedule advances: after every epoch, or after every update.
    clip_norm, clip_value : float, optional
        At most one: before the update, the gradient of every global batch is shortened to this norm, or its
        elements are bounded to this size, as `nn.utils.clip_grad_norm_` and `clip_grad_value_` do.

    Attributes
    ----------
    history : History
        Of all fits.
    epoch, step : int
        Epochs finished and steps made so far.
    classes_ : ndarray of str, or None
        The names of the classes in the order of the model's outputs, where labels came as names.
    stop_training : bool
        A callback sets it to end training after the epoch.
    choice : estimate.Choice or None
        What ``"fastest"`` chose, and why; None before the first `fit` and for other strategies.

    Raises
    ------
    TypeError
        If the model is no nn.Sequential, or another argument is of the wrong kind.
    ValueError
        If the strategy does not fit the number of ranks, the optimizer's parameters are not the model's, or
        the schedule is another optimizer's.
    """

    _calibration: Calibration | None = None

    # ---- training

    @epochs_may_come_second
    def fit(
        self,
        train: Data | npt.ArrayLike,
        y: npt.ArrayLike | None = None,
        epochs: int = 1,
        batch_size: int = 32,
        *,
        validation: Data | None = None,
        shuffle: bool = True,
        augment: PadCropFlip | None = None,
        callbacks: Iterable[Callback] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        every: int = 1,
        resume: bool = False,
        timeline: bool = False,
        verbose: bool = True,
    ) -> History:
        """Trains; a second call continues where the first ended.

        ``fit(x, y, 3)`` is ``fit((x, y), 3)``, and both are ``fit(Dataset(x, y), 3)``.

        Parameters
        ----------
        train : Dataset, Subset, (x, y), or x
            The same on every rank; each rank reads its share. A line is printed if it had to be converted.
        y : array or list, optional
            The labels, where `train` is x. Names of classes are kept in `classes_`.
        epochs : int
            Epochs to train; with ``resume=True`` the total, including those before.
        batch_size : int
            Rows of one update, over all threads and ranks; where each rank trains its own model, and under
            "hogwild", an update is one worker's. The last batch of an epoch may be smaller.
        validation : Dataset, Subset or (x, y), optional
            Evaluated after each epoch, its rows shared between ranks.
        shuffle : bool
            A new order each epoch, a function of (seed, epoch); otherwise the rows' own order.
        augment : PadCropFlip, optional
            Changes each training image at random, as a function of (seed, epoch, its number in the data
            set).
        callbacks : iterable of Callback
        checkpoint : path, optional
            Directory of the checkpoint, written every ``every`` epochs and at the end.
        resume : bool
            Continue from the checkpoint if there is one, with the bits of an uninterrupted training.
        timeline : bool
            Record one step per epoch of each rank of a pipeline in `history.timeline`. The ranks then begin
            every step together.
        verbose : bool
            Progress on rank 0: a bar on a terminal, one line per epoch elsewhere.

        Returns
        -------
        History

        Raises
        ------
        ValueError, TypeError
            If the arguments do not fit each other or the model.
        CommunicationError
            If a rank was started with another model, data or settings, does not answer, or left `fit` with
            an error or Ctrl-C. Ranks that catch this may all call `fit` again.
        KeyboardInterrupt
            On Ctrl-C, between two updates; `history` keeps the epochs finished.
        """
        self._check_fit(epochs, batch_size, every, checkpoint, resume, timeline)
        data = data_of("train", train, y)
        classes = classes_of(data) if self.classes_ is None else self.classes_
        source, held_out = self._sources(data, validation, classes, augment)
        batch_size = min(batch_size, len(source))
        settings = {
            "batch size": batch_size,
            "training rows": len(source),
            "epochs": epochs,
            "augmentation": repr(augment),
            "classes": None if classes is None else classes.tolist(),
        }
        shown = verbose and self.comm.rank == 0
        if self.wants_fastest and self.choice is None:
            self._agree(settings)
            self._choose_fastest(source, batch_size, checkpoint if resume else None, shown)
        self.strategy.check_rows(len(source), batch_size, augment is not None)
        self.classes_, self._plain = classes, source.plain
        if shown:
            self._tell_converted(train=source, validation=held_out)
        first, apart = self.epoch, None
        if checkpoint is not None and resume:
            first, apart = 0, checkpoints.resume(self, checkpoint, batch_size)
        self._agree(settings)
        if apart is None and self.strategy.same_init:
            self._share_model()
        run = Epochs(self, source, batch_size, shuffle=shuffle, augment=augment, timeline=timeline)
        if checkpoint is not None and apart is not None:
            checkpoints.resume_session(self, checkpoint, run.session, apart)
        progress = Progress(shown, first, epochs, run.steps)
        watchers = list(callbacks)
        self.stop_training = False
        for watcher in watchers:
            watcher.on_train_begin(self)
        with stop_on_sigterm(self.comm) as terminated, closing(progress), run.together():

            def poll(sums: EpochSums) -> bool:
                progress.at_step(sums.steps, sums.loss / max(sums.rows, 1))
                return terminated.is_set()

            while self.epoch < first + epochs and not self.stop_training:
                progress.start_epoch(self.epoch)
                sums = run.run(poll)
                if sums.stopped:
                    raise SystemExit(128 + signal.SIGTERM)
                with run.common_model():
                    logs = run.logs(sums) | self._validate(held_out, run.comm) | {"seconds": sums.seconds}
                    self.epoch += 1
                    run.record(logs, sums)
                    progress.end_epoch(self.epoch - 1, logs)
                    for watcher in watchers:
                        watcher.on_epoch_end(self, self.epoch - 1, logs)
                ending = self._agree_to_stop(terminated.is_set(), run.comm)
                last = self.epoch == first + epochs or self.stop_training or ending
                if checkpoint is not None and (last or self.epoch % every == 0):
                    checkpoints.write(self, checkpoint, batch_size, run.session, run.comm)
                if ending:
                    raise SystemExit(128 + signal.SIGTERM)
            run.finish()
        self.history.fingerprint = self.model.fingerprint()
        for watcher in watchers:
            watcher.on_train_end(self)
        return self.history

    def _sources(
        self,
        data: Dataset | Subset,
        validation: Data | None,
        classes: Array | None,
        augment: PadCropFlip | None,
    ) -> tuple[Source, Source | None]:
        """What to train on and what to validate with."""
        source = self._source("train", data, classes)
        if len(source) == 0:
            raise ValueError("fit: the training data have no rows")
        if augment is not None:
            augment.tell(source.core, self.seed, self.epoch)  # refuses samples that are no images
        held_out = None if validation is None else self._source("validation", validation, classes)
        if held_out is not None and len(held_out) == 0:
            raise ValueError("fit: the validation data have no rows; pass validation=None for none")
        return source, held_out

    def _validate(self, held_out: Source | None, comm: Communicator) -> dict[str, float]:
        if held_out is None:
            return {}
        values = self.evaluate_source(held_out, comm)
        return {f"val_{name}": value for name, value in values.items()}

    def estimate(
        self, train: Data, batch_size: int = 32, strategy: str | strategies.Strategy | None = None
    ) -> Estimate:
        """Estimates the time, messages and memory of a step of `fit`; collective.

        Measures this machine and parts of the step, on copies of the model, for about a second.
        Measurements are reused, so estimating several strategies is cheap.

        Parameters
        ----------
        train : Dataset, Subset or (x, y)
            What `fit` will get.
        batch_size : int
        strategy : str or a strategy of `pdnn.strategies`, optional
            Another one than the trainer's (which before the first `fit` under "fastest" is that of "auto").

        Returns
        -------
        Estimate
            Its string explains it; `Estimate.beside` compares it with the measured time.

        Raises
        ------
        ValueError
            If the strategy does not fit the ranks or the model, or the model has layers that ranks share.
        """
        chosen = self.strategy if strategy is None else strategies.choose(strategy, self.comm)
        data = data_of("estimate", train)
        steps = self.calibrate(data, batch_size)
        a_step = chosen.rows_per_step(steps.rows, self.comm.size)
        return replace(steps.estimate(chosen), steps=len(data) / a_step)

    def calibrate(self, train: Data, batch_size: int = 32) -> Steps:
        """This machine's numbers and a compute model of its steps, as `estimate` uses them; collective.

        Measures once for each batch size and shape of samples, and later returns the same.

        Raises
        ------
        ValueError
            If there are no rows, or the model has layers that ranks share.
        CommunicationError
            If a rank came with another model, data or settings.
        """
        data = data_of("estimate", train)
        source = self._source("estimate", data, classes_of(data) if self.classes_ is None else self.classes_)
        if len(source) == 0 or batch_size < 1:
            raise ValueError(
                f"estimate: {len(source)} rows in batches of {batch_size}; expected at least 1 of both"
            )
        batch_size, calibration = min(batch_size, len(source)), self._calibrations()
        if not calibration.knows(source, batch_size):
            self._agree({"batch size": batch_size, "training rows": len(source)}, "estimate")
        return calibration.steps(source, batch_size)

    def _calibrations(self) -> Calibration:
        from pdnn.estimate.trainer import Calibration  # few programs ask

        if self._calibration is None:
            self._calibration = Calibration(self.model, self.loss, self.optimizer, self.comm)
        return self._calibration

    def _choose_fastest(
        self, source: Source, batch_size: int, resumed: str | os.PathLike[str] | None, shown: bool
    ) -> None:
        """Takes the fastest strategy; a resumed training keeps its strategy."""
        had = None if resumed is None else checkpoints.strategy_of(resumed)
        self.choice = self._calibrations().fastest(source, batch_size, had)
        self.strategy = self.choice.strategy
        self.forget_evaluator()
        if shown:
            print(self.choice.why, flush=True)

    # ---- data and files

    def _source(self, where: str, data: Data, classes: Array | None) -> Source:
        return source_of(where, data_of(where, data), self.model, self.loss, classes)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes parameters, optimizer, epoch, step, seed and history to one file, all or nothing."""
        checkpoints.save(self, path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads what `save` wrote into this trainer.

        Raises
        ------
        ValueError
            If the file is damaged, or belongs to another model or optimizer; nothing is changed then.
        """
        checkpoints.load(self, path)
