"""Estimate training steps on a described cluster: time, speedup and efficiency against the number of ranks.

  pdnn estimate --cluster cluster.toml --ranks 2..1024 --strategy ddp tp:N "pipeline:2 x ddp"
  pdnn estimate --cluster cluster.toml --ranks 2..64 --model lenet --batch-size 256 --weak --output weak.png
  pdnn estimate --measure here.toml                    # describes this machine; takes some seconds
  pdnn estimate --cluster here.toml --ranks 2 --strategy fastest --json estimates.json --csv estimates.csv

N in a strategy stands for the number of ranks; "fastest" is the best of the strategies that equal serial
training to rounding. Speedup is rows per second divided by those of one core; efficiency is speedup divided
by ranks times threads. Combinations that do not fit are named and left out. No training is run, and the
described cluster need not exist.

A cluster file is TOML: name, nodes, cores (per node); [core] flops, half_rows, memory, contention; [threads]
barrier; and links, each with latency (seconds) and bandwidth (bytes per second): [inside] a node, [between]
nodes, and, if they differ from [inside], [sums] (all-reduces) and [shared] (shared memory) on a node.
"""

from __future__ import annotations

import argparse
import json
import sys

from pdnn.cli import optimizing, specs
from pdnn.cli.values import distinct, output, picture, positive_int
from pdnn.nn.module import DTYPES

STRATEGIES = ("ddp", "tp:N", "pipeline:N", "average:8", "scatter-gather", "fastest")


def ranks(text: str) -> list[int]:
    """``"2..1024"``, doubling, ``"2,3,8"`` or ``"4"``."""
    first, dots, last = text.partition("..")
    if not dots:
        return [positive_int(number) for number in text.split(",")]
    low, high = positive_int(first), positive_int(last)
    if low > high:
        raise argparse.ArgumentTypeError(f"{text!r} goes down; write {high}..{low}")
    numbers = [low]
    while numbers[-1] * 2 <= high:
        numbers.append(numbers[-1] * 2)
    return numbers if numbers[-1] == high else [*numbers, high]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``pdnn estimate``."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--cluster", metavar="FILE", help="the machine, described in TOML")
    where.add_argument(
        "--measure", type=output, metavar="FILE", help="measure this machine, write such a file, and end"
    )
    what = parser.add_argument_group("training")
    what.add_argument("--ranks", type=ranks, metavar="A..B", help="default: 1..64")
    what.add_argument(
        "--strategy",
        nargs="+",
        metavar="STRATEGY",
        help=f"as in pdnn train, but not auto, N for the number of ranks; default: {' '.join(STRATEGIES)}",
    )
    what.add_argument("--model", default="mlp:784-256-10:sigmoid", metavar="MODEL", help=specs.MODEL_HELP)
    what.add_argument("--dtype", choices=DTYPES, default="float32", help="default: float32")
    what.add_argument(
        "--batch-size", type=positive_int, default=128, metavar="N", help="rows of one update; default: 128"
    )
    what.add_argument("--weak", action="store_true", help="the batch size is that of one rank (weak scaling)")
    optimizing.add_arguments(what)
    out = parser.add_argument_group("output")
    out.add_argument("--output", type=picture, metavar="FILE", help="a picture: .png, .svg, .pdf")
    out.add_argument("--json", type=output, metavar="FILE", help="all numbers")
    out.add_argument("--csv", type=output, metavar="FILE", help="the same as a table")


def main(arguments: argparse.Namespace) -> int:
    """Prints a table, and writes the requested files; 1 if no combination fits."""
    _check(arguments)
    if arguments.measure:
        return _measure(arguments)
    from pdnn.estimate import Network
    from pdnn.estimate.described import plot, scaling, table, to_csv
    from pdnn.estimate.machine import load

    machine = load(arguments.cluster)
    sample = specs.sample(arguments.model)
    model = specs.model(arguments.model)(sample, 0, arguments.dtype)
    momenta = len(optimizing.optimizer(arguments, model.parameters()).core.state)
    points, left_out = scaling(
        Network(model, sample),
        arguments.batch_size,
        arguments.strategy or list(STRATEGIES),
        arguments.ranks or ranks("1..64"),
        machine,
        weak=arguments.weak,
        momenta=momenta,
    )
    for sentence in left_out:
        print(f"left out: {sentence}", file=sys.stderr)
    if not points:
        print("pdnn estimate: no strategy fits any of these numbers of ranks", file=sys.stderr)
        return 1
    print(machine)
    rows = f"{arguments.batch_size} rows {'a rank' if arguments.weak else 'an update'}"
    title = f"{arguments.model}, {arguments.dtype}, {rows}"
    print(f"{title}\n{table(points)}", flush=True)
    if arguments.json:
        content = {"machine": machine.to_dict(), "what": title, "points": [p.to_dict() for p in points]}
        _write(arguments.json, json.dumps(content, indent=1) + "\n")
    if arguments.csv:
        _write(arguments.csv, to_csv(points))
    if arguments.output:
        plot(points, f"{machine.name}: {title}", arguments.output)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Ends the program, with its usage, if options do not go together."""
    for option in ("output", "json", "csv", "ranks", "strategy", "weak"):
        if getattr(arguments, option) not in (None, False) and arguments.cluster is None:
            arguments.error(f"--{option} needs --cluster FILE; --measure estimates nothing")
    options = ("cluster", "output", "json", "csv")
    distinct(arguments, {f"--{option}": getattr(arguments, option) for option in options})
    if "auto" in (arguments.strategy or ()):
        arguments.error('--strategy auto measures steps on this machine; "fastest" goes by estimates')
    optimizing.check(arguments)
    if arguments.optimizer in optimizing.FULL_BATCH:
        arguments.error(
            f"--optimizer {arguments.optimizer}: its steps evaluate a batch as often as they need, which is "
            "not estimated; name another one"
        )
    try:
        specs.model(arguments.model)
    except argparse.ArgumentTypeError as error:
        arguments.error(str(error))


def _measure(arguments: argparse.Namespace) -> int:
    """Describes this machine in a file."""
    from pdnn.estimate import describe
    from pdnn.estimate.machine import save

    sample = specs.sample(arguments.model)
    model = specs.model(arguments.model)(sample, 0, arguments.dtype)
    machine = describe(model, specs.loss(model), sample, arguments.batch_size)
    save(machine, arguments.measure)
    print(machine)
    return 0


def _write(path: str, text: str) -> None:
    from pdnn.files.atomic import replacing

    with replacing(path) as file:
        file.write(text.encode())
