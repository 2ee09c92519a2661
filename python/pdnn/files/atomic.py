"""Files that appear whole or not at all, however the writer ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from errno import ENOENT
from pathlib import Path
from stat import S_IMODE
from typing import IO


@contextmanager
def named(path: str | os.PathLike[str]) -> Iterator[None]:
    """An error of the system that names no file, as that of a full disk, names this one."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A binary file that takes the place of `path` when the block ends without an error.

    The bytes go to a temporary file beside it, are flushed to the disk, and the file is renamed: a crash at
    any moment leaves the old content or the new one. Who may read and write it stays, too. A link stays, and
    what it names is replaced; a device or a pipe is written to as it is.

    Raises
    ------
    FileNotFoundError
        If its folder is not there.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # /dev/stdout of a pipe has no real path
        with named(path), open(path, "wb") as device:  # of a folder this is the error
            yield device
        return
    target = Path(os.path.realpath(path))
    directory = target.parent
    if not directory.is_dir():
        raise FileNotFoundError(ENOENT, f"there is no such folder for {target.name}", str(directory))
    with named(target), _beside(target) as file:
        try:
            with suppress(FileNotFoundError):
                os.fchmod(file.fileno(), S_IMODE(target.stat().st_mode))
            yield file
            file.flush()
            os.fsync(file.fileno())
            os.replace(file.name, target)
        except BaseException:
            with suppress(OSError):
                os.unlink(file.name)
            raise
    with suppress(OSError):  # a folder that may not be read, or a file system that does this by itself
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _beside(target: Path) -> IO[bytes]:
    """A new file in the folder of another one, whose name may be as long as the system allows."""
    try:
        return open(target.with_name(f".{target.name[:40]}.{os.urandom(4).hex()}"), "xb")
    except OSError as error:
        error.filename = os.fspath(target)
        raise
