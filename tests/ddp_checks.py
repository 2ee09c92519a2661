"""What pdnn.ddp promises on any number of ranks; run as a script, on all ranks of MPI."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pdnn
from comm_checks import refused
from pdnn import codec, ddp, nn, optim
from pdnn.comm import Communicator
from pdnn.data import DataLoader, Dataset, PadCropFlip

Array = NDArray[Any]
Build = Callable[[int], nn.Module]

RNG = np.random.default_rng(5)
IMAGES, LABELS = RNG.normal(size=(41, 3, 8, 8)), RNG.integers(0, 4, 41)
PHOTOS = RNG.integers(0, 256, (41, 3, 8, 8), dtype=np.uint8)
ROWS = IMAGES.reshape(41, -1)[:, :12].copy()


# ---- narrow versions of the exercises' networks


def sigmoids(seed: int) -> nn.Module:
    return pdnn.models.mlp([12, 9, 4], "sigmoid", dtype="float64", seed=seed)


def tangents(seed: int) -> nn.Module:
    layers = [nn.Linear(a, b, bias=False) for a, b in itertools.pairwise([12, 8, 8, 8, 4])]
    parts = [part for layer in layers for part in (layer, nn.Tanh())]
    return nn.Sequential(*parts[:-1], dtype="float64", seed=seed)


def convolutions(seed: int) -> nn.Module:
    first = nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.ReLU()
    return nn.Sequential(*first, nn.Flatten(), nn.Linear(36, 4), nn.LogSoftmax(), dtype="float64", seed=seed)


def conv_bn(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
    return [convolution, nn.BatchNorm2d(outputs, sync=True), nn.ReLU()]


def residual(seed: int) -> nn.Module:
    block = nn.Residual(nn.Sequential(*conv_bn(5, 5, 1), *conv_bn(5, 5, 1)))
    layers = [*conv_bn(3, 4, 2), *conv_bn(4, 5, 2), block, nn.Flatten(), nn.Linear(20, 4)]
    return nn.Sequential(*layers, dtype="float64", seed=seed)


class ByHand(nn.Module):
    """Layers called one by one, with a synchronized BatchNorm below others."""

    def __init__(self, seed: int) -> None:
        super().__init__(dtype="float64", seed=seed)
        self.below, self.normal = nn.Linear(12, 6), nn.BatchNorm1d(6, sync=True)
        self.act, self.above = nn.Tanh(), nn.Linear(6, 4)

    def forward(self, x: Any) -> Any:
        return self.above(self.act(self.normal(self.below(x))))


def sgd(model: nn.Module) -> optim.Optimizer:
    return optim.SGD(model.parameters(), lr=0.2, momentum=0.9)


def adam(model: nn.Module) -> optim.Optimizer:
    return optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-3)


#: Network, samples, loss, rule, and how far float64's rounding takes five steps.
NETWORKS: dict[str, tuple[Build, Array, nn.losses.Loss, Callable[[nn.Module], optim.Optimizer], float]] = {
    "sigmoids": (sigmoids, ROWS, nn.CrossEntropyLoss(), sgd, 1e-12),
    "tangents": (tangents, ROWS, nn.CrossEntropyLoss(), sgd, 1e-10),
    "convolutions": (convolutions, IMAGES, nn.NLLLoss(), sgd, 1e-12),
    "residual": (residual, IMAGES, nn.SoftmaxLoss(), adam, 1e-9),
    "by hand": (ByHand, ROWS, nn.CrossEntropyLoss(), adam, 1e-9),
}


# ---- one process, and what is compared


def trained_alone(
    build: Build,
    x: Array,
    loss: nn.losses.Loss,
    rule: Callable[[nn.Module], optim.Optimizer],
    batches: Iterable[Any],
    steps: int = 5,
) -> nn.Module:
    model = build(7)
    for module in model.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.sync = False  # each rank does all rows
    descent = rule(model)
    for rows in itertools.islice(itertools.cycle(batches), steps):
        descent.zero_grad()
        loss(model(x[rows]), LABELS[rows]).backward()
        descent.step()
    return model


def close(model: nn.Module, wanted: nn.Module, tolerance: float) -> None:
    for (name, got), want in zip(model.state_dict().items(), wanted.state_dict().values(), strict=True):
        apart = np.abs(got - want).max()
        assert apart <= tolerance * max(np.abs(want).max(), 1e-3), (name, apart)


def started(build: Build, comm: Communicator) -> nn.Module:
    """A model that begins as rank 0's."""
    model = build(7 + comm.rank)
    ddp.broadcast_parameters(model)
    return model


