"""Broken files of CIFAR-10: each a ValueError with the file's name; no pickle runs, nothing is written."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cifar_made
from broken_files import MIB, flipped, loaded_or_refused, refused
from cifar_made import array, batch, integer, label_list, string
from pdnn import datasets
from pdnn.data import Dataset
from pdnn.datasets import cifar_batches

X, Y = cifar_made.images(2)
RECORDS = cifar_made.records(X, Y)
PICKLED = cifar_made.pickled(X, Y)
LABELS = label_list(Y.tolist())
DATA = array((2, 3072), X.tobytes())
MEMBER = "cifar-10-batches-bin/test_batch.bin"


def load(file: Path) -> Dataset:
    """The test part, of the folder or the archive that this file is."""
    return datasets.cifar10(file if file.name.endswith(".gz") else file.parent, train=False, download=False)


@pytest.mark.parametrize("name", ["test_batch.bin", "my_test.bin"])
def test_records_cut_or_continued(tmp_path: Path, name: str) -> None:
    for data in (b"", *(RECORDS[:cut] for cut in (1, 3072, 3074, 6145)), RECORDS + b"x"):
        refused(tmp_path / name, data, load, "expected a multiple of 3,073")


def test_records_with_impossible_labels(tmp_path: Path) -> None:
    for place, label in ((0, 10), (3073, 255)):
        data = RECORDS[:place] + bytes([label]) + RECORDS[place + 1 :]
        refused(tmp_path / "test_batch.bin", data, load, f"image {place // 3073} has a label above 9")


def test_a_file_without_end(tmp_path: Path) -> None:
    """It takes no space on the disk, and must take none in memory."""
    with open(tmp_path / "test_batch.bin", "wb") as file:
        os.truncate(file.fileno(), 3073 << 20)
    with pytest.raises(ValueError, match=r"test_batch.bin: has 3,222,274,048 bytes"):
        datasets.cifar10(tmp_path, train=False)


def test_pickles_cut_at_any_byte(tmp_path: Path) -> None:
    cuts = [*range(400), *range(400, len(PICKLED) - 90, 997), *range(len(PICKLED) - 90, len(PICKLED))]
    for cut in cuts:
        refused(tmp_path / "test_batch", PICKLED[:cut], load, "not a batch of CIFAR-10")


def test_pickles_with_a_bit_flipped(tmp_path: Path) -> None:
    for data in (*flipped(PICKLED[:400]), *flipped(PICKLED[-90:])):
        whole = data + PICKLED[400:] if len(data) == 400 else PICKLED[:-90] + data
        part = loaded_or_refused(tmp_path / "test_batch", whole, load)
        assert part is None or (part.x.shape == (2, 3, 32, 32) and part.y.max() < 10)


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.path}",)


def asks(module: str, name: str, *arguments: bytes) -> bytes:
    """A call of module.name, as the pickled data of a batch."""
    return f"c{module}\n{name}\n".encode() + b"(" + b"".join(arguments) + b"tR"


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_no_command_runs(tmp_path: Path, protocol: int) -> None:
    trace = tmp_path / "ran"
    pickle.loads(pickle.dumps(Evil(trace), protocol))
    assert trace.exists(), "the pickle does what it is here to do"
    trace.unlink()
    refused(tmp_path / "test_batch", pickle.dumps({"data": Evil(trace), "labels": []}, protocol), load)
    assert not trace.exists()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (batch(asks("os", "system", string(b"true")), LABELS), "it asks for os.system, which no batch does"),
        (batch(asks("builtins", "eval", string(b"1")), LABELS), "asks for builtins.eval"),
        (batch(asks("numpy.core.multiarray", "fromfile"), LABELS), "asks for numpy.core.multiarray.fromfile"),
        (batch(asks("numpy", "memmap", string(b"/etc/passwd")), LABELS), "asks for numpy.memmap"),
        (batch(asks("numpy", "ndarray.tofile"), LABELS), "asks for numpy.ndarray.tofile"),
        (batch(b"(ios\nsystem\n", LABELS), "asks for os.system"),
        (batch(b"(cos\nsystem\no", LABELS), "asks for os.system"),
        (batch(b"\x82\x01", LABELS), "KeyError: 130"),  # an extension
        (batch(b"Pname\n", LABELS), "persistent"),
        (batch(asks("numpy", "ndarray", integer(1 << 30)), LABELS), "data is of type _Recorded"),
        (batch(b"cnumpy\nndarray\n}b", LABELS), "TypeError"),  # the state of a class, not of an object
        (batch(string(X.tobytes()), LABELS), "data is of type bytes, expected an array"),
        (batch(b"N", LABELS), "data is of type NoneType"),
        (batch(array((2, 3072), X.tobytes()[:-1]), LABELS), "data holds 6,143 bytes"),
        (batch(array((2, 3071), X.tobytes()), LABELS), "data holds 6,144 bytes"),
        (batch(array((2**30, 3072), X.tobytes()), LABELS), "data holds 6,144 bytes"),
        (batch(array((2, 3, 32, 32), X.tobytes()), LABELS), "data holds 6,144 bytes"),
        (batch(array((0, 3072), b""), label_list([])), "data holds 0 bytes"),
        (batch(array((2, 3072), X.tobytes(), b"N"), LABELS), "another array than of uint8"),
        (batch(array((2, 3072), X.tobytes(), fortran=b"\x88"), LABELS), "another array than of uint8"),
        (
            batch(
                array((1, 3072), X.tobytes(), cifar_made.DTYPE.replace(string(b"u1"), string(b"u2"))), LABELS
            ),
            "another array than of uint8",
        ),
        (
            batch(
                array((2, 3072), X.tobytes(), cifar_made.DTYPE.replace(string(b"u1"), string(b"O8"))), LABELS
            ),
            "another array than of uint8",
        ),
        (batch(DATA, label_list([1])), "2 images and 1 labels"),
        (batch(DATA, label_list([1, 10])), "image 1 has a label above 9"),
        (batch(DATA, label_list([-1, 1])), "image 0 has a label above 9"),
        (batch(DATA, b"](" + string(b"1") + string(b"2") + b"e"), "expected a list of integers"),
        (batch(DATA, b"]\x88a\x89a"), "expected a list of integers"),
        (batch(DATA, b"N"), "labels is of type NoneType"),
        (b"\x80\x02].", "holds list, expected a dict with data and labels"),
        (b"\x80\x02}.", "holds dict, expected a dict with data and labels"),
        (b"not a pickle", "not a batch of CIFAR-10"),
    ],
    ids=range(31),
)
def test_pickles_that_are_no_batch(tmp_path: Path, data: bytes, words: str) -> None:
    refused(tmp_path / "test_batch", data, load, words)


SMALL, A_TENTH = 6 * MIB, 20 * MIB
"""What may be allocated; the latter where a pickle may have a tenth of the parts."""


@pytest.mark.parametrize(
    ("attack", "limit"),
    [
        (b"Nr\xff\xff\xff\xff", SMALL),  # puts nothing at place 2^32 − 1 of the memo
        (b"T\xff\xff\xff\x7f", SMALL),  # 2 GiB of string
        (b"\x96" + struct.pack("<Q", 1 << 40), SMALL),  # a TiB of bytearray
        (b"\x8e" + struct.pack("<Q", 1 << 40), SMALL),
        (b"\x95" + struct.pack("<Q", 1 << 40), SMALL),  # a frame of a TiB
        (b"\x8b\xff\xff\xff\x7f", SMALL),  # an integer of 2 GiB
        (b"]" * 42_000, A_TENTH),  # lists without end
        (b"(" * 42_000, A_TENTH),
        (b"N" + b"\x85" * 30_000, A_TENTH),  # one inside the other
        (b"I" + b"9" * 100_000 + b"\n", SMALL),
    ],
    ids=range(10),
)
def test_pickles_that_would_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: bytes, limit: int
) -> None:
    monkeypatch.setattr(cifar_batches, "MAX_READS", cifar_batches.MAX_READS // 10)
    refused(tmp_path / "test_batch", batch(attack, LABELS), load, limit=limit)


# ---- archives


def packed(*infos: tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for info, content in infos:
            tar.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def member(name: str = MEMBER, size: int = len(RECORDS), kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = size, kind, "/etc/passwd"
    return info


SOUND = packed((member(), RECORDS))


def test_archives_cut_at_any_byte(tmp_path: Path) -> None:
    data = gzip.compress(SOUND, mtime=0)
    assert len(loaded_or_refused(tmp_path / "cifar-10-binary.tar.gz", data, load)) == 2
    for cut in (*range(200), *range(200, len(data) - 200, 97)):
        refused(tmp_path / "cifar-10-binary.tar.gz", data[:cut], load)
    for cut in range(0, 512 + len(RECORDS), 211):
        refused(tmp_path / "cifar-10-binary.tar.gz", gzip.compress(SOUND[:cut], mtime=0), load)


def test_archives_with_a_bit_flipped(tmp_path: Path) -> None:
    file = tmp_path / "cifar-10-binary.tar.gz"
    for header in flipped(SOUND[:512]):
        part = loaded_or_refused(file, gzip.compress(header + SOUND[512:], 1, mtime=0), load)
        assert part is None or np.array_equal(part.x, X)
    for data in flipped(gzip.compress(SOUND, mtime=0), step=61):
        part = loaded_or_refused(file, data, load)
        assert part is None or np.array_equal(part.x, X)


def negative(header: bytes) -> bytes:
    """A header with the size −512, and the checksum that belongs to it."""
    changed = header[:124] + b"\xff" * 10 + b"\xfe\x00" + header[136:148] + b" " * 8 + header[156:]
    return changed[:148] + f"{sum(changed):06o}\0 ".encode() + changed[156:]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (packed((member(kind=tarfile.SYMTYPE, size=0), b"")), "is no plain file"),
        (packed((member(kind=tarfile.LNKTYPE, size=0), b"")), "is no plain file"),
        (packed((member(kind=tarfile.DIRTYPE, size=0), b"")), "is no plain file"),
        (packed((member(kind=tarfile.FIFOTYPE, size=0), b"")), "is no plain file"),
        (packed((member(size=3072), bytes(3072))), "expected a multiple of 3,073"),
        (packed((member(size=3073), b"\x0a" + bytes(3072))), "image 0 has a label above 9"),
        (packed((member("../" + MEMBER), RECORDS)), "has 0 of the 1 files"),
        (packed((member("/" + MEMBER), RECORDS)), "has 0 of the 1 files"),
        (packed((member("test_batch.bin"), RECORDS)), "has 0 of the 1 files"),
        (member(size=1 << 40).tobuf(tarfile.GNU_FORMAT), "is no plain file of at most"),
        (member(size=1 << 27).tobuf(), "ends after|not a sound archive"),
        (negative(member().tobuf()) + bytes(1024), "not a sound archive|no plain file|has 0 of"),
        (b"", "not a sound archive|has 0 of"),
        (b"words" * 500, "not a sound archive"),
    ],
    ids=range(14),
)
def test_archives_that_lie(tmp_path: Path, data: bytes, words: str) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "cifar-10-binary.tar.gz"
    refused(file, gzip.compress(data, mtime=0), load, words)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [file]


@pytest.mark.long
def test_an_archive_that_grows_without_end(tmp_path: Path) -> None:
    """Its first member is 2 GiB of zeros, which 2 MiB of the file become."""
    header = member("zeros", 2 << 30).tobuf()
    bomb = gzip.compress(header) + b"".join([gzip.compress(bytes(16 * MIB), mtime=0)] * 128)
    refused(tmp_path / "cifar-10-binary.tar.gz", bomb, load, "holds more than 268,435,456 bytes", 12 * MIB)


def test_an_archive_that_is_none(tmp_path: Path) -> None:
    for data in (RECORDS, b"", b"\x1f\x8b", SOUND):
        refused(tmp_path / "cifar-10-python.tar.gz", data, load, "not a sound archive of CIFAR-10")
