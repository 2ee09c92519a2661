"""Estimates: what a training step takes under every strategy, known before it is made."""

from __future__ import annotations

from pdnn.estimate.clock import Clock, MeasuredClock, RatedClock, Samples
from pdnn.estimate.estimate import Estimate
from pdnn.estimate.fastest import Choice, candidates, choose
from pdnn.estimate.link import Link, fit
from pdnn.estimate.machine import Machine
from pdnn.estimate.network import Network
from pdnn.estimate.probes import measure
from pdnn.estimate.steps import Steps, pool_seconds, step
from pdnn.estimate.this_machine import describe

__all__ = [
    "Choice",
    "Clock",
    "Estimate",
    "Link",
    "Machine",
    "MeasuredClock",
    "Network",
    "RatedClock",
    "Samples",
    "Steps",
    "candidates",
    "choose",
    "describe",
    "fit",
    "measure",
    "pool_seconds",
    "step",
]
