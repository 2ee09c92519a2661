"""The command ``pdnn``, also ``python -m pdnn``: a table of subcommands, one module each."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from errno import EMFILE
from io import TextIOWrapper

import pdnn
from pdnn.cli import course, doctor, estimate, export, import_, launch, predict, report, sweep, train

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "train": train,
    "predict": predict,
    "export": export,
    "import": import_,
    "sweep": sweep,
    "report": report,
    "estimate": estimate,
    "launch": launch,
    "course": course,
    "doctor": doctor,
}
"""Each has a docstring (its help), ``add_arguments(parser)`` and ``main(arguments) -> exit code``;
``arguments.error(text)`` ends the process as argparse does, ``arguments.words`` is the whole command line."""

NEGATIVE = re.compile(r"-\.?\d")
"""Begins a value, as in ``--target -2,-1``, and no option; newer versions of argparse say so themselves."""


def command_line() -> argparse.ArgumentParser:
    """The parser of ``pdnn`` with all its commands."""
    parser = argparse.ArgumentParser(prog="pdnn", description="Neural networks trained in parallel, on CPUs.")
    parser.add_argument("--version", action="version", version=f"pdnn {pdnn.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, module in COMMANDS.items():
        summary, _, description = (module.__doc__ or "").partition("\n")  # none under python -OO
        subparser = commands.add_parser(
            name,
            help=summary,
            description=f"{summary}\n{description}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        subparser._negative_number_matcher = NEGATIVE
        module.add_arguments(subparser)
        subparser.set_defaults(error=subparser.error)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Runs a command line.

    Parameters
    ----------
    words : sequence of str, optional
        The words after ``pdnn``; this process's own by default.

    Returns
    -------
    int
        The exit code: 0 for success, 1 after an error, whose message is on standard error.

    Raises
    ------
    SystemExit
        With code 2 for wrong arguments, 0 after ``--help``.
    """
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors in ("strict", "surrogateescape"):
        sys.stdout.reconfigure(errors="replace")  # no work may be lost for a letter that can't be shown
    arguments = command_line().parse_args(
        words, argparse.Namespace(words=sys.argv[1:] if words is None else words)
    )
    try:
        return int(COMMANDS[arguments.command].main(arguments))
    except (FloatingPointError, ImportError, OSError, RuntimeError, ValueError, Warning) as error:
        if isinstance(error, BrokenPipeError):  # the reader, such as head(1), has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        hint = ""
        if isinstance(error, OSError) and error.errno == EMFILE and "ulimit" not in str(error):
            hint = "; raise the limit of this process, as with ulimit -n 1024"
        print(f"pdnn {arguments.command}: {error}{hint}", file=sys.stderr)
        return 1
    except MemoryError as error:
        reason = f" ({error})" if str(error) else ""
        print(f"pdnn {arguments.command}: there is not enough memory{reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"pdnn {arguments.command}: interrupted", file=sys.stderr)
        return 130
