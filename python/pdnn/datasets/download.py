"""Fetching a file with a known checksum from one of several mirrors, safe for many processes at once."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType

from pdnn.datasets.reading import CHUNK
from pdnn.files.locks import lock
from pdnn.progress import bar_wanted

TIMEOUT = 30  # seconds without a byte after which a mirror is given up


def user_cache(name: str) -> Path:
    """The folder where this user keeps the data set `name` between runs."""
    try:
        home = Path.home()
    except RuntimeError:  # without HOME, a user whom the system does not know, as containers have
        from tempfile import gettempdir

        home = Path(gettempdir())  # which is HOME in what `pdnn launch` starts
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache", "pdnn", name)


def fetch(name: str, checksum: str, mirrors: Sequence[str], places: Sequence[Path]) -> Path:
    """The file `name` in the last of `places`, downloaded unless a sound one is there.

    Processes that call this at the same time wait for the first: it holds a lock, writes to a temporary
    file, checks the checksum, and only then renames. The lock is the operating system's, so it ends with
    its process.

    Parameters
    ----------
    name : str
    checksum : str
        Of the file, in hexadecimal: its SHA-256, or ``md5:`` and its MD5.
    mirrors : sequence of str
        Addresses to which `name` is appended, tried in turn; before them those that the environment variable
        PDNN_MIRROR names, separated by spaces.
    places : sequence of Path
        Folders where the file was looked for; the last is made if it does not exist.

    Raises
    ------
    OSError
        If no mirror gave the file: which ones, why, and what to do.
    ImportError
        If pooch is not installed.
    """
    folder = places[-1]
    target = folder / name
    if _is_sound(target, checksum):
        return target
    pooch = _pooch()
    downloader = pooch.HTTPDownloader(bar_wanted(), CHUNK, timeout=TIMEOUT)
    failures = []
    own = [mirror.rstrip("/") + "/" for mirror in os.environ.get("PDNN_MIRROR", "").split()]
    with _locked(folder):
        if _is_sound(target, checksum):
            return target
        for mirror in [*own, *mirrors]:
            try:
                pooch.retrieve(mirror + name, checksum, name, folder, downloader=downloader)
                return target
            except (OSError, ValueError) as error:  # a broken connection; a wrong checksum
                failures.append(f"  {mirror}{name}: {error}")
    raise OSError(
        "\n".join([f"{name} could not be downloaded:", *failures])
        + f"\nIt was looked for in {', '.join(map(str, places))}. To bring it by hand, download it "
        f"elsewhere and copy it into {folder}"
    )


def _is_sound(path: Path, checksum: str) -> bool:
    import hashlib

    algorithm, _, expected = checksum.rpartition(":")
    return path.is_file() and hashlib.new(algorithm or "sha256", path.read_bytes()).hexdigest() == expected


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / ".lock", "w")  # noqa: SIM115
    except OSError as error:
        words = (
            f"no download can be kept there ({error.strerror}); set XDG_CACHE_HOME to a folder for "
            "downloads, or PDNN_DATA to one that has the data"
        )
        raise OSError(error.errno, words, str(folder)) from error
    with file:
        lock(file.fileno(), math.inf)
        yield


def _pooch() -> ModuleType:
    try:
        return import_module("pooch")
    except ModuleNotFoundError as error:
        raise ImportError(
            "downloads need pooch: pip install pooch; or set PDNN_DATA to a folder with the data"
        ) from error
