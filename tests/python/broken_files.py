"""Checks that a loader refuses a broken file as it should, and copies of a file with a bit flipped."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

MIB = 1 << 20


def refused(
    file: Path, data: bytes, load: Callable[[Path], object], words: str | None = None, limit: int = 6 * MIB
) -> None:
    """`load` refuses a file of this content by its name, and has allocated less than `limit` bytes."""
    file.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=words) as caught:
            load(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(file) in str(caught.value)
    assert peak < limit, f"{peak:,} bytes were allocated"


def flipped(data: bytes, first: int = 0, step: int = 1) -> Iterator[bytes]:
    """Copies of `data`, each with one bit flipped: in byte `first`, `first + step`, and so on."""
    for place in range(first, len(data), step):
        yield data[:place] + bytes([data[place] ^ (1 << place % 8)]) + data[place + 1 :]


def loaded_or_refused(file: Path, data: bytes, load: Callable[[Path], Any]) -> Any:
    """What `load` makes of a file of this content; None if it refuses the file by its name."""
    file.write_bytes(data)
    try:
        return load(file)
    except ValueError as error:
        if str(file) not in str(error):
            raise
        return None
