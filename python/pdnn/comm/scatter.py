"""Scatter: the one call whose shapes only the root knows, so that it sends them first."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from pdnn import _core
from pdnn.comm.agree import DTYPES, MAX_DIMENSIONS, Array, Header, describe, with_integer
from pdnn.comm.calls import Call, rows_of_ranks

Parts = Array | Sequence[Array] | None


def scatter(core: _core.Communicator, parts: Parts, root: int) -> Call[Array]:
    """`Communicator.scatter`."""
    options = f"root={root!s:.40}"
    at_root = core.rank == root
    header = _describe(parts, core.size, options) if at_root else Header("scatter", options=options)
    header = with_integer(header, "root", root)

    def begin(_: Sequence[Header]) -> tuple[_core.Request, Array]:
        table = np.zeros((core.size, 2 + MAX_DIMENSIONS), np.int64)  # of each part: its type, then its shape
        whole = None
        if at_root:
            header.check()
            whole, shapes = _in_one_piece(parts, core.size)
            for row, shape in zip(table, shapes, strict=True):
                row[: 2 + len(shape)] = DTYPES.index(header.dtype), len(shape), *shape
        core.start_broadcast(table, root).wait("scatter")
        shapes = [tuple(row[2 : 2 + row[1]].tolist()) for row in table]
        mine = np.empty(shapes[core.rank], DTYPES[table[0, 0]])
        return core.start_scatter(whole, [prod(shape) for shape in shapes], mine, root), mine

    return Call(header, begin, uneven=True)


def scatter_evenly(core: _core.Communicator, a: Array | None, root: int, out: Array) -> Call[Array]:
    """`Communicator.start_scatter`."""
    at_root = core.rank == root
    header = with_integer(describe("scatter", out, f"root={root!s:.40}", writes=True), "root", root)
    if at_root and not header.problem:
        whole = describe("scatter", a)
        fits = (whole.dtype, prod(whole.shape)) == (header.dtype, core.size * prod(header.shape))
        if whole.problem:
            header = whole._replace(options=header.options)
        elif not fits:
            problem = (
                f"a {whole.shape} {whole.dtype} array for {core.size} parts of {header.shape} {header.dtype}"
            )
            header = header._replace(problem=problem, advice="pass as many elements as all parts have")
    return Call(header, lambda _: (core.start_scatter(a if at_root else None, [], out, root), out))


def _describe(parts: Parts, size: int, options: str) -> Header:
    """The root's header."""
    if isinstance(parts, np.ndarray):
        header = describe("scatter", parts, options)
        if header.problem or parts.ndim > 0:
            return header
        return header._replace(problem="a 0-dimensional array", advice="pass an array of rows")
    if not isinstance(parts, Sequence):
        return describe("scatter", parts, options)
    header = Header("scatter", options=options)
    if len(parts) != size:
        return header._replace(problem=f"{len(parts)} parts", advice=f"pass one for each of the {size} ranks")
    headers = [describe("scatter", part, options) for part in parts]
    wrong = next((each for each in headers if each.problem), None)
    if wrong is not None:
        return wrong
    if any(each.dtype != headers[0].dtype for each in headers):
        return header._replace(problem="parts of several types", advice="convert them to one")
    return headers[0]


def _in_one_piece(parts: Parts, size: int) -> tuple[Array, list[tuple[int, ...]]]:
    """What the root sends, and the shape of each rank's part."""
    if isinstance(parts, np.ndarray):
        return parts, [(rows, *parts.shape[1:]) for rows in rows_of_ranks(len(parts), size)]
    assert parts is not None  # the header says so
    return np.concatenate([part.ravel() for part in parts]), [part.shape for part in parts]
