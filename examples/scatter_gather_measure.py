"""What scatter_gather.py measures beside the job, matrix products and the link of two ranks; its pictures."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scatter_gather_job as job

import pdnn
from pdnn.comm import Communicator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = npt.NDArray[Any]
Product = Callable[[Array, Array], Array]
Row = Sequence[object]
Shape = tuple[int, int, int]

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))  # where eigen.py is

#: A color for each product, and for each way to drive the loop, in all pictures.
COLORS = {
    "numpy": "tab:blue",
    "pdnn": "tab:orange",
    "pdnn, 2 threads": "tab:red",
    "eigen": "tab:green",
    "1 rank": "black",
    "scatter every time": "tab:purple",
    "scatter once": "tab:cyan",
    "ddp": "tab:brown",
}


def pdnn_product(a: Array, b: Array, threads: int = 1) -> Array:
    """The product by pdnn's kernels, which take C-ordered arrays."""
    return pdnn.exercises.matmul(np.ascontiguousarray(a), np.ascontiguousarray(b), threads)


def eigen_product(a: Array, b: Array) -> Array:
    """The product by Eigen, which is compiled at its first call (../benchmarks/eigen.py)."""
    import eigen

    return eigen.matmul(a, b)


#: The products that the job can be told to use; another device's would be one more line.
PRODUCTS: dict[str, Product] = {"numpy": np.matmul, "pdnn": pdnn_product, "eigen": eigen_product}


def contestants(threads: int) -> dict[str, Product]:
    """Those of `PRODUCTS` that can run here, on one thread, and pdnn's on `threads`."""
    import eigen

    found = dict(PRODUCTS)
    if not eigen.is_here():
        del found["eigen"]
    if threads > 1:
        found[f"pdnn, {threads} threads"] = partial(pdnn_product, threads=threads)
    return found


def squares(sizes: Iterable[int]) -> list[Shape]:
    """Products of two (n, n) matrices."""
    return [(n, n, n) for n in sizes]


def products_of_the_job(rows: int) -> dict[str, Shape]:
    """The five products of an iteration on a rank with so many rows, in their order, as (m, k, n)."""
    return {
        "hidden": (rows, job.INPUTS, job.HIDDEN),
        "output": (rows, job.HIDDEN, job.CLASSES),
        "gradient 2": (job.CLASSES, rows, job.HIDDEN),
        "back": (rows, job.CLASSES, job.HIDDEN),
        "gradient 1": (job.HIDDEN, rows, job.INPUTS),
    }


def time_products(
    shapes: Iterable[Shape], products: Mapping[str, Product], rounds: int = 7, seconds: float = 0.005
) -> list[tuple[Shape, str, float]]:
    """Times of float64 products (m, k) @ (k, n): ((m, k, n), name, seconds of a call).

    The products take turns; a turn is as many calls as fit into `seconds`, one at least, and a time is the
    median of `rounds` turns. So a disturbance of one turn, or of all of them alike, changes no order.
    """
    random = np.random.RandomState(0)
    rows = []
    for m, k, n in shapes:
        a, b = random.rand(m, k), random.rand(k, n)
        calls, turns = dict[str, int](), dict[str, list[float]]()
        for name, product in products.items():
            product(a, b)
            began = time.perf_counter()
            product(a, b)
            calls[name] = max(1, int(seconds / (time.perf_counter() - began)))
            turns[name] = []
        for _ in range(rounds):
            for name, product in products.items():
                began = time.perf_counter()
                for _ in range(calls[name]):
                    product(a, b)
                turns[name].append((time.perf_counter() - began) / calls[name])
        rows += [((m, k, n), name, median(turns[name])) for name in products]
    return rows


def crossover(
    rows: Iterable[tuple[Shape, str, float]], candidate: str, reference: str, margin: float = 0.05
) -> int | None:
    """The m from which on `candidate` is faster than `reference`; None if there is none.

    A difference of less than `margin` is none: beyond that size the candidate may be as fast, never slower.
    """
    times = {(shape[0], name): seconds for shape, name, seconds in rows}
    wins = None
    for m in sorted({m for m, _ in times}, reverse=True):
        ratio = times[m, candidate] / times[m, reference]
        if ratio > 1 + margin:
            break
        if ratio < 1 - margin:
            wins = m
    return wins


