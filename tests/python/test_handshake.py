"""Ranks that come with different jobs do not begin; ranks as threads, over MPI in tests/mpi/test_job.py."""

from __future__ import annotations

import pytest

import job_checks
import pdnn


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("what", job_checks.DIFFERENCES)
def test_a_difference_is_refused_by_every_rank(what: str, ranks: int) -> None:
    pdnn.run(lambda: job_checks.check_difference(what, pdnn.world()), ranks=ranks, backend="threads")


def test_ranks_may_have_different_engines() -> None:
    pdnn.run(lambda: job_checks.check_engines(pdnn.world()), ranks=2, backend="threads")


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
