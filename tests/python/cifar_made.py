"""Small files in the layouts of CIFAR-10, as their makers' Python 2 would have written them."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


def images(n: int, seed: int = 0) -> tuple[Bytes, Bytes]:
    """Random x (n, 3, 32, 32) and y (n,)."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n, 3, 32, 32), np.uint8), rng.integers(0, 10, n).astype(np.uint8)


def records(x: Bytes, y: Bytes) -> bytes:
    """The binary layout."""
    return np.concatenate([y[:, None], x.reshape(len(x), -1)], axis=1).tobytes()


def string(value: bytes) -> bytes:
    return (
        b"U" + bytes([len(value)]) + value
        if len(value) < 256
        else b"T" + struct.pack("<i", len(value)) + value
    )


def integer(value: int) -> bytes:
    return b"K" + bytes([value]) if 0 <= value < 256 else b"J" + struct.pack("<i", value)


DTYPE = b"cnumpy\ndtype\n" + string(b"u1") + integer(0) + integer(1) + b"\x87R"
DTYPE += b"(" + integer(3) + string(b"|") + b"NNN" + integer(-1) * 2 + integer(0) + b"tb"


def array(shape: Sequence[int], body: bytes, dtype: bytes = DTYPE, fortran: bytes = b"\x89") -> bytes:
    """A pickled ndarray."""
    made = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + integer(0) + b"\x85" + string(b"b")
    sizes = b"(" + b"".join(integer(size) for size in shape) + b"t"
    return made + b"\x87R(" + integer(1) + sizes + dtype + fortran + string(body) + b"tb"


def batch(data: bytes, labels: bytes) -> bytes:
    """A pickled dict, in protocol 2."""
    names = string(b"filenames") + b"]q\x05(" + string(b"frog_s_000001.png") + b"r\x00\x01\x00\x00e"
    items = string(b"batch_label") + b"q\x02" + string(b"training batch 1 of 5") + b"q\x03"
    items += string(b"labels") + labels + string(b"data") + data + names
    return b"\x80\x02}q\x01(" + items + b"u."


def label_list(y: Sequence[int]) -> bytes:
    return b"]q\x04(" + b"".join(integer(int(label)) for label in y) + b"e"


def pickled(x: Bytes, y: Bytes) -> bytes:
    """The python layout."""
    return batch(array((len(x), 3072), x.tobytes()), label_list(y.tolist()))


def six_files(end: str, n: int = 2) -> tuple[dict[str, bytes], Bytes, Bytes]:
    """Five training batches and the test batch of `n` images each, and all images in that order."""
    x, y = images(6 * n)
    write = records if end else pickled
    names = [f"data_batch_{number}{end}" for number in range(1, 6)] + [f"test_batch{end}"]
    files = {name: write(x[i * n : i * n + n], y[i * n : i * n + n]) for i, name in enumerate(names)}
    return files, x, y


def archive(members: dict[str, bytes], path: Path, extra: Sequence[tarfile.TarInfo] = ()) -> Path:
    """A .tar.gz of these members, after members without content."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for info in extra:
            tar.addfile(info)
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    path.write_bytes(gzip.compress(packed.getvalue(), compresslevel=1, mtime=0))
    return path


def put(files: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
