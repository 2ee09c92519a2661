"""Callbacks that compare a value of each epoch with the best so far."""

from __future__ import annotations

import json
import os
from itertools import chain, count
from math import isnan
from pathlib import Path
from typing import Any

from pdnn.callbacks.base import Callback
from pdnn.checks import flag, integer, number
from pdnn.files import safetensors
from pdnn.metrics import rises
from pdnn.store import Array
from pdnn.trainer import Trainer
from pdnn.training import Best


class _Watching(Callback):
    """What callbacks share that compare a value of each epoch with the best so far."""

    def __init__(self, monitor: str, mode: str, min_delta: float) -> None:
        if not isinstance(monitor, str):
            raise TypeError(
                f"{type(self).__name__}: monitor is {monitor!r}, expected the name of a value, such as "
                '"val_loss"; pass other numbers by name'
            )
        if mode not in ("auto", "min", "max"):
            raise ValueError(f'{type(self).__name__}: mode "{mode}"; expected "auto", "min" or "max"')
        self.monitor = monitor
        self.mode = mode
        self.min_delta = number(self, "min_delta", min_delta)
        self.best: float | None = None
        self.best_epoch = -1
        self._until = 0  # epochs that were compared, those of an earlier fit too

    def on_train_begin(self, trainer: Trainer) -> None:
        """Forgets what an earlier fit saw.

        Raises
        ------
        ValueError
            If the value is one of validation, and `fit` was given no data for it.
        """
        if self.monitor.startswith("val_") and not trainer.validates:
            raise ValueError(f'{type(self).__name__}: no "{self.monitor}" without validation=')
        self._recall(trainer, trainer.epoch)

    def on_train_end(self, trainer: Trainer) -> None:
        """Knows what was compared, also on a rank that has waited."""
        self._catch_up(trainer, trainer.epoch)

    def _recall(self, trainer: Trainer, until: int) -> None:
        """Knows what the trainer does of the epochs before one, and nothing of later ones."""
        self.best, self.best_epoch, self._until = None, -1, until

    def _catch_up(self, trainer: Trainer, epoch: int) -> None:
        """Before an epoch is compared that does not follow the last one: ranks went on after another's death.

        Then this one had waited, or has gone back.
        """
        if epoch != self._until:
            self._recall(trainer, epoch)

    def _improves(self, epoch: int, logs: dict[str, float]) -> bool:
        """Whether the epoch is the best one so far, as is noted then."""
        if self.monitor not in logs:
            raise ValueError(f'{type(self).__name__}: no "{self.monitor}" in {sorted(logs)}')
        value = logs[self.monitor]
        sign = 1 if self.mode == "max" or (self.mode == "auto" and rises(self.monitor)) else -1
        if self.best is None or isnan(self.best):
            better = self.best is None or not isnan(value)
        else:
            better = sign * (value - self.best) > self.min_delta
        self._until = epoch + 1
        if better:
            self.best, self.best_epoch = value, epoch
        return better


