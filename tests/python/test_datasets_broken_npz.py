"""Broken .npz files: each a ValueError with the file's name, and nothing allocated from what it promises."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from broken_files import MIB, flipped, loaded_or_refused, refused
from pdnn.datasets import npz


def arrays(**changed: Any) -> dict[str, Any]:
    x, y = np.arange(12, dtype=np.uint8).reshape(4, 3), np.arange(4)
    return {"x_train": x, "y_train": y, "x_test": x[:2], "y_test": y[:2], **changed}


def saved(save: Any = np.savez, **changed: Any) -> bytes:
    file = io.BytesIO()
    save(file, **arrays(**changed))
    return file.getvalue()


def zipped(member: bytes, compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """An archive of sound members in which x_train.npy is this."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr("x_train.npy", member)
        for name, array in arrays().items():
            if name != "x_train":
                with archive.open(name + ".npy", "w") as stream:
                    np.lib.format.write_array(stream, np.asarray(array))
    return file.getvalue()


def npy_header(shape: str, descr: str = "'|u1'", version: bytes = b"\1\0") -> bytes:
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY" + version + struct.pack("<H" if version == b"\1\0" else "<I", len(text)) + text


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_cut_at_any_byte(tmp_path: Path, save: Any) -> None:
    data = saved(save)
    for cut in range(len(data)):
        refused(tmp_path / "cut.npz", data[:cut], npz, "not a sound .npz file")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_with_any_bit_flipped_is_read_right_or_refused(tmp_path: Path, save: Any) -> None:
    data, refusals = saved(save), 0
    for broken in flipped(data, step=3):
        parts = loaded_or_refused(tmp_path / "flip.npz", broken, npz)
        refusals += parts is None
        if parts is not None:
            read = (parts[0].x, parts[0].y, parts[1].x, parts[1].y)
            for ours, theirs in zip(read, arrays().values(), strict=True):
                np.testing.assert_array_equal(ours, theirs)
    assert refusals > len(data) / 3 / 2


class Exploding:
    def __reduce__(self) -> tuple[Callable[[str], Path], tuple[str]]:
        return Path.touch, (Path("/nowhere/exploded"),)  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not a sound .npz file"),
        (b"not a zip file", "not a sound .npz file"),
        (
            zipped(npy_header("(4, 3)") + bytes(11)),
            r"has \d+ bytes, expected \d+ for uint8 of shape \(4, 3\)",
        ),
        (zipped(npy_header("(4, 3)") + bytes(13)), r"has \d+ bytes, expected \d+ for uint8"),
        (zipped(npy_header(f"({2**62}, 4)", "'<f8'")), r"expected 147,573,952,589,676,41\d,\d+ for float64"),
        (zipped(npy_header("(-4, -3)") + bytes(12)), r"has shape \(-4, -3\), expected \(n, ...\)"),
        (zipped(npy_header("()") + bytes(1)), r"has shape \(\)"),
        (zipped(npy_header(f"(0, {10**30})")), "no dimension of 0"),
        (zipped(npy_header("(4, 3)", "'|O'") + bytes(12)), "holds object, expected plain numbers, booleans"),
        (zipped(npy_header("(4, 3)", "'|S1'") + bytes(12)), "expected plain numbers, booleans or strings"),
        (
            zipped(npy_header("(4, 3)", "[('a', '|u1')]") + bytes(12)),
            "expected plain numbers, booleans or strings",
        ),
        (zipped(npy_header("(4, 3)", version=b"\2\0") + bytes(12)), r"version \(2, 0\), expected \(1, 0\)"),
        (zipped(npy_header("(4, 3")), "no header of a NumPy array"),
        (zipped(npy_header("(" * 9000)), "no header of a NumPy array"),
        (zipped(b"GIF89a" + bytes(40)), "no header of a NumPy array"),
        (zipped(b"\x93NUMPY\1\0\xff\xff"), "no header of a NumPy array"),
        (zipped(b""), "no header of a NumPy array"),
        (
            zipped(npy_header("(4, 3)") + bytes(12), zipfile.ZIP_LZMA),
            "zip compression 14, expected stored or deflated",
        ),
        (
            saved(x_train=np.array([[Exploding()]], object)),
            "holds object, expected plain numbers, booleans or strings",
        ),
        (zipped(npy_header("(4, 3)", "'<U0'")), "holds <U0, expected plain numbers, booleans or strings"),
        (zipped(npy_header("(4, 3)", "'<U1'") + b"\xff" * 48), "holds strings of what are no characters"),
        (saved(x_train=np.full((4, 3), "x")), "x has dtype <U1, expected booleans, integers or floats"),
        (saved(x_train=np.zeros((3, 3))), "x has 3 rows and y has 4"),
        (saved(y_train=np.full((4, 2), "a")), r"y has shape \(4, 2\) and dtype <U1"),
        (saved(x_test=np.zeros((2, 4))), r"samples have shape \(3,\), test samples \(4,\)"),
    ],
    ids=range(25),
)
def test_npz_that_lies(tmp_path: Path, data: bytes, words: str) -> None:
    refused(tmp_path / "lie.npz", data, npz, words)


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "few.npz", x_train=np.zeros((2, 2)), labels=np.zeros(2))
    with pytest.raises(
        ValueError, match=r"few.npz: y_train is not in the file, which has \['x_train.npy', 'labels.npy'\]"
    ):
        npz(tmp_path / "few.npz")


def test_a_zip_bomb_is_refused_before_it_grows(tmp_path: Path) -> None:
    refused(
        tmp_path / "bomb.npz",
        zipped(npy_header("(96, 1048576)") + bytes(96 * MIB)),
        npz,
        "more than data sets do",
    )


def test_a_zip_entry_that_hides_its_size_is_refused(tmp_path: Path) -> None:
    honest = zipped(npy_header("(32, 1048576)") + bytes(32 * MIB))
    size = struct.pack("<I", len(npy_header("(32, 1048576)")) + 32 * MIB)
    small = struct.pack("<I", len(npy_header("(4, 3)")) + 12)
    assert honest.count(size) == 2
    refused(tmp_path / "hidden.npz", honest.replace(size, small), npz, "Bad CRC-32")
