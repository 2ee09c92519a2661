"""The IDX format of MNIST and its relatives: one array a file, plain or gzip-compressed."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from pdnn.data import Dataset
from pdnn.datasets.parts import both, per_unit, wrap
from pdnn.datasets.reading import Stream, check_inflation, read_exactly
from pdnn.datasets.shapes import shape_images

# Third byte of the magic number: type of the elements, big-endian in the file.
TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


@overload
def idx(
    folder: str | os.PathLike[str],
    train: None = None,
    *,
    scale: float | None = None,
    image: bool = False,
    size: int | None = None,
) -> tuple[Dataset, Dataset]: ...
@overload
def idx(
    folder: str | os.PathLike[str],
    train: bool,
    *,
    scale: float | None = None,
    image: bool = False,
    size: int | None = None,
) -> Dataset: ...


def idx(
    folder: str | os.PathLike[str],
    train: bool | None = None,
    *,
    scale: float | None = None,
    image: bool = False,
    size: int | None = None,
) -> Dataset | tuple[Dataset, Dataset]:
    """Any data set of four IDX files: MNIST, Fashion-MNIST, KMNIST, one of EMNIST's.

    Parameters
    ----------
    folder : path
        Holds ``train-images-idx3-ubyte``, ``train-labels-idx1-ubyte``, ``t10k-images-idx3-ubyte`` and
        ``t10k-labels-idx1-ubyte``, each plain or with ``.gz``. Words before these names, ``test`` for
        ``t10k`` and ``.idx`` for ``-idx`` are understood.
    train : bool, optional
        Only that part.
    scale : float, optional
        1/255 for bytes and 1 for floats unless given.
    image : bool
        Samples of shape (channels, height, width) instead of flat ones.
    size : int, optional
        Resize to (size, size), bilinear; samples are then float32.

    Returns
    -------
    Dataset, or (train, test)
        Labels of the file's own dtype.

    Raises
    ------
    FileNotFoundError
        If a file is not there.
    TypeError
        If `train` or `image` is no bool.
    ValueError
        With the file's name, if it is damaged, not IDX, or does not fit the others.
    """

    def part(is_train: bool) -> Dataset:
        images, labels = find_files(folder, is_train)
        x, y = read_idx(images), read_idx(labels)
        if y.ndim != 1 or y.dtype.kind not in "iu" or len(y) != len(x):
            raise ValueError(
                f"{labels}: holds {y.dtype} of shape {y.shape}, expected one integer for each of the "
                f"{len(x)} samples in {images.name}"
            )
        return wrap(str(images), shape_images(str(images), x, image, size), y, per_unit(x, scale))

    return both(str(folder), train, part)


def find_files(folder: str | os.PathLike[str], train: bool) -> tuple[Path, Path]:
    """The files of images and labels of one part; plain ones are preferred to compressed ones."""
    images, labels = (
        _find_file(Path(folder), "train" if train else "t10k", kind) for kind in ("images", "labels")
    )
    return images, labels


def _find_file(folder: Path, part: str, kind: str) -> Path:
    names = [f"{part}-{kind}"] if part == "train" else [f"{part}-{kind}", f"test-{kind}"]
    found: dict[str, Path] = {}
    for path in sorted(folder.glob(f"*{kind}*idx*"), reverse=True):  # x.gz, then x, which replaces it
        if path.is_file() and path.name[0] != "." and any(name in path.name for name in names):
            found[path.name.removesuffix(".gz")] = path
    if not found:
        raise FileNotFoundError(f"{folder}: has no {part}-{kind} file in IDX format, plain or .gz")
    if len(found) > 1:
        raise ValueError(
            f"{folder}: has several {part}-{kind} files, {', '.join(sorted(found))}; expected one"
        )
    return next(iter(found.values()))


def read_idx(path: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """The array in one IDX file, in the machine's byte order.

    The format (http://yann.lecun.com/exdb/mnist): two zero bytes, the type of the elements, the number of
    dimensions, each dimension as a big-endian 32-bit number, then the elements in C order.

    Raises
    ------
    ValueError
        With the file's name, if the file is anything else: cut short, too long, damaged, another format.
    """
    with open(os.fspath(path), "rb") as file:
        stored = os.fstat(file.fileno()).st_size
        if file.peek(2)[:2] != b"\x1f\x8b":
            return _parse(file, stored, False, str(path))
        try:
            with gzip.GzipFile(fileobj=file) as stream:
                return _parse(stream, stored, True, str(path))
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{path}: damaged gzip file ({error})") from error


def _parse(stream: Stream, stored: int, compressed: bool, where: str) -> npt.NDArray[Any]:
    magic = read_exactly(stream, 4, f"{where}: IDX header")
    if magic[:2] != b"\0\0" or magic[2] not in TYPES or not 1 <= magic[3] <= 4:
        raise ValueError(
            f"{where}: begins with {magic.hex()}, expected the header of an IDX file: "
            "0000, a type from 08 to 0e, 1 to 4 dimensions"
        )
    dtype, shape = np.dtype(TYPES[magic[2]]), tuple(_dimensions(stream, magic[3], where))
    body = prod(shape) * dtype.itemsize  # Python's integers do not overflow
    if body == 0:
        raise ValueError(f"{where}: holds an array of shape {shape}, expected no dimension of 0")
    if compressed:
        check_inflation(body, stored, where)
    elif stored != (size := 4 + 4 * len(shape) + body):
        raise ValueError(
            f"{where}: has {stored:,} bytes, expected {size:,} for {dtype.name} of shape {shape}"
        )
    data = read_exactly(stream, body, where)
    if stream.read(1):
        raise ValueError(
            f"{where}: goes on after the {body:,} bytes that its header promises for shape {shape}"
        )
    array = np.frombuffer(data, dtype).reshape(shape)
    return array.astype(dtype.newbyteorder("="), copy=False)


def _dimensions(stream: Stream, count: int, where: str) -> Iterator[int]:
    for number in range(1, count + 1):
        yield int.from_bytes(read_exactly(stream, 4, f"{where}: dimension {number} of {count}"), "big")
