"""Two ranks and one, the global batch fixed: what data parallel gains on one machine, or over a slow link.

python benchmarks/scaling.py [--networks w0,w3,lenet,resnet9] [--ranks 2] [--quick]
                             [--link MEGABITS] [--json FILE] [--plot FILE]

For each network: a step of pdnn on one core; under "ddp" on ranks of one core each, as it chooses by itself,
with gradients sent in buckets, and in one bucket, with which nothing is sent before the backward pass has
ended; as a team of threads of one process; and the limit: ranks that do a step of their rows each and never
say a word. Beside them PyTorch on one core, and its DistributedDataParallel over gloo. A speedup is against
the same library on one core. How it is measured: measure.py; what each side runs: peers.py and images.py.
Below the table stands where the ranks' step goes, as `History.phases` tells, and how much of the time that
the gradients travel was hidden behind the backward pass.

With `--link` the ranks are on two machines joined by a link of so many megabits a second: slow_link.py.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import images
import measure
import pytorch
import slow_link
from images import Images
from measure import Blocks, Method
from peers import Network
from pytorch import TorchJob
from step import NETWORKS
from workers import Runner, Side, installed_version

DEFAULT = "w0,w3,lenet,resnet9"
ONE, RANKS, SYNC, TEAM = "pdnn, one core", "pdnn ddp", "pdnn ddp, synchronized", "pdnn team"
BUCKETS, ONE_BUCKET, APART = "pdnn ddp, buckets", "pdnn ddp, one bucket", "pdnn, ranks apart"
TORCH_ONE, TORCH_RANKS = "PyTorch, one core", "PyTorch DDP"


def pdnn_apart(network: Network | Images, ranks: int) -> Runner:
    """Every rank trains by itself, on batches of as many rows as it has of each batch under "ddp"."""
    import pdnn

    own = replace(network, batch=network.batch // ranks)
    return images.pdnn_side(own, "serial", comm=pdnn.comm.SELF)


def torch_job(network: Network | Images) -> TorchJob:
    """Whichever kind of network; with the fused optimizers."""
    if isinstance(network, Images):
        return images.torch_network(network, True)
    return pytorch.torch_mlp(network, True)


def torch_one(network: Network | Images) -> Runner:
    """PyTorch, one process of one thread."""
    return pytorch.torch_steps(network, lambda: torch_job(network), 1)


def torch_ranks(network: Network | Images, meeting_point: str) -> Runner:
    """DistributedDataParallel over gloo, each rank with its rows of every batch.

    Parameters
    ----------
    meeting_point : str
        A file that does not exist yet, through which the ranks find each other.
    """
    import torch

    import pdnn

    pytorch.take_threads(1)
    comm = pdnn.world()
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{meeting_point}", rank=comm.rank, world_size=comm.size
    )
    job = torch_job(network)
    first, last = (network.batch * i // comm.size for i in (comm.rank, comm.rank + 1))
    own = [(x[first:last], y[first:last]) for x, y in job.batches]
    model = torch.nn.parallel.DistributedDataParallel(job.model)
    job = replace(job, model=model, batches=own)

    def run() -> tuple[float, float]:
        comm.barrier(check=False)
        start = perf_counter()
        losses = pytorch.torch_pass(job)
        seconds = (perf_counter() - start) / network.steps
        total = comm.all_reduce(np.array([float(losses.sum()) * (last - first)]))
        return seconds, total[0] / (network.batch * network.steps)

    return run


def sides(network: Network | Images, ranks: int, with_torch: bool, link: bool, folder: str) -> list[Side]:
    """All sides of a comparison."""
    from pdnn.strategies import DataParallel

    found = [
        Side(ONE, images.pdnn_side, (network, "serial")),
        Side(RANKS, images.pdnn_side, (network, "ddp"), ranks, ranks=ranks),
        Side(BUCKETS, images.pdnn_side, (network, DataParallel(shared_memory=False)), ranks, ranks=ranks),
        Side(ONE_BUCKET, images.pdnn_side, (network, DataParallel(bucket_bytes=2**40)), ranks, ranks=ranks),
    ]
    if network is images.RESNET9:
        found.append(Side(SYNC, images.pdnn_side, (network, "ddp", "", None, True), ranks, ranks=ranks))
    if not link:
        found.append(Side(TEAM, images.pdnn_side, (network, f"team:{ranks}"), ranks))
        found.append(Side(APART, pdnn_apart, (network, ranks), ranks, ranks=ranks))
    if with_torch:
        meeting_point = str(Path(folder, f"meeting-of-{network.name.split()[0]}"))
        found.append(Side(TORCH_ONE, torch_one, (network,)))
        found.append(Side(TORCH_RANKS, torch_ranks, (network, meeting_point), ranks, ranks=ranks))
    return found


def parts_of(result: Blocks, kept: Sequence[int]) -> Mapping[str, float]:
    """Microseconds of each part of a step: medians over the fastest quarter of the blocks that are kept."""
    fastest = sorted(kept, key=lambda block: result.seconds[block])[: -(-len(kept) // 4)]
    names = result.parts[0].keys()
    return {name: 1e6 * median(result.parts[block][name] for block in fastest) for name in names}


def compare(entries: Sequence[Side], network: Network | Images, method: Method) -> dict[str, Any]:
    """Runs one comparison: arguments, result and errors are those of `step.compare`."""
    found = measure.compare(entries, method)
    # Unless it is synchronized, batch normalization on a rank sees its own rows only, in both libraries.
    for group in ({ONE, SYNC, TEAM, TORCH_ONE}, {RANKS, BUCKETS, ONE_BUCKET, TORCH_RANKS}):
        alike = [number for number, side in enumerate(entries) if side.name in group]
        losses = [found.results[number].check for number in alike]
        measure.check_losses([entries[number] for number in alike], losses)
    report = found.report(network, ranks=max(side.ranks for side in entries))
    if not report["kept"]:
        return report
    times = {side.name: 1e6 * found.seconds(number) for number, side in enumerate(entries)}
    report["sides"] = [
        {
            "side": side.name,
            "microseconds": times[side.name],
            "ratio": times[side.name] / times[ONE],
            "speedup": times[TORCH_ONE if side.name.startswith("PyTorch") else ONE] / times[side.name],
            "parts": parts_of(result, found.kept(side)),
        }
        for side, result in zip(entries, found.results, strict=True)
    ]
    return report


def table(result: Mapping[str, Any]) -> str:
    """One comparison as text."""
    title = f"{result['network']}, {result['dtype']}, {result['ranks']} ranks of one core"
    rows = [
        f"{row['side']:22} {row['microseconds']:10.0f} {row['ratio']:7.2f} {row['speedup']:8.2f}"
        for row in result["sides"]
    ]
    rows += [spent(row) for row in result["sides"] if row["side"].startswith(RANKS)]
    return measure.table(title, result, f"{'':22} {'µs a step':>10} {'× pdnn':>7} {'speedup':>8}", rows)


def spent(row: Mapping[str, Any]) -> str:
    """Where a step of pdnn's ranks goes, as text."""
    parts = dict(row["parts"])
    hidden = parts.pop("hidden")
    spent = ", ".join(f"{name} {value:.0f}" for name, value in parts.items() if value)
    share = hidden / max(hidden + parts["agreement"], 1e-9)
    return f"{row['side']}: {spent} µs; {share:.0%} of the gradients' way hidden"


