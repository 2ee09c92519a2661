"""Random tests: as many rounds as are asked for, each from a seed of its own, which a failure names."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np


def random_rounds(usual: int, check: Callable[[np.random.Generator], None]) -> None:
    """Calls check(rng) for `usual` rounds, or as many as PDNN_RANDOM_ROUNDS says.

    Their seeds are PDNN_RANDOM_SEED (or 0) and the numbers after it.
    """
    first = int(os.environ.get("PDNN_RANDOM_SEED", 0))
    for seed in range(first, first + int(os.environ.get("PDNN_RANDOM_ROUNDS", usual))):
        try:
            check(np.random.default_rng(seed))
        except BaseException:
            print(f"repeat this round with PDNN_RANDOM_ROUNDS=1 PDNN_RANDOM_SEED={seed}")
            raise