# ---- training


def check_ranks_equal_one_process(comm: Communicator) -> None:
    """Batches of 13 of 41 rows: the shares differ, and two of the last batch's ranks have no row of 2."""
    batches = [slice(begin, begin + 13) for begin in (0, 13, 26)] + [slice(39, 41)]
    for build, x, loss, rule, tolerance in NETWORKS.values():
        wanted = trained_alone(build, x, loss, rule, batches)
        for bucket_bytes in (1, 600, 2**30):  # each parameter by itself, several together, all together
            model = started(build, comm)
            opt = ddp.DistributedOptimizer(rule(model), bucket_bytes=bucket_bytes)
            for rows in itertools.islice(itertools.cycle(batches), 5):
                opt.reset_grad()
                loss(model(x[rows][comm.rank :: comm.size]), LABELS[rows][comm.rank :: comm.size]).backward()
                opt.step()
            close(model, wanted, tolerance)


def check_sum_is_the_gradient_of_summed_losses(comm: Communicator) -> None:
    loss, model = nn.CrossEntropyLoss("sum"), started(sigmoids, comm)
    opt = ddp.DistributedOptimizer(optim.SGD(model.parameters(), lr=0.01), op=ddp.Sum)
    for rows in (slice(0, 13), slice(13, 20)):
        opt.zero_grad()
        loss(model(ROWS[rows][comm.rank :: comm.size]), LABELS[rows][comm.rank :: comm.size]).backward()
        opt.step()
    rule = lambda net: optim.SGD(net.parameters(), lr=0.01)  # noqa: E731
    batches = slice(0, 13), slice(13, 20)
    close(model, trained_alone(sigmoids, ROWS, loss, rule, batches, 2), 1e-12)


def check_passes_add_up_to_one_batch(comm: Communicator) -> None:
    loss, model = nn.CrossEntropyLoss(), started(sigmoids, comm)
    opt = ddp.DistributedOptimizer(
        sgd(model), model.named_parameters(), backward_passes_per_step=2, bucket_bytes=1
    )
    for begin in (0, 20):
        opt.zero_grad()
        for rows in (slice(begin, begin + 12), slice(begin + 12, begin + 17)):
            loss(model(ROWS[rows][comm.rank :: comm.size]), LABELS[rows][comm.rank :: comm.size]).backward()
        said = refused(ValueError, loss(model(ROWS[:1]), LABELS[:1]).backward)
        assert "3 passes before step()" in said
        opt.step()
    batches = slice(0, 17), slice(20, 37)
    close(model, trained_alone(sigmoids, ROWS, nn.CrossEntropyLoss(), sgd, batches, 2), 1e-12)


class Branches(nn.Module):
    def __init__(self, seed: int) -> None:
        super().__init__(dtype="float64", seed=seed)
        self.below, self.left, self.right = nn.Linear(12, 5), nn.Linear(5, 4), nn.Linear(5, 4)

    def forward(self, x: Any, both: bool = True) -> Any:
        y = self.below(x)
        return self.left(y) + self.right(y) if both else self.left(y)


def check_a_parameter_without_gradient_counts_as_zero(comm: Communicator) -> None:
    """Only rank 0 goes through both branches, in every other step none does."""
    loss, model = nn.CrossEntropyLoss(), started(Branches, comm)
    opt = ddp.DistributedOptimizer(sgd(model), bucket_bytes=1)
    alone = Branches(7)
    descent = sgd(alone)
    shares = [slice(4 * rank, 4 * rank + 3 + rank) for rank in range(comm.size)]
    count = sum(3 + rank for rank in range(comm.size))
    for step in range(5):
        opt.zero_grad()
        mine = shares[comm.rank]
        loss(model(ROWS[mine], both=comm.rank == 0 and step % 2 == 0), LABELS[mine]).backward()
        opt.step()
        descent.zero_grad()
        for rank, rows in enumerate(shares):
            outputs = alone(ROWS[rows], both=rank == 0 and step % 2 == 0)
            (loss(outputs, LABELS[rows]) * ((3 + rank) / count)).backward()
        descent.step()
    close(model, alone, 1e-12)


