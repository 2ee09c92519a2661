"""Sheet 4: models that are averaged, and threads that change one model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pdnn import nn, optim
from pdnn.comm import Communicator, run_threads
from pdnn.course.compare import Array, all_rows, returned, same
from pdnn.course.ranks import on_ranks
from pdnn.course.submission import Submission, Wrong
from pdnn.data import Dataset
from pdnn.data.batches import epoch_order
from pdnn.trainer import Trainer

RANKS = 3
N, FEATURES, CLASSES = 26, 5, 3


def dealt(student: Submission) -> str:
    """The ranks' rows: each one once, shuffled alike, anew in every epoch."""
    orders = []
    for n, size in [(23, 3), (24, 4), (23, 1)]:
        for epoch in (0, 1):
            what = f"rows_of_epoch({n}, rank, {size}, 5, {epoch})"
            parts = [
                returned("rows_of_epoch", student.rows_of_epoch(n, rank, size, 5, epoch))
                for rank in range(size)
            ]
            sizes = [len(part) for part in parts]
            try:
                orders.append(all_rows(f"the rows of all ranks, {what}", np.concatenate(parts), n))
            except Wrong as wrong:
                raise Wrong(f"{wrong}; do all ranks shuffle alike, and begin with the r-th row?") from None
            if max(sizes) - min(sizes) > 1:
                raise Wrong(f"{what}: the ranks have {sizes} rows, which differ by more than one")
    if (orders[4] == np.arange(23)).all():
        raise Wrong("the rows are not shuffled")
    if (orders[4] == orders[5]).all():
        raise Wrong("every epoch has the same order: shuffle with the epoch, too")
    right = np.random.default_rng([5, 1]).permutation(24)
    for rank in range(4):
        known = {
            "begins one too late: rank r begins with row r of the order, counted from 0": right[rank + 1 :: 4]
        }
        got = student.rows_of_epoch(24, rank, 4, 5, 1)
        same(f"rows_of_epoch(24, {rank}, 4, 5, 1)", got, right[rank::4], known if rank < 3 else None)
    return "for 1, 3 and 4 ranks"


def averaged(student: Submission) -> str:
    """The average is weighted by rows, of parameters and buffers, also if a rank had none."""
    random = np.random.default_rng(1)
    for rows in [(4, 4, 4), (5, 2, 3), (6, 0, 2)]:
        models = [[random.normal(size=6), random.normal(size=2)] for _ in range(RANKS)]
        before = [[array.copy() for array in model] for model in models]

        def call(comm: Communicator, models: Any = models, rows: Any = rows) -> None:
            student.average(comm, list(models[comm.rank]), rows[comm.rank])

        on_ranks(student, RANKS, call)
        for index, name in enumerate(["parameters", "buffers"]):
            own = [model[index] for model in before]
            total = sum(each * array for each, array in zip(rows, own, strict=True))
            right = np.asarray(total / sum(rows))
            for rank, model in enumerate(models):
                what = f"with {', '.join(map(str, rows))} rows, the {name} of rank {rank}"
                known = {
                    "the models are summed, not averaged": sum(own),
                    "it is the plain mean over the ranks: weigh by rows": sum(own) / RANKS,
                    "the weights are not divided by the rows of all ranks": total,
                    "weighted by rows, but divided by the number of ranks": total / RANKS,
                    "still those of before: each of the arrays is averaged, in place": own[rank],
                    "this rank's own, times its weight: the other ranks' are not added": (
                        own[rank] * rows[rank] / sum(rows)
                    ),
                }
                same(what, model[index], right, known)
    return "right"


def _pull(array: Array) -> Callable[[Array], int]:
    """A step of training that can be followed by hand: it moves an array towards a batch's mean."""

    def step(batch: Array) -> int:
        array[...] += 0.5 * (batch.mean() - array)
        return len(batch)

    return step


