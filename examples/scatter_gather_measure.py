"""What scatter_gather.py measures beside the job, matrix products and the link of two ranks; its pictures."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import pdnn
from pdnn.comm import Communicator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = npt.NDArray[Any]
Product = Callable[[Array, Array], Array]
Row = Sequence[object]


def pdnn_product(a: Array, b: Array, threads: int = 1) -> Array:
    """The product by pdnn's kernels, which take C-ordered arrays."""
    return pdnn.exercises.matmul(np.ascontiguousarray(a), np.ascontiguousarray(b), threads)


#: The products that the job can be told to use; another device's would be one more line.
PRODUCTS: dict[str, Product] = {"numpy": np.matmul, "pdnn": pdnn_product}


def time_products(sizes: Iterable[int], threads: int, seconds: float = 0.02) -> list[tuple[int, str, float]]:
    """Times of the product of two (n, n) float64 matrices: (n, name, best of what fits into `seconds`).

    `PRODUCTS` run on one thread (NumPy's if the environment says so), pdnn's also on `threads`.
    """
    contestants = dict(PRODUCTS)
    if threads > 1:
        contestants[f"pdnn, {threads} threads"] = partial(pdnn_product, threads=threads)
    random = np.random.RandomState(0)
    rows = []
    for n in sizes:
        a, b = random.rand(n, n), random.rand(n, n)
        for name, product in contestants.items():
            product(a, b)
            best, end = float("inf"), time.perf_counter() + seconds
            while (began := time.perf_counter()) < end:
                product(a, b)
                best = min(best, time.perf_counter() - began)
            rows.append((n, name, best))
    return rows


def crossover(rows: Iterable[tuple[int, str, float]], candidate: str, reference: str) -> int | None:
    """The size from which on `candidate` is the faster of the two; None if it is not at the largest size."""
    times = {(n, name): best for n, name, best in rows}
    wins = None
    for n in sorted({n for n, _ in times}, reverse=True):
        if times[n, candidate] >= times[n, reference]:
            break
        wins = n
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

    figure = Figure(figsize=(6, 3.8), layout="constrained")
    content(figure.add_subplot())
    figure.savefig(path, dpi=120)


def draw_products(axes: Axes, rows: Iterable[tuple[int, str, float]]) -> None:
    """GFLOP/s against the size of the matrices, a line a product."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for n, name, best in rows:
        lines.setdefault(name, []).append((n, 2 * n**3 / best / 1e9))
    for name, points in lines.items():
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=name)
    axes.set(xscale="log", yscale="log", xlabel="n", ylabel="GFLOP/s", title="(n, n) @ (n, n), float64")
    axes.grid(alpha=0.3)
    axes.legend()


def draw_messages(axes: Axes, rows: Iterable[tuple[int, float]]) -> None:
    """MB/s against the size of the message."""
    axes.plot(*zip(*rows, strict=True), marker="o", markersize=3)
    axes.set(xscale="log", yscale="log", xlabel="bytes in a message", ylabel="MB/s", title="rank 0 to rank 1")
    axes.grid(alpha=0.3)


def draw_phases(axes: Axes, runs: Mapping[str, Mapping[str, float]]) -> None:
    """Milliseconds an iteration of each phase, a bar a run.

    Parameters
    ----------
    runs : mapping of a name to a mapping of phases to milliseconds
    """
    height = 0.8 / len(runs)
    for index, (name, phases) in enumerate(runs.items()):
        places = np.arange(len(phases)) + (index - (len(runs) - 1) / 2) * height
        axes.barh(places, list(phases.values()), height, label=name)
    axes.set_yticks(np.arange(len(phases)), list(phases))
    axes.invert_yaxis()
    axes.set(xlabel="ms an iteration, on rank 0")
    axes.grid(axis="x", alpha=0.3)
    axes.legend()