def time_messages(comm: Communicator, sizes: Iterable[int], repeats: int = 20) -> list[tuple[int, float]]:
    """Speeds of messages between ranks 0 and 1: (bytes, MB/s), by half the fastest round trip.

    Every rank may call it; from the others it returns an empty list.
    """
    rows = []
    for size in sizes:
        if comm.rank > 1:
            break
        message, best = np.zeros(size, np.uint8), float("inf")
        for _ in range(repeats):
            began = time.perf_counter()
            if comm.rank == 0:
                comm.send(message, dest=1, check=False)
                comm.recv(source=1, out=message, check=False)
            else:
                comm.recv(source=0, out=message, check=False)
                comm.send(message, dest=0, check=False)
            best = min(best, (time.perf_counter() - began) / 2)
        rows.append((size, size / best / 1e6))
    return rows


# ---- tables and pictures


def write_table(path: Path, header: Row, rows: Iterable[Row]) -> None:
    """A CSV file."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def draw(path: Path, content: Callable[[Axes], None]) -> None:
    """A PNG file of one plot, made without pyplot: no display is needed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    content(figure.add_subplot())
    figure.savefig(path, dpi=120)


def draw_products(axes: Axes, rows: Iterable[tuple[Shape, str, float]]) -> None:
    """Times of products of square matrices as multiples of NumPy's, against their size, a line a product.

    Multiples above 10 are cut off.
    """
    times = {(shape[0], name): seconds for shape, name, seconds in rows}
    sizes, names = (list(dict.fromkeys(column)) for column in zip(*times, strict=True))
    for name in names:
        ratios = [times[size, name] / times[size, "numpy"] for size in sizes]
        axes.plot(sizes, ratios, marker="o", markersize=3, color=COLORS.get(name), label=name)
    axes.set(xscale="log", yscale="log", xlabel="n", ylabel="time, × NumPy's", ylim=(0.4, 10))
    axes.set(title="(n, n) @ (n, n), float64")
    for axis, ticks in ((axes.xaxis, sizes), (axes.yaxis, [0.5, 1, 2, 5, 10])):
        axis.set_ticks(ticks, [str(tick) for tick in ticks])
        axis.set_ticks([], minor=True)
    axes.grid(alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


def draw_job_products(axes: Axes, rows: Sequence[tuple[Shape, str, float]], names: Sequence[str]) -> None:
    """Microseconds of each product of the job, in the order of `products_of_the_job`, a bar a product."""
    kinds = list(dict.fromkeys(name for _, name, _ in rows))
    bars = {kind: [1e6 * seconds for _, name, seconds in rows if name == kind] for kind in kinds}
    draw_bars(axes, {kind: dict(zip(names, values, strict=True)) for kind, values in bars.items()})
    axes.set(xlabel="µs", xscale="log", xlim=(10, None))


def draw_messages(axes: Axes, rows: Iterable[tuple[int, float]]) -> None:
    """MB/s against the size of the message."""
    axes.plot(*zip(*rows, strict=True), marker="o", markersize=3)
    axes.set(xscale="log", yscale="log", xlabel="bytes in a message", ylabel="MB/s", title="rank 0 to rank 1")
    axes.grid(alpha=0.3)


def draw_phases(axes: Axes, runs: Mapping[str, Mapping[str, float]]) -> None:
    """Milliseconds an iteration of each phase, a bar a run; `runs`: name to phases to milliseconds."""
    draw_bars(axes, runs)
    axes.set(xlabel="ms an iteration, on rank 0")


def draw_bars(axes: Axes, runs: Mapping[str, Mapping[str, float]]) -> None:
    """Groups of horizontal bars: a group for each inner name, a color for each outer one."""
    groups = list(dict.fromkeys(group for values in runs.values() for group in values))
    height = 0.8 / len(runs)
    for index, (name, values) in enumerate(runs.items()):
        places = np.arange(len(groups)) + (index - (len(runs) - 1) / 2) * height
        lengths = [values.get(group, 0.0) for group in groups]
        axes.barh(places, lengths, height, color=COLORS.get(name.split(" ranks, ")[-1]), label=name)
    axes.set_yticks(np.arange(len(groups)), groups)
    axes.invert_yaxis()
    axes.grid(axis="x", alpha=0.3)
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
