"""What a job of ranks may leave behind when some of them are killed; the ranks say what they use."""

from __future__ import annotations

import re
from pathlib import Path


def tell_files() -> None:
    """Prints the files in shared or temporary memory that this process has mapped to share them."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    fields = [line.split(maxsplit=5) for line in lines]
    for path in sorted({each[-1] for each in fields if each[1].endswith("s")}):
        if path.startswith(("/dev/shm/", "/tmp/")) and not path.endswith("(deleted)"):
            print(f"maps {path}", flush=True)


def check_files(output: str) -> None:
    """Raises AssertionError if one of the files is there that the ranks have told."""
    told = set(re.findall(r"maps (\S+)", output))
    assert told, f"no rank has told its files\n{output}"
    left = [path for path in sorted(told) if Path(path).exists()]
    assert not left, f"{left} are left\n{output}"
