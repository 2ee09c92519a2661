"""Broken IDX files: each a ValueError with the file's name, and nothing allocated from what it promises."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import pytest

from broken_files import MIB, refused
from pdnn.datasets import idx, read_idx

BOMB = b"".join([gzip.compress(bytes(16 * MIB), mtime=0)] * 128)  # 2 GiB of zeros in 2 MiB, as gzip members


def idx_header(*shape: int, kind: int = 8) -> bytes:
    return bytes([0, 0, kind, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


IMAGES = idx_header(3, 2, 2) + bytes(range(12))


def test_idx_cut_at_any_byte(tmp_path: Path) -> None:
    for cut in range(len(IMAGES)):
        refused(tmp_path / "cut-idx3-ubyte", IMAGES[:cut], read_idx, "ends after|has .* bytes, expected 28")
    packed = gzip.compress(IMAGES)
    for cut in range(2, len(packed)):
        refused(tmp_path / "cut-idx3-ubyte.gz", packed[:cut], read_idx, "damaged gzip file")
    for cut in range(len(IMAGES)):
        refused(
            tmp_path / "short-idx3-ubyte.gz", gzip.compress(IMAGES[:cut]), read_idx, "ends after|no dimension"
        )


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x89PNG" + bytes(20), "begins with 89504e47, expected the header of an IDX file"),
        (b"\0\0\x0a\1" + bytes(20), "begins with 00000a01"),
        (b"\0\0\x08\0" + bytes(20), "begins with 00000800"),
        (b"\0\0\x08\5" + bytes(20), "begins with 00000805"),
        (idx_header(3, 0, 2), r"shape \(3, 0, 2\), expected no dimension of 0"),
        (
            idx_header(*[2**32 - 1] * 4),
            "has 20 bytes, expected 340,282,3",
        ),  # 2^128 overflows every machine's integers
        (
            idx_header(2**31, 2**31, 4) + b"x",
            "has 17 bytes, expected 18,446,744,073,709,551,632",
        ),  # 16 modulo 2^64
        (idx_header(2**30, kind=0x0E), "has 8 bytes, expected 8,589,934,600"),
        (IMAGES + b"x", "has 29 bytes, expected 28"),
    ],
)
def test_idx_that_lies(tmp_path: Path, data: bytes, words: str) -> None:
    refused(tmp_path / "lie-idx3-ubyte", data, read_idx, words)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (gzip.compress(idx_header(*[2**32 - 1] * 4)), "compressed bytes promise 340,282,3"),
        (gzip.compress(idx_header(2**31, 2**31, 4) + bytes(16)), "promise 18,446,744,073,709,551,616"),
        (gzip.compress(idx_header(60 * MIB)), "ends after 0 of 62,914,560 bytes"),
        (gzip.compress(IMAGES + b"x"), "goes on after the 12 bytes"),
        (gzip.compress(IMAGES) + b"xx", "damaged gzip file"),
        (gzip.compress(IMAGES)[:-5] + b"\0" + gzip.compress(IMAGES)[-4:], "damaged gzip file"),
        (gzip.compress(IMAGES)[:10] + b"\xff" * 9, "damaged gzip file"),
        (BOMB, "begins with 00000000"),
        (gzip.compress(IMAGES) + BOMB, "goes on after the 12 bytes"),
        (gzip.compress(idx_header(2**31)) + BOMB, "promise 2,147,483,648, more than data sets do"),
    ],
    ids=range(10),
)
def test_compressed_idx_that_lies(tmp_path: Path, data: bytes, words: str) -> None:
    refused(tmp_path / "lie-idx3-ubyte.gz", data, read_idx, words, limit=len(data) + 6 * MIB)


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        (
            "train-labels-idx1-ubyte",
            idx_header(4) + bytes(4),
            r"uint8 of shape \(4,\), expected one integer for each of the 3",
        ),
        ("train-labels-idx1-ubyte", idx_header(3, 1) + bytes(3), r"uint8 of shape \(3, 1\)"),
        ("train-labels-idx1-ubyte", idx_header(3, kind=0x0D) + bytes(12), "float32 of shape"),
        ("train-images-idx3-ubyte", idx_header(3) + bytes(3), r"x has shape \(3,\)|expected"),
        (
            "t10k-images-idx3-ubyte",
            idx_header(3, 2, 3) + bytes(18),
            r"samples have shape \(4,\), test samples \(6,\)",
        ),
    ],
)
def test_files_that_do_not_fit_together(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(IMAGES)
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx_header(3) + bytes(3))
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ValueError, match=words) as caught:
        idx(tmp_path)
    assert str(tmp_path) in str(caught.value)
