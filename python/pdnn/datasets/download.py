"""Fetching a file with a known checksum from one of several mirrors, safe for many processes at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType


def user_cache(name: str) -> Path:
    """The folder where this user keeps the data set `name` between runs."""
    return Path(_pooch().os_cache("pdnn")) / name


def fetch(name: str, checksum: str, mirrors: Sequence[str], folder: Path) -> Path:
    """The file `name` in `folder`, downloaded unless a sound one is there.

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
    folder : Path
        Made if it does not exist.

    Raises
    ------
    OSError
        If no mirror gave the file: which ones, and why.
    ImportError
        If pooch is not installed.
    """
    target = folder / name
    if _is_sound(target, checksum):
        return target
    pooch = _pooch()
    folder.mkdir(parents=True, exist_ok=True)
    failures = []
    with _locked(folder / ".lock"):
        for mirror in mirrors:
            try:
                pooch.retrieve(mirror + name, known_hash=checksum, fname=name, path=folder)
                return target
            except (OSError, ValueError) as error:  # a broken connection; a wrong checksum
                failures.append(f"{mirror}{name}: {error}")
    raise OSError(
        f"{name}: could not be downloaded; fetch it by hand into {folder}. What was tried:\n"
        + "\n".join(failures)
    )


def _is_sound(path: Path, checksum: str) -> bool:
    import hashlib

    algorithm, _, expected = checksum.rpartition(":")
    return path.is_file() and hashlib.new(algorithm or "sha256", path.read_bytes()).hexdigest() == expected


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl

    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _pooch() -> ModuleType:
    try:
        return import_module("pooch")
    except ImportError as error:
        raise ImportError(
            "downloads need pooch: pip install pooch; or set PDNN_DATA to a folder with the data"
        ) from error
