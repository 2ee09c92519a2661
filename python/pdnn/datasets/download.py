"""Fetching a file with a known checksum from one of several mirrors, safe for many processes at once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pdnn.datasets.reading import CHUNK
from pdnn.files.atomic import replacing
from pdnn.progress import download_bar

TIMEOUT = 30  # seconds without a byte after which a mirror is given up


def user_cache(name: str) -> Path:
    """The folder where this user keeps the data set `name` between runs."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "pdnn", name)


def fetch(name: str, checksum: str, mirrors: Sequence[str], places: Sequence[Path]) -> Path:
    """The file `name` in the last of `places`, downloaded unless a sound one is there.

    Processes that call this at the same time wait for the first: it holds a lock, writes to a temporary
    file, checks the
    checksum, and only then renames. The lock is the operating system's, so it ends with its process.

    Parameters
    ----------
    name : str
    checksum : str
        Of the file, in hexadecimal: its SHA-256, or ``md5:`` and its MD5.
    mirrors : sequence of str
        Addresses to which `name` is appended, tried in turn.
    places : sequence of Path
        Folders where the file was looked for; the last is made if it does not exist.

    Raises
    ------
    OSError
        If no mirror gave the file: which ones, why, and what to do.
    """
    folder = places[-1]
    target = folder / name
    if _is_sound(target, checksum):
        return target
    failures = []
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / ".lock"):
        if _is_sound(target, checksum):
            return target
        for mirror in mirrors:
            try:
                _download(mirror + name, checksum, target)
                return target
            except (OSError, ValueError) as error:  # a broken connection; a wrong checksum
                failures.append(f"  {mirror}{name}: {error}")
    raise OSError(
        "\n".join([f"{name} could not be downloaded:", *failures])
        + f"\nIt was looked for in {', '.join(map(str, places))}. To bring it by hand, download it "
        f"elsewhere and copy it into {folder}"
    )


def _download(url: str, checksum: str, target: Path) -> None:
    from http.client import HTTPException
    from urllib.request import urlopen

    digest = _hash(checksum)
    try:
        with urlopen(url, timeout=TIMEOUT) as response, replacing(target) as file:
            total = int(response.headers.get("Content-Length") or 0)
            with download_bar(f"downloading {url} to {target}", total) as advance:
                while piece := response.read(CHUNK):
                    file.write(piece)
                    digest.update(piece)
                    advance(len(piece))
            if digest.hexdigest() != checksum.rpartition(":")[2]:
                raise ValueError(
                    f"{file.tell():,} bytes with {digest.name} {digest.hexdigest()}, not {checksum}"
                )
    except HTTPException as error:
        raise OSError(f"{type(error).__name__}: {error}") from error


def _is_sound(path: Path, checksum: str) -> bool:
    if not path.is_file():
        return False
    digest = _hash(checksum)
    digest.update(path.read_bytes())
    return bool(digest.hexdigest() == checksum.rpartition(":")[2])


def _hash(checksum: str) -> Any:
    """A new hash of the kind that `checksum` is of."""
    import hashlib

    return hashlib.new(checksum.rpartition(":")[0] or "sha256")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl

    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
