"""Callbacks: functions that run between epochs."""

from pdnn.callbacks.base import Callback
from pdnn.callbacks.csv_logger import CSVLogger
from pdnn.callbacks.watching import EarlyStopping, ModelCheckpoint, ReduceLROnPlateau

__all__ = ["CSVLogger", "Callback", "EarlyStopping", "ModelCheckpoint", "ReduceLROnPlateau"]
