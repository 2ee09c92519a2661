"""One small network on two cores in every way that equals one process: times and bytes, beside peers.

python benchmarks/split.py [--batch 128] [--no-peers] [--quick] [--json FILE] [--round-trip NS]

784-256-10 with sigmoid, float32: each layer cut between two MPI ranks ("tp:2"), a layer a rank
("pipeline:2"), rows shared by two ranks ("ddp", in memory that they share, and in messages), and a team of
two threads, beside one core. Then what others make of two cores: NumPy and PyTorch with two threads,
PyTorch's DistributedDataParallel over gloo, and JAX. All start from the same parameters and must end with the
same loss. How it is measured: measure.py. Bytes are those that leave a rank in a step, and once an epoch, as
`History.bytes` counts them; "read" is what a rank reads where the other wrote, in memory that they share.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import measure
import peers
import pytorch
import scaling
from measure import Method
from peers import Network
from workers import Runner, Side, installed_version

ONE = "pdnn, one core"


def pdnn_side(network: Network, strategy: Any) -> Runner:
    """`Trainer.fit`, rows in order; with the seconds of a step the bytes that ranks send and read."""
    trainer, data = peers.make_trainer(network, strategy)
    counts = traffic(network, strategy)

    def run() -> tuple[float, float, Mapping[str, float]]:
        history = trainer.fit(data, batch_size=network.batch, shuffle=False, verbose=False)
        return history.history["seconds"][-1] / network.steps, history.history["loss"][-1], counts

    return run


def traffic(network: Network, strategy: Any) -> Mapping[str, float]:
    """Bytes that a rank, the one with most, sends and reads in a step, and sends once an epoch.

    From two epochs of different length, whose difference is steps.
    """
    trainer, data = peers.make_trainer(network, strategy)
    lengths = (network.steps // 2, network.steps)
    epochs = [
        trainer.fit(data[: steps * network.batch], batch_size=network.batch, verbose=False).ranks[-1]
        for steps in lengths
    ]
    most = {"sent": 0.0, "read": 0.0, "sent_beside": 0.0}
    for short, long in zip(*epochs, strict=True):
        steps = lengths[1] - lengths[0]
        sent, read = ((long[name] - short[name]) / steps for name in ("bytes", "shared_bytes"))
        beside = long["bytes"] - lengths[1] * sent
        found = {"sent": sent, "read": read, "sent_beside": beside}
        most = {name: max(most[name], found[name]) for name in most}
    return most


def sides(network: Network, folder: str, with_peers: bool) -> list[Side]:
    """All that is compared; peers, if wanted, as far as they are installed."""
    from pdnn.strategies import DataParallel

    ranks = {
        "pdnn tp:2": "tp:2",
        "pdnn pipeline:2/4": "pipeline:2/4",
        "pdnn ddp, shared memory": DataParallel(shared_memory=True),
        "pdnn ddp, messages": DataParallel(shared_memory=False),
    }
    found = [
        Side(ONE, pdnn_side, (network, "serial")),
        Side("pdnn team:2", pdnn_side, (network, "team:2"), 2),
    ]
    found += [Side(name, pdnn_side, (network, strategy), 2, ranks=2) for name, strategy in ranks.items()]
    if not with_peers:
        return found
    found.append(Side("NumPy, two threads", peers.numpy_step, (network,), 2))
    if installed_version("torch"):
        meeting_point = str(Path(folder, "meeting"))
        found.append(Side("PyTorch, two threads", pytorch.torch_eager, (network, 2, True), 2))
        found.append(Side("PyTorch DDP", scaling.torch_ranks, (network, meeting_point), 2, ranks=2))
    if installed_version("jax"):
        found.append(Side("JAX, two threads", peers.jax_scan, (network,), 2))
    return found


def compare(network: Network, with_peers: bool, method: Method) -> dict[str, Any]:
    """Runs the comparison; times in microseconds.

    Raises
    ------
    RuntimeError
        If a side fails, or its loss is not what the others have.
    """
    with tempfile.TemporaryDirectory() as folder:
        entries = sides(network, folder, with_peers)
        found = measure.compare(entries, method)
    measure.check_losses(entries, [result.check for result in found.results])
    report = found.report(network)
    report["sides"] = [
        {"side": side.name, "microseconds": 1e6 * found.seconds(number), **found.results[number].parts[-1]}
        for number, side in enumerate(entries)
    ]
    return report


def table(report: Mapping[str, Any]) -> str:
    """The comparison as text."""
    lines = [report["network"], measure.round_trip_line(report)]
    if not report["kept"]:
        return "\n".join([*lines, measure.NO_FIGURES])
    alone = report["sides"][0]["microseconds"]
    titles = f"{'bytes sent':>11} {'read':>9} {'sent once an epoch':>19}"
    lines.append(f"{'':24} {'µs a step':>9} {'speedup':>8} {titles}")
    for row in report["sides"]:
        counts = ""
        if "sent" in row:
            counts = f"{row['sent']:11,.0f} {row['read']:9,.0f} {row['sent_beside']:19,.0f}"
        lines.append(
            f"{row['side']:24} {row['microseconds']:9.0f} {alone / row['microseconds']:8.2f} {counts}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=128, help="rows of a step (default %(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="leave other libraries out")
    measure.add_options(parser)
    options = parser.parse_args(arguments)
    if len(os.sched_getaffinity(0)) < 2:
        parser.error("two ranks need a core each, and this process may use one")
    network = Network(f"784-256-10, batch {options.batch}", (784, 256, 10), "sigmoid", True, options.batch)
    report = measure.begin()
    report["results"].append(compare(network, not options.no_peers, measure.method(options)))
    print("\n" + table(report["results"][0]))
    measure.write(report, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
