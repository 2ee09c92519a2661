"""Where the time of a training step goes: samples of the processor, sorted by what the code was doing.

python benchmarks/phases.py [--quick] [--networks w0,w3] [--cores 1,2] [--dtype bfloat16] [--symbols 20]

Linux's `perf` samples the process of `Trainer.fit` while it trains, by cycles where the processor has
counters, else by its clock. A phase's time is its share of the samples, times the processor time of a step,
over all threads; beside it stands what the products alone would need at the machine's peak of fused
multiply-adds, measured in turns with it. How it is measured: measure.py.
"""

from __future__ import annotations

import argparse
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import measure
import peers
import step
from images import Images, pdnn_side
from measure import Method
from peers import Network
from workers import Runner, Side

FREQUENCY = 1000
"""Samples a second, of every thread that runs."""

PHASES: dict[str, tuple[str, ...]] = {
    "waiting": ("Barrier", "Team::serve", "sched_yield", "__schedule", "futex", "pause"),
    "products: tiles": ("multiply_tile", "sum_windows"),
    "products: edges, sums, updates": ("multiply_", "product", "convol", "update", "column_sums"),
    "copies": ("memmove", "memset", "transpose", "gather", "each_array", "copy_patch", "round_", "flip_"),
    "activations": ("activat", "derivative", "pool", "normalize", "dropout"),
    "loss": ("cross_entropy", "Loss", "log1p"),
    "checks": ("nonfinite",),
}
"""Parts of the names of functions by phase; the first phase with one of them has the sample."""

PYTHON, KERNEL, OTHER = "Python and NumPy", "system", "others"


def phase_of(library: str, symbol: str) -> str:
    """The phase of a function in a library, as perf writes their names."""
    for phase, names in PHASES.items():
        if any(name in symbol for name in names):
            return phase
    if library.startswith("[kernel"):
        return KERNEL
    return PYTHON if library.startswith(("libpython", "python", "_multiarray")) else OTHER


def shares(report: str) -> dict[tuple[str, str], float]:
    """The share of the samples that each function of perf's report has, by library and symbol."""
    found: dict[tuple[str, str], float] = {}
    for line in report.splitlines():
        fields = [field.strip() for field in line.split("|", 2)]
        if len(fields) == 3 and fields[0].endswith("%"):
            key = fields[1], fields[2].removeprefix("[.]").removeprefix("[k]").strip()
            found[key] = found.get(key, 0.0) + float(fields[0].removesuffix("%")) / 100
    return found


