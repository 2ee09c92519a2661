"""Measuring side by side: programs in processes of their own take turns, block by block, within one run.

The clock of a machine drifts and other programs come and go, so times of different runs do not compare.
Here every side runs one block a turn, the turns go round, and a side's time is the median of the fastest
quarter of its blocks: what the side does when nothing disturbs it. A figure is a ratio of two such times.

A side that has slept does not begin as it goes on: its data are not in the caches, and the threads of some
libraries wake up on one core. So each block follows at once on untimed ones of the same side. At the end
every side runs as many blocks again one after another, the others asleep: what it takes alone.

A side with several cores hands data from core to core, and on shared machines that has slow spells of
seconds: the round trip is measured between blocks, and blocks beside a slow one are left out.

The processes of the sides are those of workers.py; they sleep until it is their turn.
"""

from __future__ import annotations

import json
import math
import os
import platform
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, sleep
from typing import Any, TypeVar

from workers import Side, Worker, installed_version, start

T = TypeVar("T")

SETTLE = 0.05
"""Seconds from the end of a side's block to what the next side does."""

WARM_UP = 0.1
"""Seconds of untimed blocks before each block, unless told otherwise."""


@dataclass
class Blocks:
    """What a side's blocks measured.

    Attributes
    ----------
    seconds : list of float
        A step, in each block.
    processor : list of float
        Seconds of processor time that each block took, over all threads: a clock that stands still while
        other programs have the core.
    parts : list of dict of str to float
        Seconds of what a step consists of, in each block, where the side tells; rank 0's.
    check : float
        The runner's number after the first block.
    blas : str
        The BLAS library in its process and the processor that its kernels are for; empty if not known.
    alone : list of float
        A step, in each of as many blocks one after another, while the other sides sleep.
    """

    seconds: list[float]
    processor: list[float]
    check: float
    blas: str
    alone: list[float] = field(default_factory=list)
    parts: list[Mapping[str, float]] = field(default_factory=list)


def fastest_quarter(seconds: Sequence[float]) -> float:
    """The median of the fastest quarter, at least one value, of a side's blocks; nan if there are none."""
    return median(sorted(seconds)[: math.ceil(len(seconds) / 4)]) if seconds else math.nan


def quiet(blocks: Sequence[T], trips: Sequence[float], slowest: float) -> list[T]:
    """The blocks with no round trip over `slowest` before (``trips[i]``) or after (``trips[i + 1]``)."""
    return [
        block
        for block, before, after in zip(blocks, trips[:-1], trips[1:], strict=True)
        if max(before, after) <= slowest
    ]


def alternate(
    sides: Sequence[Side], blocks: int, between: Callable[[], float], warm_up: float = WARM_UP
) -> tuple[list[Blocks], list[float]]:
    """Runs `blocks` blocks of every side in turns, and then those of each side alone.

    Between two sides it waits for what the last one may have left running: the threads of a BLAS library
    spin on for some 30 ms.

    Parameters
    ----------
    sides : sequence of Side
    blocks : int
    between : function
        Called before the first turn and after each one.
    warm_up : float
        Seconds, at least, of the untimed blocks before each block: a whole number of them.

    Returns
    -------
    list of Blocks
        One a side.
    list of float
        What `between` returned, blocks + 1 values.

    Raises
    ------
    RuntimeError
        If a side fails; with its message.
    """
    workers: list[Worker] = []
    try:
        workers.extend(start(side) for side in sides)
        results = [Blocks([], [], worker.run(0)[1], worker.blas) for worker in workers]
        untimed = [math.ceil(warm_up / _seconds(worker)) for worker in workers]
        values = [between()]
        for _ in range(blocks):
            for worker, result, number in zip(workers, results, untimed, strict=True):
                sleep(SETTLE)
                seconds, _, processor, parts = worker.run(number)
                result.seconds.append(seconds)
                result.processor.append(processor)
                result.parts.append(parts)
            sleep(SETTLE)
            values.append(between())
        for worker, result, number in zip(workers, results, untimed, strict=True):
            sleep(SETTLE)
            worker.run(number)
            result.alone.extend(worker.run(0)[0] for _ in range(blocks))
    finally:
        for worker in workers:
            worker.stop()
    return results, values


def _seconds(worker: Worker) -> float:
    """Of a whole block, the second one."""
    began = perf_counter()
    worker.run(0)
    return perf_counter() - began


@dataclass(frozen=True)
class Method:
    """How sides are compared: what the options of `add_options` say.

    Attributes
    ----------
    blocks : int
        Of each side.
    slowest_trip : float
        Seconds; blocks of several cores beside a slower round trip between two of them are left out.
    warm_up : float
        Seconds of untimed blocks before each.
    """

    blocks: int
    slowest_trip: float
    warm_up: float = WARM_UP


@dataclass(frozen=True)
class Comparison:
    """What the blocks of some sides measured.

    Attributes
    ----------
    sides : sequence of Side
    results : list of Blocks
        One a side.
    trips : list of float
        Seconds of a round trip between two cores, before the first round and after each; 0 if all sides have
        one core.
    method : Method
    """

    sides: Sequence[Side]
    results: list[Blocks]
    trips: list[float]
    method: Method

    def kept(self, side: Side) -> list[int]:
        """Numbers of the blocks that count: of one core all of them."""
        blocks = list(range(len(self.trips) - 1))
        return blocks if side.cores == 1 else quiet(blocks, self.trips, self.method.slowest_trip)

    def seconds(self, number: int) -> float:
        """Of a step of the side with this number."""
        return self._fastest(number, self.results[number].seconds)

    def processor(self, number: int) -> float:
        """Seconds of processor time of a block of the side with this number."""
        return self._fastest(number, self.results[number].processor)

    def _fastest(self, number: int, values: Sequence[float]) -> float:
        return fastest_quarter([values[block] for block in self.kept(self.sides[number])])

    def report(self, network: Any, **more: Any) -> dict[str, Any]:
        """What every comparison's JSON begins with; the rows of its sides are to come."""
        widest = max(self.sides, key=lambda side: side.cores)
        return {
            "network": network.name,
            "dtype": network.dtype,
            **more,
            "round_trip_nanoseconds": 1e9 * median(self.trips),
            "blocks": self.method.blocks,
            "kept": len(self.kept(widest)),
            "sides": [],
        }


