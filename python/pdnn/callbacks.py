"""Callbacks: functions that run between epochs."""

from __future__ import annotations

from pdnn.store import Array
from pdnn.trainer import Trainer


class Callback:
    """Base with empty hooks. Every rank runs its callbacks, with the same numbers.

    Set ``trainer.stop_training = True`` to end training after the epoch; rank 0's wish counts.
    """

    def on_train_begin(self, trainer: Trainer) -> None:
        """Before the first epoch of a fit."""

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: dict[str, float]) -> None:
        """After each epoch (counted from 0), with its values as in `History.history`."""

    def on_train_end(self, trainer: Trainer) -> None:
        """After the last epoch of a fit, unless it failed."""


class EarlyStopping(Callback):
    """Ends training when a value has not improved for some epochs.

    Parameters
    ----------
    monitor : str
        A name of `History.history`; values with "accuracy" in their name should rise, others fall.
    patience : int
        Epochs without improvement after which to stop.
    min_delta : float
        What counts as an improvement.
    restore_best : bool
        Whether to put the best epoch's parameters back when training ends.

    Attributes
    ----------
    best : float or None
        The best value of this fit.
    best_epoch : int
        When it was seen, counted from 0.
    """

    def __init__(
        self, monitor: str = "val_loss", patience: int = 3, min_delta: float = 0.0, restore_best: bool = True
    ) -> None:
        if patience < 1:
            raise ValueError(f"EarlyStopping: patience = {patience}; expected at least 1")
        self.monitor = monitor
        self.patience = patience
        self.min_delta = min_delta
        self.restore_best = restore_best
        self.best: float | None = None
        self.best_epoch = -1
        self._parameters: Array | None = None

    def on_train_begin(self, trainer: Trainer) -> None:
        """Forgets what an earlier fit saw."""
        self.best, self.best_epoch, self._parameters = None, -1, None

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: dict[str, float]) -> None:
        """Compares, keeps the best parameters, and stops when patience is over.

        Raises
        ------
        ValueError
            If the epoch has no such value.
        """
        if self.monitor not in logs:
            raise ValueError(f'EarlyStopping: no "{self.monitor}" in {sorted(logs)}; is validation= given?')
        value = logs[self.monitor]
        gain = (
            0.0
            if self.best is None
            else value - self.best
            if "accuracy" in self.monitor
            else self.best - value
        )
        if self.best is None or gain > self.min_delta:
            self.best, self.best_epoch = value, epoch
            if self.restore_best:
                self._parameters = trainer.model.flat_parameters.copy()
        elif epoch - self.best_epoch >= self.patience:
            trainer.stop_training = True

    def on_train_end(self, trainer: Trainer) -> None:
        """Puts the best parameters back."""
        if self._parameters is not None:
            trainer.model.flat_parameters[...] = self._parameters
