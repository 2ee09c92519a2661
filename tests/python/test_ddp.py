"""pdnn.ddp with ranks that are threads; over MPI: tests/mpi/test_ddp.py."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import ddp_checks
import pdnn
from ddp_checks import LABELS, ROWS, ByHand, sgd, sigmoids
from pdnn import ddp, nn, optim
from pdnn.codec import CompressedAllReduce
from pdnn.comm import Communicator
from pdnn.ddp.buckets import cut
from pdnn.exercises import matmul_by_rows


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("check", ddp_checks.ALL, ids=lambda check: check.__name__.removeprefix("check_"))
def test_on_threads(check: Callable[[Communicator], None], ranks: int) -> None:
    pdnn.run(lambda: check(pdnn.world()), ranks=ranks, backend="threads")


def test_the_full_resnet9_equals_one_process() -> None:
    (alone,) = pdnn.run(ddp_checks.resnet9, ranks=1, backend="threads")
    for ranks in (2, 3):
        for state in pdnn.run(ddp_checks.resnet9, ranks=ranks, backend="threads"):
            ddp_checks.equal_states(state, alone)


def test_the_plain_mean_of_uneven_ranks_is_another_gradient() -> None:
    """What the weights are there for: three rows on one rank, one on the other."""

    def gradients() -> tuple[np.ndarray, np.ndarray]:
        comm, model = pdnn.world(), sigmoids(7)
        rows = slice(0, 3) if comm.rank == 0 else slice(3, 4)
        opt = ddp.DistributedOptimizer(sgd(model))
        nn.CrossEntropyLoss()(model(ROWS[rows]), LABELS[rows]).backward()
        opt.synchronize()
        right = model.flat_gradients.copy()
        plain = sigmoids(7)
        nn.CrossEntropyLoss()(plain(ROWS[rows]), LABELS[rows]).backward()
        return right, comm.all_reduce(plain.flat_gradients.copy(), op="mean")

    alone = sigmoids(7)
    nn.CrossEntropyLoss()(alone(ROWS[:4]), LABELS[:4]).backward()
    right, mean = pdnn.run(gradients, ranks=2, backend="threads")[0]
    np.testing.assert_allclose(right, alone.flat_gradients, rtol=1e-12, atol=1e-15)
    assert np.abs(mean - alone.flat_gradients).max() > 0.01


def test_rows_count_their_weights_on_all_ranks_together() -> None:
    loss, weight = nn.CrossEntropyLoss(), np.array([1.0, 0.0, 5.0, 2.0])

    def gradients() -> np.ndarray:
        model, rows = sigmoids(7), slice(2 * ddp.rank(), 2 * ddp.rank() + 2)
        opt = ddp.DistributedOptimizer(sgd(model))
        loss(model(ROWS[rows]), LABELS[rows], weight[rows]).backward()
        opt.synchronize()
        return model.flat_gradients.copy()

    alone = sigmoids(7)
    loss(alone(ROWS[:4]), LABELS[:4], weight).backward()
    for got in pdnn.run(gradients, ranks=2, backend="threads"):
        np.testing.assert_allclose(got, alone.flat_gradients, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("op", [ddp.Average, ddp.Sum])
def test_several_losses_in_one_pass(op: str) -> None:
    """Averages of losses of the same rows; sums of any, divided by what their rows count on all ranks."""
    weight = np.array([1.0, 0.0, 5.0, 2.0]) if op == ddp.Sum else np.ones(4)

    def gradients(*rows: int) -> np.ndarray:
        model, distributed = sigmoids(7), not rows
        taken = list(rows) or [[0, 1, 2], [3]][ddp.rank()]
        opt = ddp.DistributedOptimizer(sgd(model), op=op) if distributed else sgd(model)
        out, reduction = model(ROWS[taken]), "sum" if op == ddp.Sum else "mean"
        first = nn.CrossEntropyLoss(reduction)(out, LABELS[taken], weight[taken])
        second = nn.MSELoss(reduction)(out, np.ones(out.shape))
        if op == ddp.Sum:
            first, second = first / weight.sum(), second / 4
        (first + second).backward()
        if distributed:
            opt.synchronize()  # type: ignore[union-attr]
        return model.flat_gradients.copy()

    for got in pdnn.run(gradients, ranks=2, backend="threads"):
        np.testing.assert_allclose(got, gradients(0, 1, 2, 3), rtol=1e-12, atol=1e-15)


def test_a_rank_that_raises_in_a_step_releases_the_others() -> None:
    def fail() -> None:
        comm, model = pdnn.world(), sigmoids(7)
        opt = ddp.DistributedOptimizer(sgd(model), bucket_bytes=1)

        def hook(parameter: nn.Parameter) -> None:
            if comm.rank == 1:
                raise KeyError(parameter.name)

        list(model.parameters())[1].register_post_accumulate_grad_hook(hook)
        nn.CrossEntropyLoss()(model(ROWS[:4]), LABELS[:4]).backward()
        opt.step()

    with pytest.raises(KeyError, match=r"0\.bias"):
        pdnn.run(fail, ranks=3, backend="threads")


def test_a_rank_that_never_had_a_batch_is_told_what_join_needs() -> None:
    def rank() -> None:
        model = ByHand(7)
        opt = ddp.DistributedOptimizer(sgd(model))
        with ddp.join(opt):
            if ddp.rank() == 0:
                nn.CrossEntropyLoss()(model(ROWS[:4]), LABELS[:4]).backward()
                opt.step()

    with pytest.raises(ValueError, match=r"sync=True add up over all ranks.*give each rank at least one"):
        pdnn.run(rank, ranks=2, backend="threads")


def test_mistakes_are_refused() -> None:
    model = sigmoids(7)
    with pytest.raises(TypeError, match="got Sequential"):
        ddp.DistributedOptimizer(model)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="op is 'max'"):
        ddp.DistributedOptimizer(sgd(model), op="max")
    with pytest.raises(ValueError, match="bucket_bytes = 0; expected an integer from 1"):
        ddp.DistributedOptimizer(sgd(model), bucket_bytes=0)
    with pytest.raises(TypeError, match=r"backward_passes_per_step is 1\.5, expected an integer from 1"):
        ddp.DistributedOptimizer(sgd(model), backward_passes_per_step=1.5)  # type: ignore[arg-type]
    ddp.DistributedOptimizer(sgd(model), bucket_bytes=np.int64(600)).remove()
    with pytest.raises(ValueError, match=r"lacks \['2.bias', '2.weight'\]"):
        ddp.DistributedOptimizer(sgd(model), list(model.named_parameters())[:2])
    with pytest.raises(TypeError, match=r"named_parameters holds no pairs .*; pass model\.named_parameters"):
        ddp.DistributedOptimizer(sgd(model), named_parameters=model.parameters())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="LBFGS takes several evaluations a step; add up the loss and"):
        ddp.DistributedOptimizer(optim.LBFGS(model.parameters()))
    with pytest.raises(TypeError, match=r"LevenbergMarquardt takes several .*; a Trainer with strategy="):
        ddp.DistributedOptimizer(optim.LevenbergMarquardt(model.parameters()))
    opt = ddp.DistributedOptimizer(sgd(model))
    with pytest.raises(TypeError, match="got DistributedOptimizer"):
        ddp.DistributedOptimizer(opt)
    with pytest.raises(ValueError, match=r"0\.weight has one already"):
        ddp.DistributedOptimizer(sgd(model))
    for call in (
        lambda comm: ddp.check_parameter_closeness(model, comm=comm),
        lambda comm: CompressedAllReduce(comm, "int8", 5),
        lambda comm: matmul_by_rows(np.eye(2), np.eye(2), comm),
    ):
        with pytest.raises(TypeError, match=r"comm is of type int, expected a pdnn.*: pdnn\.world\(\)"):
            call(5)
    with pytest.raises(TypeError, match=r"broadcast_optimizer_state: got int, expected one of pdnn.optim's"):
        ddp.broadcast_optimizer_state(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="broadcast_parameters: got list, expected a model"):
        ddp.broadcast_parameters(list(model.parameters()))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="got SGD, expected a DistributedOptimizer"), ddp.join(sgd(model)):  # type: ignore[arg-type]
        pass
    with pytest.raises(ValueError, match=r"call opt\.synchronize"), opt.skip_synchronize():
        pass
    loss = nn.CrossEntropyLoss()
    loss(model(ROWS[:4]), LABELS[:4]).backward()
    opt.step()
    with pytest.raises(ValueError, match="gradients from before are still there"):
        loss(model(ROWS[:4]), LABELS[:4]).backward()
    opt.zero_grad()
    loss(model(ROWS[:4]), LABELS[:4]).backward()
    twice = ddp.DistributedOptimizer(sgd(made := sigmoids(7)), backward_passes_per_step=2)
    loss(made(ROWS[:4]), LABELS[:4]).backward()
    with pytest.raises(ValueError, match="make the 1 backward passes that are left, and call its sync"):
        nn.utils.clip_grad_norm_(twice.parameters(), 1.0)
    for clip in (nn.utils.clip_grad_norm_, nn.utils.clip_grad_value_):
        with pytest.raises(ValueError, match=rf"{clip.__name__}: the gradients .* call its synchronize\(\)"):
            clip(opt.parameters(), 1.0)
    opt.synchronize()
    nn.utils.clip_grad_norm_(opt.parameters(), 1.0)
    with pytest.raises(ValueError, match=r"gradients from before are still there, of \S+, …; call zero_grad"):
        loss(model(ROWS[:4]), LABELS[:4]).backward()
    opt.zero_grad()
    with pytest.raises(ValueError, match=r"losses of this pass count 2 and 4 rows, .* with op=ddp\.Sum"):
        (loss(model(ROWS[:4]), LABELS[:4]) + loss(model(ROWS[:2]), LABELS[:2])).backward()
    opt.remove()
    model.flat_gradients[:] = 0
    loss(model(ROWS[:4]), LABELS[:4]).backward()
    own = model.flat_gradients.copy()
    alone = sigmoids(7)
    alone.load_state_dict(model.state_dict())
    loss(alone(ROWS[:4]), LABELS[:4]).backward()
    np.testing.assert_array_equal(own, alone.flat_gradients)
    with pytest.raises(ValueError, match="ResNet9: device is 'cuda'"):
        pdnn.models.ResNet9(device="cuda")


def test_a_bucket_may_be_full_to_the_last_element() -> None:
    parameters = list(sigmoids(7).parameters())[:2]
    size = sum(each.size for each in parameters)
    assert cut(parameters, size) == [(0, size)]
    assert len(cut(parameters, size - 1)) == 2


def test_a_pass_after_gradients_that_were_zeroed_by_hand_is_agreed_on_anew() -> None:
    def gradients() -> np.ndarray:
        model = sigmoids(7)
        opt = ddp.DistributedOptimizer(sgd(model))
        for _ in range(2):
            model.flat_gradients[:] = 0
            rows = slice(2 * ddp.rank(), 2 * ddp.rank() + 2)
            nn.CrossEntropyLoss()(model(ROWS[rows]), LABELS[rows]).backward()
            opt.synchronize()
        return model.flat_gradients.copy()

    first, second = pdnn.run(gradients, ranks=2, backend="threads")
    np.testing.assert_array_equal(first, second)


def test_two_models_in_one_pass_need_one_weight() -> None:
    first, second = sigmoids(7), pdnn.models.mlp([4, 4], dtype="float64", seed=8)
    opt = ddp.DistributedOptimizer(sgd(first))
    with pytest.raises(ValueError, match="goes through two models"):
        nn.CrossEntropyLoss()(second(first(ROWS[:4])), LABELS[:4]).backward()
    opt.zero_grad()
    other = ddp.DistributedOptimizer(sgd(second))
    nn.CrossEntropyLoss()(second(first(ROWS[:4])), LABELS[:4]).backward()
    opt.synchronize()
    other.synchronize()
    plain = sigmoids(7), pdnn.models.mlp([4, 4], dtype="float64", seed=8)
    nn.CrossEntropyLoss()(plain[1](plain[0](ROWS[:4])), LABELS[:4]).backward()
    for got, want in zip((first, second), plain, strict=True):
        np.testing.assert_array_equal(got.flat_gradients, want.flat_gradients)


def test_a_model_taken_into_a_larger_one_is_noticed() -> None:
    inner = sigmoids(7)
    ddp.DistributedOptimizer(sgd(inner))
    outer = nn.Sequential(inner, nn.Linear(4, 4), dtype="float64")
    with pytest.raises(ValueError, match="was taken into a larger model"):
        nn.CrossEntropyLoss()(outer(ROWS[:4]), LABELS[:4]).backward()


def test_init_tells_who_shares_a_machine() -> None:
    def rank() -> tuple[int, str, int, int]:
        with pytest.raises(ValueError, match=r"call ddp.init\(\) first"):
            ddp.local_rank()
        return *ddp.init(), ddp.local_rank(), ddp.local_size()

    assert pdnn.run(rank, ranks=3, backend="threads") == [(n, "cpu", n, 3) for n in range(3)]


def test_partitioning_is_told_on_rank_0_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    data = pdnn.data.Dataset(ROWS, LABELS)
    pdnn.run(lambda: ddp.partition_dataset(data, 13), ranks=2, backend="threads")
    assert capsys.readouterr().out == "original dataset length: 41\npartitioned dataset length: 21\n"
    pdnn.run(lambda: ddp.partition_dataset(data, 13, verbose=True), ranks=2, backend="threads")
    assert "partitioned dataset length: 20\n" in capsys.readouterr().out