def event() -> str:
    """What perf can sample here.

    Raises
    ------
    RuntimeError
        If there is no perf, or it may sample nothing.
    """
    if shutil.which("perf") is None:
        raise RuntimeError(
            "there is no `perf` here; install Linux's (Debian: linux-perf, Ubuntu: linux-tools-generic)"
        )
    words = ""
    for name in ("cycles", "cpu-clock"):
        command = ["perf", "stat", "-x", ",", "-e", f"{name}:u", "true"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        words = done.stderr.strip()
        if done.returncode == 0 and "<not" not in words:
            return name
    raise RuntimeError(f"perf may not count here (see /proc/sys/kernel/perf_event_paranoid): {words}")


def profiled(network: Network | Images, strategy: str, dtype: str, sampled: str, seconds: float) -> Runner:
    """Epochs of `Trainer.fit` for so many seconds, under perf; the parts are its functions' times a step."""
    run = pdnn_side(network, strategy, dtype)

    def sample() -> tuple[float, float, Mapping[str, float]]:
        with tempfile.TemporaryDirectory() as folder:
            data = Path(folder) / "perf.data"
            record = ["perf", "record", "-e", sampled, "-F", str(FREQUENCY), "-p", str(os.getpid())]
            wait = ["sh", "-c", f"echo; exec sleep {seconds}"]
            perf = subprocess.Popen(
                [*record, "-o", str(data), "--", *wait],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            assert perf.stdout is not None
            with suppress(ProcessLookupError):  # it has failed
                os.sched_setaffinity(perf.pid, range(os.cpu_count() or 1))  # its own work on another core
            perf.stdout.readline()  # it fails if threads of a fit end while it looks which there are
            times, began = list[float](), process_time()
            while perf.poll() is None:
                times.append(run()[0])
            used = process_time() - began
            if perf.returncode != 0:
                raise RuntimeError(f"perf record failed: {perf.communicate()[1].strip() or perf.returncode}")
            read = ["perf", "report", "-i", str(data), "--stdio", "--no-children", "--percent-limit", "0"]
            options = ["-F", "overhead,dso,sym", "--field-separator", "|"]
            report = subprocess.run([*read, *options], capture_output=True, text=True, check=True).stdout
        functions, used = shares(report), used / (len(times) * network.steps)
        total = sum(functions.values())
        return (
            median(times),
            math.nan,
            {"|".join(key): used * part / total for key, part in functions.items()},
        )

    return sample


def compare(
    network: Network | Images, cores: int, dtype: str, sampled: str, seconds: float, method: Method
) -> dict[str, Any]:
    """Runs one comparison; times in microseconds a step, those of functions and phases over all threads."""
    strategy = "serial" if cores == 1 else f"team:{cores}"
    sides = [
        Side(step.FLOOR, peers.floor, (network, cores), cores),
        Side(step.PDNN, profiled, (network, strategy, dtype, sampled, seconds), cores),
    ]
    found = measure.compare(sides, method)
    report = found.report(network, cores=cores, event=sampled, model=dtype)
    if report["kept"] == 0:
        return report
    report["floor"], report["step"] = (1e6 * found.seconds(number) for number in (0, 1))
    parts = [found.results[1].parts[block] for block in found.kept(sides[1])]
    names = sorted({name for block in parts for name in block})
    times = {name: 1e6 * median(block.get(name, 0.0) for block in parts) for name in names}
    phases: dict[str, float] = {}
    for name, time in times.items():
        phase = phase_of(*name.split("|", 1))
        phases[phase] = phases.get(phase, 0.0) + time
    report["sides"] = [{"phase": phase, "microseconds": time} for phase, time in _longest(phases)]
    report["functions"] = [{"function": name, "microseconds": time} for name, time in _longest(times)]
    return report


def _longest(times: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(times.items(), key=lambda entry: -entry[1])


def table(report: Mapping[str, Any], symbols: int) -> str:
    """One comparison as text, with so many of its functions."""
    title = f"{step.title(report)}, model of {report['model']}, sampled by {report['event']}"
    rows, head = [], ""
    if report["sides"]:
        floor, cores = report["floor"], report["cores"]
        total = sum(row["microseconds"] for row in report["sides"])
        head = f"{'':31} {'CPU µs a step':>13} {'share':>6} {'of floor':>8}"
        for row in report["sides"]:
            time = row["microseconds"]
            rows.append(
                f"{row['phase']:31} {step.digits(time):>13} {time / total:6.1%} {time / floor / cores:8.2f}"
            )
        rows.append(f"{'all':31} {step.digits(total):>13} {1:6.0%} {total / floor / cores:8.2f}")
        rows.append(f"a step {step.digits(report['step'])} µs; {step.FLOOR} {step.digits(floor)} µs")
        for row in report["functions"][:symbols]:
            library, function = row["function"].split("|", 1)
            rows.append(f"{step.digits(row['microseconds']):>9}  {function[:100]} ({library})")
    return measure.table(title, report, head, rows, cores=report["cores"])


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    measure.add_options(parser, round_trip=150)
    measure.add_names(parser, "--networks", step.NETWORKS, default="w0,w0-float64,w3")
    counts = ["1", "2"] if len(os.sched_getaffinity(0)) > 1 else ["1"]
    measure.add_names(parser, "--cores", counts)
    parser.add_argument("--dtype", help="of the model (else the network's; bfloat16 is possible)")
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="of samples in a block (default %(default)s)"
    )
    parser.add_argument("--symbols", type=int, default=0, metavar="N", help="the N functions that take most")
    options = parser.parse_args(arguments)
    try:
        sampled = event()
    except RuntimeError as error:
        parser.error(str(error))
    if options.blocks is None:
        options.blocks = 3 if options.quick else 10
    method, report = measure.method(options), measure.begin()
    for name in options.networks:
        network = step.NETWORKS[name]
        for cores in map(int, options.cores):
            dtype = options.dtype or network.dtype
            result = compare(network, cores, dtype, sampled, options.seconds, method)
            report["results"].append(result)
            print("\n" + table(result, options.symbols), flush=True)
    measure.write(report, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
