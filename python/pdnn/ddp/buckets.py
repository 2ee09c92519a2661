"""Buckets of gradients: where they begin and end, and Horovod's names of how they are sent."""

from __future__ import annotations

from collections.abc import Iterable

from pdnn.store import Parameter

BUCKET_BYTES = 512 * 1024


def cut(parameters: Iterable[Parameter], bucket_elements: int) -> list[tuple[int, int]]:
    """Where buckets begin and end in the flat gradient, falling, as a backward pass goes.

    Each holds whole parameters that lie together: at most so many elements, or one parameter's.
    """
    buckets: list[tuple[int, int]] = []
    for each in sorted(parameters, key=lambda each: -each.offset):
        begin, end = each.offset, each.offset + each.size
        if buckets and buckets[-1][0] == end and buckets[-1][1] - begin <= bucket_elements:
            buckets[-1] = begin, buckets[-1][1]
        elif begin < end:
            buckets.append((begin, end))
    return buckets


class Compression:
    """Horovod's names of two ways to send gradients; `pdnn.codec` has others."""

    none = None
    fp16 = "fp16"