class EarlyStopping(_Watching):
    """Ends training when a value has not improved for some epochs.

    Parameters
    ----------
    monitor : str
        A name of `History.history`.
    patience : int
        Epochs without improvement after which to stop.
    min_delta : float
        What counts as an improvement.
    restore_best : bool
        Whether to put the best epoch's parameters and buffers back when training ends.
    mode : "auto", "min" or "max"
        Whether the value should fall or rise. "auto": accuracies, top-k and R² should rise, others fall.

    Attributes
    ----------
    best : float or None
        The best value of this fit, and of the one that it goes on with: resumed, loaded, or interrupted.
    best_epoch : int
        When it was seen, counted from 0.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        patience: int = 3,
        min_delta: float = 0.0,
        restore_best: bool = True,
        mode: str = "auto",
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.patience = integer(self, "patience", patience, 1)
        self.restore_best = flag(self, "restore_best", restore_best)
        self._kept: tuple[Array, Array] | None = None
        self._name = monitor  # of what the trainer keeps for it

    def on_train_begin(self, trainer: Trainer) -> None:
        """Forgets what an earlier fit saw, unless that did not end and this one goes on with it.

        Raises
        ------
        ValueError
            If the value is one of validation, and `fit` was given no data for it.
        """
        others = (f"{self.monitor} {number}" for number in count(2))
        self._name = next(name for name in chain([self.monitor], others) if name not in trainer.comparing)
        trainer.comparing.add(self._name)
        super().on_train_begin(trainer)
        if self.best is not None:
            self._stop_if_over(trainer, trainer.epoch - 1)

    def _recall(self, trainer: Trainer, until: int) -> None:
        super()._recall(trainer, until)
        self._kept = None
        had = trainer.best.get(self._name)
        if had is not None and had.until == until:
            self.best, self.best_epoch, self._kept = had.value, had.epoch, had.model

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: dict[str, float]) -> None:
        """Compares, keeps the best parameters, and stops when patience is over.

        Raises
        ------
        ValueError
            If the epoch has no such value.
        """
        self._catch_up(trainer, epoch)
        if self._improves(epoch, logs) and self.restore_best:
            self._kept = trainer.model.flat_parameters.copy(), trainer.model.flat_buffers.copy()
        assert self.best is not None, "the first epoch improves"
        trainer.best[self._name] = Best(self.best, self.best_epoch, epoch + 1, self._kept)
        self._stop_if_over(trainer, epoch)

    def _stop_if_over(self, trainer: Trainer, epoch: int) -> None:
        """Ends training if patience is over."""
        if epoch - self.best_epoch >= self.patience:
            trainer.stop_training = True

    def on_train_end(self, trainer: Trainer) -> None:
        """Puts the best parameters and buffers back."""
        super().on_train_end(trainer)
        trainer.best.pop(self._name, None)
        if self._kept is not None:
            trainer.model.flat_parameters[...], trainer.model.flat_buffers[...] = self._kept


class ReduceLROnPlateau(_Watching):
    """Multiplies the learning rates when a value has not improved for some epochs.

    Parameters
    ----------
    monitor : str
        A name of `History.history`.
    factor : float in (0, 1)
    patience : int
        Epochs without improvement after which to reduce.
    mode : "auto", "min" or "max"
        Whether the value should fall or rise. "auto": accuracies, top-k and R² should rise, others fall.
    min_delta : float
        What counts as an improvement.
    cooldown : int
        Epochs after a reduction that count nothing.
    min_lr : float
        The least learning rate.

    Attributes
    ----------
    best : float or None
        The best of the history; resumed and second fits go on counting. An epoch without it is no better.
    best_epoch : int
        When it was seen, counted from 0.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        factor: float = 0.1,
        patience: int = 10,
        mode: str = "auto",
        min_delta: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        self.factor = number(self, "factor", factor, "a number in (0, 1)", lambda found: 0 < found < 1)
        self.patience = integer(self, "patience", patience, 1)
        self.cooldown = integer(self, "cooldown", cooldown, 0)
        self.min_lr = number(self, "min_lr", min_lr, "a number from 0", lambda found: found >= 0)
        self._counts_from = 0
        self._values: list[float] | None = None  # of the history that was gone through

    def on_train_begin(self, trainer: Trainer) -> None:
        """Counts the epochs so far.

        Raises
        ------
        ValueError
            If the value is one of validation, and `fit` was given no data for it; or if the trainer has a
            schedule, which would set the rates anew.
        """
        super().on_train_begin(trainer)
        if trainer.schedule is not None:
            raise ValueError(
                "ReduceLROnPlateau: the trainer's schedule sets the learning rates; take one of them"
            )

    def _recall(self, trainer: Trainer, until: int) -> None:
        values = trainer.history.history.get(self.monitor, [])
        if values is self._values and until == self._until:
            return  # this fit goes on where the last one ended
        super()._recall(trainer, until)
        self._values, self._counts_from = values, 0
        for epoch, value in enumerate(values[:until]):
            self._is_over(epoch, {self.monitor: value})
        self._until = until

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: dict[str, float]) -> None:
        """Reduces the rates when patience is over.

        Raises
        ------
        ValueError
            If the epoch has no such value.
        """
        self._catch_up(trainer, epoch)
        if self._is_over(epoch, logs):
            for group in trainer.optimizer.param_groups:
                group["lr"] = min(group["lr"], max(group["lr"] * self.factor, self.min_lr))

    def _is_over(self, epoch: int, logs: dict[str, float]) -> bool:
        """Whether so many epochs that count were no better; then they are counted anew."""
        if self._improves(epoch, logs):
            self._counts_from = max(self._counts_from, epoch + 1)
        over = epoch + 1 - self._counts_from >= self.patience
        if over:
            self._counts_from = epoch + 1 + self.cooldown
        return over


