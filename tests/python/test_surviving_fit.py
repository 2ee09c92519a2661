"""`fit` goes on when a rank dies: the same updates with fewer ranks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pdnn
import surviving_fit
from pdnn.comm import die, run_threads
from pdnn.strategies import DataParallel


@pytest.mark.parametrize(
    "strategy",
    [
        DataParallel(shared_memory=True),
        DataParallel(shared_memory=False, bucket_bytes=500),
        "ddp/8",
        "ddp:int8",
    ],
    ids=str,
)
def test_the_updates_are_those_of_an_undisturbed_run(strategy: str | DataParallel) -> None:
    exact, same_bits = ":" not in str(strategy), str(strategy) == "ddp/8"
    want = run_threads(lambda: surviving_fit.fit(strategy), 1)[0]
    counts = range(1, 400, 37) if exact else [100]
    died = 0
    for calls in counts:
        dies = calls % 3

        def rank(dies: int = dies, calls: int = calls) -> pdnn.Trainer:
            if pdnn.world().rank == dies:
                die(after=30 + calls)  # in fit, not in what goes before
            return surviving_fit.fit(strategy, elastic=4)

        trainers = run_threads(rank, 3)
        died += trainers[dies] is None
        for each in trainers:
            if each is None:
                continue
            assert each.comm.size == 3 - (trainers[dies] is None)
            assert (each.epoch, each.step, each.position) == (want.epoch, want.step, None)
            assert len(each.history.history["val_loss"]) == len(each.history.phases) == want.epoch
            if same_bits:
                assert each.history.fingerprint == want.history.fingerprint, calls
                assert each.history.history["loss"] == want.history.history["loss"]
            if exact:
                ours, theirs = each.model.flat_parameters, want.model.flat_parameters
                assert np.abs(ours - theirs).max() < 1e-9 * np.abs(theirs).max(), calls
                np.testing.assert_allclose(
                    each.history.history["loss"], want.history.history["loss"], rtol=1e-9
                )
            else:
                assert each.history.history["accuracy"][-1] > 0.9
    assert died >= len(counts) // 2


@pytest.mark.parametrize("strategy", ["average:2", "average:end"])
def test_models_of_their_own_go_on(strategy: str) -> None:
    for calls in (1, 9, 16):

        def rank(calls: int = calls) -> pdnn.Trainer:
            if pdnn.world().rank == 1:
                die(after=30 + calls)
            return surviving_fit.fit(strategy, elastic=2)

        first, dead, last = run_threads(rank, 3)
        assert dead is None
        assert first.comm.size == last.comm.size == 2
        assert first.epoch == surviving_fit.EPOCHS
        np.testing.assert_array_equal(first.model.flat_parameters, last.model.flat_parameters)
        assert first.history.history["val_accuracy"][-1] > 0.9


def test_two_may_die_and_checkpoints_are_written_on(tmp_path: Path) -> None:
    want = run_threads(lambda: surviving_fit.fit("ddp"), 1)[0]

    def rank() -> pdnn.Trainer:
        if pdnn.world().rank != 1:
            die(after=120 if pdnn.world().rank == 0 else 260)
        return surviving_fit.fit("ddp", elastic=4, checkpoint=tmp_path, every_steps=6)

    dead, left, late = run_threads(rank, 3)
    assert dead is None
    assert late is None
    assert left.comm.size == 1
    for each in (left, surviving_fit.trainer("serial")):
        if each is not left:
            each.fit(surviving_fit.data(300), 3, 16, checkpoint=tmp_path, resume=True, verbose=False)
        ours, theirs = each.model.flat_parameters, want.model.flat_parameters
        assert np.abs(ours - theirs).max() < 1e-9 * np.abs(theirs).max()


def test_without_copies_a_death_is_an_error() -> None:
    def rank() -> None:
        if pdnn.world().rank == 1:
            die(after=100)
        surviving_fit.fit("ddp")

    with pytest.raises(pdnn.RankFailed, match="rank 1 died"):
        run_threads(rank, 3)


def test_what_cannot_go_on_is_refused() -> None:
    with pytest.raises(ValueError, match='strategy "pipeline:2" needs all of its ranks'):
        run_threads(lambda: surviving_fit.fit("pipeline:2", elastic=3), 2)
    with pytest.raises(ValueError, match="elastic = -1; expected an integer from 0"):
        surviving_fit.fit("serial", elastic=-1)
