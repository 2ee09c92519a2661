"""Matrices of numbers in MATLAB's .mat files, version 5 (what `save` writes with -v6 or -v7).

Read here and not with SciPy because its reader ends the process where a damaged file names an unknown type
of element (SciPy 1.17: segmentation fault), and because this needs no dependency. The format is in
MathWorks' *MAT-File Format*: a header of 128 bytes, then elements, each a tag (type, bytes) and its data,
padded to 8 bytes; a matrix is an element that holds four others: flags, dimensions, name, numbers in
column-major order. An element may be compressed as a whole.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from math import prod
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from pdnn.datasets.reading import check_inflation, read_exactly

Matrix = npt.NDArray[np.float64]
INT8, INT32, UINT32, MATRIX, COMPRESSED = 1, 5, 6, 14, 15
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
NUMERIC_CLASSES = range(6, 16)  # double, single, int8 ... uint64; below: cell, struct, object, char, sparse
COMPLEX = 0x0800


def read_mat(path: str | os.PathLike[str], *names: str) -> list[Matrix]:
    """These variables of a .mat file, C-ordered and as float64, whatever numbers the file has.

    Raises
    ------
    ValueError
        With the file's name, if it is damaged, of another version, or lacks such a matrix.
    """
    with open(path, "rb") as file:
        header = file.read(128)
        order = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(header[124:])
        if order is None:
            raise ValueError(f"{path}: not a .mat file of version 5; in MATLAB, save with -v7")
        found: dict[str, Matrix] = {}
        try:
            for body in _matrices(file, order):
                _parse(body, order, names, found)
            missing = [name for name in names if name not in found]
            if missing:
                raise ValueError(f"has no {', '.join(missing)}")
        except (ValueError, zlib.error) as error:
            raise ValueError(f"{path}: {error}") from error
    return [found[name] for name in names]


class _Inflated:
    """A compressed element as a stream."""

    def __init__(self, data: bytes) -> None:
        self._zip = zlib.decompressobj()
        self._rest = data

    def read(self, size: int, /) -> bytes:
        data = self._zip.decompress(self._rest, size)
        self._rest = self._zip.unconsumed_tail
        return data

    def finished(self) -> bool:
        """Whether the end was reached, with the right checksum."""
        return not self.read(1) and self._zip.eof


def _matrices(file: BinaryIO, order: str) -> Iterator[bytearray]:
    """The inside of each matrix of the file, uncompressed."""
    left = os.fstat(file.fileno()).st_size - file.tell()
    while left:
        kind, size = np.frombuffer(read_exactly(file, 8, "tag of an element"), f"{order}u4").tolist()
        left -= 8 + size
        if left < 0:
            raise ValueError(f"an element promises {size:,} bytes, {-left:,} more than the file has")
        if kind == COMPRESSED:
            stream = _Inflated(bytes(read_exactly(file, size, "element")))
            stored = size
            kind, size = np.frombuffer(read_exactly(stream, 8, "compressed tag"), f"{order}u4").tolist()
            check_inflation(size, stored, "element")
            body = read_exactly(stream, size, "compressed element")
            if not stream.finished():
                raise ValueError("a compressed element goes on after the bytes that it promises")
        else:
            body = read_exactly(file, size, "element")
        if kind != MATRIX:
            raise ValueError(f"element of type {kind}, expected {MATRIX} (a matrix)")
        yield body


def _parse(body: bytearray, order: str, names: tuple[str, ...], found: dict[str, Matrix]) -> None:
    """Add the matrix in `body` to `found` if it is one of `names`."""
    parts = _elements(body, order)
    flags = np.frombuffer(_next(parts, UINT32, "flags"), f"{order}u4")
    shape = np.frombuffer(_next(parts, INT32, "dimensions"), f"{order}i4").tolist()
    name = bytes(_next(parts, INT8, "name")).decode("latin-1")
    if name not in names:
        return
    if len(flags) != 2 or flags[0] & 0xFF not in NUMERIC_CLASSES or flags[0] & COMPLEX:
        raise ValueError(f"{name} has flags {flags.tolist()}, expected a matrix of real numbers")
    kind, data = next(parts, (0, memoryview(b"")))
    dtype = np.dtype(order + NUMBERS[kind]) if kind in NUMBERS else None
    if len(shape) != 2 or min(shape) < 1 or dtype is None or len(data) != prod(shape) * dtype.itemsize:
        raise ValueError(
            f"{name} has {len(data):,} bytes of type {kind}, which is no matrix of shape {shape}"
        )
    found[name] = np.frombuffer(data, dtype).reshape(shape, order="F").astype(np.float64, order="C")


def _elements(body: bytearray, order: str) -> Iterator[tuple[int, memoryview]]:
    """Type and data of each element inside a matrix; one of at most 4 bytes may be packed into its tag."""
    view, at = memoryview(body), 0
    while at + 8 <= len(view):
        kind, size = np.frombuffer(view[at : at + 8], f"{order}u4").tolist()
        small = kind >> 16
        begin = at + 4 if small else at + 8
        kind, size = (kind & 0xFFFF, small) if small else (kind, size)
        if begin + size > (at + 8 if small else len(view)):
            raise ValueError(f"an element of type {kind} promises {size:,} bytes, more than there are")
        yield kind, view[begin : begin + size]
        at = begin + -(-size // 8) * 8 if not small else at + 8


def _next(parts: Iterator[tuple[int, memoryview]], expected: int, what: str) -> memoryview:
    kind, data = next(parts, (0, memoryview(b"")))
    if kind != expected or (len(data) % 4 and expected != INT8):
        raise ValueError(
            f"a matrix has {len(data)} bytes of type {kind} for its {what}, expected type {expected}"
        )
    return data
