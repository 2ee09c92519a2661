"""Ranks in waiting: they take the places of ranks that die, with what these knew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elastic_job
import pdnn
import surviving_fit
from pdnn import ddp, nn, optim
from pdnn.callbacks import Callback, EarlyStopping, ModelCheckpoint, ReduceLROnPlateau
from pdnn.comm import die, run_threads


def with_spares(ranks: int, spares: int, deaths: dict[int, int], work: Any) -> list[Any]:
    """`work` on so many ranks and spares, of which some die at a call of theirs."""

    def rank() -> Any:
        comm = pdnn.world()
        comm.spares = spares
        if comm.rank in deaths:
            die(after=deaths[comm.rank])
        return work()

    return run_threads(rank, ranks + spares)


@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [("ddp/8", 3), ("ddp+pool:2/8", 2), ("pipeline:2/8", 2), ("tp:2", 2), ("pipeline:2 x ddp", 4)],
)
@pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # more threads than cores
def test_the_training_is_that_of_an_undisturbed_run(strategy: str, ranks: int) -> None:
    want = run_threads(lambda: surviving_fit.fit(strategy), ranks)[0]
    took = 0
    for dies, calls in [(1, 90), (0, 130), (ranks - 1, 220), (ranks, 4)]:
        ends = with_spares(ranks, 1, {dies: calls}, lambda: surviving_fit.fit(strategy, elastic=4))
        took += ends[dies] is None and dies < ranks
        for each in ends:
            if each is not None:
                assert each.history.fingerprint == want.history.fingerprint, (dies, calls)
                assert each.history.history == want.history.history | {
                    "seconds": each.history.history["seconds"]
                }
                assert (each.epoch, each.step, each.position) == (want.epoch, want.step, None)
                assert each.comm.size == ranks + (ends[dies] is not None)
                assert each.comm.size - each.comm.spares == ranks
                for name, values in each.optimizer.state_arrays().items():
                    np.testing.assert_array_equal(values, want.optimizer.state_arrays()[name])
    assert took >= 2


def test_several_take_places_one_after_another_and_at_once() -> None:
    want = run_threads(lambda: surviving_fit.fit("pipeline:3"), 3)[0]
    for deaths in ({0: 150, 1: 260}, {1: 200, 2: 200}, {0: 120, 3: 4}):
        ends = with_spares(3, 2, deaths, lambda: surviving_fit.fit("pipeline:3", elastic=3))
        assert [end is None for end in ends] == [rank in deaths for rank in range(5)]
        assert {end.history.fingerprint for end in ends if end} == {want.history.fingerprint}


def test_ranks_that_train_models_of_their_own_are_as_many_again() -> None:
    ends = with_spares(3, 1, {1: 40}, lambda: surviving_fit.fit("average:3", elastic=2))
    assert ends[1] is None
    models = [each.model.flat_parameters for each in ends if each is not None]
    assert len(models) == 3
    np.testing.assert_array_equal(models[0], models[2])
    assert ends[3].history.history["accuracy"][-1] > 0.9


def test_a_spare_does_not_count_again_what_the_rank_that_it_copies_has_counted() -> None:
    """Of three ranks that train apart rank 0 skips the first eight of its steps, and rank 1 dies later."""
    steps, batch = 40, 4
    rows = steps * 3 * batch
    x, y = np.random.default_rng(0).normal(size=(rows, 5)), np.arange(rows) % 3
    x[: 8 * 3 * batch : 3 * batch] = np.inf
    lost = []
    for calls in (50, 60, 70):
        ends = with_spares(3, 1, {1: calls}, lambda: skipping_fit(x, y, batch))
        assert ends[1] is None
        (updates,) = {
            tuple(end.history.updates[0][name] for name in ("skipped", "count")) for end in ends if end
        }
        assert updates[0] == 8
        lost.append(3 * steps - 8 - updates[1])
        assert len({tuple(end.history.history["loss"]) for end in ends if end}) == 1
    assert min(lost) > 0 and max(lost) < steps  # what rank 1 had counted when it died


def skipping_fit(x: np.ndarray, y: np.ndarray, batch: int) -> pdnn.Trainer:
    model = nn.Sequential(nn.Linear(5, 3), dtype="float64", seed=1)
    sgd = optim.SGD(model.parameters(), lr=0.1)
    made = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="average:3", on_nonfinite="skip")
    made.fit(x, y, batch_size=batch, shuffle=False, verbose=False, elastic=2)
    return made


def test_who_is_told_what_is_said_and_who_trains(capsys: pytest.CaptureFixture[str]) -> None:
    class Look(Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            assert trainer.comm is pdnn.world()
            seen.append((epoch, trainer.comm.size))
            trainer.comm.barrier()

    seen: list[tuple[int, int]] = []

    def fit() -> None:
        trainer = surviving_fit.trainer("ddp")
        trainer.fit(elastic_job.data(300), 3, 16, callbacks=[Look()], elastic=4)
        assert trainer.comm is pdnn.world()

    with_spares(2, 1, {1: 160}, fit)
    assert "fit: rank 1 died; rank 2 takes its place; 2 go on from step" in capsys.readouterr().out
    assert {size for _, size in seen} == {2}
    assert {epoch for epoch, _ in seen} == {0, 1, 2}


def test_a_checkpoint_is_written_on_and_resumed_beside_a_spare(tmp_path: Path) -> None:
    want = run_threads(lambda: surviving_fit.fit("ddp/8"), 2)[0]
    options = {"elastic": 4, "checkpoint": tmp_path, "every_steps": 5}

    def fit(epochs: int) -> pdnn.Trainer:
        trainer = surviving_fit.trainer("ddp/8")
        trainer.fit(elastic_job.data(300), epochs, 16, verbose=False, resume=True, **options)
        return trainer

    assert with_spares(2, 1, {0: 120}, lambda: fit(2))[0] is None
    last = with_spares(3, 1, {2: 150}, lambda: fit(3))
    assert last[3].history.fingerprint == want.history.fingerprint
    assert last[3].epoch == 3


class DieAt(Callback):
    """A rank dies in a callback, after those before it in the list."""

    def __init__(self, epoch: int) -> None:
        self.at = epoch

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        if epoch == self.at:
            die()


@pytest.mark.parametrize("spares", [0, 1])
@pytest.mark.parametrize(("dies", "epoch"), [(0, 13), (1, 15), (2, 17), (None, 0)])
def test_callbacks_that_compare_epochs_go_on(
    spares: int, dies: int | None, epoch: int, tmp_path: Path
) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((360, 10))
    y = (x[:, 0] > 0) + (x[:, 1] + rng.standard_normal(360) > 0).astype(int)

    def fit(folder: Path, dies: int | None = None) -> tuple[Any, ...]:
        deaths = [DieAt(epoch)] if pdnn.world().rank == dies else []
        model = elastic_job.network()
        optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy="ddp/8")
        reducing, stopping = ReduceLROnPlateau(patience=2, factor=0.7), EarlyStopping(patience=6)
        best = ModelCheckpoint(folder / "best.safetensors")
        folder.mkdir(exist_ok=True)
        trainer.fit(
            (x[:300], y[:300]),
            30,
            16,
            validation=(x[300:], y[300:]),
            callbacks=[reducing, stopping, *deaths, best],
            elastic=4,
            verbose=False,
        )
        compared = [(round(each.best or 0, 9), each.best_epoch) for each in (reducing, stopping, best)]
        return trainer.epoch, trainer.rates, trainer.history.fingerprint, *compared

    want = run_threads(lambda: fit(tmp_path / "whole"), 1)[0]
    assert 10 < want[0] < 30 and want[1][0] < 0.04, want
    ends = with_spares(3, spares, {}, lambda: fit(tmp_path / "run", dies))
    assert [end is None for end in ends] == [rank == dies for rank in range(3 + spares)]
    assert all(end == want for end in ends if end), (want, ends)
    kept = [pdnn.load_model(tmp_path / name / "best.safetensors").fingerprint() for name in ("whole", "run")]
    assert kept[0] == kept[1]


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("a mistake"), "communicator: an error ended the work of the ranks that did not wait"),
        (SystemExit("a mistake"), "143"),  # as after a SIGTERM
    ],
)
def test_an_error_of_those_that_train_ends_those_that_wait_and_all_may_fit_again(
    error: BaseException, said: str
) -> None:
    class Bad(Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            raise error

    def fit() -> str:
        trainer = surviving_fit.trainer("ddp/8")
        with pytest.raises((KeyError, SystemExit, pdnn.CommunicationError)) as caught:
            trainer.fit(elastic_job.data(300), 1, 16, callbacks=[Bad()], verbose=False, elastic=4)
        trainer = surviving_fit.trainer("ddp/8")
        trainer.fit(elastic_job.data(300), 1, 16, verbose=False, elastic=4)
        return f"{caught.value} {trainer.history.fingerprint}"

    *workers, spare = with_spares(2, 1, {}, fit)
    assert all("a mistake" in each for each in workers)
    assert spare.startswith(said)
    assert len({each.split()[-1] for each in [*workers, spare]}) == 1


def test_when_nobody_is_left_to_take_a_place_it_is_said_what_to_do() -> None:
    with pytest.raises(pdnn.CommunicationError, match=r"ranks? .* died, and no rank waits .* --spares N"):
        with_spares(2, 1, {0: 100, 1: 250}, lambda: surviving_fit.fit("pipeline:2", elastic=4))
    with pytest.raises(pdnn.CommunicationError, match="no rank is left that knows what the dead ones did"):
        with_spares(2, 1, {0: 100, 1: 100}, lambda: surviving_fit.fit("pipeline:2", elastic=400))


def test_what_makes_no_sense_is_refused() -> None:
    def fit(strategy: str, **options: Any) -> Any:
        return with_spares(2, 1, {}, lambda: surviving_fit.fit(strategy, **options))

    with pytest.raises(ValueError, match="elastic=0 makes no copies, but 1 of 3 ranks wait"):
        fit("ddp", elastic=0)
    with pytest.raises(ValueError, match=r'needs all of its ranks.* use "ddp" or "average:T", or'):
        fit("scatter-gather")
    with pytest.raises(ValueError, match=r"needs all of its ranks.*keep a rank in waiting \(pdnn launch"):
        run_threads(lambda: surviving_fit.fit("pipeline:2", elastic=3), 2)
    with pytest.raises(ValueError, match='"fastest" is chosen where no rank waits'):
        fit("fastest")
    with pytest.raises(ValueError, match="estimate: 1 of 3 ranks wait until another one dies"):
        with_spares(
            2, 1, {}, lambda: surviving_fit.trainer("ddp").estimate(elastic_job.data(300), batch_size=16)
        )


def test_a_loop_by_hand_goes_on_with_as_many() -> None:
    want = run_threads(lambda: elastic_job.run()[1], 3)[0]

    def loop() -> tuple[Any, ...]:
        state, values = elastic_job.run()
        assert np.abs(values - want).max() < 1e-9 * np.abs(want).max()
        if state.failures < 2:  # three ranks all the time, so the same sums in the same order
            np.testing.assert_array_equal(values, want)
        assert (state.epoch, state.batch, state.commits) == (3, 0, 10)
        return pdnn.world().size, state.failures

    for deaths in ({}, {1: 40}, {0: 73}, {2: 25, 1: 90}):
        ends = with_spares(3, 1, deaths, loop)
        assert [end is None for end in ends] == [rank in deaths for rank in range(4)]
        assert {end for end in ends if end} == {(4 - len(deaths), len(deaths))}, deaths
    ends = with_spares(3, 2, {2: 25, 1: 90}, loop)  # the second takes its place after two deaths
    assert {end for end in ends if end} == {(3, 2)}


def test_a_loop_tells_its_result_where_it_ran() -> None:
    @ddp.elastic
    def count(state: ddp.State) -> int:
        state.seen.append(pdnn.world().size)
        state.commit()
        return len(state.seen)

    def rank(dies: bool = False) -> tuple[int | None, list[int]]:
        state = ddp.State(seen=[])
        pdnn.world().barrier()
        if dies and pdnn.world().rank == 2:
            die(after=1)
        return count(state), state.seen

    assert with_spares(2, 1, {}, rank) == [(1, [2]), (1, [2]), (None, [2])]
    assert with_spares(2, 1, {}, lambda: rank(dies=True)) == [(1, [2]), (1, [2]), None]
