"""Sums over ranks whose bits depend on the ranks' number alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdnn import _core
from pdnn.comm.agree import Array, Header, describe, with_out
from pdnn.comm.calls import Call, Op, rows_of_ranks


def all_reduce(core: _core.Communicator, a: Array, op: Op, out: Array | None) -> Call[Array]:
    """`Communicator.all_reduce` with ``reproducible=True``.

    Every rank gets a slice of all arrays, adds it up by the tree, and sends it to the others.
    """
    target = a if out is None else out
    header = describe("all_reduce", a, f"op={op!s:.40}, reproducible", writes=target is a)
    header = with_out(header, a, target)

    def begin(_: Sequence[Header]) -> tuple[_core.Request, Array]:
        if op not in ("sum", "mean"):
            raise ValueError(
                f'all_reduce: reproducible=True is for op "sum" or "mean", got {op!r}; leave it out'
            )
        counts = rows_of_ranks(a.size, core.size)
        slices = np.empty((core.size, counts[core.rank]), a.dtype)
        requests = [
            core.start_scatter(a if root == core.rank else None, counts, slices[root], root)
            for root in range(core.size)
        ]
        for request in requests:
            request.wait("all_reduce")
        own = added(slices)
        if op == "mean":
            own /= core.size
        return core.start_all_gather(own, target, counts), target

    return Call(header, begin)


def added(rows: Array) -> Array:
    """The sum of rows: of neighbors, then of these sums' neighbors, and so on; an odd last one waits."""
    while len(rows) > 1:
        pairs = len(rows) // 2 * 2
        rows = np.concatenate([rows[0:pairs:2] + rows[1:pairs:2], rows[pairs:]])
    total: Array = rows[0]
    return total
