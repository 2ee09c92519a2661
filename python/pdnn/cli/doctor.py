"""Check this installation: versions, instruction set, cores, MPI; suggest repairs.

  pdnn doctor
  pdnn doctor --json

The exit code is 0 if everything installed works, 1 if something is broken.
"""

from __future__ import annotations

import argparse
import json

from pdnn.cli import health


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``pdnn doctor``."""
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def main(arguments: argparse.Namespace) -> int:
    """Prints the report; 0 if all is well."""
    report = health.report()
    print(json.dumps(report, indent=2) if arguments.json else _text(report))
    return 1 if report["problems"] else 0


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
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "-" if value is None else str(value)