def check_ranks_run_out_of_batches(comm: Communicator) -> None:
    """Rank r has 4 - r batches: step s is made of the rows of those ranks that still have one."""
    batches = [
        [slice(5 * step + rank, 5 * step + 2 * rank + 2) for step in range(4 - rank)] for rank in range(4)
    ]
    for build, x in ((residual, IMAGES), (ByHand, ROWS), (sigmoids, ROWS)):
        model = started(build, comm)
        opt = ddp.DistributedOptimizer(sgd(model))
        with ddp.join(opt):
            for rows in batches[comm.rank]:
                opt.zero_grad()
                nn.CrossEntropyLoss()(model(x[rows]), LABELS[rows]).backward()
                opt.step()
        joint = [
            np.concatenate(
                [np.arange(41)[batches[rank][step]] for rank in range(comm.size) if step < 4 - rank]
            )
            for step in range(4)
        ]
        close(model, trained_alone(build, x, nn.CrossEntropyLoss(), sgd, joint, 4), 1e-10)


def batches_of(rank: int, step: int) -> slice:
    """Unlike on all ranks; the last one has none in the second step."""
    return slice(7 * step + 2 * rank, 7 * step + 2 * rank + (rank + 2 if step != 1 or rank < 2 else 0))


def check_a_codec_that_loses_nothing_changes_nothing(comm: Communicator) -> None:
    """Divided before it is sent, by the rows of all ranks; also where ranks run out of batches."""
    for build, x, op, size in (
        (residual, IMAGES, ddp.Average, 1 << 20),
        (ByHand, ROWS, ddp.Average, 1),
        (sigmoids, ROWS, ddp.Sum, 400),
    ):
        models = [started(build, comm), started(build, comm)]
        for model, compression in zip(models, (None, "topk:1.0"), strict=True):
            opt = ddp.DistributedOptimizer(sgd(model), op=op, bucket_bytes=size, compression=compression)
            with ddp.join(opt):
                for step in range(4 - comm.rank):
                    rows = batches_of(comm.rank, step)
                    opt.zero_grad()
                    nn.CrossEntropyLoss()(model(x[rows]), LABELS[rows]).backward()
                    opt.step()
        close(models[1], models[0], 1e-9)


def check_codecs_send_as_many_bytes_as_computed(comm: Communicator) -> None:
    """Two buckets; all ranks end with the same bits."""
    steps, ranks, shapes = 3, comm.size, [[(9,), (9, 4), (4,)], [(12, 9)]]
    for spec in ("bf16", "int8:32", "1bit:64", "topk:0.1", "powersgd:1"):
        chosen = codec.parse(spec)
        want = plain = 0
        for bucket in shapes if ranks > 1 else []:
            count = sum(int(np.prod(shape)) for shape in bucket)
            plain += 2 * (ranks - 1) * count * 8 // ranks
            if spec.startswith("powersgd"):
                want += 2 * (ranks - 1) * sum(chosen.bytes(shape, "float64") for shape in bucket) // ranks
            elif ranks == 2:
                want += chosen.bytes(count, "float64")
            else:
                shares = [
                    chosen.bytes(len(share), "float64") for share in np.array_split(np.zeros(count), ranks)
                ]
                want += sum(shares) + (ranks - 2) * shares[comm.rank]
        model = started(sigmoids, comm)
        opt = ddp.DistributedOptimizer(sgd(model), compression=spec, bucket_bytes=8 * 117)
        for step in range(steps):
            rows = batches_of(comm.rank, step)
            opt.zero_grad()
            nn.CrossEntropyLoss()(model(ROWS[rows]), LABELS[rows]).backward()
            opt.step()
        stats = opt.stats
        assert (stats.sums, stats.bytes, stats.bytes_uncompressed) == (steps, steps * want, steps * plain)
        if ranks > 1:
            assert 0 < stats.error < 1, (spec, stats)
        for values in comm.all_gather(model.flat_parameters):
            np.testing.assert_array_equal(values, model.flat_parameters)
    model = started(sigmoids, comm)
    assert "of a codec" in refused(
        ValueError, lambda: ddp.DistributedOptimizer(sgd(model), error_feedback=True)
    )


