"""All-reduce by size: pdnn's, MPI's own blocking and non-blocking ones, and how fast one could be.

python benchmarks/collectives.py [--ranks 2] [--quick] [--link MEGABITS] [--json FILE] [--plot FILE]

Ranks of one core each call one after the other in the same processes, in turns, on the same float32 array:
the core's call, which is what a training step makes; that of `comm.all_reduce`, without and with the
comparison of arguments; MPI's two through mpi4py; and one by hand for arrays that lie in `comm.share`. A time
is a call's, of the slowest rank; the median of the fastest quarter of the blocks. The limit: each of p ranks
must take in 2 (p - 1) / p times the array, and copies that much of what another rank has just written into
shared memory, all of them at once; over a slow link (slow_link.py), what the link lets through.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

import measure
import slow_link

SIZES = tuple(4 * 4**power for power in range(13))
"""Bytes: 4 B to 64 MiB."""
BLOCK = 0.005
"""Seconds of one side's turn, about."""
COPIED = 5e9
"""Bytes a second, about, that a rank copies."""
CORE, PDNN, CHECKED = "pdnn, core", "pdnn", "pdnn, checked"
BLOCKING, STARTED, SHARED = "MPI_Allreduce", "MPI_Iallreduce", "comm.share"
LIMIT = "limit"


