"""Batches of the thread-pool exercise."""

from __future__ import annotations

import numpy as np

from pdnn.checks import integer
from pdnn.data.batches import cut
from pdnn.data.checks import Indices


def legacy_batches(n: int, batch: int = 105, count: int = 104, seed: int = 42) -> list[Indices]:
    """The batching of the thread-pool exercise (workload W0), kept so that its figures can be compared.

    The number of batches starts at `count` and falls until it divides `n`; the rows are shuffled with a seed
    that is set again every epoch, so every epoch has the same batches; row i of the shuffle goes to batch
    i // `batch`. With n = 10,500 that is 100 batches of 105. The size is written down beside the count and
    does not follow from it, so the rule breaks for most other n: use `pdnn.data.minibatches` there.

    Returns
    -------
    list of ndarray, shape (batch,), int64

    Raises
    ------
    TypeError
        If a number is no integer.
    ValueError
        If the number of batches times `batch` is not `n`, or `n`, `batch` or `count` is below 1.
    """
    n, batch, count = (
        integer("legacy_batches", name, value, 1)
        for name, value in (("n", n), ("batch", batch), ("count", count))
    )
    while n % count:
        count -= 1
    if count * batch != n:
        raise ValueError(
            f"legacy_batches: {n} rows make {count} batches, which do not hold {batch} rows each; "
            "use minibatches"
        )
    return cut(np.random.RandomState(seed).permutation(n).astype(np.int64), batch)
