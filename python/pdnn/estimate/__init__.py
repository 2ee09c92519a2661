"""Estimates: what a training step takes under every strategy, known before it is made."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pdnn.comm.costs import Link, fit

if TYPE_CHECKING:
    from pdnn.estimate.clock import Clock, RatedClock
    from pdnn.estimate.engines import pool_seconds
    from pdnn.estimate.estimate import Estimate
    from pdnn.estimate.fastest import Choice, candidates, choose
    from pdnn.estimate.machine import Machine
    from pdnn.estimate.measuring import MeasuredClock, Samples
    from pdnn.estimate.network import Network
    from pdnn.estimate.probes import measure
    from pdnn.estimate.ranks import Point, scaling
    from pdnn.estimate.steps import Steps, step
    from pdnn.estimate.this_machine import describe

__all__ = [
    "Choice",
    "Clock",
    "Estimate",
    "Link",
    "Machine",
    "MeasuredClock",
    "Network",
    "Point",
    "RatedClock",
    "Samples",
    "Steps",
    "candidates",
    "choose",
    "describe",
    "fit",
    "measure",
    "pool_seconds",
    "scaling",
    "step",
]

_MODULES = {
    "clock": ("Clock", "RatedClock"),
    "measuring": ("MeasuredClock", "Samples"),
    "estimate": ("Estimate",),
    "fastest": ("Choice", "candidates", "choose"),
    "machine": ("Machine",),
    "network": ("Network",),
    "probes": ("measure",),
    "ranks": ("Point", "scaling"),
    "engines": ("pool_seconds",),
    "steps": ("Steps", "step"),
    "this_machine": ("describe",),
}


def __getattr__(name: str) -> Any:  # closed forms alone, which codecs use, need none of these
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"pdnn.estimate.{module}"), name)
    raise AttributeError(f"module 'pdnn.estimate' has no attribute {name!r}")
