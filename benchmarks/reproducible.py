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
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import images
import measure
from images import Images
from measure import Side
from peers import Network
from scaling import pdnn_side
from step import W0, W3, check_losses

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


def compare(
    entries: Sequence[Side], network: Network | Images, blocks: int, slowest_trip: float
) -> dict[str, Any]:
    """Runs one comparison.

    Parameters
    ----------
    entries : sequence of Side
        What `sides` gave for the network.
    network : Network or Images
    blocks : int
        Of each side.
    slowest_trip : float
        Seconds; blocks of two cores beside a slower round trip between them are left out.

    Returns
    -------
    dict
        As the JSON file holds it; times in microseconds, costs as shares of the step without leaves.

    Raises
    ------
    RuntimeError
        If a side fails, or its loss is not what the others have.
    """
    from pdnn import _core

    several = any(side.cores > 1 for side in entries)
    results, trips = measure.alternate(entries, blocks, _core.measure_round_trip if several else lambda: 0.0)
    losses = [(side.name, result.check) for side, result in zip(entries, results, strict=True)]
    check_losses(losses)
    check_bits(losses)
    rows: list[dict[str, Any]] = []
    plain: dict[str, Any] = {}
    for side, result in zip(entries, results, strict=True):
        limit = slowest_trip if side.cores > 1 else float("inf")
        seconds, processor = (
            measure.fastest_quarter(measure.quiet(values, trips, limit))
            for values in (result.seconds, result.processor)
        )
        row = {
            "side": side.name,
            "microseconds": 1e6 * seconds,
            "processor_microseconds": 1e6 * processor / network.steps,
            "kept": len(measure.quiet(result.seconds, trips, limit)),
        }
        if "/" not in side.name:
            plain = row
        for name in ("microseconds", "processor_microseconds"):
            row[name.replace("microseconds", "cost")] = row[name] / plain[name] - 1
        rows.append(row)
    return {
        "network": network.name,
        "dtype": network.dtype,
        "round_trip_nanoseconds": 1e9 * median(trips),
        "blocks": blocks,
        "sides": rows,
    }


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
    for name, known in (("networks", NETWORKS), ("strategies", LAYOUTS)):
        parser.add_argument(
            f"--{name}", default=",".join(known), help="which ones (default %(default)s)", metavar="NAMES"
        )
    parser.add_argument("--leaves", default="2,8", help="of a batch (default %(default)s)", metavar="COUNTS")
    parser.add_argument("--quick", action="store_true", help="few blocks: rough figures")
    parser.add_argument("--blocks", type=int, help="blocks a side (default 40; quick: 8)")
    parser.add_argument(
        "--steps", type=int, default=40, help="steps a block of a multilayer perceptron (default %(default)s)"
    )
    parser.add_argument(
        "--round-trip",
        type=float,
        default=1000,
        metavar="NS",
        help="blocks of two cores beside a slower one are left out (default %(default)s ns)",
    )
    parser.add_argument("--json", metavar="FILE", help="write everything measured")
    options = parser.parse_args(arguments)
    networks, strategies = options.networks.split(","), options.strategies.split(",")
    for word, names, known in (("networks", networks, NETWORKS), ("strategies", strategies, LAYOUTS)):
        if strange := set(names) - known.keys():
            parser.error(f"--{word}: {', '.join(sorted(strange))}; expected some of {', '.join(known)}")
    try:
        leaves = [int(count) for count in options.leaves.split(",")]
    except ValueError:
        parser.error(f"--leaves {options.leaves}; expected numbers, such as 2,8")
    available = len(os.sched_getaffinity(0))
    if lacking := [name for name in strategies if LAYOUTS[name][0] > available]:
        parser.error(f"{', '.join(lacking)}: two cores, and this process may use {available}")

    blocks = options.blocks or (8 if options.quick else 40)
    report: dict[str, Any] = {"machine": measure.machine(), "results": []}
    about = report["machine"]
    print(f"{about['processor']}, {about['cores']} cores, load {about['load']:.1f} at the start")
    for name in networks:
        described = NETWORKS[name]
        network = described if isinstance(described, Images) else replace(described, steps=options.steps)
        entries = sides(network, strategies, leaves)
        report["results"].append(compare(entries, network, blocks, 1e-9 * options.round_trip))
        print("\n" + table(report["results"][-1]), flush=True)
    if options.json:
        Path(options.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
