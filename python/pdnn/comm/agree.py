"""Headers that ranks exchange before a call, so that a mismatch is an error on all of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from operator import index
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pdnn.checks import masked

Array = NDArray[Any]

DTYPES = ("float32", "float64", "int32", "int64", "uint8")
MAX_DIMENSIONS = 8
HEADER_BYTES = 512
_LARGEST_INT = 2**31 - 1


_NAMES = {np.dtype(name): name for name in DTYPES}


class Header(NamedTuple):
    """One rank's side of a call.

    Attributes
    ----------
    call : str
        The name of the function.
    dtype, shape
        Of the array; empty if there is none.
    options : str
        What else must agree, such as ``"op=sum"``.
    problem : str
        What is wrong with this rank's array ("a read-only (3,) array"), or empty.
    advice : str
        What to do about the problem.
    mistype : bool
        Whether the problem is a TypeError.
    """

    call: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    options: str = ""
    problem: str = ""
    advice: str = ""
    mistype: bool = False

    def text(self) -> str:
        """``"all_reduce((4,) float32, op=sum)"``."""
        array = f"{self.shape} {self.dtype}" if self.dtype else ""
        return f"{self.call}({', '.join(filter(None, (array, self.options)))})"

    def array_text(self) -> str:
        """``"a C-ordered (3, 2) array of float32"``."""
        return self.problem or f"a C-ordered {self.shape} array of {self.dtype}"

    def error(self, what: str) -> ValueError | TypeError:
        """The exception for this header's problem."""
        return (TypeError if self.mistype else ValueError)(f"{self.call}: {what}; {self.advice}")

    def check(self) -> None:
        """Raises this rank's problem without the other ranks."""
        if self.problem:
            raise self.error(f"got {self.problem}")


@functools.lru_cache(256)  # a loop sends the same few again and again
def encode(header: Header) -> NDArray[np.uint8]:
    """The header as `HEADER_BYTES` bytes, read-only."""
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace")
    return np.frombuffer(text.ljust(HEADER_BYTES), np.uint8)


@functools.lru_cache(256)
def announced(header: Header, *, uneven: bool = False) -> str:
    """The call that ranks will make, for the record of this exchange; with `uneven` without the shape."""
    return (header._replace(shape=()) if uneven else header).text()


def decode(data: NDArray[np.uint8]) -> Header:
    """What `encode` made bytes of.

    Raises
    ------
    ValueError
        If these are bytes of something else.
    """
    try:
        call, dtype, shape, *rest = json.loads(data.tobytes())
        return Header(call, dtype, tuple(shape), *rest)
    except (TypeError, ValueError):
        raise ValueError(
            "a rank sent an array where the header of a call was expected; every rank must make the same "
            "calls in the same order, with the same check="
        ) from None


def describe(call: str, array: object, options: str = "", *, writes: bool = False) -> Header:
    """The header of a call on an array, with what is wrong with that array.

    Parameters
    ----------
    call, options : str
        As in `Header`.
    array : object
        What the user passed.
    writes : bool
        Whether the call fills the array.
    """
    header = Header(call, options=options)
    if not isinstance(array, np.ndarray):
        problem = f"an object of type {type(array).__name__[:40]}"
        return header._replace(problem=problem, advice="pass a NumPy array", mistype=True)
    dtype = _NAMES.get(array.dtype)
    if dtype is None:
        problem, advice = f"an array of {str(array.dtype)[:40]}", f"pass one of {', '.join(DTYPES)}"
        return header._replace(problem=problem, advice=advice, mistype=True)
    if array.ndim > MAX_DIMENSIONS:
        problem, advice = f"an array of {array.ndim} dimensions", f"pass at most {MAX_DIMENSIONS}"
        return header._replace(problem=problem, advice=advice)
    header = header._replace(dtype=dtype, shape=array.shape)
    if masked(array):
        return header._replace(problem="an array with masked entries", advice="pass a.filled(value)")
    if options.startswith("op=mean") and array.dtype.kind != "f":
        problem, advice = f"an array of {dtype} for a mean", "pass floats, or take the sum"
        return header._replace(problem=problem, advice=advice, mistype=True)
    if not array.flags.c_contiguous:
        order = "Fortran-ordered" if array.flags.f_contiguous else "strided"
        problem, advice = f"a {order} {array.shape} array", "pass np.ascontiguousarray(a)"
        return header._replace(problem=problem, advice=advice)
    if writes and not array.flags.writeable:
        return header._replace(problem=f"a read-only {array.shape} array", advice="pass a copy")
    return header


