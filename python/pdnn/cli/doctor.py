"""Check this installation: versions, instruction set, cores, MPI; suggest repairs. Or look at a job.

  pdnn doctor
  pdnn doctor --json
  pdnn doctor --job PID      # what each rank of a job does, and who waits for whom

The exit code is 0 if everything installed works, 1 if something is broken; with --job 1 if no record of
that job is found. PID is that of mpiexec, of pdnn launch or of any rank. The job is not disturbed; of those
that died the last one is told of, too.
"""

from __future__ import annotations

import argparse
import json
import sys

from pdnn.cli import health
from pdnn.cli.values import positive_int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``pdnn doctor``."""
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--json", action="store_true", help="print the report as JSON")
    which.add_argument(
        "--job", type=positive_int, metavar="PID", help="look at the job of this process instead"
    )


def main(arguments: argparse.Namespace) -> int:
    """Prints the report; 0 if all is well."""
    if arguments.job is not None:
        return _look_at_job(arguments.job)
    report = health.report()
    print(json.dumps(report, indent=2) if arguments.json else _text(report))
    return 1 if report["problems"] else 0


def _look_at_job(process: int) -> int:
    from pdnn import _core

    state = _core.state_of_job(process) if process < 2**63 else None
    gone = "" if health.is_alive(process) else f"there is no process {process} now; "
    if state is None:
        print(
            f"doctor: {gone}no record of a job of process {process} on this machine; it has ended well, has "
            "not called pdnn.world(), is another user's, or its ranks are threads",
            file=sys.stderr,
        )
        return 1
    if gone:
        print(f"{gone}of its last job is on record:")
    ranks, waits, _ = state
    print((ranks + (waits or "no rank waits for another")).rstrip())
    return 0


def _text(report: health.Report) -> str:
    """The report in lines, problems and hints last."""
    lines = []
    for title, facts in report.items():
        if isinstance(facts, dict):
            lines.append(title)
            lines += [f"  {name:<16} {_words(value)}" for name, value in facts.items()]
    lines += [f"problem: {problem}" for problem in report["problems"]]
    lines += [f"hint: {hint}" for hint in report["hints"]]
    return "\n".join(lines if report["problems"] else [*lines, "all is well"])


def _words(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name} {each}" for name, each in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
