"""One training step of published networks, by pdnn and by its peers, side by side in one run.

python benchmarks/step.py [--quick] [--peers numpy,eigen] [--cores 1,2,4] [--json FILE] [--plot FILE]

Prints a table for each network, number type and number of cores: microseconds a step, the ratio to pdnn's,
and how much of the step the products alone would need at the machine's peak of fused multiply-adds. How it
is measured: measure.py; what each side runs: peers.py. Peers that are not installed are left out.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import images
import measure
import peers
import pytorch
from images import Images
from measure import Method
from peers import Network
from workers import Side

PDNN, FLOOR, BEFORE = "pdnn", "floor: products at FMA peak", "pdnn, other build"
COMPILED, HALF = "PyTorch, compiled step", "PyTorch, compiled, bfloat16"
OWN = {"float32": {PDNN: "float32", "pdnn, bfloat16": "bfloat16"}, "float64": {PDNN: "float64"}}
"""pdnn's sides by the number type of the network: their names, and the type of pdnn's model."""
SMALL = 5e6
"""Steps of fewer operations are measured on one core: a second one has no work, and all sides wait."""
ROUGH = 1e-2
"""How far losses in bfloat16 may be from those of float32, relatively."""
MINE = len(os.sched_getaffinity(0))
"""Cores that this process may use."""
FORCED = {"Haswell": "avx2", "SkylakeX": "avx512f", "Cooperlake": "avx512_bf16"}
"""OpenBLAS's kernels that NumPy can be made to use, and the processor flag that they need."""

W0 = Network("784-256-10 sigmoid, batch 105", (784, 256, 10), "sigmoid", True, 105)
W3 = Network("1024-256-256-256-32 tanh, batch 64", (1024, 256, 256, 256, 32), "tanh", False, 64)
W0_DOUBLE = Network(W0.name, W0.sizes, W0.activation, W0.bias, W0.batch, "float64")
TINY = Network("8-8-8 sigmoid, batch 1", (8, 8, 8), "sigmoid", True, 1, steps=5000)
CONTROL = Network("4-120-84-2 tanh, batch 32", (4, 120, 84, 2), "tanh", True, 32, steps=500)
NARROW = Network("4-32-16-4 tanh, batch 32", (4, 32, 16, 4), "tanh", True, 32, steps=1000)
NETWORKS: dict[str, Network | Images] = {
    "8-8-8": TINY,
    "4-32-16-4": NARROW,
    "4-120-84-2": CONTROL,
    "w0": W0,
    "w0-float64": W0_DOUBLE,
    "w3": W3,
    "lenet": images.LENET,
    "resnet9": images.RESNET9,
}
"""By the name that `--networks` takes."""


def core_counts(text: str) -> list[int]:
    """The numbers of cores that `--cores` names.

    Raises
    ------
    argparse.ArgumentTypeError
        If it names others than 1 to those that this process may use.
    """
    counts = [int(word) if word.isdecimal() else 0 for word in text.split(",")]
    if not all(1 <= count <= MINE for count in counts):
        raise argparse.ArgumentTypeError(f"{text!r}; expected numbers from 1 to {MINE}, divided by commas")
    return counts


def forced_cores() -> list[str]:
    """Those of `FORCED` that this processor can run."""
    flags = Path("/proc/cpuinfo").read_text(encoding="utf-8").split()
    return [core for core, flag in FORCED.items() if flag in flags]


