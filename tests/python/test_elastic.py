"""Loops by hand that go on when a rank dies."""

from __future__ import annotations

import numpy as np
import pytest

import elastic_job
import pdnn
from pdnn import ddp, models, nn, optim
from pdnn.comm import die, run_threads


def undisturbed(ranks: int = 1) -> np.ndarray:
    return run_threads(lambda: elastic_job.run()[1], ranks)[0]


def test_a_loop_goes_on_wherever_a_rank_dies() -> None:
    want = undisturbed()
    for calls in [1, 2, 3, 5, 8, 13, 20, 32, 50, 60, 73, 80]:
        dies = calls % 3

        def rank(dies: int = dies, calls: int = calls) -> tuple[int, int]:
            if pdnn.world().rank == dies:
                die(after=10 + calls)
            state, values = elastic_job.run()
            assert np.abs(values - want).max() < 1e-9 * np.abs(want).max()
            assert state.commits == 1 + 3 * 3, "as often as without a death"
            assert state.epoch == 3
            return pdnn.world().size, state.failures

        ends = run_threads(rank, 3)
        assert ends[dies] is None, calls
        assert [end for end in ends if end is not None] == [(2, 1)] * 2


def test_two_may_die() -> None:
    want = undisturbed()

    def rank() -> tuple[int, int]:
        if pdnn.world().rank != 1:
            die(after=60 if pdnn.world().rank == 0 else 90)
        state, values = elastic_job.run()
        assert np.abs(values - want).max() < 1e-9 * np.abs(want).max()
        return pdnn.world().size, state.failures

    assert run_threads(rank, 3) == [None, (1, 2), None]


def test_a_state_goes_back_to_each_of_its_last_two_commits() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2), seed=1)
    optimizer = optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    schedule = optim.StepLR(optimizer, 1)
    state = ddp.State(
        model=model, optimizer=optimizer, schedule=schedule, array=np.zeros(2), seen=[1], epoch=0
    )
    x = np.ones((4, 3), np.float32)
    before = {}

    def look() -> tuple[object, ...]:
        arrays = [*model.state_dict().values(), *optimizer.state_arrays().values(), state.array]
        numbers = optimizer.core.steps, schedule.last_epoch, optimizer.param_groups[0]["lr"], state.epoch
        return [each.tolist() for each in arrays], numbers, list(state.seen)

    for number in range(1, 4):
        state.commit()
        before[number] = look()
        nn.MSELoss()(model(x), np.zeros((4, 2), np.float32)).backward()
        optimizer.step()
        schedule.step()
        state.array += 1
        state.seen.append(number)
        state.epoch += 1
    assert state.commits == 3
    assert state.nbytes == 2 * (4 * (12 + 8 + 14) + 16)
    with pytest.raises(ValueError, match=r"commit 1 is not kept; expected one of \[2, 3\]"):
        state.restore(1)
    with pytest.raises(ValueError, match="commit 0 is not kept"):
        state.restore(0)
    state.restore()
    assert look() == before[3]
    state.restore(2)
    assert look() == before[2]
    assert state.commits == 2
    with pytest.raises(ValueError, match="commit 3 is not kept"):
        state.restore(3)


def test_what_is_no_state_is_refused() -> None:
    with pytest.raises(ValueError, match=r"State: \['commits'\] are its own"):
        ddp.State(commits=3)
    with pytest.raises(TypeError, match=r"elastic: got dict, expected a ddp\.State"):
        elastic_job.train({}, 1)  # type: ignore[arg-type]
    model = elastic_job.network()
    with pytest.raises(TypeError, match="pass the optimizer inside"):
        ddp.State(optimizer=ddp.DistributedOptimizer(optim.SGD(model.parameters(), lr=0.1)))


def test_an_error_of_the_loop_is_raised() -> None:
    @ddp.elastic
    def train(state: ddp.State) -> None:
        if pdnn.world().rank == 1:
            raise KeyError("a mistake")
        pdnn.world().barrier()

    with pytest.raises(KeyError, match="a mistake"):
        run_threads(lambda: train(ddp.State()), 3)


def test_a_state_restores_arrays_that_came_went_or_grew() -> None:
    state = ddp.State(came=None, went=np.arange(3.0), grew=np.array([0.5]), exact=np.zeros(3, np.float32))
    state.commit()
    state.came, state.went, state.grew = np.ones(2), None, np.append(state.grew, 7.0)
    state.restore()
    assert state.came is None and state.went.tolist() == [0, 1, 2] and state.grew.tolist() == [0.5]
    for _ in range(2):  # the copy is none that the loop can change
        state.restore()
        assert state.grew.tolist() == [0.5]
        state.grew = np.append(state.grew, 7.0)
        state.restore()
        state.grew += 1
    state.restore()
    state.commit()
    state.exact = np.full(3, 1 / 3)
    state.commit()
    state.commit()  # in the place of the first, which was of float32
    state.exact = np.zeros(3)
    state.restore()
    assert state.exact.tolist() == [1 / 3] * 3


@pytest.mark.parametrize("schedule_first", [True, False])
def test_a_state_restores_rates_whatever_the_order_of_its_parts(schedule_first: bool) -> None:
    model = models.mlp([2, 2, 2], seed=1)
    sgd = optim.SGD(list(model.parameters())[:2], lr=0.2)
    schedule = optim.StepLR(sgd, 1, 0.5)
    parts = {"schedule": schedule, "optimizer": sgd}
    state = ddp.State(**(parts if schedule_first else dict(reversed(parts.items()))))
    sgd.param_groups[0]["lr"] = 0.05
    state.commit()
    schedule.step()
    state.restore()
    assert sgd.param_groups[0]["lr"] == 0.05 and schedule.last_epoch == 0
    state = ddp.State(optimizer=sgd)
    state.commit()
    sgd.param_groups.append({"params": list(model.parameters())[2:], "lr": 0.1, "weight_decay": 0.0})
    with pytest.raises(ValueError, match="restore: the optimizer has 2 parameter groups, and had 1 at"):
        state.restore()


class NotCopied:
    def __deepcopy__(self, memo: object) -> object:
        raise OSError("not copied")


def test_a_loop_cannot_change_a_copy() -> None:
    state = ddp.State(seen=[1])
    state.commit()
    for number in (2, 3):
        state.seen.append(number)
        state.restore()
        assert state.seen == [1]


def test_a_state_restores_what_was_changed_of_a_group() -> None:
    adam = optim.Adam(models.mlp([3, 2], seed=0).parameters(), lr=0.1)
    state = ddp.State(optimizer=adam)
    state.commit()
    adam.param_groups[0].update(lr=0.5, weight_decay=0.2)
    state.restore()
    assert (adam.param_groups[0]["lr"], adam.param_groups[0]["weight_decay"]) == (0.1, 0)


def test_a_commit_that_fails_is_none() -> None:
    state = ddp.State(value=1)
    state.commit()
    state.value = NotCopied()
    with pytest.raises(OSError, match="not copied"):
        state.commit()
    state.restore()
    assert state.value == 1 and state.commits == 1


def test_one_rank_alone_knows_its_place() -> None:
    assert ddp.elastic(lambda state: ddp.local_rank())(ddp.State(epoch=0)) == 0
