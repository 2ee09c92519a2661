"""Run a Python program on N MPI ranks of this machine.

  pdnn launch -n 2 train.py --epochs 3
  pdnn launch -n 4 --threads 2 -m package.module
  pdnn launch -n 4 --elastic train.py       # when a rank dies, the others go on
  pdnn launch -n 3 --elastic --spares 1 train.py      # a fourth rank waits to take the place of one that dies
  pdnn launch -n 2 --restarts 3 train.py    # when a rank dies, start again; train.py resumes a checkpoint
  pdnn launch -n 2 --dry-run train.py       # prints the command, to add a --hostfile

Each rank gets cores of its own and as many threads; every line of output begins with [rank]. The ranks
read no standard input. A failing rank, Ctrl-C or the timeout ends all of them.
The exit code is the job's; 124 after the timeout.
"""

from __future__ import annotations

import argparse

from pdnn.cli.values import positive_float, positive_int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``pdnn launch``."""
    parser.add_argument("-n", "--ranks", type=positive_int, required=True, metavar="N", help="how many ranks")
    parser.add_argument(
        "--threads", type=positive_int, metavar="T", help="threads of each rank; default: cores / N"
    )
    parser.add_argument(
        "--bind-to",
        choices=("core", "none"),
        default="core",
        help="whether to bind each rank to cores of its own",
    )
    parser.add_argument(
        "--timeout", type=positive_float, metavar="SECONDS", help="end the job after this long"
    )
    parser.add_argument(
        "--elastic", action="store_true", help="let the others go on when a rank dies (Open MPI 5 or later)"
    )
    parser.add_argument(
        "--spares",
        type=positive_int,
        default=0,
        metavar="N",
        help="with --elastic: start N more ranks, which wait to take the place of one that dies",
    )
    parser.add_argument(
        "--restarts",
        type=positive_int,
        default=0,
        metavar="N",
        help="start the program again, up to N times, when a rank was killed or crashed",
    )
    parser.add_argument(
        "--shrink", action="store_true", help="with --restarts: each time on one rank fewer, those left"
    )
    parser.add_argument("--mpiexec", metavar="PROGRAM", help="instead of the environment's own")
    parser.add_argument(
        "--no-tag", dest="tag", action="store_false", help="do not put [rank] before each line"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the command instead of running it")
    rest = argparse.REMAINDER
    parser.add_argument(
        "-m", dest="module", nargs=rest, default=[], metavar="MODULE ...", help="run a module"
    )
    parser.add_argument("-c", dest="code", nargs=rest, default=[], metavar="CODE ...", help="run code")
    parser.add_argument(
        "script", nargs=rest, metavar="SCRIPT ...", help="the script to run, and its arguments"
    )


def main(arguments: argparse.Namespace) -> int:
    """Runs the program; the job's exit code."""
    from pdnn.launch import launch

    if arguments.module:  # each of the three swallows the rest of the line, so there is at most one
        program = ["-m", *arguments.module]
    elif arguments.code:
        program = ["-c", *arguments.code]
    elif arguments.script:
        program = arguments.script
    else:
        arguments.error("nothing to run: name a script, -m MODULE or -c CODE")
    if arguments.spares and not arguments.elastic:
        arguments.error("--spares needs --elastic")
    if arguments.shrink and not arguments.restarts:
        arguments.error("--shrink needs --restarts")
    return launch(
        program,
        arguments.ranks,
        threads=arguments.threads,
        bind=arguments.bind_to == "core",
        tag=arguments.tag,
        timeout=arguments.timeout,
        mpiexec=arguments.mpiexec,
        elastic=arguments.elastic,
        spares=arguments.spares,
        restarts=arguments.restarts,
        shrink=arguments.shrink,
        dry_run=arguments.dry_run,
    )