def check_ranks_without_batches_follow_the_schedule(comm: Communicator) -> None:
    loss, models = nn.CrossEntropyLoss(), [started(sigmoids, comm), sigmoids(7)]
    opts = [ddp.DistributedOptimizer(sgd(models[0])), sgd(models[1])]
    schedules = [optim.LinearLR(opt, 1.0, 0.2, total_iters=4) for opt in opts]
    with ddp.join(opts[0]):  # type: ignore[arg-type]
        for step in range(4 - comm.rank):
            rows = slice(8 * step + 2 * comm.rank, 8 * step + 2 * comm.rank + 2)
            opts[0].zero_grad()
            loss(models[0](ROWS[rows]), LABELS[rows]).backward()
            opts[0].step()
            schedules[0].step()
    for step in range(4):
        rows = slice(8 * step, 8 * step + 2 * min(comm.size, 4 - step))
        opts[1].zero_grad()
        loss(models[1](ROWS[rows]), LABELS[rows]).backward()
        opts[1].step()
        schedules[1].step()
    close(*models, 1e-12)
    if comm.size > 1:  # the schedules have gone on unequally
        assert refused(ValueError, lambda: schedules[0].step_to(comm.rank) or step_alone(models[0], opts[0]))
    schedules[0].step_to(4)
    step_alone(models[0], opts[0])
    assert opts[0].param_groups[0]["lr"] == opts[1].param_groups[0]["lr"]


def step_alone(model: nn.Module, opt: optim.Optimizer) -> None:
    opt.zero_grad()
    nn.CrossEntropyLoss()(model(ROWS[:2]), LABELS[:2]).backward()
    opt.step()


def check_passes_left_over_are_not_lost(comm: Communicator) -> None:
    """Rank 0 has three passes, others one: the second update is rank 0's third pass alone."""
    loss, model = nn.CrossEntropyLoss(), started(sigmoids, comm)
    opt = ddp.DistributedOptimizer(sgd(model), backward_passes_per_step=2)
    begins = (0, 5, 10) if comm.rank == 0 else (15 + 5 * comm.rank,)
    with ddp.join(opt):
        for number, begin in enumerate(begins):
            if number == 2:
                opt.zero_grad()
            loss(model(ROWS[begin : begin + 5]), LABELS[begin : begin + 5]).backward()
            if number == 1:
                opt.step()
    first = np.r_[0:10, 20 : 15 + 5 * comm.size]
    close(model, trained_alone(sigmoids, ROWS, loss, sgd, [first, slice(10, 15)], 2), 1e-12)


def check_clipping_and_schedules(comm: Communicator) -> None:
    models = [started(sigmoids, comm), sigmoids(7)]
    loss, inner = nn.CrossEntropyLoss(), [sgd(model) for model in models]
    opts = [ddp.DistributedOptimizer(inner[0]), inner[1]]
    schedules = [optim.LinearLR(opt, 1.0, 0.2, total_iters=3) for opt in opts]
    shares = [slice(comm.rank, 13, comm.size), slice(0, 13)]
    for _ in range(3):
        for model, opt, schedule, rows in zip(models, opts, schedules, shares, strict=True):
            opt.zero_grad()
            loss(model(ROWS[rows]), LABELS[rows]).backward()
            if isinstance(opt, ddp.DistributedOptimizer):
                opt.synchronize()
            nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            if isinstance(opt, ddp.DistributedOptimizer):
                with opt.skip_synchronize():
                    opt.step()
            else:
                opt.step()
            schedule.step()
    close(models[0], models[1], 1e-12)
    assert inner[0].param_groups[0]["lr"] == opts[0].param_groups[0]["lr"] == inner[1].param_groups[0]["lr"]
    state, wanted = opts[0].state_dict(), inner[1].state_dict()
    assert state["steps"] == wanted["steps"] == 3
    np.testing.assert_allclose(
        state["state"]["velocity"], wanted["state"]["velocity"], rtol=1e-10, atol=1e-14
    )


def check_a_mean_of_other_rows_counts_as_the_loss_does(comm: Communicator) -> None:
    """Whichever of the two is computed first."""
    loss, alone = nn.CrossEntropyLoss(), tangents(7)
    (loss(alone(ROWS[:13]), LABELS[:13]) + alone(ROWS[20:26]).mean()).backward()
    rows = slice(comm.rank, 13, comm.size)
    for mean_first in (True, False):
        model = started(tangents, comm)
        opt = ddp.DistributedOptimizer(sgd(model))
        opt.zero_grad()
        if mean_first:
            mean = model(ROWS[20:26]).mean()
            (loss(model(ROWS[rows]), LABELS[rows]) + mean).backward()
        else:
            (loss(model(ROWS[rows]), LABELS[rows]) + model(ROWS[20:26]).mean()).backward()
        opt.synchronize()
        np.testing.assert_allclose(model.flat_gradients, alone.flat_gradients, rtol=1e-10, atol=1e-14)