def shared_all_reduce(comm: Any, size: int) -> tuple[Any, Callable[[Any], None]] | None:
    """This rank's array in shared memory, and what sums it: each rank adds up a share, all copy the shares.

    None if ranks share no memory.
    """
    shared = comm.share((comm.size + 1, size // 4))
    if shared is None:
        return None
    own, total = shared[comm.rank], shared[-1]
    cuts = [size // 4 * rank // comm.size for rank in range(comm.size + 1)]
    share = slice(cuts[comm.rank], cuts[comm.rank + 1])

    def call(array: Any) -> None:
        comm.core.start_barrier().wait()
        np.add(shared[0, share], shared[1, share], out=total[share])
        for rank in range(2, comm.size):
            total[share] += shared[rank, share]
        comm.core.start_barrier().wait()
        array[:] = total

    return own, call


def all_reduces(comm: Any) -> dict[str, Callable[[Any], Any]]:
    """The sides: each sums an array over all ranks, in place."""
    from mpi4py import MPI

    from pdnn import _core

    world = MPI.COMM_WORLD
    return {
        CORE: lambda array: comm.core.start_all_reduce(array, array, _core.Op.sum).wait(),
        PDNN: lambda array: comm.all_reduce(array, check=False),
        CHECKED: comm.all_reduce,
        BLOCKING: lambda array: world.Allreduce(MPI.IN_PLACE, array),
        STARTED: lambda array: world.Iallreduce(MPI.IN_PLACE, array).Wait(),
    }


def on_a_rank(sizes: Sequence[int], blocks: int) -> list[dict[str, list[float]]]:
    """What every rank does: for each size, the seconds of a call of each side in each block."""
    import pdnn

    comm = pdnn.world()
    sides = all_reduces(comm)
    found: list[dict[str, list[float]]] = []
    for size in sizes:
        array = np.zeros(size // 4, np.float32)
        runs = {name: _repeated(comm, call, array) for name, call in sides.items()}
        if (shared := shared_all_reduce(comm, size)) and (copying := _copies(comm, size)):
            own, call = shared
            runs |= {SHARED: _repeated(comm, call, own), LIMIT: copying}
        times: dict[str, list[float]] = {name: [] for name in runs}
        for _ in range(blocks):
            for name, run in runs.items():
                times[name].append(run())
        found.append(times)
    return found


def _repeated(comm: Any, call: Callable[[Any], Any], array: Any) -> Callable[[], float]:
    """A block of calls, as many as take some milliseconds; the first call shows that it adds up."""
    array[:] = comm.rank + 1
    start = perf_counter()
    call(array)
    if (array != comm.size * (comm.size + 1) / 2).any():
        raise RuntimeError(f"the sum over {comm.size} ranks is {array[0]}")
    array[:] = 0
    call(array)
    guess = comm.all_reduce(np.array([perf_counter() - start]), op="max")[0] / 2
    calls = max(1, min(1000, int(BLOCK / guess)))

    def block() -> float:
        call(array)  # what ran before has left its own data in the caches
        comm.barrier(check=False)
        start = perf_counter()
        for _ in range(calls):
            call(array)
        return (perf_counter() - start) / calls

    return block


def _copies(comm: Any, size: int) -> Callable[[], float] | None:
    """A block of copies of what the next rank has written; None if ranks share no memory."""
    shared = comm.share((comm.size, size), np.uint8)
    if shared is None:
        return None
    own, theirs = shared[comm.rank], shared[(comm.rank + 1) % comm.size]
    target = np.empty(size, np.uint8)
    calls = max(1, min(50, int(BLOCK * COPIED / size)))

    def block() -> float:
        seconds = 0.0
        for _ in range(calls):
            own[:] = comm.rank
            comm.barrier(check=False)
            start = perf_counter()
            target[:] = theirs
            seconds += perf_counter() - start
            comm.barrier(check=False)
        return seconds / calls * needed(comm.size)

    return block


def needed(ranks: int) -> float:
    """How many times the array a rank must at least take in."""
    return 2 * (ranks - 1) / ranks


def run(ranks: int, sizes: Sequence[int], blocks: int, megabits: float | None) -> list[dict[str, Any]]:
    """Starts the ranks; for each size, the seconds of each side."""
    import pdnn

    of_ranks = pdnn.run(on_a_rank, sizes, blocks, ranks=ranks)
    found: list[dict[str, Any]] = []
    for index, size in enumerate(sizes):
        times = {
            name: measure.fastest_quarter([max(block) for block in zip(*each, strict=True)])
            for name in of_ranks[0][index]
            if (each := [rank[index][name] for rank in of_ranks])
        }
        if megabits:
            times[LIMIT] = needed(ranks) * size * 8 / (megabits * 1e6)
        found.append({"bytes": size, "seconds": times})
    return found


def table(results: Sequence[Mapping[str, Any]]) -> str:
    """Microseconds of a call, a line for each size."""
    names = list(results[0]["seconds"])
    lines = [f"{'bytes':>12}" + "".join(f"{name:>16}" for name in names)]
    for result in results:
        times = [1e6 * result["seconds"][name] for name in names]
        lines.append(f"{result['bytes']:12,}" + "".join(f"{time:16.1f}" for time in times))
    return "\n".join(["µs a call", *lines])


def plot(report: Mapping[str, Any], path: str) -> None:
    """Time against size, both logarithmic."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    sizes = [result["bytes"] for result in report["results"]]
    for name in report["results"][0]["seconds"]:
        times = [1e6 * result["seconds"][name] for result in report["results"]]
        style = {"color": "gray", "linestyle": "--"} if name == LIMIT else {"marker": "o", "markersize": 3}
        axes.loglog(sizes, times, label=name, base=2, **style)
    axes.set_yscale("log", base=10)
    axes.set_xlabel("bytes")
    axes.set_ylabel("µs an all-reduce")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    link = f", link of {report['megabits']:g} Mbit/s" if report["megabits"] else ""
    axes.set_title(f"{report['machine']['processor']}, {report['ranks']} ranks{link}", fontsize=9)
    figure.savefig(path, dpi=130)


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2, help="of one core each (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="few blocks, sizes to 1 MiB: rough figures")
    parser.add_argument(
        "--link", type=float, metavar="MEGABITS", help="put the ranks on two machines, with such a link"
    )
    parser.add_argument("--json", type=measure.destination, metavar="FILE", help="write everything measured")
    parser.add_argument("--plot", type=measure.destination, metavar="FILE", help="write a picture")
    options = parser.parse_args(arguments)
    cores = len(os.sched_getaffinity(0))
    if not 2 <= options.ranks <= cores:
        parser.error(f"--ranks {options.ranks}; expected 2 or more, and a core for each of them, of {cores}")
    if options.link:
        slow_link.enter(options.link, [__file__, *arguments], parser)
    sizes, blocks = (SIZES[:10], 4) if options.quick else (SIZES, 20)
    report = measure.begin(ranks=options.ranks, megabits=options.link)
    where = f"two machines, {options.link:g} Mbit/s each way" if options.link else "one machine"
    print(f"{options.ranks} ranks on {where}")
    report["results"] = run(options.ranks, sizes, blocks, options.link)
    print(table(report["results"]))
    measure.write(report, options.json)
    if options.plot:
        plot(report, options.plot)


if __name__ == "__main__":
    main(sys.argv[1:])
