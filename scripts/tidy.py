"""clang-tidy on the C++ files that changed since the commit PDNN_TIDY_BASE (else the last one), or on all.

A changed header is read through one of the sources that include it; --all reads it through each of them.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "tidy"


def changed_files(base: str) -> set[str] | None:
    """The files that differ from a commit, or that git does not know yet; None if there is no such commit."""
    commands = (["diff", "--name-only", "--relative", base], ["ls-files", "--others", "--exclude-standard"])
    found = [subprocess.run(["git", *each], cwd=ROOT, capture_output=True, text=True) for each in commands]
    return None if found[0].returncode else {file for each in found for file in each.stdout.split()}


def files_read(source: Path) -> set[Path]:
    """A source and all headers of this repository that it includes, directly or through others."""
    read: set[Path] = set()
    waiting = [source]
    while waiting:
        file = waiting.pop()
        if file not in read and file.exists():
            read.add(file)
            for name in re.findall(r'^#include "(.*)"', file.read_text(), re.MULTILINE):
                waiting += [folder / name for folder in (ROOT / "cpp", ROOT / "cpp" / "tests", file.parent)]
    return read


def sources_for(changed: set[str], every: list[Path]) -> list[Path]:
    """One source for each changed file: that of its name, else what includes the header and least else."""
    read = {source: files_read(source) for source in every}
    chosen = set()
    for file in (ROOT / name for name in changed):
        readers = [source for source in every if file in read[source]]
        namesake = file.with_suffix(".cpp")
        if readers:
            fewest = min(readers, key=lambda reader: len(read[reader]))
            chosen.add(namesake if namesake in readers else fewest)
    return sorted(chosen)


def configure() -> list[Path]:
    """Write how each source is compiled by itself, and give the sources; nothing is compiled."""
    alone = ["cmake", "--preset", "dev", "-B", str(BUILD), "-DPDNN_UNITY=OFF"]
    subprocess.run(alone, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    sources = {Path(entry["file"]) for entry in entries}
    return sorted(source for source in sources if BUILD not in source.parents)


def tidy(source: Path) -> bool:
    """Check one file, print what is wrong with it; whether nothing is."""
    command = [
        "clang-tidy",
        "-p",
        str(BUILD),
        "--quiet",
        "--extra-arg=-Wno-unknown-warning-option",
        "--extra-arg=-Wno-ignored-gch",  # GCC's precompiled headers: read as they are written
        str(source),
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if result.returncode:
        print(f"{source.relative_to(ROOT)}\n{result.stdout}{result.stderr}", flush=True)
    return result.returncode == 0


def main() -> int:
    """The exit status: 0 if all files are clean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="check every file")
    arguments = parser.parse_args()

    every = configure()
    changed = None if arguments.all else changed_files(os.environ.get("PDNN_TIDY_BASE", "HEAD~1"))
    sources = every if changed is None else sources_for(changed, every)
    print(f"clang-tidy on {len(sources)} of {len(every)} files")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return not all(list(pool.map(tidy, sources)))


if __name__ == "__main__":
    sys.exit(main())
