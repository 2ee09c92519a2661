"""Estimates: what a training step takes under every strategy, known before it is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdnn.comm.costs import Link, fit
from pdnn.deferred import deferred
from pdnn.moved import moved

if TYPE_CHECKING:
    from pdnn.estimate.auto import AutoChoice
    from pdnn.estimate.choice import Choice, candidates, choose
    from pdnn.estimate.compute import AnalyticCompute, ComputeModel, MeasuredCompute, Samples
    from pdnn.estimate.described import Point, scaling, step
    from pdnn.estimate.estimate import Estimate
    from pdnn.estimate.formulas import Steps, pool_seconds
    from pdnn.estimate.instead import Alternatives
    from pdnn.estimate.machine import Machine
    from pdnn.estimate.network import Network
    from pdnn.estimate.probes import describe, measure

__all__ = [
    "Alternatives",
    "AnalyticCompute",
    "AutoChoice",
    "Choice",
    "ComputeModel",
    "Estimate",
    "Link",
    "Machine",
    "MeasuredCompute",
    "Network",
    "Point",
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
    "auto": ["AutoChoice"],
    "choice": ["Choice", "candidates", "choose"],
    "compute": ["AnalyticCompute", "ComputeModel", "MeasuredCompute", "Samples"],
    "described": ["Point", "scaling", "step"],
    "estimate": ["Estimate"],
    "formulas": ["Steps", "pool_seconds"],
    "instead": ["Alternatives"],
    "machine": ["Machine"],
    "network": ["Network"],
    "probes": ["describe", "measure"],
}

_MOVED = moved(
    __name__,
    Clock="pdnn.estimate.ComputeModel",
    RatedClock="pdnn.estimate.AnalyticCompute",
    MeasuredClock="pdnn.estimate.MeasuredCompute",
)


if not TYPE_CHECKING:
    __getattr__, __dir__ = deferred(__name__, _MODULES, _MOVED)
