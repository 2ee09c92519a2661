"""Folder: the last checkpoints of a training; the newest has the name alone, the others are numbered."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from pdnn.checkpoint.content import Content, sealed
from pdnn.files import safetensors
from pdnn.files.atomic import replacing
from pdnn.files.locks import lock
from pdnn.store import Array
from pdnn.strategies import parse

FILE = "checkpoint.safetensors"
_PATIENCE = 1.0  # seconds for a training that is ending to leave its directory


def numbered(directory: str | os.PathLike[str], age: int) -> Path:
    """The file of the newest checkpoint (0), the one before (1), and so on."""
    return Path(directory) / (FILE if age == 0 else f"checkpoint.{age}.safetensors")


def newest(directory: str | os.PathLike[str], *, warn: bool) -> tuple[Path, Content] | None:
    """The newest checkpoint that is whole; None if there is none. It warns of damaged ones that it skips.

    Raises
    ------
    ValueError
        If there are only damaged ones.
    """
    found = [path for path in (numbered(directory, age) for age in range(_ages(directory))) if path.exists()]
    for path in found:
        try:
            return path, Content.read(path)
        except ValueError as error:
            if path == found[-1]:
                raise
            if warn:
                warnings.warn(f"{error}; goes on from an earlier checkpoint", stacklevel=2)
    return None


def strategy_of(directory: str | os.PathLike[str], ranks: int) -> str | None:
    """How the strategy is spelled with which a directory's checkpoint was written.

    None if there is none, if it is not for so many ranks, or if only a program can make it: one with a
    schedule or a codec of its own.
    """
    found = newest(directory, warn=False)
    words = None if found is None else found[1].state["layout"].get("strategy")
    with suppress(ValueError):
        return words if words and parse(words).fits(ranks) else None
    return None


def seed_of(directory: str | os.PathLike[str]) -> int | None:
    """The seed with which a directory's checkpoint was written; None if there is none."""
    found = newest(directory, warn=False)
    return None if found is None else found[1].state.get("seed")


def keep_last(directory: str | os.PathLike[str], keep: int) -> None:
    """Makes room for a checkpoint of which `keep` are to be there: the newest is then also the first before.

    The newest keeps its own name until it is replaced, so it is there at every moment.
    """
    for age in range(_ages(directory) - 1, keep - 1, -1):
        if age > 0:
            numbered(directory, age).unlink(missing_ok=True)
    last, before = numbered(directory, 0), numbered(directory, 1)
    if keep == 1 or not last.exists() or (before.exists() and before.samefile(last)):
        return
    for age in range(min(keep - 1, _ages(directory)), 1, -1):
        if numbered(directory, age - 1).exists():
            os.replace(numbered(directory, age - 1), numbered(directory, age))
    before.unlink(missing_ok=True)
    try:
        os.link(last, before)
    except OSError:  # a file system without links
        import shutil  # which brings four compressions with it

        with open(last, "rb") as source, replacing(before) as copy:
            shutil.copyfileobj(source, copy)


def _ages(directory: str | os.PathLike[str]) -> int:
    """One more than the age of the oldest checkpoint; at least 1.

    Ages follow one another, but for one that was missing when a training was killed. A higher number is that
    of a copy that somebody has named, which stays.
    """
    age = 1
    while numbered(directory, age).exists() or numbered(directory, age + 1).exists():
        age += 1
    return age


class Writer:
    """Writes checkpoints beside the training, one after another; as a context it waits for the last one.

    Parameters
    ----------
    directory : path
        It stays where it is, though a callback goes to another working directory.
    keep : int
        So many of the last ones stay.
    resumed : path, optional
        The one of them from which the training goes on. It becomes the newest when the context begins: later
        ones are damaged, and would be kept in its place.

    Attributes
    ----------
    place : Path
        The directory, by a path without links.
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int, resumed: Path | None = None) -> None:
        self._directory, self._keep = Path(directory).absolute(), keep
        self._resumed = None if resumed is None else resumed.absolute()
        self.place = self._directory.resolve()
        self._thread: threading.Thread | None = None
        self._written = threading.Event()
        self._error: BaseException | None = None
        self._lock: int | None = None

    def begin(self, own: bool, again: bool = False) -> None:
        """Makes the directory, and takes it for this training alone until the context ends.

        Parameters
        ----------
        own : bool
            Whether checkpoints that are there are this training's, which go on.
        again : bool
            Whether another rank that has died may have begun before: they are in any case.

        Raises
        ------
        OSError
            Before the training: nothing can be written there, another training writes there, or its
            checkpoints are there and would be replaced.
        """
        from tempfile import TemporaryFile  # here, because `import pdnn` is to be quick

        if self._directory.is_file():
            raise FileExistsError(errno.EEXIST, "checkpoint takes a folder, not a file", str(self._directory))
        self._directory.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=self._directory):
            pass
        self._lock = os.open(self._directory, os.O_RDONLY)
        alone = lock(self._lock, _PATIENCE)
        if alone is False:
            words = "another training writes its checkpoints into this folder; give each a folder of its own"
            raise BlockingIOError(errno.EWOULDBLOCK, words, str(self._directory))
        if not (own or again) and any(self._directory.glob("checkpoint*.safetensors")):
            words = (
                "the checkpoint of another training is in this folder and would be replaced; go on from it "
                "with resume=True (--resume), give this training a folder of its own, or remove that one"
            )
            raise FileExistsError(errno.EEXIST, words, str(self._directory))
        for part in self._directory.glob(".checkpoint*.safetensors.*") if alone else ():
            part.unlink(missing_ok=True)  # what a training that was killed had begun to write
        if self._resumed is not None and not again:
            os.replace(self._resumed, numbered(self._directory, 0))

    def write(self, content: Content) -> None:
        """Begins to write a checkpoint, when the one before is written; its arrays must not change."""
        self.wait()
        arguments = content.arrays, content.metadata
        self._written.clear()
        self._thread = threading.Thread(target=self._work, args=arguments, name="checkpoint")
        try:
            self._thread.start()
        except RuntimeError:  # the system has no thread left
            self._thread = None
            self._work(*arguments)

    def wait(self) -> None:
        """Until all is written; raises what went wrong, such as OSError when the disk is full."""
        self._finish()
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _finish(self) -> None:
        """Until the thread is done; after a Ctrl-C, join() is an error (in start()) or ends early."""
        while self._thread is not None and not self._written.wait(1.0) and self._thread.ident is not None:
            pass  # without an ident it was not even started
        self._thread = None

    def _work(self, arrays: dict[str, Array], metadata: dict[str, str]) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            keep_last(self._directory, self._keep)
            safetensors.write(numbered(self._directory, 0), arrays, sealed(arrays, metadata))
        except BaseException as error:
            self._error = error
        finally:
            self._written.set()

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self.wait()
            else:
                self._finish()
        finally:
            if self._lock is not None:
                with suppress(OSError):
                    fcntl.flock(self._lock, fcntl.LOCK_UN)  # forked processes have it, too
                os.close(self._lock)
                self._lock = None
