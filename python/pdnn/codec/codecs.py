"""Codecs as values, and the strings that spell them; `docs/codecs.md` has formulas, layouts and sources."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from pdnn._core import CODECS, CodecSpec
from pdnn.checks import integer, number, unmasked
from pdnn.core import Width, core_for

Array = NDArray[Any]
Shape = int | tuple[int, ...]

SPECS: str = CODECS


class Codec:
    """One way to encode an array as bytes. Codecs of the same class and numbers are equal.

    A codec keeps nothing from call to call; `ErrorFeedback` and `CompressedAllReduce` do. float64
    arrays are rounded to float32 first by all but `TopK` and `PowerSGD`.

    Raises
    ------
    ValueError
        When it is made, if its number is out of range.
    """

    def __post_init__(self) -> None:
        core_for("float32").Codec(self.spec, 0)  # knows what is in range

    @property
    def spec(self) -> CodecSpec:
        """What the core takes."""
        return CodecSpec(str(self))

    def bytes(self, shape: Shape, dtype: npt.DTypeLike = "float32") -> int:
        """Bytes of an encoded array of this shape, whatever its values. PowerSGD takes memory for its state.

        Parameters
        ----------
        shape : int or tuple of int
        dtype : float32 or float64
        """
        count = math.prod(as_shape(shape))
        return int(_width(dtype).Codec(self.spec, count, [as_shape(shape)]).bytes(count))

    def encode(self, array: Array) -> NDArray[np.uint8]:
        """The bytes of an array.

        Parameters
        ----------
        array : ndarray of float32 or float64
            Of any shape. It is copied unless it is in C order.

        Returns
        -------
        ndarray of uint8, shape (``bytes(array.shape, array.dtype)``,)

        Raises
        ------
        TypeError
            If the array is of another dtype.
        ValueError
            If it has masked entries.
        """
        array = in_c_order(array)
        core = _width(array.dtype).Codec(self.spec, array.size, [array.shape])
        out = np.empty(core.bytes(array.size), np.uint8)
        core.encode(array, out)
        return out

    def decode(self, data: NDArray[np.uint8], shape: Shape, dtype: npt.DTypeLike = "float32") -> Array:
        """Decodes an array, up to the error of the codec.

        Parameters
        ----------
        data : ndarray of uint8
            From `encode`.
        shape, dtype
            Those of the array that was encoded.

        Returns
        -------
        ndarray, shape `shape`

        Raises
        ------
        TypeError
            If data is no array of uint8.
        ValueError
            If the number of bytes is not that of such an array, or they are no encoding of one.
        """
        if not isinstance(data, np.ndarray):
            raise TypeError(
                f"decode: data is of type {type(data).__name__}; pass an array of uint8, as "
                "np.frombuffer(data, np.uint8) makes of bytes"
            )
        width = _width(dtype)
        out = np.empty(as_shape(shape), dtype)
        width.Codec(self.spec, out.size, [out.shape]).decode(data, out)
        return out


@dataclass(frozen=True)
class Float16(Codec):
    """Two bytes per value, IEEE 754 half precision: relative error 2⁻¹¹; infinite from 65520 up."""

    def __str__(self) -> str:
        return "fp16"


@dataclass(frozen=True)
class BFloat16(Codec):
    """Two bytes per value, the upper half of a float32: the relative error is at most 2⁻⁸."""

    def __str__(self) -> str:
        return "bf16"


@dataclass(frozen=True)
class Int8(Codec):
    """One byte per value, a scale per block: the error is at most 1/254 of the block's largest magnitude.

    Parameters
    ----------
    block : int
        Values with one scale; a multiple of 16.
    """

    block: int = 256

    def __str__(self) -> str:
        return "int8" if self.block == 256 else f"int8:{self.block}"


@dataclass(frozen=True)
class Int4(Codec):
    """Half a byte per value, a scale per block: the error is at most 1/14 of the block's largest magnitude.

    Parameters
    ----------
    block : int
        Values with one scale; a multiple of 16.
    """

    block: int = 256

    def __str__(self) -> str:
        return "int4" if self.block == 256 else f"int4:{self.block}"


@dataclass(frozen=True)
class OneBit(Codec):
    """The sign of each value, and for each block the means of both signs (Seide et al. 2014).

    Parameters
    ----------
    block : int
        Values with one pair of means; a multiple of 16.
    """

    block: int = 1024

    def __str__(self) -> str:
        return "1bit" if self.block == 1024 else f"1bit:{self.block}"


@dataclass(frozen=True)
class TopK(Codec):
    """The values of largest magnitude, with their places (Aji and Heafield 2017, Stich et al. 2018).

    Parameters
    ----------
    fraction : float
        Of the values, rounded up to a whole one; over 0, at most 1.
    """

    fraction: float = 0.01

    def __str__(self) -> str:
        fraction = number(self, "fraction", self.fraction, "a number over 0 and at most 1")
        return f"topk:{float(fraction)!r}"


@dataclass(frozen=True)
class PowerSGD(Codec):
    """A matrix as the product of two thin ones, from a step of power iteration (Vogels et al. 2019).

    An array of two or more dimensions is a matrix whose columns are its last axis. Vectors, and matrices
    that would not get smaller, are not compressed. Each call of the codec itself starts from the same
    random matrix; `ErrorFeedback` and `CompressedAllReduce` continue from the previous call.

    Parameters
    ----------
    rank : int
        Columns of the thin matrices.
    """

    rank: int = 2

    def __str__(self) -> str:
        return f"powersgd:{self.rank}"


def parse(spec: str | Codec) -> Codec:
    """The codec that a string spells; see `SPECS` for the forms. A codec is returned as it is.

    Raises
    ------
    ValueError
        If the string spells none.
    TypeError
        If it is neither.
    """
    if isinstance(spec, Codec):
        return spec
    if not isinstance(spec, str):
        raise TypeError(f"codec is of type {type(spec).__name__}, expected a string or one of pdnn.codec's")
    core_for("float32").Codec(CodecSpec(spec), 0)  # a ValueError names the forms
    name, _, number = spec.partition(":")
    kinds: dict[str, tuple[type[Codec], type[int] | type[float]]] = {
        "fp16": (Float16, int),
        "bf16": (BFloat16, int),
        "int8": (Int8, int),
        "int4": (Int4, int),
        "1bit": (OneBit, int),
        "topk": (TopK, float),
        "powersgd": (PowerSGD, int),
    }
    kind, convert = kinds[name]
    return kind(convert(number)) if number else kind()  # type: ignore[call-arg]


def in_c_order(array: Array) -> Array:
    """The array, or a copy, of the same shape; ValueError if it has masked entries."""
    unmasked("encode", "array", array)
    return np.ascontiguousarray(array).reshape(np.shape(array))


def as_shape(shape: Shape) -> tuple[int, ...]:
    """(n,) for n; TypeError if an extent is no integer, ValueError below 0, and of 2**63 elements or more."""
    extents = (shape,) if np.ndim(shape) == 0 else shape
    found = tuple(integer("codec", "shape", extent, 0) for extent in extents)  # type: ignore[union-attr]
    if math.prod(found) >= 2**63:
        raise ValueError(f"codec: shape {found} has 2**63 elements or more")
    return found


def dtype_name(owner: str, dtype: npt.DTypeLike) -> str:
    """The name of a dtype that codecs take; TypeError if they do not."""
    try:
        name = str(np.dtype(dtype).name)
    except TypeError:
        name = repr(dtype)
    if name not in ("float32", "float64"):
        raise TypeError(f"{owner}: got an array of {name}, expected float32 or float64")
    return name


def _width(dtype: npt.DTypeLike) -> Width:
    """The core's submodule for a dtype."""
    return core_for(dtype_name("codec", dtype))
