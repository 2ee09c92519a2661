"""What reproducible sums cost: the same training with and without the leaves of a batch, side by side.

python benchmarks/reproducible.py [--networks w0,w0-256,w3,lenet] [--strategies serial,team:2,ddp]
                                  [--leaves 2,8] [--quick] [--json FILE]

For each network: `Trainer.fit` under each strategy as it is, and by so many leaves ("serial/8"). A cost is
what the leaves add to the same strategy's step, in seconds, and in seconds of all threads on a processor,
which leave out other programs. Sides with the same leaves must find the same loss to the last bit, whoever
computes; the others to 0.1 %. How it is measured: measure.py.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import images
import measure
from images import Images, pdnn_side
from measure import Method
from peers import Network
from step import W0, W3
from workers import Side

NETWORKS: dict[str, Network | Images] = {
    "w0": W0,
    "w0-256": replace(W0, name="784-256-10 sigmoid, batch 256", batch=256),
    "w3": W3,
    "lenet": images.LENET,
}
"""By the name that `--networks` takes."""

LAYOUTS = {"serial": (1, 1), "team:2": (2, 1), "ddp": (2, 2)}
"""Cores and ranks of each strategy."""


def sides(network: Network | Images, strategies: Sequence[str], leaves: Sequence[int]) -> list[Side]:
    """Each strategy without leaves, then with so many; by its string."""
    return [
        Side(
            f"{strategy}{by}",
            pdnn_side,
            (network, f"{strategy}{by}"),
            LAYOUTS[strategy][0],
            ranks=LAYOUTS[strategy][1],
        )
        for strategy in strategies
        for by in ("", *(f"/{count}" for count in leaves))
    ]


def check_bits(losses: Sequence[tuple[str, float]]) -> None:
    """Raises RuntimeError unless strategies with the same leaves found the same loss, bit for bit."""
    first: dict[str, tuple[str, float]] = {}
    for name, loss in losses:
        leaves = name.partition("/")[2]
        other, expected = first.setdefault(leaves, (name, loss))
        if leaves and loss != expected:
            raise RuntimeError(f"{name} has a mean loss of {loss!r}, {other} of {expected!r}: other bits")


def compare(entries: Sequence[Side], network: Network | Images, method: Method) -> dict[str, Any]:
    """Runs one comparison: arguments, result and errors are those of `step.compare`.

    The result also has costs, as shares of the step without leaves.
    """
    found = measure.compare(entries, method)
    losses = [result.check for result in found.results]
    measure.check_losses(entries, losses)
    check_bits([(side.name, loss) for side, loss in zip(entries, losses, strict=True)])
    report, plain = found.report(network), dict[str, Any]()
    for number, side in enumerate(entries):
        row = {
            "side": side.name,
            "microseconds": 1e6 * found.seconds(number),
            "processor_microseconds": 1e6 * found.processor(number) / network.steps,
            "kept": len(found.kept(side)),
        }
        if "/" not in side.name:
            plain = row
        for name in ("microseconds", "processor_microseconds"):
            row[name.replace("microseconds", "cost")] = row[name] / plain[name] - 1
        report["sides"].append(row)
    return report


def table(result: Mapping[str, Any]) -> str:
    """One comparison as text."""
    lines = [f"{result['network']}, {result['dtype']}"]
    lines.append(f"{'':12} {'µs a step':>10} {'cost':>8} {'CPU µs':>10} {'cost':>8} {'kept':>5}")
    lines += [
        f"{row['side']:12} {row['microseconds']:10.1f} {row['cost']:+8.1%}"
        f" {row['processor_microseconds']:10.1f} {row['processor_cost']:+8.1%} {row['kept']:5}"
        for row in result["sides"]
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    measure.add_names(parser, "--networks", NETWORKS)
    measure.add_names(parser, "--strategies", LAYOUTS)
    parser.add_argument("--leaves", default="2,8", help="of a batch (default %(default)s)", metavar="COUNTS")
    measure.add_options(parser)
    parser.add_argument(
        "--steps",
        type=measure.count,
        default=40,
        help="steps a block of a multilayer perceptron (default %(default)s)",
    )
    options = parser.parse_args(arguments)
    try:
        leaves = [int(count) for count in options.leaves.split(",")]
    except ValueError:
        parser.error(f"--leaves {options.leaves}; expected numbers, such as 2,8")
    available = len(os.sched_getaffinity(0))
    if lacking := [name for name in options.strategies if LAYOUTS[name][0] > available]:
        parser.error(f"{', '.join(lacking)}: two cores, and this process may use {available}")

    method, report = measure.method(options), measure.begin()
    for name in options.networks:
        described = NETWORKS[name]
        network = described if isinstance(described, Images) else replace(described, steps=options.steps)
        entries = sides(network, options.strategies, leaves)
        report["results"].append(compare(entries, network, method))
        print("\n" + table(report["results"][-1]), flush=True)
    measure.write(report, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
