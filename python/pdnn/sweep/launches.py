"""One training of a sweep as ``pdnn train`` in processes of its own, watched to its end."""

from __future__ import annotations

import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from pdnn.comm.mpi import launched_ranks
from pdnn.comm.mpiexec import find
from pdnn.history import History
from pdnn.launch.job import Job
from pdnn.launch.plan import Plan, plan
from pdnn.sweep.configuration import Configuration
from pdnn.sweep.machine import machine, versions
from pdnn.sweep.results import Run, check

_LINES = 12
"""How much of what a failed run said is kept: its last lines."""


@dataclass(frozen=True)
class Launch:
    """How all runs of a sweep are started.

    Attributes
    ----------
    options : tuple of str
        Words for ``pdnn train`` beside those that a configuration and a seed make.
    seed : int
        Of repeat 0.
    timeout : float
        Seconds after which a run is ended and counts as failed.
    """

    options: tuple[str, ...] = ()
    seed: int = 0
    timeout: float = 3600.0

    def words(self, configuration: Configuration) -> list[str]:
        """The words after ``pdnn train``, without the ranks, which the launcher starts."""
        rows = configuration.batch_size
        return [
            *self.options,
            f"--model={configuration.model}",
            f"--strategy={configuration.strategy}",
            *([] if rows is None else [f"--batch-size={rows}"]),
            f"--seed={self.seed + configuration.repeat}",
        ]


def train(configuration: Configuration, launch: Launch) -> Run:
    """Trains in a launch of its own; if a run fails or takes too long, its `Run.message` says so.

    The processes are a session of their own under a guard, as those of ``pdnn launch``: nothing is left of
    them, however this process ends (on Linux).

    Raises
    ------
    RuntimeError
        If several ranks are wanted and there is no mpiexec, or this process is itself one of several ranks.
    """
    if (launched_ranks() or 1) > 1:
        raise RuntimeError("sweep: this process is one of several ranks, and each would train; run it alone")
    here = machine()
    said: deque[str] = deque(maxlen=_LINES)
    by_mpiexec: deque[str] = deque(maxlen=_LINES)
    message, history = "", None

    def listen(_stream: str, rank: int | None, line: str) -> None:
        (by_mpiexec if rank is None and configuration.ranks > 1 else said).append(line)

    with tempfile.TemporaryDirectory(prefix="pdnn-sweep-") as folder:
        result = Path(folder, "history.json")
        program = ["-m", "pdnn", "train", *launch.words(configuration), "--quiet", f"--json={result}"]
        job = Plan([sys.executable, *program], {})
        if configuration.ranks > 1:
            job = plan(program, configuration.ranks, find(), here=True)
        began, clock = datetime.now(timezone.utc), time.monotonic()
        try:
            with Job(job.command, job.environ(), configuration.ranks, listen, folder) as running:
                code = running.wait(launch.timeout)
            if code == 0:
                history = History.load(result)
                check(history, configuration)
            message = "; ".join(job.warnings)
            if code:
                message = _ended(f"exit code {code}", said or by_mpiexec)
        except TimeoutError:
            message = _ended(f"no end after {launch.timeout:g} s", said or by_mpiexec)
        except (OSError, ValueError) as error:
            history, message = None, _ended(f"no history: {error}", said)
        seconds = time.monotonic() - clock
    chosen = None if history is None or history.estimate is None else history.estimate.strategy
    return Run(
        configuration=configuration,
        seed=launch.seed + configuration.repeat,
        workers=configuration.workers(int(here["cores"]), chosen),
        began=began.isoformat(timespec="seconds"),
        seconds=round(seconds, 3),
        history=history,
        message=message,
        machine=here,
        versions=versions(),
    )


def _ended(how: str, said: Iterable[str]) -> str:
    """How a training ended, and what it had printed."""
    words = "".join(said).strip()
    return f"{how}: {words}" if words else how
