"""Callback: the hooks that a fit calls."""

from __future__ import annotations

from re import fullmatch

from pdnn.trainer import HOOKS, Trainer


class Callback:
    """Base with empty hooks. Every rank runs its callbacks, with the same numbers.

    Set ``trainer.stop_training = True`` to end training after the epoch; rank 0's wish counts.
    """

    def __init_subclass__(cls, **given: object) -> None:
        """Refuses hooks that `fit` does not call, as ``on_epoch_begin``, by a TypeError."""
        super().__init_subclass__(**given)
        for name in vars(cls):
            if fullmatch("on_.*_(begin|start|end)", name) and name not in HOOKS:
                raise TypeError(f"{cls.__name__}: fit does not call {name}, but only {', '.join(HOOKS)}")

    def on_train_begin(self, trainer: Trainer) -> None:
        """Before the first epoch of a fit."""

    def on_epoch_end(self, trainer: Trainer, epoch: int, logs: dict[str, float]) -> None:
        """After each epoch (counted from 0), with its values as in `History.history`.

        Training goes on with what it writes into the model. Where the ranks go on with models of their own
        ("elastic-average", "average" between two averages) that is a ValueError.
        """

    def on_train_end(self, trainer: Trainer) -> None:
        """After the last epoch of a fit, unless it failed."""