def _follow(
    starts: Sequence[Array], batches: Sequence[Sequence[Array]], every: int, **mistake: bool
) -> Array:
    """What `train` should give rank 0, or what a mistake makes of it."""
    arrays = [(start if mistake.get("apart") else starts[0]).copy() for start in starts]
    rows = np.zeros(RANKS)
    count = len(batches[0])
    for number in range(1, count + 1):
        for rank, array in enumerate(arrays):
            rows[rank] += _pull(array)(batches[rank][number - 1])
        last = number == count and not mistake.get("no_last")
        if last or (number % every == 0 and not mistake.get("only_last")):
            mean = np.asarray(sum(w * array for w, array in zip(rows, arrays, strict=True)) / rows.sum())
            arrays = [mean.copy() for _ in arrays]
            rows *= bool(mistake.get("all_rows"))
    return np.asarray(arrays[0])


def apart(student: Submission) -> str:
    """Training apart: the same start, averages at intervals and at the end."""
    random = np.random.default_rng(2)
    starts = [random.normal(size=3) for _ in range(RANKS)]
    sizes = [(6, 1, 2), (1, 5, 2), (3, 3, 1), (2, 6, 1), (1, 2, 7)]  # of each step's batches
    batches = [[random.normal(size=each[rank]) for each in sizes] for rank in range(RANKS)]
    for count in (5, 4):
        parts = [own[:count] for own in batches]
        arrays = [start.copy() for start in starts]
        buffers = [np.full(2, 10.0 * rank) for rank in range(RANKS)]  # which no step changes

        def call(comm: Communicator, own: Any = (arrays, buffers), parts: Any = parts) -> None:
            mine, buffer = (each[comm.rank] for each in own)
            student.train(comm, [mine, buffer], _pull(mine), parts[comm.rank], 2)

        world = on_ranks(student, RANKS, call)
        known = {
            "each rank starts with its own arrays: broadcast rank 0's first": {"apart": True},
            "there is no average at the end": {"no_last": True},
            "there is one average only, at the end": {"only_last": True},
            "the weights count all rows since the beginning, not those since the last average": {
                "all_rows": True
            },
        }
        wrong = {words: _follow(starts, parts, 2, **mistake) for words, mistake in known.items()}
        right = _follow(starts, parts, 2)
        wrong = {words: array for words, array in wrong.items() if not np.allclose(array, right)}
        if not np.isfinite(arrays[0]).all():
            raise Wrong(
                f"after {count} batches, averaged every 2, there are values that are not finite: is there an "
                "average over no rows at the end, although the ranks have just averaged?"
            )
        same(f"rank 0's array after {count} batches, averaged every 2", arrays[0], right, wrong)
        for rank, array in enumerate(arrays):
            same(f"rank {rank}'s array after {count} batches", array, right)
            if buffers[rank].any():
                raise Wrong("only the first array begins as rank 0's: broadcast each of the arrays")
    reductions = world[0].count("all_reduce")
    return f"{reductions} all_reduce for 4 batches, averaged every 2"