def check_parameters_of_no_distributed_optimizer_keep_their_gradients(comm: Communicator) -> None:
    loss, rows = nn.CrossEntropyLoss(), slice(comm.rank, 13, comm.size)
    alone, model = sigmoids(7), started(sigmoids, comm)
    loss(alone(ROWS[rows]), LABELS[rows]).backward()
    own, parts = list(alone.parameters()), list(model.parameters())
    opts = [ddp.DistributedOptimizer(optim.SGD(parts[index : index + 1], lr=0.1)) for index in (0, 1)]
    for opt in opts:
        opt.zero_grad()
    loss(model(ROWS[rows]), LABELS[rows]).backward()
    for index in range(2, len(parts)):
        np.testing.assert_allclose(parts[index].grad, own[index].grad, rtol=1e-12, atol=1e-16)
    for opt in opts:
        opt.synchronize()
    rank_alone = [each.grad.copy() for each in own]
    alone.flat_gradients[:] = 0
    loss(alone(ROWS[:13]), LABELS[:13]).backward()
    for index in (0, 1):
        np.testing.assert_allclose(parts[index].grad, own[index].grad, rtol=1e-10, atol=1e-14)
    opts[0].remove()  # whose parameter the other one has not
    model.flat_gradients[:] = 0
    opts[1].zero_grad()
    loss(model(ROWS[rows]), LABELS[rows]).backward()
    for index in (0, 2, 3):
        np.testing.assert_allclose(parts[index].grad, rank_alone[index], rtol=1e-12, atol=1e-16)
    opts[1].synchronize()
    np.testing.assert_allclose(parts[1].grad, own[1].grad, rtol=1e-10, atol=1e-14)
    opts[1].remove()
    assert not any(each.hooks or each.post_hooks for each in parts)


def check_steps_that_would_differ_are_refused(comm: Communicator) -> None:
    loss, rows = nn.CrossEntropyLoss(), slice(comm.rank, 13, comm.size)
    model = started(sigmoids, comm)

    def backward() -> None:
        opt.zero_grad()
        loss(model(ROWS[rows]), LABELS[rows]).backward()

    opt = ddp.DistributedOptimizer(optim.SGD(list(model.parameters())[:2], lr=0.1))
    opt.param_groups.append({"params": list(model.parameters())[2:], "lr": 0.1, "weight_decay": 0.0})
    assert "backward: ['2.bias', '2.weight'] came to the optimizer after" in refused(ValueError, backward)
    opt.remove()
    opt = ddp.DistributedOptimizer(sgd(model))
    model.flat_gradients[:] = 1
    assert "no backward pass has made" in refused(ValueError, opt.step)
    backward()
    opt.step()
    opt.param_groups = [{**opt.param_groups[0], "weight_decay": 0.5 + comm.rank}]
    assert opt.optimizer.param_groups[0]["weight_decay"] == 0.5 + comm.rank
    opt.zero_grad()
    if comm.size > 1:
        assert "weight decays differ" in refused(ValueError, lambda: backward() or opt.step())  # type: ignore[func-returns-value]
    opt.param_groups[0]["weight_decay"] = 0.0
    with ddp.join(opt):
        for step in range(2 if comm.rank == 0 else 1):
            backward()
            opt.synchronize()
            summed = model.flat_gradients.copy()
            nn.utils.clip_grad_norm_(opt.parameters(), 1e-3)
            if step == 1 and comm.size > 1:  # the others have left
                assert "gradients were changed after" in refused(ValueError, opt.step)
                model.flat_gradients[:] = summed
            opt.step()
    assert ddp.check_parameter_closeness(model)


