"""Broken .mat files: each a ValueError with the file's name, and nothing allocated from what it promises."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
import pytest

from broken_files import MIB, flipped, loaded_or_refused, refused
from pdnn.exercises import ex4, ex4_weights


def element(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data + bytes(-len(data) % 8)


def matrix(name: str, shape: tuple[int, ...], data: bytes, flags: int = 6, kind: int = 9) -> bytes:
    """A variable of a .mat file; class and numbers are doubles unless given."""
    body = element(6, struct.pack("<II", flags, 0)) + element(5, struct.pack(f"<{len(shape)}i", *shape))
    return element(14, body + element(1, name.encode()) + element(kind, data))


def packed(variable: bytes) -> bytes:
    return struct.pack("<II", 15, len(zlib.compress(variable))) + zlib.compress(variable)


HEADER = b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM"
X = matrix("X", (3, 2), np.arange(6.0).tobytes())
Y = matrix("y", (3, 1), bytes([1, 10, 5]), flags=9, kind=2)


SOUND = [HEADER + X + Y, HEADER + packed(X) + packed(Y)]


@pytest.mark.parametrize("data", SOUND, ids=["plain", "packed"])
def test_mat_cut_at_any_byte(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "whole.mat").write_bytes(data)
    whole = ex4(tmp_path / "whole.mat", train=True)
    assert whole.x.tolist() == [[0, 3], [1, 4], [2, 5]] and whole.y.tolist() == [0, 9, 4]
    for cut in range(len(data)):
        refused(tmp_path / "cut.mat", data[:cut], ex4)


@pytest.mark.parametrize("data", SOUND, ids=["plain", "packed"])
def test_mat_with_any_bit_flipped_is_read_or_refused(tmp_path: Path, data: bytes) -> None:
    refusals = 0
    for broken in flipped(data, first=124):
        whole = loaded_or_refused(tmp_path / "flip.mat", broken, lambda file: ex4(file, train=True))
        refusals += whole is None
        assert whole is None or whole.x.size == 6  # numbers have no checksum unless they are compressed
    assert refusals > (len(data) - 124) / 3


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a .mat file of version 5"),
        (b"\x89HDF" + bytes(200), "not a .mat file of version 5; in MATLAB, save with -v7"),
        (HEADER + Y, "has no X"),
        (HEADER + struct.pack("<II", 14, 2**32 - 8) + X + Y, "promises 4,294,967,288 bytes"),
        (HEADER + struct.pack("<II", 99, 8) + bytes(8), "element of type 99, expected 14"),
        (HEADER + packed(element(9, bytes(8))), "element of type 9, expected 14"),
        (HEADER + packed(X)[:-4] + b"abcd" + packed(Y), "lie.mat"),
        (HEADER + packed(X + b"more") + packed(Y), "goes on after the bytes that it promises"),
        (HEADER + packed(struct.pack("<II", 14, 2**32 - 8)), "promise 4,294,967,288, more than data sets do"),
        (HEADER + packed(struct.pack("<II", 14, 60 * MIB)), "ends after 0 of 62,914,560"),
        (
            HEADER + matrix("X", (2**31 - 1, 2**31 - 1), bytes(8)) + Y,
            "X has 8 bytes of type 9, which is no matrix of shape",
        ),
        (HEADER + matrix("X", (-3, -2), bytes(48)) + Y, "which is no matrix of shape"),
        (HEADER + matrix("X", (3, 2, 1), bytes(48)) + Y, "which is no matrix of shape"),
        (HEADER + matrix("X", (3, 2), bytes(48), kind=77) + Y, "48 bytes of type 77"),
        (HEADER + matrix("X", (3, 2), bytes(48), flags=1) + Y, "expected a matrix of real numbers"),
        (HEADER + matrix("X", (3, 2), bytes(48), flags=0x806) + Y, "expected a matrix of real numbers"),
        (
            HEADER + X + matrix("y", (3, 1), bytes(24)),
            r"y has shape \(3, 1\), expected \(3, 1\) with labels 1..10",
        ),
        (HEADER + X + matrix("y", (1, 3), np.ones(3).tobytes()), r"y has shape \(1, 3\), expected \(3, 1\)"),
        (HEADER + X + matrix("y", (3, 1), np.full(3, 1.5).tobytes()), "labels 1..10"),
    ],
    ids=range(19),
)
def test_mat_that_lies(tmp_path: Path, data: bytes, words: str) -> None:
    refused(tmp_path / "lie.mat", data, ex4, words)


def test_weights_that_do_not_fit_together(tmp_path: Path) -> None:
    thetas = matrix("Theta1", (3, 2), bytes(48)) + matrix("Theta2", (1, 3), bytes(24))
    refused(
        tmp_path / "weights.mat",
        HEADER + thetas,
        ex4_weights,
        r"Theta1 has shape \(3, 2\) and Theta2 \(1, 3\)",
    )