def compare(sides: Sequence[Side], method: Method) -> Comparison:
    """Runs the sides in turns.

    Raises
    ------
    RuntimeError
        If a side fails.
    """
    from pdnn import _core

    several = any(side.cores > 1 for side in sides)
    between = _core.measure_round_trip if several else lambda: 0.0
    return Comparison(sides, *alternate(sides, method.blocks, between, method.warm_up), method)


def check_losses(sides: Sequence[Side], losses: Sequence[float]) -> None:
    """Raises RuntimeError unless all sides that tell a mean loss tell the first one's, to their tolerance."""
    found = zip(sides, losses, strict=True)
    check_same(
        "mean loss", [(side.name, loss, side.tolerance) for side, loss in found if not math.isnan(loss)]
    )


def check_same(what: str, found: Sequence[tuple[str, float, float]]) -> None:
    """Raises RuntimeError unless all numbers are the first one: names, numbers and relative tolerances."""
    for name, number, tolerance in found:
        first, expected, _ = found[0]
        if not math.isclose(number, expected, rel_tol=tolerance):
            raise RuntimeError(f"{name} has a {what} of {number}, {first} of {expected}: not the same work")


def round_trip_line(report: Mapping[str, Any]) -> str:
    """How far the cores were apart, and which blocks count."""
    trip = f"{report['round_trip_nanoseconds']:.0f} ns"
    return f"core-to-core round trip {trip}; {report['kept']} of {report['blocks']} blocks kept"


NO_FIGURES = "no figures: the cores are not free, or far apart (see --round-trip)"


def table(title: str, report: Mapping[str, Any], head: str, rows: Iterable[str], *, cores: int = 2) -> str:
    """A comparison as text: lines for its sides, and with several cores how far these were apart."""
    lines = [title, round_trip_line(report)] if cores > 1 else [title]
    return "\n".join([*lines, head, *rows] if report["sides"] else [*lines, NO_FIGURES])


def add_names(
    parser: ArgumentParser,
    option: str,
    known: Iterable[str],
    default: str | None = None,
    what: str = "which ones",
) -> None:
    """Adds an option that takes some of these names, divided by commas; all of them unless told otherwise."""
    known = list(known)

    def names(text: str) -> list[str]:
        if strange := sorted({*text.split(",")} - {*known}):
            raise ArgumentTypeError(f"{', '.join(strange)}; expected some of {', '.join(known)}")
        return text.split(",")

    parser.add_argument(
        option,
        type=names,
        default=default or ",".join(known),
        metavar="NAMES",
        help=f"{what} (default %(default)s)",
    )


def count(text: str) -> int:
    """An option's whole number, at least 1."""
    from pdnn.cli.values import positive_int  # a side's interpreter may have no pdnn

    return positive_int(text)


def destination(text: str) -> str:
    """An option's file to write: that nothing can be written there is said before the work."""
    from pdnn.cli.values import output

    if not os.path.isfile(text):
        return output(text)
    if not os.access(text, os.W_OK):  # it is written in place
        raise ArgumentTypeError(f"{text}: nothing can be written there")
    return text


def add_options(
    parser: ArgumentParser, *, quick: str = "few blocks: rough figures", round_trip: float = 1000
) -> None:
    """Adds the options that the programs have in common.

    Parameters
    ----------
    parser : ArgumentParser
    quick : str
        What --quick means.
    round_trip : float
        Nanoseconds, the default of --round-trip.
    """
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--blocks", type=count, help="blocks a side (default 40; quick: 8)")
    parser.add_argument(
        "--round-trip",
        type=float,
        default=round_trip,
        metavar="NS",
        help="blocks of several cores beside a slower one are left out (default %(default)s ns)",
    )
    add_warm_up(parser)
    parser.add_argument("--json", type=destination, metavar="FILE", help="write everything measured")


def add_warm_up(parser: ArgumentParser) -> None:
    """Adds `--warm-up`, of `alternate`."""
    parser.add_argument(
        "--warm-up",
        type=float,
        default=1e3 * WARM_UP,
        metavar="MS",
        help="of untimed blocks before each (default %(default)s ms)",
    )


def method(options: Namespace) -> Method:
    """What the options of `add_options` ask for."""
    blocks = options.blocks or (8 if options.quick else 40)
    return Method(blocks, 1e-9 * options.round_trip, 1e-3 * options.warm_up)


def begin(**more: Any) -> dict[str, Any]:
    """Prints where the figures are measured; returns what a program's JSON begins with."""
    about = machine()
    print(f"{about['processor']}, {about['cores']} cores, load {about['load']:.1f} at the start")
    print(", ".join(f"{name} {version}" for name, version in about["versions"].items()))
    return {"machine": about, "results": [], **more}


def write(report: Mapping[str, Any], path: str | None) -> None:
    """Writes everything measured, if a file is named."""
    if path:
        Path(path).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def machine() -> dict[str, Any]:
    """Where a figure was measured: processor, cores, system, load, and versions of what is installed."""
    model = platform.processor()
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    names = ("numpy", "torch", "scikit-learn", "jax", "cmeel-eigen")
    return {
        "processor": model,
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "versions": {name: installed for name in names if (installed := installed_version(name))},
    }
