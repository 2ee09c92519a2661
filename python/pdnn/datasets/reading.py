"""Reading untrusted files: memory grows only with the data that the file really has."""

from __future__ import annotations

from typing import Protocol

CHUNK = 1 << 20


class Stream(Protocol):
    """An open binary file, compressed or not."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes, none at the end."""
        ...


def read_exactly(stream: Stream, size: int, where: str) -> bytearray:
    """The next `size` bytes; the buffer grows with the data, so a wrong header allocates no memory.

    Raises
    ------
    ValueError
        If the stream ends earlier, beginning with `where`.
    """
    data = bytearray()
    while len(data) < size:
        piece = stream.read(min(CHUNK, size - len(data)))
        if not piece:
            raise ValueError(f"{where}: ends after {len(data):,} of {size:,} bytes; the file is cut short")
        data += piece
    return data


def check_inflation(promised: int, stored: int, where: str) -> None:
    """Refuse a compressed file whose declared size is too large for a data set.

    Images, text and tables shrink 2 to 20 times, runs of equal labels up to 1,032 times (the limit of
    deflate). So 64 MiB plus 200 times the stored size is allowed.

    Raises
    ------
    ValueError
        Beginning with `where`.
    """
    if promised > (64 << 20) + 200 * stored:
        raise ValueError(
            f"{where}: {stored:,} compressed bytes promise {promised:,}, more than data sets do; "
            "if the file is sound, store it uncompressed"
        )
