"""Data sets in NumPy's .npz archives, read without pickle; headers are checked before memory is allocated."""

from __future__ import annotations

import os
import zlib
from math import prod
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from pdnn.data import Dataset
from pdnn.datasets.parts import both, per_unit, wrap
from pdnn.datasets.reading import check_inflation, read_exactly

if TYPE_CHECKING:
    from zipfile import ZipFile

STORED, DEFLATED = 0, 8  # the two compressions that NumPy writes, as numbered in zip files
MEMBERS = {True: ("x_train", "y_train"), False: ("x_test", "y_test")}


@overload
def npz(
    path: str | os.PathLike[str], train: None = None, *, scale: float | None = None
) -> tuple[Dataset, Dataset]: ...
@overload
def npz(path: str | os.PathLike[str], train: bool, *, scale: float | None = None) -> Dataset: ...


def npz(
    path: str | os.PathLike[str], train: bool | None = None, *, scale: float | None = None
) -> Dataset | tuple[Dataset, Dataset]:
    """The arrays x_train, y_train, x_test and y_test of a .npz file, as Keras distributes data sets.

    Parameters
    ----------
    path : path
        Written by ``np.savez`` or ``np.savez_compressed``. Its arrays are what a `Dataset` takes: x of
        numbers, shape (n, ...); y of class numbers, names of classes (numbered alike in both parts),
        one-hot rows or targets.
    train : bool, optional
        Only that part.
    scale : float, optional
        1/255 for bytes and 1 for other numbers and booleans unless given.

    Returns
    -------
    Dataset, or (train, test)

    Raises
    ------
    ValueError
        With the file's name, if it is damaged, lacks a member, or a member is not such an array; if the
        samples of one part alone are bytes, and `scale` is not given.
    """
    from zipfile import BadZipFile, ZipFile

    with open(os.fspath(path), "rb") as file:
        try:
            archive = ZipFile(file)
            return both(str(path), train, lambda is_train: _part(archive, is_train, str(path), scale))
        except (BadZipFile, zlib.error, EOFError, OSError, RuntimeError, UnicodeDecodeError) as error:
            raise ValueError(f"{path}: not a sound .npz file ({error})") from error


def _part(archive: ZipFile, train: bool, path: str, scale: float | None) -> Dataset:
    x, y = (_read_member(archive, name, path) for name in MEMBERS[train])
    scale = per_unit(x, scale)
    data, other = wrap(path, x, y, scale), MEMBERS[not train][1]
    if data.classes is not None and f"{other}.npy" in archive.namelist():
        names = _read_member(archive, other, path)
        if names.dtype.kind == "U" and names.ndim == 1:  # numbers them alike in both parts
            names = np.concatenate([y, names])
            labels = wrap(path, np.zeros((len(names), 1)), names, 1.0)[: len(y)]
            data = wrap(path, x, labels.y, scale)
            data.classes = labels.classes
            data.converted = ", ".join(filter(None, (data.converted, labels.converted)))
    return data


def _read_member(archive: ZipFile, name: str, path: str) -> npt.NDArray[Any]:
    where = f"{path}: {name}"
    try:
        entry = archive.getinfo(name + ".npy")
    except KeyError as error:
        raise ValueError(
            f"{where} is not in the file, which has {archive.namelist()[:8]}; "
            "expected x_train, y_train, x_test, y_test"
        ) from error
    if entry.compress_type not in (STORED, DEFLATED):
        raise ValueError(f"{where}: zip compression {entry.compress_type}, expected stored or deflated")
    check_inflation(entry.file_size, entry.compress_size, where)
    with archive.open(entry) as stream:
        shape, fortran, dtype = _read_header(stream, where)
        body = prod(shape) * dtype.itemsize  # Python's integers do not overflow
        size = stream.tell() + body
        if size != entry.file_size:
            raise ValueError(
                f"{where}: has {entry.file_size:,} bytes, expected {size:,} for {dtype} of shape {shape}"
            )
        array = np.frombuffer(read_exactly(stream, body, where), dtype)
        stream.read(1)  # nothing, but it makes zipfile compare the checksum
    if dtype.kind == "U" and (array.view(dtype.str[0] + "u4") > 0x10FFFF).any():
        raise ValueError(f"{where}: holds strings of what are no characters")
    array = array.reshape(shape, order="F" if fortran else "C")
    return array.astype(dtype.newbyteorder("="), order="C", copy=False)


def _read_header(stream: Any, where: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, Fortran order, dtype. Version 1.0 only: headers of the others may be gigabytes long."""
    try:
        version = np.lib.format.read_magic(stream)
        if version != (1, 0):
            raise ValueError(f".npy version {version}, expected (1, 0)")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    except Exception as error:  # the header is a Python literal, and parsing it fails in many ways
        raise ValueError(f"{where}: no header of a NumPy array ({error})") from error
    if dtype.kind not in "biufU" or dtype.itemsize == 0:
        raise ValueError(f"{where}: holds {dtype}, expected plain numbers, booleans or strings")
    if min(shape, default=0) < 1:
        raise ValueError(f"{where}: has shape {shape}, expected (n, ...) and no dimension of 0")
    return shape, fortran, dtype
