"""The command ``pdnn``, also ``python -m pdnn``: a table of subcommands, one module each."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from errno import EMFILE
from io import TextIOWrapper
from typing import NoReturn

import pdnn
from pdnn.cli import course, doctor, estimate, export, import_, launch, predict, report, sweep, train
from pdnn.cli.tables import is_table

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


class Parser(argparse.ArgumentParser):
    """Says what is wrong in a line, and what may have been meant, without the list of all options."""

    def error(self, message: str) -> NoReturn:
        """Ends the process with code 2."""
        if found := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
            message += _meant(found[1], re.findall(r"[\w-]+", found[2]))
        self.exit(2, f"{self.prog}: error: {message}\n{self.prog} --help lists what there is\n")

    def unknown(self, words: Sequence[str]) -> NoReturn:
        """Ends the process, because it takes no such words."""
        table = next((word for word in words if is_table(word)), None)
        data = f"; did you mean --data {table}?" if table and "--data" in self._option_string_actions else ""
        first = next((word for word in words if word != "--"), "").partition("=")[0]
        near = data or (
            "" if first in self._option_string_actions else _meant(first, self._option_string_actions)
        )
        self.error(f"unrecognized arguments: {' '.join(words)}{near}")


def _meant(word: str, names: Iterable[str]) -> str:
    near = get_close_matches(word, [*names], 1, 0.75)
    return f"; did you mean {near[0]}?" if near else ""


def command_line() -> Parser:
    """The parser of ``pdnn`` with all its commands."""
    parser = Parser(prog="pdnn", description="Neural networks trained in parallel, on CPUs.")
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
        subparser.set_defaults(error=subparser.error, unknown=subparser.unknown)
        for action in subparser._actions:
            for inner in action.choices.values() if isinstance(action, argparse._SubParsersAction) else ():
                inner.set_defaults(unknown=inner.unknown)
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
    arguments, rest = command_line().parse_known_args(
        words, argparse.Namespace(words=sys.argv[1:] if words is None else words)
    )
    if rest:
        arguments.unknown(rest)
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
