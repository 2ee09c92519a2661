"""Sweeps: a grid of trainings, each in a launch of its own, kept in one file that can be continued."""

from pdnn.sweep.configuration import Configuration, grid
from pdnn.sweep.launches import Launch, train
from pdnn.sweep.machine import machine, versions
from pdnn.sweep.results import Results, Run

__all__ = ["Configuration", "Launch", "Results", "Run", "grid", "machine", "train", "versions"]