def with_out(header: Header, a: Any, out: Any) -> Header:
    """The header of `a`, with what is wrong with `out`: it must be like `a`, on all of its memory or none."""
    if header.problem or (out is a and out.flags.writeable):
        return header
    told = describe(header.call, out, writes=True)
    if told.problem:
        return header._replace(problem=f"{told.problem} as out", advice=told.advice, mistype=told.mistype)
    if (told.dtype, told.shape) != (header.dtype, header.shape):
        problem = f"a {told.shape} {told.dtype} out for a {header.shape} {header.dtype} array"
        return header._replace(problem=problem, advice="pass an out like a")
    if out is not a and _overlap(a, out):
        return header._replace(problem="an out that shares a part of a's memory", advice="pass a copy of a")
    return header


def describe_new(shape: Any, dtype: Any) -> Header:
    """The header of `share`, which makes an array, with what is wrong with its shape or type."""
    header = Header("share")
    try:
        extents = tuple(map(index, shape)) if isinstance(shape, Sequence) else (index(shape),)
    except TypeError:
        problem, advice = f"shape {shape!r:.40}", "pass an integer or a tuple of integers"
        return header._replace(problem=problem, advice=advice, mistype=True)
    if min(extents, default=0) < 0:
        return header._replace(problem=f"shape {extents!s:.40}", advice="pass sizes from 0")
    if len(extents) > MAX_DIMENSIONS:
        problem, advice = f"a shape of {len(extents)} dimensions", f"pass at most {MAX_DIMENSIONS}"
        return header._replace(problem=problem, advice=advice)
    try:
        wanted = np.dtype(dtype)
        name, told = _NAMES.get(wanted), str(wanted)
    except TypeError:
        name, told = None, repr(dtype)
    if name is None:
        return header._replace(
            problem=f"dtype {told:.40}", advice=f"pass one of {', '.join(DTYPES)}", mistype=True
        )
    return header._replace(dtype=name, shape=extents)


def with_integer(header: Header, name: str, value: Any, least: int = -_LARGEST_INT - 1) -> Header:
    """The header, with what is wrong with a number that the core takes as an int."""
    if header.problem:
        return header
    told = header._replace(
        problem=f"{name} {value!r:.40}", advice=f"pass an integer from {least} to {_LARGEST_INT}"
    )
    try:
        return header if least <= index(value) <= _LARGEST_INT else told
    except TypeError:
        return told._replace(mistype=True)


def _overlap(a: Any, b: Any) -> bool:
    """Whether contiguous arrays of the same size share some memory, but not all."""
    begins = [array.__array_interface__["data"][0] for array in (a, b)]
    return begins[0] != begins[1] and np.may_share_memory(a, b)


def add_note(error: BaseException, text: str) -> None:
    """Lines that a traceback shows after the error, from Python 3.11 on."""
    if text and hasattr(error, "add_note"):
        error.add_note(text.strip("\n"))


def compare(headers: Sequence[Header], *, uneven: bool = False) -> None:
    """Raises the same error on every rank unless all headers fit together.

    Parameters
    ----------
    headers : sequence of Header
        Rank 0's, rank 1's, ...
    uneven : bool
        Whether shapes may differ, and types where a rank has no array.

    Raises
    ------
    ValueError, TypeError
        Naming the call and two ranks.
    """
    first = headers[0]
    for rank, header in enumerate(headers):
        if header.call != first.call:
            raise ValueError(
                f"rank {rank} called {header.text()}, rank 0 {first.text()}; "
                "every rank must make the same calls in the same order"
            )
    for rank, header in enumerate(headers):
        if header.problem:
            fine = next(
                (other for other, each in enumerate(headers) if each.dtype and not each.problem), None
            )
            beside = "" if fine is None else f", rank {fine} {headers[fine].array_text()}"
            raise header.error(f"rank {rank} passed {header.problem}{beside}")
    for rank, header in enumerate(headers):
        same_type = header.dtype == first.dtype or (uneven and "" in (header.dtype, first.dtype))
        same_shape = header.shape == first.shape or uneven
        if not (same_type and same_shape and header.options == first.options):
            raise ValueError(
                f"{first.call}: rank {rank} called {header.text()}, rank 0 {first.text()}; "
                "their arguments must agree"
            )