def plot(report: Mapping[str, Any], path: str) -> None:
    """A group of bars for each network: speedups over one core."""
    from matplotlib.figure import Figure

    results = [result for result in report["results"] if result["sides"]]
    figure = Figure(figsize=(2 + 2 * len(results), 3.5), layout="constrained")
    axes = figure.add_subplot()
    shown = [RANKS, TEAM, TORCH_RANKS]
    for index, name in enumerate(shown):
        places, heights = [], []
        for place, result in enumerate(results):
            for row in result["sides"]:
                if row["side"] == name:
                    places.append(place + 0.27 * (index - 1))
                    heights.append(row["speedup"])
        axes.bar_label(axes.bar(places, heights, 0.25, label=name), fmt="%.2f", fontsize=7)
    axes.axhline(1, color="gray", linewidth=0.8)
    axes.set_xticks(range(len(results)), [result["network"].split(",")[0] for result in results], fontsize=8)
    axes.set_ylabel("speedup over one core", fontsize=8)
    axes.legend(fontsize=8)
    link = f", link of {report['megabits']:g} Mbit/s" if report["megabits"] else ""
    axes.set_title(report["machine"]["processor"] + link, fontsize=9)
    figure.savefig(path, dpi=130)


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    measure.add_names(parser, "--networks", NETWORKS, DEFAULT)
    parser.add_argument("--ranks", type=int, default=2, help="of one core each (default %(default)s)")
    measure.add_options(parser)
    parser.add_argument("--no-torch", action="store_true", help="leave PyTorch out")
    parser.add_argument(
        "--link", type=float, metavar="MEGABITS", help="put the ranks on two machines, with such a link"
    )
    parser.add_argument("--plot", type=measure.destination, metavar="FILE", help="write a picture")
    options = parser.parse_args(arguments)
    cores = len(os.sched_getaffinity(0))
    if not 2 <= options.ranks <= cores:
        parser.error(f"--ranks {options.ranks}; expected 2 or more, and a core for each of them, of {cores}")
    if options.link:
        slow_link.enter(options.link, [__file__, *arguments], parser)

    with_torch = not options.no_torch and installed_version("torch") is not None
    method, report = measure.method(options), measure.begin(megabits=options.link)
    if options.link:
        print(f"ranks on two machines, {options.link:g} Mbit/s each way")
    for name in options.networks:
        with tempfile.TemporaryDirectory() as folder:
            entries = sides(NETWORKS[name], options.ranks, with_torch, bool(options.link), folder)
            report["results"].append(compare(entries, NETWORKS[name], method))
        print("\n" + table(report["results"][-1]), flush=True)
    measure.write(report, options.json)
    if options.plot:
        plot(report, options.plot)


if __name__ == "__main__":
    main(sys.argv[1:])