def sides(network: Network | Images, cores: int, wanted: Collection[str], before: str = "") -> list[Side]:
    """pdnn, and every wanted peer that can run this network; `before`: see ``--before``."""
    strategy = "serial" if cores == 1 else f"team:{cores}"
    found = [Side(FLOOR, peers.floor, (network, cores))]
    for name, dtype in OWN[network.dtype].items():
        side = Side(name, images.pdnn_side, (network, strategy, dtype), cores)
        found.append(replace(side, tolerance=ROUGH if dtype == "bfloat16" else side.tolerance))
    if before:
        found.append(Side(BEFORE, images.pdnn_side, (network, strategy, network.dtype), cores, python=before))
    if isinstance(network, Images):
        if "torch" in wanted:
            for name, last in (("PyTorch channels_last", True), ("PyTorch", False)):
                found.append(Side(name, images.torch_images, (network, cores, last), cores))
            for name, half in ((COMPILED, False), (HALF, True)):
                compiled = Side(name, images.torch_images_compiled, (network, cores, half), cores)
                found.append(replace(compiled, tolerance=ROUGH if half else compiled.tolerance))
        return found
    found.append(Side("pdnn, shuffled", peers.pdnn_trainer, (network, strategy, True), cores))
    if "numpy" in wanted:
        found.append(Side("NumPy as installed", peers.numpy_step, (network,), cores))
        for core in forced_cores():
            environment = {"OPENBLAS_CORETYPE": core}
            found.append(Side(f"NumPy, {core}", peers.numpy_step, (network,), cores, environment))
    if "eigen" in wanted:
        found.append(Side("Eigen", peers.eigen_steps, (network,), cores))
    if "jax" in wanted:
        found.append(Side("JAX, jit and scan", peers.jax_scan, (network,), cores))
    if "jax-0.4.31" in wanted:
        old = str(peers.OLD_JAX)
        found.append(Side("JAX 0.4.31, jit and scan", peers.jax_scan, (network,), cores, python=old))
    if "torch" in wanted:
        found.append(Side("PyTorch eager", pytorch.torch_eager, (network, cores, False), cores))
        found.append(Side("PyTorch eager, fused SGD", pytorch.torch_eager, (network, cores, True), cores))
        found.append(Side(COMPILED, pytorch.torch_graph, (network, cores, False), cores))
        if network.dtype == "float32":
            found.append(Side(HALF, pytorch.torch_graph, (network, cores, True), cores, tolerance=ROUGH))
    if "sklearn" in wanted and network.bias and network.sizes[-1] > 2:  # of two classes it has one output
        found.append(Side("scikit-learn", peers.sklearn_mlp, (network,), cores))
    return found


def compare(entries: Sequence[Side], network: Network | Images, method: Method) -> dict[str, Any]:
    """Runs one comparison.

    Parameters
    ----------
    entries : sequence of Side
        What `sides` gave for the network.
    network : Network or Images
    method : Method

    Returns
    -------
    dict
        As the JSON file holds it; times in microseconds.

    Raises
    ------
    RuntimeError
        If a side fails, or its loss is not what the others have.
    """
    found = measure.compare(entries, method)
    measure.check_losses(entries, [result.check for result in found.results])
    cores = max(side.cores for side in entries)
    report = found.report(network, cores=cores, megaflop=network.flop / 1e6)
    if report["kept"] == 0:
        return report
    times = [1e6 * found.seconds(number) for number in range(len(entries))]
    cpu = [1e6 * found.processor(number) / network.steps for number in range(len(entries))]
    names = [side.name for side in entries]
    floor, own = times[names.index(FLOOR)], times[names.index(PDNN)]
    report["gigaflops_peak_a_core"] = network.flop / floor / 1e3 / cores
    report["sides"] = [
        {
            "side": name,
            "microseconds": time,
            "ratio": time / own,
            "alone": 1e6 * measure.fastest_quarter(result.alone),
            "peak": floor / time,
            "processor_microseconds": used,
            "processor_ratio": used / cpu[names.index(PDNN)],
            "processor_peak": cores * floor / used,
            "blas": result.blas,
        }
        for name, time, used, result in zip(names, times, cpu, found.results, strict=True)
    ]
    return report


