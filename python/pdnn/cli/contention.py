"""Whether other programs took cores from this one: then what was measured meanwhile says little."""

from __future__ import annotations

import json
import os
import platform
import resource
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pdnn.comm import Communicator

LEAST_SHARE = 0.1
"""Of the cores' time, used by others: below it they hardly matter."""

LEAST_SWITCHES = 20
"""A second of processor time: how often another program must have taken a core away, so that idle cores
beside a busy neighbor are no disturbance."""

FIELDS_OF_TIME = slice(1, 9)  # of a line of /proc/stat: user to steal
IDLE, WAITING = 3, 4  # of those


class Contention:
    """Counts from when it is made.

    Linux says how long each core was busy, and how often a process was taken off one; elsewhere nothing is
    known, and nothing said.
    """

    def __init__(self) -> None:
        self._began = _counters()

    def share(self, comm: Communicator) -> float:
        """Of the rank that had least, the share of its cores' time that other programs used; collective.

        0 where that disturbed no rank, or cannot be known.
        """
        mine: dict[str, Any] = {name: value - self._began[name] for name, value in _counters().items()}
        mine |= {"node": platform.node(), "pid": os.getpid(), "cores": _cores()}
        sent = np.frombuffer(json.dumps(mine).encode(), np.uint8)
        return most_used([json.loads(received.tobytes()) for received in comm.all_gather(sent)])


def most_used(ranks: list[dict[str, Any]]) -> float:
    """`Contention.share`, from what every rank counted."""
    return max((_used_by_others(rank, ranks) for rank in ranks), default=0.0)


def _used_by_others(rank: dict[str, Any], ranks: list[dict[str, Any]]) -> float:
    neighbors = {  # ranks may be threads of one process
        other["pid"]: other["own"]
        for other in ranks
        if other["node"] == rank["node"] and set(other["cores"]) & set(rank["cores"])
    }
    available = rank["wall"] * len(rank["cores"])
    used = (rank["busy"] - sum(neighbors.values())) / available if available else 0.0
    disturbed = used >= LEAST_SHARE and rank["switches"] >= LEAST_SWITCHES * rank["own"]
    return min(used, 1.0) if disturbed else 0.0


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


def _counters() -> dict[str, float]:
    """Seconds on the clock, of this process and of its cores; how often it was taken off one."""
    return {
        "wall": time.monotonic(),
        "own": time.process_time(),
        "busy": _busy_seconds(set(_cores())),
        "switches": float(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw),
    }


def _busy_seconds(cores: set[int]) -> float:
    """How long these cores have been busy; 0 where the system does not say."""
    try:
        with open("/proc/stat", encoding="ascii") as file:
            lines = [line.split() for line in file if line.startswith("cpu")]
    except OSError:
        return 0.0
    busy = 0
    for words in lines:
        if words[0][3:].isdecimal() and int(words[0][3:]) in cores:
            times = [int(word) for word in words[FIELDS_OF_TIME]]
            busy += sum(times) - times[IDLE] - times[WAITING]
    return busy / os.sysconf("SC_CLK_TCK")
