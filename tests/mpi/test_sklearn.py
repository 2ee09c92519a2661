"""The estimators for scikit-learn under mpiexec: the ranks train one model, from rank 0's random numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from processes import Completed

pytestmark = pytest.mark.mpi

RANKS = Path(__file__).with_name("sklearn_ranks.py")


def test_ranks_train_the_model_of_one_process(
    run_python: Callable[..., Completed], mpiexec: Callable[..., Completed]
) -> None:
    alone, together = (
        np.array(child.stdout.split(), float)
        for child in (run_python([RANKS], timeout=60), mpiexec(2, [RANKS], timeout=60))
    )
    np.testing.assert_allclose(together, alone, rtol=1e-10)