def table(result: dict[str, Any]) -> str:
    """One comparison as text."""
    rows = []
    head = (
        f"FMA peak {result.get('gigaflops_peak_a_core', math.nan):.0f} GFLOP/s a core\n"
        f"{'':28} {'µs a step':>10} {'alone':>10} {'× pdnn':>7} {'of peak':>8}"
        f" {'CPU µs':>10} {'× pdnn':>7} {'of peak':>8}"
    )
    for row in result["sides"]:
        times = f"{digits(row['microseconds']):>10} {digits(row['alone']):>10}"
        numbers = f"{times} {row['ratio']:7.2f} {row['peak']:8.0%}"
        if row["side"] != FLOOR:
            numbers += f" {digits(row['processor_microseconds']):>10} {row['processor_ratio']:7.2f}"
            numbers += f" {row['processor_peak']:8.0%}"
        blas = f"  {row['blas']}" if row["side"].startswith("NumPy") else ""
        rows.append(f"{row['side']:28} {numbers}{blas}")
    above = f"{title(result)}: {result['megaflop']:.1f} MFLOP a step"
    return measure.table(above, result, head, rows, cores=result["cores"])


def digits(microseconds: float) -> str:
    """Three digits at least."""
    return f"{microseconds:.0f}" if microseconds >= 100 else f"{microseconds:.3g}"


def title(result: Mapping[str, Any]) -> str:
    """What a comparison compares."""
    return (
        f"{result['network']}, {result['dtype']}, {result['cores']} core{'s' if result['cores'] > 1 else ''}"
    )


def plot(report: dict[str, Any], path: str) -> None:
    """A panel of bars for each comparison."""
    from matplotlib.figure import Figure

    results = [result for result in report["results"] if result["sides"]]
    columns = 2 if len(results) > 1 else 1
    rows = max(1, math.ceil(len(results) / columns))
    figure = Figure(figsize=(6.5 * columns, 3.1 * rows), layout="constrained")
    for index, result in enumerate(results):
        axes = figure.add_subplot(rows, columns, index + 1)
        names = [row["side"] for row in result["sides"]]
        times = [row["microseconds"] for row in result["sides"]]
        colors = [
            "tab:orange" if name.startswith(PDNN) else "lightgray" if name == FLOOR else "tab:blue"
            for name in names
        ]
        bars = axes.barh(names, times, color=colors)
        axes.bar_label(bars, [f"{row['ratio']:.2f}" for row in result["sides"]], padding=3, fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.12)
        axes.set_title(title(result), fontsize=9)
        axes.set_xlabel("µs a step (numbers: × pdnn)", fontsize=8)
        axes.tick_params(labelsize=8)
    figure.suptitle(report["machine"]["processor"], fontsize=9)
    figure.savefig(path, dpi=130)


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    measure.add_options(parser, quick="1 core and few blocks: rough figures", round_trip=150)
    measure.add_names(parser, "--networks", NETWORKS)
    parser.add_argument(
        "--steps",
        type=measure.count,
        help="steps a block (else by the network); where others compute too, short blocks may be undisturbed",
    )
    parser.add_argument(
        "--cores",
        type=core_counts,
        help="numbers of them, divided by commas (default: 1,2 where there are two; quick: 1)",
    )
    peers.add_peers(parser)
    parser.add_argument(
        "--before",
        metavar="PYTHON",
        default="",
        help="the interpreter of an environment with another build of pdnn, which is a side more",
    )
    parser.add_argument("--plot", type=measure.destination, metavar="FILE", help="write a picture")
    options = parser.parse_args(arguments)

    wanted = peers.found(options.peers)
    counts = options.cores or ([1] if options.quick or MINE == 1 else [1, 2])
    method, report = measure.method(options), measure.begin()
    comparisons = [
        (NETWORKS[name], count)
        for name in options.networks
        for count in (counts if NETWORKS[name].flop >= SMALL else [1])
    ]
    for network, count in comparisons:
        if options.steps and isinstance(network, Network):
            network = replace(network, steps=options.steps)
        entries = sides(network, count, wanted, options.before)
        report["results"].append(compare(entries, network, method))
        print("\n" + table(report["results"][-1]), flush=True)
    measure.write(report, options.json)
    if options.plot:
        plot(report, options.plot)


if __name__ == "__main__":
    main(sys.argv[1:])