def like_pdnn(student: Submission) -> str:
    """With pdnn's batches the result is that of its strategy "average:2"."""
    random = np.random.default_rng(0)
    x, labels = random.normal(size=(N, FEATURES)), random.integers(0, CLASSES, N)
    size, ranks = 4, 2
    order = epoch_order(N, 0, 0)
    steps = [order[begin : begin + size * ranks] for begin in range(0, N, size * ranks)]

    def model() -> nn.Sequential:
        layers = nn.Linear(FEATURES, 4), nn.BatchNorm1d(4), nn.Sigmoid(), nn.Linear(4, CLASSES)
        return nn.Sequential(*layers, dtype="float64", seed=3)

    def optimizer(of: nn.Sequential) -> optim.SGD:
        return optim.SGD(of.parameters(), lr=0.3)

    def yours(comm: Communicator) -> Array:
        own = model()
        sgd = optimizer(own)

        def step(rows: Array) -> int:
            sgd.zero_grad()
            nn.CrossEntropyLoss()(own(x[rows]), labels[rows]).backward()
            sgd.step()
            return len(rows)

        mine = [np.array_split(rows, ranks)[comm.rank] for rows in steps]
        student.train(comm, [own.flat_parameters, own.flat_buffers], step, mine, 2)
        return np.concatenate([own.flat_parameters, own.flat_buffers])

    def pdnns() -> Array:
        own = model()
        trainer = Trainer(own, nn.CrossEntropyLoss(), optimizer(own), strategy="average:2", seed=0)
        trainer.fit(Dataset(x, labels), epochs=1, batch_size=size, verbose=False)
        return np.concatenate([own.flat_parameters, own.flat_buffers])

    got = on_ranks(student, ranks, yours)[0].result
    return same("the model, with its batch normalization", got, run_threads(pdnns, ranks)[0])


def counted(student: Submission) -> str:
    """Accuracy over all ranks' rows."""
    correct, rows = (9, 4, 0), (10, 7, 1)
    world = on_ranks(student, RANKS, lambda comm: student.accuracy(comm, correct[comm.rank], rows[comm.rank]))
    shares = np.divide(correct, rows)
    known = {
        "it is the mean of the ranks' accuracies: add up counts, divide once": shares.mean(),
        "it is the sum of the ranks' accuracies: add up counts, divide once": shares.sum(),
    }
    for rank, each in enumerate(world):
        what = f"accuracy on rank {rank}"
        mine = {"it is this rank's own": shares[rank]}
        words = same(what, each.result, sum(correct) / sum(rows), known | mine)
    return words


def hogwild(student: Submission) -> str:
    """Hogwild: fresh gradients, and no lost update."""
    params = np.linspace(-1, 1, 4)
    start = params.copy()
    states = [start.copy()]
    gradients: list[Array] = []
    others = np.array([1.0, 0.0, -2.0, 0.5])  # what another thread adds while a gradient is computed

    def gradient(w: Array, batch: float) -> Array:
        number = len(gradients)
        current = params.copy()
        for back, state in enumerate(reversed(states)):
            if np.array_equal(w, state) and not np.array_equal(w, current):
                raise Wrong(
                    f"the gradient of batch {number} is stale: it was taken at the parameters of {back + 1} "
                    "batches ago; read them anew for each"
                )
        if not np.array_equal(w, current):
            raise Wrong(f"the gradient of batch {number} is taken at other parameters than the shared ones")
        result: Array = 0.1 * current + batch
        params[...] += others
        states.append(current)
        gradients.append(result.copy())  # the worker may change its own in place
        return result

    rate, batches = 0.5, [1.0, 2.0, 3.0, 4.0]
    expected = start.copy()
    student.hogwild_worker(params, gradient, batches, rate)
    if len(gradients) != len(batches):
        raise Wrong(f"{len(gradients)} gradients were asked for, not one for each of {len(batches)} batches")
    steps = np.sum(gradients, axis=0)
    known = {
        "lost updates: what others added while a gradient was computed is gone; a copy was written back": (
            expected - rate * steps
        ),
        "the worker changes nothing: params -= rate * gradient, in place": expected + 4 * others,
        "the step goes uphill: subtract the gradient": expected + rate * steps + 4 * others,
        "the learning rate is missing": expected - steps + 4 * others,
    }
    words = same("the shared array", params, expected - rate * steps + 4 * others, known)
    for number, state in enumerate(states[1:]):
        right = start + number * others - rate * np.sum(gradients[:number], axis=0)
        if not np.allclose(state, right):
            raise Wrong(
                f"the gradient of batch {number} is taken before the step of batch {number - 1} is made: "
                "change params after each gradient, at once"
            )
    return words


CHECKS = [dealt, averaged, apart, like_pdnn, counted, hogwild]
