"""Sheet 5: data parallel by hand: a sampler, hooks, and a loop with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from pdnn import nn, optim
from pdnn.comm import Communicator
from pdnn.course.compare import Array, all_rows, same
from pdnn.course.ranks import Rank, on_ranks
from pdnn.course.submission import Submission, Wrong
from pdnn.data import DataLoader, Dataset
from pdnn.models import mlp

N, FEATURES, CLASSES, RANKS = 23, 4, 3, 3  # 8, 8 and 7 rows: the last of four batches has 2, 2 and 1
BATCH, EPOCHS, RATE = 2, 2, 0.5
STEPS = EPOCHS * 4


class _Sampler:
    """Rows r, r + p, … of an order that depends on the epoch."""

    def __init__(self, rank: int) -> None:
        self.rank, self.epoch = rank, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        order = np.random.default_rng(100 + self.epoch).permutation(N)
        return iter(order[self.rank :: RANKS].tolist())

    def __len__(self) -> int:
        return len(range(self.rank, N, RANKS))


def _data() -> Dataset:
    random = np.random.default_rng(0)
    return Dataset(random.normal(size=(N, FEATURES)), random.integers(0, CLASSES, N))


def _model(seed: int = 0) -> nn.Sequential:
    return mlp([FEATURES, 3, CLASSES], "sigmoid", dtype="float64", seed=seed)


def sampled(student: Submission) -> str:
    """The samplers of all ranks give each row once, in an order that changes with the epoch."""
    orders = []
    for epoch in (0, 1, 0):
        rows = []
        for rank in range(RANKS):
            sampler = student.RankSampler(N, rank, RANKS, 5)
            sampler.set_epoch(epoch)
            own = [int(row) for row in sampler]
            if len(own) != len(sampler):
                raise Wrong(f"rank {rank} of {RANKS}: len is {len(sampler)}, but it gives {len(own)} rows")
            rows.append(own)
        orders.append(rows)
        try:
            all_rows("the rows of all ranks", np.concatenate(rows), N)
        except Wrong as wrong:
            raise Wrong(f"{wrong}; is the order the same on all ranks, and does none drop the end?") from None
        alone = student.RankSampler(N, 0, 1, 5)
        alone.set_epoch(epoch)
        order = [int(row) for row in alone]
        if rows != [order[rank::RANKS] for rank in range(RANKS)]:
            raise Wrong("the rows of rank r are not those at the places r, r + p, r + 2p, … of the order")
    if orders[0] != orders[2]:
        raise Wrong("epoch 0 has another order the second time: it may depend on seed and epoch only")
    if orders[0] == orders[1]:
        raise Wrong("epochs 0 and 1 have the same order: use what set_epoch was told")
    if [int(row) for row in student.RankSampler(N, 0, RANKS, 5)] != orders[0][0]:
        raise Wrong("before set_epoch was called, the order is not that of epoch 0")
    other = [int(row) for row in student.RankSampler(N, 0, RANKS, 6)]
    if other == orders[0][0]:
        raise Wrong("seeds 5 and 6 give the same order")
    loader = DataLoader(_data(), BATCH, sampler=student.RankSampler(N, 2, RANKS, 5))
    sizes = [len(x) for x, _ in loader]
    if sizes != [2, 2, 2, 1]:
        raise Wrong(f"a DataLoader of 7 rows in batches of 2 gives batches of {sizes}")
    return f"{N} rows on {RANKS} ranks, also by a DataLoader"


def hooked(student: Submission) -> str:
    """A hook returns the gradient of all rows, also if ranks have other numbers of them."""
    rows = (2, 2, 1)
    own = np.random.default_rng(1).normal(size=(RANKS, 4))
    right = sum(m * g for m, g in zip(rows, own, strict=True)) / sum(rows)

    def call(comm: Communicator) -> Any:
        hook = student.average_hook(comm, rows[comm.rank], sum(rows))
        if not callable(hook):
            raise Wrong(f"average_hook returned {type(hook).__name__}, not a function of the gradient")
        return hook(own[comm.rank].copy())

    for rank, did in enumerate(on_ranks(student, RANKS, call)):
        known = {
            "it is this rank's own gradient: all-reduce it": own[rank],
            "it is this rank's part of the mean: all-reduce it": own[rank] * rows[rank] / sum(rows),
            "the gradients are summed, not averaged": own.sum(axis=0),
            "it is the plain mean over the ranks, which counts the rows of small shares more": own.mean(
                axis=0
            ),
            "the 1/n is missing: it is the sum over all rows": right * sum(rows),
            "it is divided by this rank's rows instead of all rows": right * sum(rows) / rows[rank],
        }
        same(f"what the hook returns on rank {rank}", did.result, right, known)
    return f"with {', '.join(map(str, rows))} rows on {RANKS} ranks"


def _alone(change: str = "") -> Array:
    """The parameters after the training by one process that takes the same batches; with a mistake."""
    model, dataset, samplers = _model(), _data(), [_Sampler(rank) for rank in range(RANKS)]
    before: Array = np.zeros_like(model.flat_parameters)
    for epoch in range(EPOCHS):
        for sampler in samplers:
            sampler.set_epoch(0 if change == "epoch" else epoch)
        orders = [list(sampler) for sampler in samplers]
        for begin in range(0, len(orders[0]), BATCH):
            parts = [order[begin : begin + BATCH] for order in orders]
            each = np.array([_gradient(model, dataset, part) for part in parts])
            batch = _gradient(model, dataset, [row for part in parts for row in part])
            known: dict[str, Array] = {
                "sum": each.sum(axis=0),
                "means": each.mean(axis=0),
                "stale": batch + before,
            }
            before = known.get(change, batch)
            model.flat_parameters[:] -= RATE * before
    return np.array(model.flat_parameters)


def _gradient(model: nn.Sequential, dataset: Dataset, rows: list[int]) -> Array:
    x, t = np.ascontiguousarray(dataset.x[rows]), dataset.y[rows]
    return np.array(model.gradient(x, t, nn.CrossEntropyLoss())[1])


def _train(student: Submission, train: Callable[..., Any]) -> list[Rank[Any]]:
    def call(comm: Communicator) -> tuple[Array, int]:
        model = _model(seed=comm.rank)
        optimizer = optim.SGD(model.parameters(), lr=RATE)
        loader = DataLoader(_data(), BATCH, sampler=_Sampler(comm.rank), dtype="float64")
        train(comm, model, nn.CrossEntropyLoss(), optimizer, loader, EPOCHS)
        return model.flat_parameters.copy(), sum(len(each.hooks) for each in model.parameters())

    return on_ranks(student, RANKS, call)


def _check_training(student: Submission, name: str) -> list[Rank[Any]]:
    world = _train(student, getattr(student, name))
    right = _alone()
    known = {
        "the gradients are summed, not averaged": _alone("sum"),
        "it took the plain mean over the ranks, but the last batch has 2, 2 and 1 rows": _alone("means"),
        "stale gradients: those of earlier steps are still added; call optimizer.zero_grad()": _alone(
            "stale"
        ),
        "all epochs have the same order: call loader.set_epoch(epoch)": _alone("epoch"),
    }
    for rank, did in enumerate(world):
        assert did.result is not None
        parameters, hooks = did.result
        if hooks:
            raise Wrong(
                f"{hooks} hooks are still there after {name}: remove() them after each step, or each "
                "gradient is averaged once more in each"
            )
        broadcasts = did.count("broadcast")
        if not np.allclose(parameters, right, rtol=1e-6, atol=1e-7) and not broadcasts:
            raise Wrong("the ranks begin with other parameters each: broadcast model.flat_parameters first")
        same(f"rank {rank}'s parameters after {STEPS} steps of {name}", parameters, right, known)
    return world


def trained(student: Submission) -> str:
    """The loop with hooks equals one process."""
    world = _check_training(student, "train")
    each = (world[0].count("all_reduce")) / STEPS
    parameters = len(list(_model().parameters()))
    if each != parameters + 1:
        raise Wrong(
            f"train makes {each:g} all-reduces in a step, not {parameters + 1}: one for each of the "
            f"{parameters} parameters and one for the rows"
        )
    return f"to rounding, with {each:g} all-reduces in a step"


def flat(student: Submission) -> str:
    """The loop without hooks equals one process, with one all-reduce in a step."""
    world = _check_training(student, "train_flat")
    calls = world[0].count("all_reduce")
    if calls != STEPS:
        raise Wrong(f"train_flat makes {calls} all-reduces in {STEPS} steps: send the rows with the gradient")
    size = 8 * (_model().flat_parameters.size + 1)
    return f"each of {size} bytes"


CHECKS = [sampled, hooked, trained, flat]
