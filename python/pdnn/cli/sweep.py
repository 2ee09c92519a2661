"""Train over a grid of strategies, ranks, batch sizes and models; store all results in one file.

  pdnn sweep results.json --strategy serial team:2 ddp average:8 --ranks 1 2 --repeats 3
  pdnn sweep results.json --strategy serial team:2 ddp average:8 --ranks 1 2 --repeats 3   # continues
  pdnn sweep results.json --strategy serial hogwild:2 --batch-size 32 128 --epochs 3 --csv results.csv
  pdnn report results.json --out report

Every training is a launch of its own, which ends after --timeout. The file is replaced as a whole after
each one, so an interrupted sweep continues when it is started again. More strategies, sizes or repeats may be
added then; other settings, other data or another machine are refused. A failed run is stored with its
message, and run again with --retry-failed. Combinations that do not fit, such as serial on two ranks, are
named and left out; a strategy that fits none of --ranks is an error. Repeat r trains with the seed plus r.

The exit code is 1 if a run failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from os.path import isfile
from typing import TYPE_CHECKING

from pdnn.cli import optimizing, tables, train
from pdnn.cli.values import distinct, output, positive_float, positive_int
from pdnn.comm.costs import text
from pdnn.progress import rounded

if TYPE_CHECKING:
    from pdnn import sweep

_PASSED_ON = (
    "data",
    "target",
    "weight",
    "test",
    "header",
    "loss",
    "dtype",
    "epochs",
    "optimizer",
    "lr",
    "momentum",
    "max-iter",
    "history-size",
    "damping",
    "tau",
    "solver",
    "l2",
    "schedule",
    "augment",
    "validation",
    "metrics",
)
"""Options of ``pdnn train`` that every run of a sweep gets alike."""

_FLAGS = ("standardize", "standardize-target")
"""Those of them that take no value."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``pdnn sweep``."""
    parser.add_argument("file", type=output, metavar="FILE", help="the results, JSON; continued if it exists")
    swept = parser.add_argument_group("the grid: one or more of each, as in pdnn train")
    swept.add_argument("--strategy", nargs="+", required=True, metavar="STRATEGY")
    swept.add_argument("--ranks", nargs="+", type=positive_int, default=[1], metavar="N", help="default: 1")
    swept.add_argument(
        "--batch-size", nargs="+", type=positive_int, metavar="N", help=optimizing.BATCH_SIZE_HELP
    )
    swept.add_argument(
        "--model",
        nargs="+",
        metavar="MODEL",
        help=f"default: {train.MODEL}, but for a table one hidden layer of {tables.HIDDEN}",
    )
    swept.add_argument("--repeats", type=positive_int, default=1, metavar="N", help="default: %(default)s")
    alike = parser.add_argument_group("the same in all runs; see pdnn train --help")
    for name in _PASSED_ON:
        alike.add_argument(f"--{name}")
    for name in _FLAGS:
        alike.add_argument(f"--{name}", action="store_true")
    alike.add_argument("--seed", type=int, default=0, help="seed of repeat 0; default: %(default)s")
    how = parser.add_argument_group("how to run")
    how.add_argument("--csv", type=output, metavar="FILE", help="also write a table, one line per epoch")
    how.add_argument("--retry-failed", action="store_true", help="run failed trainings again")
    how.add_argument(
        "--timeout",
        type=positive_float,
        default=3600.0,
        metavar="SECONDS",
        help="end a run after this long; default: %(default)g",
    )


def checksum(path: str | None) -> str:
    """Of a file's bytes, 16 hexadecimal digits."""
    import hashlib  # brings OpenSSL with it

    found = hashlib.blake2b(digest_size=8)
    with open(path or "", "rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def main(arguments: argparse.Namespace) -> int:
    """Runs what is missing; 1 if something failed, now or before."""
    from pdnn import sweep

    read = {"--data": (arguments.data or "").removeprefix("npz:") or None, "--test": arguments.test}
    distinct(arguments, {"FILE": arguments.file, "--csv": arguments.csv}, read)
    given = {name: getattr(arguments, name.replace("-", "_")) for name in _PASSED_ON}
    given = {name: value for name, value in given.items() if value is not None}
    options = [f"--{name}={value}" for name, value in given.items()]
    for name in _FLAGS:
        if getattr(arguments, name.replace("-", "_")):
            given[name] = "yes"
            options.append(f"--{name}")
    launch = sweep.Launch(tuple(options), arguments.seed, arguments.timeout)
    parser = argparse.ArgumentParser(prog="pdnn sweep", usage=argparse.SUPPRESS)
    train.add_arguments(parser)
    parser.set_defaults(error=parser.error)
    models = arguments.model
    if models is None:
        alike = parser.parse_args(options)
        models = [train.usual_model(alike, lambda: tables.load(alike))]
    usual = None if arguments.optimizer in optimizing.FULL_BATCH else optimizing.BATCH_SIZE
    configurations, left_out = sweep.grid(
        models,
        arguments.strategy,
        arguments.ranks,
        arguments.batch_size or [usual],
        arguments.repeats,
    )
    for configuration in configurations:  # words that train would not take are refused before anything runs
        optimizing.check(parser.parse_args(launch.words(configuration)))
    settings = {f"--{name}": value for name, value in given.items()} | {"--seed": str(arguments.seed)}
    settings |= {f"checksum of {name}": checksum(path) for name, path in read.items() if isfile(path or "")}
    settings |= {name: str(value) for name, value in sweep.machine().items()}
    results = sweep.Results.open(arguments.file, settings)
    for sentence in left_out:
        print(f"left out: {sentence}", file=sys.stderr)

    def wanted(configuration: sweep.Configuration) -> bool:
        run = results.runs.get(configuration)
        return run is None or (run.history is None and arguments.retry_failed)

    missing = [configuration for configuration in configurations if wanted(configuration)]
    print(f"trainings: {len(configurations)}, done: {len(configurations) - len(missing)}", flush=True)
    _run(missing, launch, results, arguments)
    if arguments.csv:
        results.save_csv(arguments.csv)
    failed = [run for run in map(results.runs.get, configurations) if run and run.history is None]
    if failed:
        print(
            f"pdnn sweep: {len(failed)} of {len(configurations)} runs failed, the first of them "
            f"{failed[0].configuration}: {failed[0].message}\nWith --retry-failed they are run again.",
            file=sys.stderr,
        )
    return 1 if failed else 0


def _run(
    missing: Sequence[sweep.Configuration],
    launch: sweep.Launch,
    results: sweep.Results,
    arguments: argparse.Namespace,
) -> None:
    """Runs them one by one, and writes each as soon as it is over."""
    from pdnn import sweep

    began = time.monotonic()
    for number, configuration in enumerate(missing, 1):
        print(f"[{number}/{len(missing)}] {configuration}: ", end="", flush=True)
        run = sweep.train(configuration, launch)
        results.add(run, arguments.file)
        remaining = (time.monotonic() - began) / number * (len(missing) - number)
        print(_told(run) + (f"; about {remaining:.0f} s to go" if number < len(missing) else ""), flush=True)
        if arguments.csv:
            results.save_csv(arguments.csv)


def _told(run: sweep.Run) -> str:
    """What came of a run, in a few words."""
    from pdnn.sweep.results import MEASURES

    if run.history is None:
        return f"failed after {run.seconds:.1f} s"
    last = {name: values[-1] for name, values in run.history.history.items()}
    name = next(name for name in MEASURES if name in last)
    return f"{text(last['seconds'])} an epoch, {name} {rounded(last[name])}"
