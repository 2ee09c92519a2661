"""Trainer: epochs of steps in the C++ core, and around them validation, progress, history and checkpoints."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import NoReturn, Protocol

import numpy.typing as npt

from pdnn.advice import TRAINER, Advising
from pdnn.comm.threads import CURRENT
from pdnn.data import BlockStream, PadCropFlip
from pdnn.data.source import Data, data_of, epochs_may_come_second
from pdnn.estimation import Estimation
from pdnn.history import History
from pdnn.settings import Settings


class Callback(Protocol):
    """What `fit` calls between epochs; `pdnn.callbacks.Callback` has empty ones."""

    def on_train_begin(self, trainer: Trainer, /) -> None:
        """Before the first epoch."""

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: dict[str, float], /) -> None:
        """After each epoch, counted from 0."""

    def on_train_end(self, trainer: Trainer, /) -> None:
        """After the last epoch."""


FIXED = ("model", "loss", "optimizer", "strategy", "schedule_per", "on_nonfinite", "metrics")
"""Arguments of a Trainer that it has checked, and made its own things of."""

HOOKS = ("on_train_begin", "on_epoch_end", "on_train_end")
"""What a callback has."""


class Trainer(Advising, Estimation):
    """Trains and evaluates a model.

    The model, loss, optimizer, strategy and metrics stay as they were given: to assign another is an
    AttributeError. `clip_norm`, `clip_value` and `schedule` may change between two calls of `fit`.

    Parameters
    ----------
    model : nn.Sequential
    loss : Loss
    optimizer : Optimizer
        Of the model's parameters.
    strategy : str or a strategy of `pdnn.strategies`
        ``"auto"``: as many threads as pay, in one process or, data parallel, on each of several ranks. When
        `fit` meets a new batch size or shape of samples it makes a few steps on a copy of the model, and
        prints what it chose and why; ranks are told where their exchange costs more than it brings.
        ``"fastest"``: chosen when `fit` first begins, of the strategies that equal serial training to
        rounding, by the least estimated time; close ones are measured. Others: see `pdnn.strategies`.
    seed : int
        Orders of rows and dropout masks are functions of it.
    comm : Communicator, optional
        The ranks that train together; `pdnn.world()` unless given.
    schedule : LRScheduler, optional
        Of the optimizer's learning rates; see `pdnn.optim`.
    schedule_per : "epoch" or "step"
        When the schedule advances: after every epoch, or after every update.
    clip_norm, clip_value : float, optional
        At most one: before the update, the gradient of every global batch is shortened to this norm, or its
        elements are bounded to this size, as `nn.utils.clip_grad_norm_` and `clip_grad_value_` do.
    reproducible : bool
        Sums over a batch have the same bits on any number of threads and ranks (the strategy gets 8 leaves).
        BatchNorm then needs ``sync=True``.
    on_nonfinite : "raise", "skip" or "ignore"
        What becomes of a step with a NaN or an infinity in its loss or gradient. "raise": it is undone, with
        all that it changed, and `fit` ends with a FloatingPointError on all ranks. "skip": its update is left
        out and counted in `history.updates`, the loss of its rows too. "ignore": its update is made. See
        "NaN and infinity" in docs/optimizers.md.
    metrics : list of str, callable or dict of str to callable, or such a dict
        What else `evaluate` returns, and validation measures after each epoch (``val_r2``, …): "accuracy",
        "mae", "mse", "r2", "rmse", "top5" (or another number), and functions of (y, prediction) that return
        a number. See "Metrics" in docs/data.md.

    Attributes
    ----------
    history : History
        Of all fits.
    epoch, step : int
        Epochs finished and steps made so far.
    position : training.Position or None
        Where it is in an epoch that has begun, after a SIGTERM or `load`; the next `fit` finishes the epoch.
    classes_ : ndarray of str, or None
        The names of the classes in the order of the model's outputs, where labels came as names.
    stop_training : bool
        A callback sets it to end training after the epoch.
    validates : bool
        Whether `fit` was given data for validation.
    choice : estimate.AutoChoice, estimate.Choice or None
        What ``"auto"`` or ``"fastest"`` chose, and why; None before the first `fit` and for other strategies.

    Raises
    ------
    TypeError
        If the model is no nn.Sequential, or another argument is of the wrong kind.
    ValueError
        If the strategy does not fit the number of ranks, the optimizer's parameters are not the model's, or
        the schedule is another optimizer's.
    """

    advice = TRAINER
    comparing: set[str]  # names in `best` that callbacks of this fit have

    def __setattr__(self, name: str, value: object) -> None:
        if name in FIXED and name in vars(self):
            raise AttributeError(f"Trainer: {name} is fixed; make a new Trainer of this model and optimizer")
        super().__setattr__(name, value)

    @epochs_may_come_second
    def fit(
        self,
        train: Data | BlockStream | npt.ArrayLike,
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
        every_steps: int | None = None,
        every_seconds: float | None = None,
        keep: int = 1,
        resume: bool = False,
        timeline: bool = False,
        elastic: int | None = None,
        verbose: bool = True,
    ) -> History:
        """Trains; a second call continues where the first ended.

        ``fit(x, y, 3)`` is ``fit((x, y), 3)``, and both are ``fit(Dataset(x, y), 3)``.

        Parameters
        ----------
        train : Dataset, Subset, BlockStream, (x, y), or x
            The same on every rank; each rank reads its share. A line is printed if it had to be converted.
        y : array or list, optional
            The labels, where `train` is x. Names of classes are kept in `classes_`.
        epochs : int
            Epochs to train; with ``resume=True`` the total, including those before.
        batch_size : int
            Rows of one update, over all threads and ranks; where each rank trains its own model, and under
            "hogwild", an update is one worker's. The last batch of an epoch may be smaller.
        validation : Dataset, Subset or (x, y), optional
            Evaluated after each epoch; the same on every rank, which share its rows.
        shuffle : bool
            A new order each epoch, a function of (seed, epoch); otherwise the rows' own order.
        augment : PadCropFlip, optional
            Changes each training image at random, as a function of (seed, epoch, its number in the data
            set).
        callbacks : iterable of Callback
            The same on every rank.
        checkpoint : path, optional
            Directory of the checkpoint, written every ``every`` epochs and at the end; also when a SIGTERM
            stops the training. Given on every rank; rank 0 writes it. Trainings of every strategy, on any
            number of ranks, can resume it: see docs/checkpoints.md. One that another training wrote is not
            replaced.
        every : int
            Epochs from one checkpoint to the next.
        every_steps, every_seconds : int, float, optional
            Write checkpoints within epochs, too: after steps (`step`) that are a multiple of ``every_steps``,
            or when so many seconds have passed since the last one. Training goes on while they are written,
            and its results do not depend on them.
        keep : int
            So many of the last checkpoints stay in the directory.
        resume : bool
            Continue from the newest checkpoint if there is one: with the strategy and the ranks that wrote
            it, with the bits of an uninterrupted training.
        timeline : bool
            Record one step per epoch of each rank of a pipeline in `history.timeline`. The ranks then begin
            every step together.
        elastic : int, optional
            Steps from one copy in memory to the next, to which the ranks go back when one of them dies: the
            others then go on, and ranks in waiting (``comm.spares``) take the places of the dead; see
            docs/elastic.md. Unless given, 100 where an MPI survives the death of a rank (``pdnn launch
            --elastic``); 0: a death is an error.
        verbose : bool
            Progress on rank 0: a bar on a terminal, one line per epoch elsewhere.

        Returns
        -------
        History

        Raises
        ------
        ValueError, TypeError
            If the arguments do not fit each other or the model, the model is within a fit, or callbacks
            have left ranks with different models.
        CommunicationError
            If a rank was started with another model, data or settings, does not answer, or left `fit` with
            an error, Ctrl-C or `sys.exit`. Ranks that catch this may all call `fit` again.
        FileExistsError
            If another training's checkpoint is in the directory, and `resume` is False.
        FloatingPointError
            At a NaN or an infinity in a loss or gradient, unless `on_nonfinite` says otherwise: on all ranks,
            with the epoch, the step and where it was seen first. The model and the optimizer are as they were
            before this step.
        KeyboardInterrupt
            On Ctrl-C, between two updates; `history` keeps the epochs finished.
        """
        settings = Settings(
            epochs=epochs,
            batch_size=batch_size,
            shuffle=shuffle,
            augment=augment,
            checkpoint=checkpoint,
            every=every,
            every_steps=every_steps,
            every_seconds=every_seconds,
            keep=keep,
            resume=resume,
            timeline=timeline,
            elastic=elastic,
            verbose=verbose,
        )
        from pdnn.fitting import begin  # here, because `import pdnn` is to be quick

        data = train if isinstance(train, BlockStream) else data_of("train", train, y)
        watchers = _watchers(callbacks)
        ranks = CURRENT.get() if self._joins_world else None
        if ranks not in (None, self.comm) and ranks.size > 1:
            raise ValueError(
                "fit: this trainer was made outside the ranks that call it, and knows no other rank; make "
                "model, optimizer and trainer in the function that each rank calls"
            )

        def watch(epoch: int, logs: dict[str, float]) -> None:
            for watcher in watchers:
                watcher.on_epoch_end(self, epoch, logs)

        def fit() -> None:
            with self._names_kept():
                fitting = begin(self, data, validation, settings)
                self.comparing = set()
                with fitting.releasing():
                    for watcher in watchers:
                        watcher.on_train_begin(self)
                fitting.run(watch if watchers else None)
                with fitting.releasing():
                    for watcher in watchers:
                        watcher.on_train_end(self)
                    self.history.fingerprint = self.model.fingerprint()
                    fitting.compare_models(self.history.fingerprint)

        self._fit_alone(fit)
        return self.history

    @contextmanager
    def _names_kept(self) -> Iterator[None]:
        """Forgets the names of classes and the scale of a fit that ends before it has begun to train."""
        classes, scale, self.trains = self.model.classes, self._scale, False
        try:
            yield
        except BaseException:
            if not self.trains:
                self.take_labels(classes, scale)
            raise

    def _fit_alone(self, work: Callable[[], None]) -> None:
        """Raises ValueError within a fit of this model, which would undo the steps of another one."""
        fits, fit = self.model.place().store.fits, object()
        try:  # no context manager: a Ctrl-C between entering one and its block would be no end of it
            if not fits.acquire(fit):
                raise ValueError(
                    "fit: the model is within a fit, of this trainer or another one, in a callback or "
                    "another thread; call fit after it, or train a copy.deepcopy of the model"
                )
            work()
        finally:
            try:
                fits.release(fit)
            except BaseException:  # Ctrl-C, which is over then
                fits.release(fit)
                raise

    def __repr__(self) -> str:
        names = f"{type(self.loss).__name__}, {type(self.optimizer).__name__}"
        return f"Trainer({names}, strategy {self.strategy}, {self.epoch} epochs)"

    def __getstate__(self) -> NoReturn:
        raise TypeError(
            f"{type(self).__name__}: a trainer is neither copied nor pickled, because its ranks are those of "
            "this process; write it to a file with trainer.save, which trainer.load of another one reads, or "
            "copy what it trains, copy.deepcopy((trainer.model, trainer.optimizer))"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes parameters, optimizer, epoch, step, seed and history to one file, all or nothing.

        Raises
        ------
        ValueError
            If another thread is within a fit of the model.
        """
        from pdnn.checkpoint import save

        self.model.place().store.fits.check("save")
        save(self, path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads what `save` wrote, or a checkpoint of `fit`, into this trainer; the same on every rank.

        ``fit(resume=True)`` reads also what belongs to single ranks; see docs/checkpoints.md.

        Raises
        ------
        ValueError
            If the file is damaged, or belongs to another model or optimizer, or another thread is within a
            fit of the model; nothing is changed then.
        """
        from pdnn.checkpoint import load

        self.model.place().store.fits.check("load")
        load(self, path)


Trainer.__init__.__qualname__ = "Trainer.__init__"  # and not the base's, in messages of Python
Trainer.__init__.__module__ = __name__  # where pickle finds it by that name


def _watchers(callbacks: object) -> list[Callback]:
    """Those of a list.

    Raises
    ------
    TypeError
        If it is no list, or one of it has not what `fit` calls.
    """
    if not isinstance(callbacks, Iterable):
        raise TypeError(f"callbacks is of type {type(callbacks).__name__}, expected a list of callbacks")
    watchers = list(callbacks)
    for watcher in watchers:
        if isinstance(watcher, type):
            raise TypeError(f"callbacks: {watcher.__name__} is a class; pass an object of it")
        if not all(callable(getattr(watcher, name, None)) for name in HOOKS):
            raise TypeError(
                f"callbacks: got {type(watcher).__name__}, expected an object with {', '.join(HOOKS)}, such "
                "as a pdnn.callbacks.Callback"
            )
    return watchers
