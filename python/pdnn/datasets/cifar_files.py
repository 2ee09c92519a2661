"""CIFAR-10, from the user's files in any of their layouts or downloaded once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from pdnn.data import Dataset
from pdnn.datasets.cifar_batches import RECORD, Bytes, parse_pickle, parse_records
from pdnn.datasets.download import fetch
from pdnn.datasets.parts import both, places
from pdnn.datasets.reading import CHUNK, Stream, read_exactly

if TYPE_CHECKING:
    from tarfile import TarFile, TarInfo

MIRRORS = ("https://www.cs.toronto.edu/~kriz/",)
MD5 = "c32a1d4ab5d03f1284b67883e8d87530"  # of the binary layout's archive
LIMIT = 256 << 20  # bytes of a file, and of an archive's content; all of CIFAR-10 has 184 million

CIFAR10_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)

Images = tuple[Bytes, Bytes]


@dataclass(frozen=True)
class Layout:
    """One of the two official forms: its archive, the folder inside, how its files end and are read."""

    archive: str
    folder: str
    end: str
    parse: Callable[[bytearray, str], Images]

    def names(self, train: bool) -> list[str]:
        """The files of one part, in order."""
        stems = [f"data_batch_{number}" for number in range(1, 6)] if train else ["test_batch"]
        return [stem + self.end for stem in stems]


LAYOUTS = (
    Layout("cifar-10-binary.tar.gz", "cifar-10-batches-bin", ".bin", parse_records),
    Layout("cifar-10-python.tar.gz", "cifar-10-batches-py", "", parse_pickle),
)


@overload
def cifar10(
    root: str | os.PathLike[str] | None = None,
    train: None = None,
    download: bool = True,
    *,
    scale: float = 1 / 255,
) -> tuple[Dataset, Dataset]: ...
@overload
def cifar10(
    root: str | os.PathLike[str] | None = None,
    *,
    train: bool,
    download: bool = True,
    scale: float = 1 / 255,
) -> Dataset: ...


def cifar10(
    root: str | os.PathLike[str] | None = None,
    train: bool | None = None,
    download: bool = True,
    *,
    scale: float = 1 / 255,
) -> Dataset | tuple[Dataset, Dataset]:
    """60,000 small photographs of ten kinds of things, 50,000 to train and 10,000 to test.

    It uses, in this order: the official files (``data_batch_1.bin`` … ``test_batch.bin``, or without
    ``.bin`` those of the python layout) in `root` or its folder ``cifar-10-batches-bin`` or ``-py``; one of
    the two official archives, ``cifar-10-binary.tar.gz`` or ``cifar-10-python.tar.gz``, which is read
    without unpacking it; any record files ``*train*.bin`` and ``*test*.bin`` of the binary layout, whole
    sets or parts. If there are none the binary archive is downloaded, into `root` if it is given and the
    cache otherwise, and checked against its MD5; any number of ranks may do so at once.

    Parameters
    ----------
    root : path, optional
        A folder, or one of the archives; ``$PDNN_DATA/cifar10`` and then the user's cache unless given.
    train : bool, optional
        Only that part.
    download : bool
        Whether to fetch what is not there.
    scale : float
        ``scale=1`` keeps 0..255.

    Returns
    -------
    Dataset, or (train, test)
        x: uint8, (n, 3, 32, 32), red, green, blue; y: uint8, 0..9, named by `CIFAR10_CLASSES`.

    Raises
    ------
    FileNotFoundError
        If the files are nowhere and `download` is False, or some of them are missing.
    OSError
        If the download fails.
    ValueError
        With the file's name, if one is damaged. Pickles are read without calling what they name.
    """
    found = places("cifar10", root)

    def part(is_train: bool) -> Dataset:
        for place in found:
            if images := _read(place, is_train):
                return Dataset(*images, scale)
        if download and not found[-1].is_file():
            archive = fetch(LAYOUTS[0].archive, f"md5:{MD5}", MIRRORS, found)
            return Dataset(*_from_archive(archive, is_train), scale)
        raise FileNotFoundError(
            f"{', '.join(map(str, found))}: has none of CIFAR-10's files; expected data_batch_1.bin … and "
            f"test_batch.bin, {LAYOUTS[0].archive}, {LAYOUTS[1].archive}, or *train*.bin and *test*.bin"
        )

    return both("cifar10", train, part)


def _read(root: Path, train: bool) -> Images | None:
    """One part, in the first layout that is there."""
    if root.is_file():
        return _from_archive(root, train)
    for layout in LAYOUTS:
        for folder in (root, root / layout.folder):
            names = layout.names(train)
            there = [name for name in names if (folder / name).is_file()]
            if there and there != names:
                missing = ", ".join(sorted(set(names) - set(there)))
                raise FileNotFoundError(f"{folder}: has {there[0]} but lacks {missing}")
            if there:
                return _join(_from_file(folder / name, layout.parse) for name in names)
    for layout in LAYOUTS:
        if (root / layout.archive).is_file():
            return _from_archive(root / layout.archive, train)
    records = [path for path in sorted(root.glob("*.bin")) if _is_part(path.name, train)]
    return _join(_from_file(path, parse_records) for path in records) if records else None


def _is_part(name: str, train: bool) -> bool:
    return "train" in name if train else "test" in name and "train" not in name


def _join(parts: Iterable[Images]) -> Images:
    xs, ys = zip(*parts, strict=True)
    return (xs[0], ys[0]) if len(xs) == 1 else (np.concatenate(xs), np.concatenate(ys))


def _from_file(path: Path, parse: Callable[[bytearray, str], Images]) -> Images:
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > LIMIT or (parse is parse_records and size % RECORD):
            wanted = f"a multiple of {RECORD:,}, " if parse is parse_records else ""
            raise ValueError(f"{path}: has {size:,} bytes, expected {wanted}at most {LIMIT:,}")
        return parse(read_exactly(file, size, str(path)), str(path))


# ---- archives: members by their exact names, each read in passing; nothing is ever written


class _Limited:
    """The content of a compressed file, up to the limit."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.left = LIMIT

    def read(self, size: int, /) -> bytes:
        data = self.stream.read(min(size, CHUNK))
        self.left -= len(data)
        if self.left < 0:
            raise ValueError(f"holds more than {LIMIT:,} bytes")
        return data