def check_gradients_travel_while_the_pass_goes_on(comm: Communicator) -> None:
    for compression in (ddp.Compression.none, ddp.Compression.fp16, "int8"):
        model = started(sigmoids, comm)
        opt = ddp.DistributedOptimizer(sgd(model), bucket_bytes=1, compression=compression)
        started_buckets: dict[str, int] = {}
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(
                lambda each, opt=opt, told=started_buckets: told.update({each.name: opt._sums.started})
            )
        nn.CrossEntropyLoss()(model(ROWS[:6]), LABELS[:6]).backward()
        assert started_buckets == {"2.bias": 1, "2.weight": 2, "0.bias": 3, "0.weight": 4}
        opt.zero_grad()  # what is under way ends first
        assert not model.flat_gradients.any()


def check_ranks_drop_other_units(comm: Communicator) -> None:
    model = nn.Sequential(nn.Linear(12, 500), nn.Dropout(0.5), nn.Linear(500, 4), seed=1, dtype="float64")
    alone = nn.Sequential(nn.Linear(12, 500), nn.Dropout(0.5), nn.Linear(500, 4), seed=1, dtype="float64")
    ddp.DistributedOptimizer(sgd(model))
    outputs = comm.all_gather(np.ascontiguousarray(model(ROWS).numpy()))
    np.testing.assert_array_equal(outputs[0], alone(ROWS).numpy())
    for one, other in itertools.combinations(outputs, 2):
        assert (one != other).all()


# ---- data, collectives, state


def check_partition(comm: Communicator) -> None:
    data = Dataset(np.arange(41 * 2, dtype=np.uint8).reshape(41, 2), np.arange(41), scale=0.5)
    part, bsz = ddp.partition_dataset(data, 13, device="cpu", dtype="float64", verbose=False)
    assert isinstance(part, DataLoader)
    assert bsz == len(range(comm.rank, 13, comm.size))
    orders = []
    for epoch in (None, None, 1):
        if epoch is not None:
            part.set_epoch(epoch)
        got = list(part)
        assert len(got) == len(part) == 4
        everyones = [ddp.allgather(y) for _, y in got]
        assert [len(rows) for rows in everyones] == [13, 13, 13, 2]
        assert sorted(np.concatenate(everyones).tolist()) == list(range(41))
        for x, y in got:
            assert x.dtype == np.float64
            np.testing.assert_array_equal(x, data.x[y] * 0.5)
            sizes = ddp.allgather(np.array([len(y)]))
            assert sizes.max() - sizes.min() <= 1
        whole = ddp.allgather(np.array([sum(len(y) for _, y in got)]))
        assert whole.max() - whole.min() <= 1
        assert whole.sum() == 41
        orders.append([sorted(rows.tolist()) for rows in everyones])
    assert orders[0] == orders[1] != orders[2]
    one = [sorted(rows) for rows in ddp.partition.SharedBatches(data, 13, 0, 1, 1234)]
    assert orders[0] == one, "the batches of one process"
    photos = Dataset(PHOTOS, LABELS)
    part, _ = ddp.partition_dataset(photos, 13, augment=PadCropFlip(2), verbose=False)
    whole = DataLoader(photos, 41, augment=PadCropFlip(2), seed=1234)
    for _ in range(2):  # each epoch does something else to an image, whoever loads it
        by_number = next(iter(whole))[0]
        for (x, _), rows in zip(part, part.batch_sampler or (), strict=True):
            np.testing.assert_array_equal(x, by_number[rows])
    assert "device is 'gpu'" in refused(ValueError, lambda: ddp.partition_dataset(data, 13, "gpu"))
    assert "batch_size = 0" in refused(ValueError, lambda: ddp.partition_dataset(data, 0))
    assert "batch_size is 13.0" in refused(TypeError, lambda: ddp.partition_dataset(data, 13.0))  # type: ignore[arg-type]
    _, also = ddp.partition_dataset(data, np.int64(13), seed=np.int64(1234), verbose=False)
    assert also == bsz


