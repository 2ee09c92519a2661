"""Microseconds a step against the width of a network, 8 to 2048, by pdnn and all its peers: one picture.

python benchmarks/widths.py [--quick] [--picture widths.svg] [--peers torch,jax,jax-0.4.31] [--json FILE]

The network has an input, a hidden layer of tanh and an output, all as wide; softmax cross-entropy and SGD,
float32; PyTorch's compiled step also with products in bfloat16 by autocast. A step is one of `--batch` rows.
Sides and method are those of step.py: every width is a comparison by itself, whose sides take turns. The
gray line is what the products alone would take at the machine's peak of fused multiply-adds.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any

import measure
import peers
import step
from peers import Network
from workers import Side

WIDTHS = tuple(2**power for power in range(3, 12))
LEFT_OUT = ("shuffled", "fused SGD", "NumPy, ")
"""Words of sides of step.py that are variants of others."""


def network(width: int, batch: int) -> Network:
    """Of this width; blocks of about ten milliseconds at 50 GFLOP/s, and of no more steps than 1,000."""
    flop = Network("", (width,) * 3, "tanh", True, batch).flop
    steps = int(min(1000, max(4, 0.01 * 5e10 / flop)))
    name = f"{width}-{width}-{width} tanh, batch {batch}"
    return Network(name, (width,) * 3, "tanh", True, batch, steps=steps)


def sides(described: Network, cores: int, wanted: Collection[str]) -> list[Side]:
    """Those of step.py, without variants."""
    found = step.sides(described, cores, wanted)
    return [side for side in found if not any(words in side.name for words in LEFT_OUT)]


def lines(results: Sequence[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Widths and microseconds by side."""
    found: dict[str, list[tuple[int, float]]] = {}
    for result in results:
        for row in result["sides"]:
            found.setdefault(row["side"], []).append((result["width"], row["microseconds"]))
    return found


def table(results: Sequence[dict[str, Any]]) -> str:
    """Microseconds a step, a line for each side."""
    widths = [result["width"] for result in results]
    rows = [f"{'µs a step':30}" + "".join(f"{width:>9}" for width in widths)]
    for name, points in lines(results).items():
        times = dict(points)
        rows.append(f"{name:30}" + "".join(f"{times.get(width, float('nan')):9.3g}" for width in widths))
    return "\n".join(rows)


def draw(report: dict[str, Any], path: str) -> None:
    """A panel for each number of cores, both axes logarithmic."""
    from pdnn.drawing import new_figure

    counts = sorted({result["cores"] for result in report["results"]})
    figure = new_figure("widths", figsize=(6.2 * len(counts), 4.6), layout="constrained")
    for number, cores in enumerate(counts):
        axes = figure.add_subplot(1, len(counts), number + 1)
        results = [result for result in report["results"] if result["cores"] == cores]
        for name, points in lines(results).items():
            own = name.startswith(step.PDNN)
            style = {"color": "gray", "linestyle": "--"} if name == step.FLOOR else {"marker": "o"}
            axes.loglog(*zip(*points, strict=True), label=name, linewidth=2.5 if own else 1.2, ms=3, **style)
        axes.set_xscale("log", base=2)
        axes.set_xticks(widths := [result["width"] for result in results], [str(width) for width in widths])
        axes.set_xlabel("width of all three layers")
        axes.set_ylabel("µs a step")
        axes.set_title(f"batch {report['batch']}, {cores} core{'s'[: cores > 1]}", fontsize=9)
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7)
    figure.suptitle(report["machine"]["processor"], fontsize=9)
    figure.savefig(path, dpi=130)


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    measure.add_options(parser, quick="1 core, few blocks, every third width: rough figures", round_trip=150)
    parser.add_argument("--batch", type=int, default=32, help="rows of a step (default %(default)s)")
    numbers = [str(count + 1) for count in range(len(os.sched_getaffinity(0)))]
    measure.add_names(parser, "--cores", numbers, "1", "numbers of cores, such as 1,2")
    peers.add_peers(parser, "numpy,jax,jax-0.4.31,torch")
    parser.add_argument("--picture", metavar="FILE", help="write the picture: .svg, .png, .pdf")
    options = parser.parse_args(arguments)
    wanted = peers.found(options.peers)
    counts = [1] if options.quick else [int(count) for count in options.cores]
    method, report = measure.method(options), measure.begin(batch=options.batch)
    for cores in counts:
        own = []
        for width in WIDTHS[::3] if options.quick else WIDTHS:
            described = network(width, options.batch)
            found = step.compare(sides(described, cores, wanted), described, method)
            own.append(found | {"width": width})
            print(f"{described.name}: done", file=sys.stderr, flush=True)
        report["results"] += own
        print(f"\nbatch {options.batch}, {cores} core{'s'[: cores > 1]}\n{table(own)}", flush=True)
    measure.write(report, options.json)
    if options.picture:
        draw(report, options.picture)


if __name__ == "__main__":
    main(sys.argv[1:])
