"""What `strategy="auto"` takes, beside one thread and teams: how far it is from the best of them.

python benchmarks/auto.py [--quick] [--networks tiny,w0,w3,lenet] [--json FILE]

A step of `Trainer.fit` by "serial", by a team of each size that "auto" considers, and by "auto" itself, in
turns, all with the same cores. Below each table stands the line that "auto" printed. How it is measured:
measure.py.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

import images
import measure
import peers
from images import Images
from measure import Method
from peers import Network
from step import CONTROL, W0, W3
from workers import Runner, Side

NETWORKS: dict[str, Network | Images] = {"tiny": CONTROL, "w0": W0, "w3": W3, "lenet": images.LENET}
"""By the name that `--networks` takes."""


def side(network: Network | Images, strategy: str) -> Runner:
    """An epoch of `Trainer.fit`, rows in order; of "auto" also its line."""
    trainer, data = images.trainer_of(network, strategy)
    run = peers.fitted(trainer, data, network.batch)

    def with_line() -> tuple[float, float, dict[str, Any]]:
        seconds, loss, phases = run()
        return seconds, loss, phases | {"why": trainer.choice.why}

    return with_line if strategy == "auto" else run


def compare(network: Network | Images, cores: int, method: Method) -> dict[str, Any]:
    """Runs one comparison; times in microseconds, `behind` as a share of the best named strategy's."""
    from pdnn.strategies.engines import engines_up_to

    names = [*map(str, engines_up_to(cores)), "auto"]
    entries = [Side(name, side, (network, name), cores) for name in names]
    found = measure.compare(entries, method)
    measure.check_losses(entries, [result.check for result in found.results])
    report = found.report(network, cores=cores, why=found.results[-1].parts[-1]["why"])
    if report["kept"]:
        times = [1e6 * found.seconds(number) for number in range(len(entries))]
        best = min(times[:-1])
        report["sides"] = [
            {"side": name, "microseconds": time, "behind": time / best - 1}
            for name, time in zip(names, times, strict=True)
        ]
    return report


def table(report: dict[str, Any]) -> str:
    """One comparison as text."""
    lines = [f"{report['network']}, {report['cores']} cores", measure.round_trip_line(report)]
    if not report["sides"]:
        lines.append(measure.NO_FIGURES)
    else:
        lines.append(f"{'':10} {'µs a step':>10} {'behind':>8}")
    lines += [
        f"{row['side']:10} {row['microseconds']:10.1f} {row['behind']:+8.1%}" for row in report["sides"]
    ]
    return "\n".join([*lines, report["why"]])


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    measure.add_options(parser, round_trip=150)
    measure.add_names(parser, "--networks", NETWORKS)
    options = parser.parse_args(arguments)
    cores = len(os.sched_getaffinity(0))
    if cores == 1:
        parser.error("this process may use one core: there is nothing to choose")
    method, report = measure.method(options), measure.begin()
    for name in options.networks:
        report["results"].append(compare(NETWORKS[name], cores, method))
        print("\n" + table(report["results"][-1]), flush=True)
    measure.write(report, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
