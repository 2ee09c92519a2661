"""Whether other programs took the cores meanwhile: what is counted, and what is said of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from pdnn.cli.contention import Contention, most_used
from pdnn.comm import world
from pdnn.estimate import Estimate

ESTIMATE = Estimate("serial", 1, 32, 1e-3, 0.0, 0.0, 0.0, 0, "because")


def rank(**counted: Any) -> dict[str, Any]:
    """10 s on two cores, of which this process used 10 and others 8."""
    quiet = {
        "wall": 10.0,
        "own": 10.0,
        "busy": 18.0,
        "switches": 2000.0,
        "node": "a",
        "pid": 1,
        "cores": [0, 1],
    }
    return quiet | counted


@pytest.mark.parametrize(
    ("ranks", "share"),
    [
        ([rank()], 0.4),
        ([rank(busy=11.0)], 0.0),  # hardly anything
        ([rank(switches=100.0)], 0.0),  # there were cores for both
        ([rank(own=0.0, busy=20.0, switches=0.0)], 1.0),
        ([rank(busy=0.0)], 0.0),  # not counted
        ([rank(cores=[])], 0.0),
        ([rank(busy=40.0)], 1.0),
        ([rank(), rank(pid=2, own=8.0)], 0.0),  # the other is a rank of ours
        ([rank(), rank()], 0.4),  # ranks that are threads of one process
        ([rank(), rank(pid=2, own=8.0, node="b", busy=8.0)], 0.4),
        ([rank(), rank(pid=2, own=8.0, cores=[2, 3], busy=8.0)], 0.4),
        ([rank(busy=11.0), rank(pid=2, node="b")], 0.4),  # the one that had least
    ],
)
def test_what_others_used_is_what_no_rank_did(ranks: list[dict[str, Any]], share: float) -> None:
    assert most_used(ranks) == pytest.approx(share)


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the system does not say what its cores do")
def test_busy_neighbors_are_noticed() -> None:
    cores = len(os.sched_getaffinity(0))
    code = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(2 * cores)]
    try:
        contention, began = Contention(), time.process_time()
        while time.process_time() - began < 0.2:
            pass
        share = contention.share(world())
    finally:
        for other in others:
            other.kill()
            other.wait(30)
    assert 0.3 < share <= 1


def test_disturbed_figures_have_no_difference() -> None:
    assert ESTIMATE.beside(2e-3) == "serial: estimated 1 ms a step, measured 2 ms, difference -50%"
    assert ESTIMATE.beside(2e-3, 0.86) == (
        "serial: estimated 1 ms a step, measured 2 ms; both are disturbed: "
        "other programs used 86% of the cores' time meanwhile"
    )