class ModelCheckpoint(_Watching):
    """Keeps the model of the best epoch in a file, which `pdnn.load_model` reads.

    Rank 0 writes it, all or nothing: a crash at any moment leaves the best model before or the new one. To
    go on with a training needs more than its model: that is ``fit(checkpoint=…)``.

    Parameters
    ----------
    path : path
        The file, .safetensors. A relative one counts from the working directory of now.
    monitor : str
        A name of `History.history`.
    mode : "auto", "min" or "max"
        Whether the value should fall or rise. "auto": accuracies, top-k and R² should rise, others fall.
    min_delta : float
        What counts as an improvement.

    Attributes
    ----------
    best : float or None
        The value of the model in the file; also of epochs before a resumed or second fit. If the file has a
        later one of a training that went back, the best of the epochs so far.
    best_epoch : int
        When it was seen, counted from 0.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        monitor: str = "val_loss",
        mode: str = "auto",
        min_delta: float = 0.0,
    ) -> None:
        super().__init__(monitor, mode, min_delta)
        if "{" in os.path.basename(path):
            raise ValueError(
                f"ModelCheckpoint: {path}: it keeps one file, the best; pass a name without {{}}"
            )
        self.path = Path(path).absolute()

    def on_train_begin(self, trainer: Trainer) -> None:
        """Remembers the best epoch so far, if its model is in the file.

        Raises
        ------
        FileNotFoundError, IsADirectoryError
            If there is no folder for the file, or it is a folder itself.
        ValueError
            If the value is one of validation, and `fit` was given no data for it.
        """
        super().on_train_begin(trainer)
        folder = os.path.dirname(os.path.realpath(self.path))
        if trainer.comm.rank == 0 and not os.path.isdir(folder):
            raise FileNotFoundError(f"ModelCheckpoint: {self.path}: there is no folder {folder}")
        if trainer.comm.rank == 0 and self.path.is_dir():
            raise IsADirectoryError(f"ModelCheckpoint: {self.path} is a folder; expected a file")

    def _recall(self, trainer: Trainer, until: int) -> None:
        super()._recall(trainer, until)
        values = trainer.history.history.get(self.monitor, [])[:until]
        written = self._written()
        if not values or not written or written[0] != self.monitor:
            return
        _, at, value, *began = written
        if at < len(values):
            if values[at] == value:
                self.best, self.best_epoch = value, at
        elif began == values[:1]:  # a later one of this training, which went back
            for epoch, had in enumerate(values):
                self._improves(epoch, {self.monitor: had})
            self._until = until

    def _written(self) -> list[Any]:
        """Of the model in the file: its monitor, epoch and value, and that of epoch 0; empty if not known."""
        try:
            written = json.loads(safetensors.read(self.path)[1]["pdnn.best"])
        except (KeyError, OSError, ValueError):
            return []
        return written if isinstance(written, list) and len(written) in (3, 4) else []

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: dict[str, float]) -> None:
        """Writes the model if it is the best one.

        Raises
        ------
        ValueError
            If the epoch has no such value.
        """
        self._catch_up(trainer, epoch)
        if self._improves(epoch, logs) and trainer.comm.rank == 0:
            values = trainer.history.history.get(self.monitor, [])
            written = [self.monitor, epoch, self.best, *values[:1]]
            trainer.model.save(self.path, {"pdnn.best": json.dumps(written)})