def check_collectives(comm: Communicator) -> None:
    p, mine = comm.size, np.arange(3.0) + comm.rank
    np.testing.assert_allclose(ddp.allreduce(mine), np.arange(3) + (p - 1) / 2)
    np.testing.assert_array_equal(ddp.allreduce(mine, op=ddp.Sum), p * np.arange(3) + p * (p - 1) / 2)
    np.testing.assert_array_equal(ddp.allreduce(mine[::-1], "name", op=ddp.Max), np.arange(3)[::-1] + p - 1)
    assert (mine == np.arange(3) + comm.rank).all()
    assert ddp.allreduce(comm.rank, op=ddp.Sum) == p * (p - 1) // 2
    assert ddp.allreduce(pdnn.Tensor(np.float64(comm.rank)), op=ddp.Min) == 0
    assert "mean" in refused(TypeError, lambda: ddp.allreduce(np.arange(3)))
    for average in (False, ddp.Sum):  # Horovod's second argument
        assert "pass that as in op=ddp.Sum" in refused(TypeError, lambda: ddp.allreduce(mine, average))  # noqa: B023
    if p > 1:
        told = refused(ValueError, lambda: ddp.allgather(np.ones((1, 2 + comm.rank))))
        assert "allgather: rank 1 has rows of shape (3,), rank 0 of (2,)" in told
    np.testing.assert_array_equal(ddp.allreduce([1.0, comm.rank], op=ddp.Max), [1, p - 1])
    np.testing.assert_array_equal(ddp.broadcast([comm.rank, 2], p - 1), [p - 1, 2])
    rows = ddp.allgather(np.full((comm.rank, 2), comm.rank))
    np.testing.assert_array_equal(rows, np.repeat(np.arange(p), np.arange(p))[:, None].repeat(2, axis=1))
    assert ddp.broadcast(comm.rank + 5, root_rank=p - 1) == p + 4
    np.testing.assert_array_equal(ddp.broadcast(mine, 0), np.arange(3))
    assert (mine == np.arange(3) + comm.rank).all()
    assert (ddp.rank(), ddp.size()) == (comm.rank, p)
    masked = np.ma.masked_array(mine, mask=[0, 0, comm.rank == p - 1])  # its last entry, on the last rank
    for call in (ddp.allreduce, ddp.allgather, lambda a: ddp.broadcast(a, 0)):
        assert "an array with masked entries" in refused(ValueError, lambda c=call: c(masked))


def check_state_is_broadcast(comm: Communicator) -> None:
    root = comm.size - 1
    model = residual(comm.rank)
    model.flat_buffers[:] += comm.rank
    descent = adam(model)
    for _ in range(1 + comm.rank):
        model.flat_gradients[:] = 1 + comm.rank
        descent.step()
    descent.param_groups[0]["lr"] = 0.5 + comm.rank
    ddp.broadcast_parameters(model, root_rank=root)
    roots = [array.copy() for array in comm.all_gather(next(iter(descent.state_arrays().values())))][root]
    ddp.broadcast_optimizer_state(ddp.DistributedOptimizer(descent), root_rank=root)
    for array in (model.flat_parameters, model.flat_buffers, *descent.state_dict()["state"].values()):
        for other in comm.all_gather(array):
            np.testing.assert_array_equal(other, array)
    np.testing.assert_array_equal(next(iter(descent.state_arrays().values())), roots)
    assert descent.state_dict()["steps"] == comm.size
    assert descent.param_groups[0]["lr"] == 0.5 + root
    assert model.flat_buffers.max() >= 1 + root
    ddp.broadcast_parameters(model.state_dict())  # as Horovod's programs say it
    names = ["left", "right"] if comm.rank % 2 == 0 else ["right", "left"]  # the order of the mapping
    arrays = {name: np.full(3, 10 * comm.rank + len(name)) for name in names}
    ddp.broadcast_parameters(arrays)
    assert (arrays["left"] == 4).all() and (arrays["right"] == 5).all()


