"""The two formats of CIFAR-10: records of bytes, and pickled batches, which are read without running them."""

from __future__ import annotations

import io
import pickle
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]

SHAPE = (3, 32, 32)
PIXELS = 3 * 32 * 32
RECORD = 1 + PIXELS
CLASSES = 10
MAX_READS = 400_000  # of a pickle; a real batch takes 80,000

# Where the batches name these, Python 2's NumPy stands; what is put in their place only keeps its arguments.
ADMITTED = {("numpy.core.multiarray", "_reconstruct"), ("numpy", "ndarray"), ("numpy", "dtype")}
EXTENSIONS = b"\x82\x83\x84"  # opcodes whose meaning another module may have registered


def parse_records(data: bytearray, where: str) -> tuple[Bytes, Bytes]:
    """Images and labels of the binary layout: one byte of label, then 1,024 bytes each of red, green, blue.

    Returns
    -------
    x : ndarray, shape (n, 3, 32, 32), uint8
    y : ndarray, shape (n,), uint8, in 0..9

    Raises
    ------
    ValueError
        Beginning with `where`, if these are no such records.
    """
    if not data or len(data) % RECORD:
        raise ValueError(
            f"{where}: has {len(data):,} bytes, expected a multiple of {RECORD:,}: records of a label and "
            "3 x 32 x 32 pixels"
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, RECORD)
    y = records[:, 0].copy()
    _check_labels(y, where)
    return np.ascontiguousarray(records[:, 1:]).reshape(-1, *SHAPE), y


def parse_pickle(data: bytearray, where: str) -> tuple[Bytes, Bytes]:
    """Images and labels of the python layout: a pickled dict with a list ``labels`` and an array ``data``.

    A restricted pickle reader is used: only protocols up to 2, with a limit on its steps. The three names
    of NumPy that a file may use only record their arguments. So no function from the file is called, and no
    more memory is allocated than the file has data. The result is checked, and the array is made here.

    Returns
    -------
    x : ndarray, shape (n, 3, 32, 32), uint8
    y : ndarray, shape (n,), uint8, in 0..9

    Raises
    ------
    ValueError
        Beginning with `where`, if it is no such pickle, or one that asks for anything else.
    """
    try:
        batch = _machine(data).load()
    except Exception as error:  # damaged pickles fail in many ways
        raise ValueError(f"{where}: not a batch of CIFAR-10 ({type(error).__name__}: {error})") from error
    if not isinstance(batch, dict) or b"data" not in batch or b"labels" not in batch:
        raise ValueError(f"{where}: holds {type(batch).__name__}, expected a dict with data and labels")
    x, labels = _pixels(batch[b"data"], where), batch[b"labels"]
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise ValueError(f"{where}: labels is of type {type(labels).__name__}, expected a list of integers")
    if len(labels) != len(x):
        raise ValueError(f"{where}: holds {len(x)} images and {len(labels)} labels")
    y = np.array([label if 0 <= label < 256 else 255 for label in labels], np.uint8)
    _check_labels(y, where)
    return x, y


class _Recorded:
    """Replaces a name of NumPy: records its arguments."""

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Counted(io.BytesIO):
    """A pickle in memory with a limit on the number of reads."""

    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        if self.reads > MAX_READS:
            raise ValueError(f"more than {MAX_READS:,} parts")
        return super().read(size)


def _machine(data: bytearray) -> Any:
    """An Unpickler of `data`, which Python 2 wrote: its strings are bytes.

    It is the one written in Python, whose memo is a dict: a pickle can make C's allocate any number of
    places.
    """
    import pickletools

    known = [ord(op.code) for op in pickletools.opcodes if op.proto <= 2]
    base: Any = pickle._Unpickler

    class Machine(base):  # type: ignore[misc]
        dispatch: ClassVar[dict[int, Any]] = {
            code: base.dispatch[code] for code in known if code not in EXTENSIONS
        }

        def find_class(self, module: str, name: str) -> type[_Recorded]:
            if (module, name) not in ADMITTED:
                raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch does")
            return _Recorded

    return Machine(_Counted(data), encoding="bytes")


def _pixels(array: Any, where: str) -> Bytes:
    """The images that a pickled array (n, 3072) holds, made from its bytes."""
    state = array.state if isinstance(array, _Recorded) else None
    if not isinstance(state, tuple) or len(state) != 5:
        raise ValueError(f"{where}: data is of type {type(array).__name__}, expected an array of NumPy")
    _, shape, dtype, fortran, body = state
    is_bytes = isinstance(dtype, _Recorded) and dtype.arguments[:1] in ((b"u1",), (b"|u1",))
    if not is_bytes or fortran or not isinstance(body, bytes):
        raise ValueError(f"{where}: data is another array than of uint8 in C order")
    if not body or len(body) % PIXELS or shape != (len(body) // PIXELS, PIXELS):
        raise ValueError(
            f"{where}: data holds {len(body):,} bytes, expected as many as its shape says, (n, {PIXELS:,})"
        )
    return np.frombuffer(bytearray(body), np.uint8).reshape(-1, *SHAPE)


def _check_labels(y: Bytes, where: str) -> None:
    if y.max() >= CLASSES:
        row = int(np.argmax(y >= CLASSES))
        raise ValueError(f"{where}: image {row} has a label above 9; this is no file of CIFAR-10")
