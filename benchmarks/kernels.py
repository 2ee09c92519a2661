"""Kernels alone, on one core: how near each comes to the peak of fused multiply-adds, and peers beside it.

    python benchmarks/kernels.py --json kernels.json --plot kernels.png
    python benchmarks/kernels.py --quick

Prints microseconds a call, the share of the peak, and each peer's time as a multiple. How it is measured:
measure.py; what each side runs: products.py and convolutions.py. Peers that are not installed are left out.
`--map` draws how near the products of layers of all widths come to the peak.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import convolutions
import measure
import peers
import products
from workers import Runner, Side

PDNN, FLOOR = "pdnn", "floor"


@dataclass(frozen=True)
class Case:
    """One kernel at one shape.

    Parameters
    ----------
    title : str
    flop : int
        Operations of a call.
    sides : list of Side
        pdnn first.
    """

    title: str
    flop: int
    sides: list[Side]


def peak(flop: int, dtype: str) -> Runner:
    """What so many operations take at the peak, measured each time."""
    from pdnn.core import core_for

    core = core_for(dtype)
    return lambda: (flop / core.measure_peak(0.01), math.nan)


def convolution_cases(dtype: str, quick: bool, wanted: Collection[str]) -> list[Case]:
    """Every pass of every convolution of the two networks; quick: of two of them."""
    shapes = convolutions.CONVOLUTIONS
    cases = []
    for shape in (shapes[1], shapes[4]) if quick else shapes:
        for which in convolutions.PASSES:
            if shape.first and which == "dx":
                continue
            sides = [Side(PDNN, convolutions.pdnn_convolution, (shape, which, dtype))]
            if "torch" in wanted:
                for name, last in (("PyTorch channels_last", True), ("PyTorch", False)):
                    sides.append(Side(name, convolutions.torch_convolution, (shape, which, dtype, last)))
            cases.append(Case(f"{shape.name}, {which}", shape.flop, sides))
    return cases


def product_cases(dtype: str, quick: bool, wanted: Collection[str]) -> list[Case]:
    """Every product of the layers of two networks, beside NumPy's and Eigen's; quick: of two layers."""
    cases = []
    for layer in (products.LAYERS[0], products.LAYERS[3]) if quick else products.LAYERS:
        for which in products.PASSES:
            if layer.first and which == "dx":
                continue
            sides = [
                Side(PDNN, products.pdnn_product, (layer, which, dtype)),
                Side("NumPy", products.numpy_product, (layer, which, dtype)),
            ]
            if "eigen" in wanted:
                sides.append(Side("Eigen", products.eigen_product, (layer, which, dtype)))
            cases.append(Case(f"{layer.name}, {which}", layer.flop, sides))
    return cases


WHAT: dict[str, Callable[[str, bool, Collection[str]], list[Case]]] = {
    "products": product_cases,
    "convolutions": convolution_cases,
}


def compare(case: Case, dtype: str, blocks: int, warm_up: float) -> dict[str, Any]:
    """Measures one case.

    Returns
    -------
    dict
        As the JSON file holds it: microseconds of a call, of each side, and pdnn's share of the peak.

    Raises
    ------
    RuntimeError
        If a side fails, or its result is not what the others have.
    """
    sides = [*case.sides, Side(FLOOR, peak, (case.flop, dtype))]
    results, _ = measure.alternate(sides, blocks, lambda: 0.0, warm_up)
    names = [side.name for side in case.sides]
    own = zip(case.sides, results[:-1], strict=True)
    measure.check_same("mean square", [(side.name, result.check, side.tolerance) for side, result in own])
    times = [1e6 * measure.fastest_quarter(result.seconds) for result in results]
    return {
        "kernel": case.title,
        "dtype": dtype,
        "megaflop": case.flop / 1e6,
        "gigaflops_peak": case.flop / times[-1] / 1e3,
        "sides": [
            {"side": name, "microseconds": time, "ratio": time / times[0], "peak": times[-1] / time}
            for name, time in zip(names, times[:-1], strict=True)
        ],
    }


def line(result: dict[str, Any]) -> str:
    """One case as text."""
    own, *others = result["sides"]
    ratios = "".join(f"   {peer['side']} {peer['ratio']:.2f}" for peer in others)
    return f"{result['kernel']:44} {own['microseconds']:9.1f} µs {own['peak']:5.0%}{ratios}"


def plot(report: dict[str, Any], path: str) -> None:
    """Shares of the peak as bars, a row for each kernel."""
    from matplotlib.figure import Figure

    results = report["results"]
    figure = Figure(figsize=(8, 0.9 + 0.42 * len(results)), layout="constrained")
    axes = figure.add_subplot()
    names = sorted({row["side"] for result in results for row in result["sides"]}, key=(lambda n: n != PDNN))
    height = 0.8 / len(names)
    for index, name in enumerate(names):
        shares = [
            next((100 * row["peak"] for row in result["sides"] if row["side"] == name), math.nan)
            for result in results
        ]
        places = [place + index * height for place in range(len(results))]
        axes.barh(places, shares, height, label=name, color="tab:orange" if name == PDNN else None)
    axes.set_yticks([place + 0.4 - height / 2 for place in range(len(results))])
    axes.set_yticklabels([result["kernel"] for result in results], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("% of the peak of fused multiply-adds")
    axes.legend(fontsize=8)
    figure.suptitle(report["machine"]["processor"], fontsize=9)
    figure.savefig(path, dpi=130)


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    measure.add_names(parser, "--what", WHAT)
    parser.add_argument("--dtype", default="float32", choices=("float32", "float64"))
    parser.add_argument("--quick", action="store_true", help="few shapes and blocks: rough figures")
    peers.add_peers(parser, known=["torch", "eigen"])
    parser.add_argument("--blocks", type=measure.count, help="blocks a side (default 20; quick: 5)")
    measure.add_warm_up(parser)
    parser.add_argument("--json", type=measure.destination, metavar="FILE", help="write everything measured")
    parser.add_argument("--plot", type=measure.destination, metavar="FILE", help="write a picture")
    parser.add_argument(
        "--map",
        type=measure.destination,
        metavar="FILE",
        help="measure and draw the heat map of products, batch 105",
    )
    options = parser.parse_args(arguments)

    wanted = peers.found(options.peers)
    blocks = options.blocks or (5 if options.quick else 20)
    report = measure.begin()
    print("a call, its share of the peak, and peers as multiples of its time; one core, " + options.dtype)
    for name in options.what:
        for case in WHAT[name](options.dtype, options.quick, wanted):
            report["results"].append(compare(case, options.dtype, blocks, 1e-3 * options.warm_up))
            print(line(report["results"][-1]), flush=True)
    if options.map:
        report["map"] = {"widths": products.WIDTHS, "shares": products.heat_map(options.dtype, 105)}
        title = f"share of the FMA peak, batch 105, {options.dtype}; {report['machine']['processor']}"
        products.plot_heat_map(report["map"]["shares"], title, options.map)
    measure.write(report, options.json)
    if options.plot:
        plot(report, options.plot)


if __name__ == "__main__":
    main(sys.argv[1:])
