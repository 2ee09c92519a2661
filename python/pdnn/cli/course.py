"""Learn parallel training by solving sheets, each with a check.

  pdnn course list                          # the sheets
  pdnn course new backprop                  # writes 1_backprop.py and 1_backprop.ipynb; solve either
  pdnn course check 1_backprop.py           # what is right, and what is wrong, in words
  pdnn course check backprop                # of a sheet's files here the one that was saved last
  pdnn course check                         # the same for all sheets that are here

The exit code of check is 0 if everything is right, else 1.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pdnn.cli.values import distinct, output, positive_float
from pdnn.files.atomic import replacing

if TYPE_CHECKING:
    from pdnn.course import Report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the three commands of ``pdnn course``."""
    parser.set_defaults(action=None, help_text=parser.format_help)
    actions = parser.add_subparsers(dest="action", metavar="{list,new,check}")
    actions.add_parser("list", help="list the sheets")
    new = actions.add_parser("new", help="write a blank sheet, as a script and as a notebook")
    new.add_argument("sheet", metavar="NAME", help="a name or a number of the list")
    new.add_argument(
        "folder", metavar="FOLDER", nargs="?", type=Path, default=Path(), help="where to; default: here"
    )
    check = actions.add_parser("check", help="check a solved sheet")
    check.add_argument(
        "files",
        metavar="FILE",
        nargs="*",
        help="scripts, notebooks, or names of sheets that are here; default: all of these. Of a sheet's "
        "script and notebook the one that was saved last is checked",
    )
    check.add_argument("--json", metavar="FILE", type=output, help="write the results as JSON, too")
    check.add_argument(
        "--gradescope", metavar="FILE", type=output, help="write Gradescope's results.json, too"
    )
    check.add_argument(
        "--time-limit",
        metavar="SECONDS",
        type=positive_float,
        help="of each thing that is checked; default: 2.5",
    )


def main(arguments: argparse.Namespace) -> int:
    """Does what was asked for; 1 if a checked sheet is not all right."""
    if arguments.action is None:
        print(arguments.help_text())
        return 0
    if arguments.action == "list":
        return _list()
    if arguments.action == "new":
        return _new(arguments.sheet, arguments.folder)
    return _check(arguments)


def _list() -> int:
    from pdnn.course import SHEETS

    for sheet in SHEETS:
        print(f"{sheet.number}  {sheet.name:<12} {sheet.title} (about {sheet.minutes} minutes)")
    return 0


def _new(name: str, folder: Path) -> int:
    from pdnn.course import find, new

    script, notebook = new(find(name), folder)
    print(f"wrote {script} and {notebook}: solve either of them")
    print(f"then: pdnn course check {shlex.quote(str(script))}")
    return 0


def _check(arguments: argparse.Namespace) -> int:
    from pdnn.course import check, files_in, solved

    files = [solved(name, Path()) for name in arguments.files] or files_in(Path())
    read = {f"FILE {file}": file for file in files}
    distinct(arguments, {"--json": arguments.json, "--gradescope": arguments.gradescope}, read)
    if not files:
        raise ValueError("there is no sheet in this folder; pdnn course new NAME writes one")
    options = {} if arguments.time_limit is None else {"seconds": arguments.time_limit}
    reports, refused = [], []
    for path in files:
        try:
            reports.append(check(path, **options))
        except (OSError, ValueError, RuntimeError) as error:
            refused.append(str(error))  # the others count all the same
            print(f"pdnn course: {error}", file=sys.stderr)
        else:
            print(reports[-1].text())
    _write(arguments, reports, refused)
    return 0 if not refused and all(report.passed for report in reports) else 1


def _write(arguments: argparse.Namespace, reports: Sequence[Report], refused: Sequence[str]) -> None:
    from pdnn.course.results import gradescope

    if arguments.json:
        _write_json(arguments.json, [report.json() for report in reports])
    if arguments.gradescope:
        _write_json(arguments.gradescope, gradescope(reports, refused))


def _write_json(path: str, content: object) -> None:
    with replacing(path) as file:
        file.write(json.dumps(content, indent=2).encode() + b"\n")
