"""Coverage-guided fuzzing of the readers, by libFuzzer in the package atheris.

    python scripts/fuzz.py                          # a minute over all; test.sh --all takes half of it
    python scripts/fuzz.py --runs 1000000 idx npz   # so many inputs a target
    python scripts/fuzz.py --list

Each target runs in a process of its own, forked from one that has imported them all. It begins with
tests/corpus/TARGET and keeps what finds new code in build/fuzz/TARGET. An error, a crash, more than --memory
MiB or 10 s for one input ends it and leaves the input in build/fuzz. --store copies the smallest inputs that
were kept to tests/corpus.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import multiprocessing
import os
import re
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import fuzz_targets

ROOT = Path(__file__).parents[1]
WORK, CORPUS = ROOT / "build" / "fuzz", ROOT / "tests" / "corpus"
MOST_BYTES = 8192  # of an input
INSTRUMENTED = [
    *(f"pdnn.{part}" for part in ("datasets", "files", "history", "models", "checkpoint", "sweep", "data")),
    *("pdnn.estimate.machine", "pdnn.strategies", "pdnn.codec", "zipfile", "tomllib", "ast"),
]
STORED = 40  # inputs of a target in the repository
FORK = multiprocessing.get_context("fork")


def import_targets() -> dict[str, fuzz_targets.Target]:
    """Instruments what they call, and imports what they import late."""
    import atheris

    sys.path.insert(0, str(ROOT / "tests"))
    named = io.StringIO()  # each module
    with contextlib.redirect_stderr(named), atheris.instrument_imports(include=INSTRUMENTED):
        import fuzz_targets
    for name, target in fuzz_targets.TARGETS.items():
        target(next(fuzz_targets.seeds(name)))
    targets: dict[str, fuzz_targets.Target] = fuzz_targets.TARGETS
    return targets


def fuzz(target: fuzz_targets.Target, arguments: list[str], memory: int, output: int) -> None:
    """In a child, which it ends."""
    import atheris

    os.dup2(output, 1)
    os.dup2(output, 2)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = used + (memory << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    atheris.Setup(["fuzz", *arguments], target)
    atheris.Fuzz()


def run(name: str, target: fuzz_targets.Target, options: argparse.Namespace) -> bool:
    """Fuzzes one target; whether nothing was found."""
    found = WORK / name
    found.mkdir(parents=True, exist_ok=True)
    inputs = sorted(CORPUS.joinpath(name).glob("*"))
    arguments = [f"-max_len={max([MOST_BYTES, *(path.stat().st_size for path in inputs)])}"]
    budget = f"-runs={options.runs}" if options.runs else f"-max_total_time={options.seconds}"
    arguments += [budget, "-timeout=10", f"-artifact_prefix={WORK}/{name}-", "-print_final_stats=1"]
    arguments += [f"-rss_limit_mb={2 * options.memory}", str(found), str(CORPUS / name)]
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        child = FORK.Process(target=fuzz, args=(target, arguments, options.memory, output.fileno()))
        child.start()
        child.join()
        output.seek(0)
        told = output.read().decode(errors="replace")
    if child.exitcode:
        print(told[-6000:])
    count = re.search(r"stat::number_of_executed_units: (\d+)", told)
    inputs_made = f"{int(count[1]):,} inputs" if count else "no count"
    verdict = "FAILED" if child.exitcode else "no defect"
    print(f"{name:14} {inputs_made}, {time.monotonic() - began:.0f} s: {verdict}", flush=True)
    return child.exitcode == 0


def store(name: str) -> None:
    """Keeps the smallest of the inputs that found new code."""
    kept = sorted((WORK / name).glob("*"), key=lambda path: (path.stat().st_size, path.name))[:STORED]
    for path in kept:
        shutil.copy(path, CORPUS / name / path.name[:16])
    print(f"{name:14} {len(kept)} inputs stored")


def main() -> int:
    """0 if nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="all unless given")
    parser.add_argument("--seconds", type=int, default=4, help="for each target; default: %(default)s")
    parser.add_argument("--runs", type=int, help="inputs for each target, in place of seconds")
    parser.add_argument(
        "--memory", type=int, default=256, help="MiB that an input may take; default: %(default)s"
    )
    parser.add_argument("--store", action="store_true", help="write what was found to tests/corpus")
    parser.add_argument("--list", action="store_true", help="print the targets")
    options = parser.parse_args()
    names = sorted(path.name for path in CORPUS.iterdir())
    if options.list:
        print(*names, sep="\n")
        return 0
    if unknown := set(options.targets) - set(names):
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(names)}")
    chosen = options.targets or names
    if options.store:
        for name in chosen:
            store(name)
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # waits for no disk
    with tempfile.TemporaryDirectory(dir=in_memory) as folder:  # libFuzzer ends a child before it cleans up
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        targets = import_targets()
        return sum(not run(name, targets[name], options) for name in chosen) > 0


if __name__ == "__main__":
    sys.exit(main())
