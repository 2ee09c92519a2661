"""Estimated and measured times of steps; and whether the fastest strategy was found.

python benchmarks/estimates.py [--networks w0,w3,lenet] [--rounds 12] [--json FILE] [--plot FILE]

For each network: one process, then two ranks, calibrate (`Trainer.estimate`), choose (`strategy="fastest"`),
and only then train under every strategy in turns, a short epoch each; a strategy's time is the median of the
fastest quarter of its epochs. Printed: estimated, measured, the error (estimated - measured) / measured; the
median of its absolute values over everything; and the strategy chosen for one process and for two ranks, with
how much longer than the best it takes. Needs two free cores; the round trip between them is told with it.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

import images
import measure
import peers
from step import NETWORKS

ALONE, TOGETHER = ("serial", "team:2", "pool:2"), ("ddp", "tp:2", "pipeline:2")


def on_ranks(name: str, specs: Sequence[str], rounds: int) -> dict[str, Any]:
    """Calibrates, chooses and measures, in as many ranks as there are."""
    from pdnn import _core

    network = NETWORKS[name]
    one, data = images.trainer_of(network, "auto")
    found = [one.estimate(data, network.batch, spec) for spec in specs]
    chooser, _ = images.trainer_of(network, "fastest")
    chooser.fit(data, batch_size=network.batch, verbose=False)
    runs = {
        str(each.strategy): peers.fitted(*images.trainer_of(network, each.strategy), network.batch, True)
        for each in found
    }
    seconds: dict[str, list[float]] = {spec: [] for spec in runs}
    for turn in range(rounds + 1):
        for spec, run in runs.items():
            time = run()[0]
            if turn:  # the first round warms up
                seconds[spec].append(time)
    return {
        "estimates": [each.to_dict() for each in found],
        "measured": {spec: measure.fastest_quarter(times) for spec, times in seconds.items()},
        "machine": one.calibrate(data, network.batch).machine.to_dict(),
        "chosen": str(chooser.strategy),
        "why": chooser.choice.why,
        "round_trip": _core.measure_round_trip(),
    }


def told(name: str, results: Sequence[dict[str, Any]]) -> tuple[str, list[float]]:
    """One network as text, and its errors."""
    lines = [
        f"{name}: {NETWORKS[name].name}",
        f"{'strategy':14} {'estimated':>12} {'measured':>12} {'error':>8}",
    ]
    errors = []
    for result in results:
        for each in result["estimates"]:
            measured = result["measured"][each["strategy"]]
            errors.append((each["seconds"] - measured) / measured)
            times = f"{1e6 * each['seconds']:9.0f} µs {1e6 * measured:9.0f} µs"
            lines.append(f"{each['strategy']:14} {times} {errors[-1]:+8.1%}")
    for words, result in zip(("one process", "two ranks"), results, strict=True):
        best = min(result["measured"], key=lambda spec: result["measured"][spec])
        lines.append(
            f"fastest for {words}: {result['chosen']}; best measured: {best}; {beyond(result):.1%} longer"
        )
    return "\n".join(lines), errors


def beyond(result: dict[str, Any]) -> float:
    """By how much the chosen strategy takes longer than the best."""
    times = result["measured"]
    return float(times[result["chosen"]] / min(times.values()) - 1)


def plot(report: dict[str, Any], path: str) -> None:
    """Estimated against measured, a point for each strategy of each network."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for name, results in report["results"].items():
        pairs = [
            (result["measured"][each["strategy"]], each["seconds"], each["strategy"])
            for result in results
            for each in result["estimates"]
        ]
        axes.plot([1e6 * p[0] for p in pairs], [1e6 * p[1] for p in pairs], "o", label=name)
        for measured, estimated, spec in pairs:
            axes.annotate(spec, (1e6 * measured, 1e6 * estimated), fontsize=6)
    low, high = axes.get_xlim()
    axes.plot([low, high], [low, high], color="gray", linewidth=0.8)
    axes.fill_between([low, high], [0.8 * low, 0.8 * high], [1.2 * low, 1.2 * high], color="gray", alpha=0.15)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("measured, µs a step (shaded: ± 20 %)")
    axes.set_ylabel("estimated")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=130)


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    measure.add_names(parser, "--networks", NETWORKS, "w0,w3,lenet")
    parser.add_argument(
        "--rounds", type=measure.count, default=12, help="epochs of each strategy (default %(default)s)"
    )
    parser.add_argument("--json", type=measure.destination, metavar="FILE", help="write everything measured")
    parser.add_argument("--plot", type=measure.destination, metavar="FILE", help="write a picture")
    options = parser.parse_args(arguments)
    import pdnn

    if len(os.sched_getaffinity(0)) < 2:
        parser.error("two ranks need a core each, and this process may use one")
    report = measure.begin(results={})
    errors: list[float] = []
    for name in options.networks:
        results = [
            on_ranks(name, ALONE, options.rounds),
            pdnn.run(on_ranks, name, TOGETHER, options.rounds, ranks=2, timeout=300)[0],
        ]
        report["results"][name] = results
        text, own = told(name, results)
        errors += own
        print(f"\n{text}\ncore-to-core round trip {1e9 * results[0]['round_trip']:.0f} ns", flush=True)
    report["median_error"] = median(map(abs, errors))
    worst = max(beyond(result) for results in report["results"].values() for result in results)
    print(f"\nmedian |error| of {len(errors)} estimates: {report['median_error']:.1%}")
    print(f"the strategies chosen are at most {worst:.1%} slower than the best measured")
    measure.write(report, options.json)
    if options.plot:
        plot(report, options.plot)


if __name__ == "__main__":
    main(sys.argv[1:])
