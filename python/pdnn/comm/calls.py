"""Collective calls on NumPy arrays as data: the header of a rank, and how its part begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Generic, Literal, TypeVar

import numpy as np

from pdnn import _core
from pdnn.comm.agree import Array, Header, describe, with_integer, with_out

Op = Literal["sum", "mean", "max", "min"]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Call(Generic[Result]):
    """A call that was not made yet.

    Attributes
    ----------
    header : Header
        This rank's side of it.
    begin : callable
        Starts it, given all ranks' headers; returns the request and the array that it fills.
    uneven : bool
        Whether the ranks' shapes may differ.
    """

    header: Header
    begin: Callable[[Sequence[Header]], tuple[_core.Request, Result]]
    uneven: bool = False


def broadcast(core: _core.Communicator, a: Array, root: int) -> Call[Array]:
    """`Communicator.broadcast`."""
    header = describe("broadcast", a, f"root={root!s:.40}", writes=core.rank != root)
    header = with_integer(header, "root", root)
    return Call(header, lambda _: (core.start_broadcast(a, root), a))


def reduce(core: _core.Communicator, a: Array, root: int, op: Op, out: Array | None) -> Call[Array | None]:
    """`Communicator.reduce`."""
    target = (a if out is None else out) if core.rank == root else None
    header = describe("reduce", a, f"op={op!s:.40}, root={root!s:.40}", writes=target is a)
    header = with_integer(header, "root", root)
    if target is not None:
        header = with_out(header, a, target)
    return Call(header, lambda _: (core.start_reduce(a, target, root, _op("reduce", op)), target))


def all_reduce(core: _core.Communicator, a: Array, op: Op, out: Array | None) -> Call[Array]:
    """`Communicator.all_reduce`."""
    target = a if out is None else out
    by = "" if core.all_reduce_name is None else f", by={core.all_reduce_name:.40}"
    options = f"op={op!s:.40}{by}"
    header = with_out(describe("all_reduce", a, options, writes=target is a), a, target)
    return Call(header, lambda _: (core.start_all_reduce(a, target, _op("all_reduce", op)), target))


def reduce_scatter(core: _core.Communicator, a: Array, op: Op) -> Call[Array]:
    """`Communicator.reduce_scatter`."""

    def begin(_: Sequence[Header]) -> tuple[_core.Request, Array]:
        if a.ndim == 0:
            raise ValueError("reduce_scatter: a 0-dimensional array has no rows to share")
        rows = rows_of_ranks(len(a), core.size)
        mine = np.empty((rows[core.rank], *a.shape[1:]), a.dtype)
        counts = [n * prod(a.shape[1:]) for n in rows]
        return core.start_reduce_scatter(a, mine, counts, _op("reduce_scatter", op)), mine

    return Call(describe("reduce_scatter", a, f"op={op!s:.40}"), begin)


def gather(core: _core.Communicator, a: Array, root: int) -> Call[list[Array] | None]:
    """`Communicator.gather`."""

    def begin(headers: Sequence[Header]) -> tuple[_core.Request, list[Array] | None]:
        whole, parts = _room(headers, a) if core.rank == root else (None, None)
        return core.start_gather(a, whole, [prod(header.shape) for header in headers], root), parts

    header = with_integer(describe("gather", a, f"root={root!s:.40}"), "root", root)
    return Call(header, begin, uneven=True)


def all_gather(core: _core.Communicator, a: Array) -> Call[list[Array]]:
    """`Communicator.all_gather`."""

    def begin(headers: Sequence[Header]) -> tuple[_core.Request, list[Array]]:
        whole, parts = _room(headers, a)
        return core.start_all_gather(a, whole, [prod(header.shape) for header in headers]), parts

    return Call(describe("all_gather", a), begin, uneven=True)


def barrier(core: _core.Communicator) -> Call[None]:
    """`Communicator.barrier`."""
    return Call(Header("barrier"), lambda _: (core.start_barrier(), None))


def _op(call: str, op: str) -> _core.Op:
    if op not in ("sum", "mean", "max", "min"):
        raise ValueError(f'{call}: op {op!r}; it is "sum", "mean", "max" or "min"')
    found: _core.Op = getattr(_core.Op, op)
    return found


def rows_of_ranks(n: int, size: int) -> list[int]:
    """How many of n rows each rank gets: the first n % size ranks get one more."""
    return [n // size + (rank < n % size) for rank in range(size)]


def _room(headers: Sequence[Header], like: Array) -> tuple[Array, list[Array]]:
    """Memory for all ranks' arrays in a row, and each of them as a view of it."""
    ends = np.cumsum([prod(header.shape) for header in headers])
    whole = np.empty(ends[-1], like.dtype)
    parts = [
        part.reshape(header.shape) for part, header in zip(np.split(whole, ends[:-1]), headers, strict=True)
    ]
    return whole, parts