def _from_archive(path: Path, train: bool) -> Images:
    import gzip
    import tarfile
    import zlib

    try:
        with gzip.open(path) as stream:
            content: Any = _Limited(stream)
            with tarfile.open(fileobj=content, mode="r|") as archive:
                images = _members(archive, str(path), train)
            while content.read(CHUNK):
                pass  # to the end, where the checksum is
            return images
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, ValueError, OverflowError) as error:
        if isinstance(error, ValueError) and str(error).startswith(str(path)):
            raise
        raise ValueError(f"{path}: not a sound archive of CIFAR-10 ({error})") from error


def _members(archive: TarFile, where: str, train: bool) -> Images:
    wanted = {f"{layout.folder}/{name}": layout.parse for layout in LAYOUTS for name in layout.names(train)}
    count = len(LAYOUTS[0].names(train))
    found: dict[str, Images] = {}
    for member in archive:
        if member.name in wanted and member.name not in found:
            here = f"{where}: {member.name}"
            found[member.name] = wanted[member.name](_content(archive, member, here), here)
        if len(found) == count:
            return _join(found[name] for name in sorted(found))
    raise ValueError(f"{where}: has {len(found)} of the {count} files {', '.join(sorted(wanted))}")


def _content(archive: TarFile, member: TarInfo, where: str) -> bytearray:
    if not member.isreg() or member.issparse() or not 0 <= member.size <= LIMIT:
        raise ValueError(f"{where}: is no plain file of at most {LIMIT:,} bytes")
    stream = archive.extractfile(member)
    assert stream is not None
    return read_exactly(stream, member.size, where)
