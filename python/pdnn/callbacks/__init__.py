"""Callbacks: functions that run between epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdnn.deferred import deferred

if TYPE_CHECKING:
    from pdnn.callbacks.base import Callback
    from pdnn.callbacks.csv_logger import CSVLogger
    from pdnn.callbacks.watching import EarlyStopping, ModelCheckpoint, ReduceLROnPlateau

__all__ = ["CSVLogger", "Callback", "EarlyStopping", "ModelCheckpoint", "ReduceLROnPlateau"]


if not TYPE_CHECKING:
    __getattr__, __dir__ = deferred(
        __name__,
        {
            "base": ["Callback"],
            "csv_logger": ["CSVLogger"],
            "watching": ["EarlyStopping", "ModelCheckpoint", "ReduceLROnPlateau"],
        },
    )
