"""Ranks that come with different jobs do not begin; ranks as threads, over MPI in tests/mpi/test_job.py."""

from __future__ import annotations

import numpy as np
import pytest

import job_checks
import pdnn
from pdnn.comm import agree


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("what", job_checks.DIFFERENCES)
def test_a_difference_is_refused_by_every_rank(what: str, ranks: int) -> None:
    pdnn.run(lambda: job_checks.check_difference(what, pdnn.world()), ranks=ranks, backend="threads")


def test_ranks_may_have_different_engines() -> None:
    pdnn.run(lambda: job_checks.check_engines(pdnn.world()), ranks=2, backend="threads")


@pytest.mark.parametrize("sent", [np.arange(64.0), np.ones(64), np.frombuffer(b"[1]".ljust(512), np.uint8)])
def test_an_array_in_the_place_of_a_header_is_called_so(sent: np.ndarray) -> None:
    """Over MPI, where only one rank passes check=False; the error was the one of a codec of text."""
    with pytest.raises(ValueError, match="a rank sent an array where the header of a call was expected"):
        agree.decode(sent.view(np.uint8))


class Failure(pdnn.callbacks.Callback):
    """Raises on rank 1, after the second epoch."""

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        if trainer.comm.rank == 1 and epoch == 1:
            raise ArithmeticError("rank 1 has had enough")


def test_a_rank_that_raises_releases_the_others() -> None:
    with pytest.raises(ArithmeticError, match="had enough"):
        pdnn.run(
            lambda: job_checks.fit(pdnn.world(), epochs=10**6, callbacks=[Failure()]),
            ranks=3,
            backend="threads",
        )
