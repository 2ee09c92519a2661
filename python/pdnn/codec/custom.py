"""Codecs written in Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pdnn import _core
from pdnn.checks import unmasked
from pdnn.codec.codecs import Array, Codec


class CustomCodec(Codec, ABC):
    """Derive from it to write a codec in Python: define `encode_values` and `decode_values`.

    Its objects go wherever a codec goes: into strategies, `ErrorFeedback`, `CompressedAllReduce` and
    `pdnn.ddp.DistributedOptimizer`. The number of bytes may depend on the number of values and their type
    only: receivers know it beforehand. It is that of as many zeros. An object must not remember anything
    from call to call: several arrays may take turns. An error in a method ends the training of all ranks,
    with its traceback.

    Attributes
    ----------
    name : str
        By which ranks compare it, and messages speak of it; the name of the class unless given.
    wants_feedback : bool
        Whether sums over ranks feed its error back unless they are told otherwise; False unless given.
    """

    name: str = ""
    wants_feedback: bool = False

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        cls.name = vars(cls).get("name") or cls.__name__

    @abstractmethod
    def encode_values(self, values: Array) -> bytes | NDArray[np.uint8]:
        """The bytes of some values.

        Parameters
        ----------
        values : ndarray of float32 or float64, shape (n,)
            A copy, which may be changed. n > 0.
        """

    @abstractmethod
    def decode_values(self, data: NDArray[np.uint8], count: int) -> Array:
        """As many values as were encoded, up to the error of the codec.

        Parameters
        ----------
        data : ndarray of uint8
            What `encode_values` returned on some rank.
        count : int
            The number of values.
        """

    def __str__(self) -> str:
        return self.name

    @property
    def spec(self) -> _core.CodecSpec:
        """What the core takes."""
        return _core.CodecSpec(self.name, self, self.wants_feedback)

    # What the core calls.

    def size(self, count: int, dtype: Any) -> int:
        """Bytes of so many values."""
        return len(self._code(np.zeros(count, dtype)))

    def write(self, values: Array, size: int) -> NDArray[np.uint8]:
        """`encode_values`, checked."""
        code = self._code(values)
        if len(code) != size:
            raise ValueError(
                f'codec "{self}": encode_values gave {len(code)} bytes for {len(values)} values, and {size} '
                "for as many zeros; the number of bytes must not depend on the values"
            )
        return code

    def read(self, data: NDArray[np.uint8], count: int, dtype: Any) -> Array:
        """`decode_values`, checked."""
        given = self.decode_values(data, count)
        unmasked(f'codec "{self}"', "what decode_values gave", given)
        values = np.asarray(given)
        if values.shape != (count,) or values.dtype.kind not in "fiu":
            raise ValueError(
                f'codec "{self}": decode_values gave a {values.shape} array of {values.dtype}, expected '
                f"({count},) numbers, as many as were encoded"
            )
        return np.ascontiguousarray(values, dtype)

    def _code(self, values: Array) -> NDArray[np.uint8]:
        code = self.encode_values(values)
        if isinstance(code, (bytes, bytearray, memoryview)):
            return np.frombuffer(code, np.uint8)
        if not (isinstance(code, np.ndarray) and code.dtype == np.uint8 and code.ndim == 1):
            told = f"an array of {code.dtype}" if isinstance(code, np.ndarray) else f"a {type(code).__name__}"
            raise TypeError(
                f'codec "{self}": encode_values gave {told}, expected bytes or a flat array of uint8; '
                "any array has .tobytes()"
            )
        return np.ascontiguousarray(code)