def check_differences_are_refused(comm: Communicator) -> None:
    if comm.size == 1:
        return
    odd = comm.rank == comm.size - 1
    words = f"rank {comm.size - 1} has "

    def sizes(last: int, dtype: str = "float64") -> nn.Module:
        return pdnn.models.mlp([12, 9, last], dtype=dtype, seed=0)

    wider = sizes(5 if odd else 4)
    said = refused(ValueError, lambda: ddp.broadcast_parameters(wider))
    assert words + "2.weight (9, 5) float64, rank 0 has (9, 4) float64" in said
    said = refused(ValueError, lambda: ddp.DistributedOptimizer(sgd(wider)))
    assert words + "parameter 2.weight (9, 5), rank 0 has (9, 4)" in said
    other = sizes(4, "float32" if odd else "float64")
    said = refused(ValueError, lambda: ddp.DistributedOptimizer(sgd(other)))
    assert words + "dtype float32, rank 0 has float64" in said
    for options, what in (
        ({"bucket_bytes": 100 + odd}, "bucket_bytes 101, rank 0 has 100"),
        ({"op": ddp.Sum if odd else ddp.Average}, "op sum, rank 0 has mean"),
        ({"compression": "int8" if odd else None}, "compression int8, rank 0 has None"),
        ({"compression": "1bit", "error_feedback": not odd}, "error_feedback False, rank 0 has True"),
        ({"backward_passes_per_step": 1 + odd}, "backward_passes_per_step 2, rank 0 has 1"),
    ):
        same = sizes(4)
        said = refused(ValueError, lambda o=options, m=same: ddp.DistributedOptimizer(sgd(m), **o))  # type: ignore[misc]
        assert words + what in said, said
    data = Dataset(ROWS[: 40 + odd], LABELS[: 40 + odd])
    said = refused(ValueError, lambda: ddp.partition_dataset(data, 13))
    assert words + "rows 41, rank 0 has 40" in said
    said = refused(ValueError, lambda: ddp.partition_dataset(data[:20], 13 + odd))
    assert words + "batch_size 14, rank 0 has 13" in said
    cuts = PadCropFlip(2) if odd else None
    said = refused(ValueError, lambda: ddp.partition_dataset(data[:20], 13, augment=cuts))
    assert words + "augment PadCropFlip" in said and "rank 0 has None" in said
    same = sizes(4)
    halves = [{"params": each} for each in same.parameters()] if odd else same.parameters()
    said = refused(ValueError, lambda: ddp.DistributedOptimizer(optim.SGD(halves, lr=0.1)))
    first = "rank 0 has [['0.weight', '0.bias', '2.weight', '2.bias']]"
    assert words + f"parameter groups [['0.weight'], ['0.bias'], ['2.weight'], ['2.bias']], {first}" in said
    parts = list(sizes(4).parameters())
    swapped = [{"params": parts[2 * odd :]}, {"params": parts[: 2 * odd]}] if odd else [{"params": parts}]
    said = refused(ValueError, lambda: ddp.DistributedOptimizer(optim.SGD(swapped, lr=0.1)))
    assert words + f"parameter groups [['2.weight', '2.bias'], ['0.weight', '0.bias']], {first}" in said
    grouped = optim.SGD([{"params": each} for each in sizes(4).parameters()][: 1 + odd], lr=0.1)
    said = refused(ValueError, lambda: ddp.broadcast_optimizer_state(grouped))
    assert words + "numbers ['lr of group 0', 'lr of group 1'" in said
    same = sizes(4)
    rule = adam(same) if odd else sgd(same)
    assert "optimizer {'type': 'Adam'" in refused(ValueError, lambda: ddp.DistributedOptimizer(rule))
    assert "optimizer {'type': 'Adam'" in refused(ValueError, lambda: ddp.broadcast_optimizer_state(rule))


ALL = [check for name, check in sorted(globals().items()) if name.startswith("check_")]


def resnet9() -> dict[str, Array]:
    """The full network after five steps of Adam on batches that do not divide: what a rank has then."""
    rng = np.random.default_rng(1)
    data = Dataset(rng.normal(size=(60, 3, 32, 32)), rng.integers(0, 10, 60))
    rank, device = ddp.init()
    train_set, _ = ddp.partition_dataset(data, 13, device=device, dtype="float64", verbose=False)
    model = pdnn.models.ResNet9(device=device, dtype="float64", seed=rank)
    ddp.broadcast_parameters(model)
    opt = ddp.DistributedOptimizer(optim.Adam(model.parameters(), lr=0.001, weight_decay=0.001))
    for x, y in train_set:
        opt.reset_grad()
        nn.SoftmaxLoss()(model(x), y).backward()
        opt.step()
    return {name: values.copy() for name, values in model.state_dict().items()}


def equal_states(got: dict[str, Array], wanted: dict[str, Array]) -> None:
    for name, values in wanted.items():
        assert np.abs(got[name] - values).max() <= 1e-9 * np.abs(values).max(), name


if __name__ == "__main__":
    rank, _ = ddp.init()
    assert (ddp.local_rank(), ddp.local_size()) == (rank, ddp.size()), "all on this machine"
    for check in ALL:
        check(pdnn.world())
    print(f"rank {rank} of {ddp.size()} is content", flush=True)
