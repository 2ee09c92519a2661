"""Sheet 3: collective calls from messages, and a step of gradient descent with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from pdnn import nn, optim
from pdnn.comm import Communicator, run_threads
from pdnn.course.checks.shares import check_shares
from pdnn.course.compare import Array, same
from pdnn.course.ranks import Rank, on_ranks
from pdnn.course.submission import Submission, Wrong
from pdnn.data import Dataset
from pdnn.models import mlp
from pdnn.trainer import Trainer

N, FEATURES, HIDDEN, CLASSES, RANKS = 11, 4, 3, 3, 3
RATE, STEPS = 0.7, 4


def _data() -> tuple[Array, Array]:
    random = np.random.default_rng(0)
    return random.normal(size=(N, FEATURES)), random.integers(0, CLASSES, N)


def _model() -> nn.Sequential:
    return mlp([FEATURES, HIDDEN, CLASSES], "sigmoid", dtype="float64", seed=3)


def _gradient() -> Callable[[Array, Array, Array], tuple[float, Array]]:
    """What a rank computes gradients with: a model of its own."""
    model = _model()

    def gradient(theta: Array, x: Array, t: Array) -> tuple[float, Array]:
        model.flat_parameters[:] = theta
        return model.gradient(np.ascontiguousarray(x), np.ascontiguousarray(t), nn.CrossEntropyLoss())

    return gradient


def _with_roots(
    student: Submission, call: Callable[[int, Communicator], Any]
) -> Iterator[tuple[int, list[Rank[Any]]]]:
    """What the ranks do with root 0, and then with root 1."""
    for root in (0, 1):
        try:
            world = on_ranks(student, RANKS, partial(call, root))
        except Exception as error:
            if root == 0:
                raise
            words = str(error) if isinstance(error, Wrong) else student.explain(error)
            raise Wrong(
                f"right with root 0, not with root 1: is there a 0 where `root` belongs? ({words})"
            ) from error
        yield root, world


def _count(what: str, world: Sequence[Rank[Any]], messages: int) -> None:
    """Checks that only messages were sent, and so many."""
    others = {made.name for rank in world for made in rank.calls} - {
        *("send", "recv", "start_send", "start_recv")
    }
    if others:
        raise Wrong(f"{what} calls comm.{', comm.'.join(sorted(others))}: write it with send and recv")
    sent = sum(rank.messages for rank in world)
    if sent != messages:
        raise Wrong(f"{what} sends {sent} messages on {len(world)} ranks, not {messages}")


def dealt(student: Submission) -> str:
    """Shares differ by one row at most, and none is lost."""
    return check_shares("shares", student.shares)


def scattered(student: Submission) -> str:
    """Scatter, from any root, with p − 1 messages."""
    a = np.arange(N * 2.0).reshape(N, 2)

    def call(root: int, comm: Communicator) -> Any:
        return student.scatter(comm, a if comm.rank == root else None, root)

    for root, world in _with_roots(student, call):
        for number, (rank, (begin, end)) in enumerate(zip(world, student.shares(N, RANKS), strict=True)):
            same(f"rank {number}'s part with root {root}", rank.result, a[begin:end])
        _count("scatter", world, RANKS - 1)
    return f"{RANKS - 1} messages on {RANKS} ranks"


def gathered(student: Submission) -> str:
    """Gather, at any root, in the order of ranks, with p − 1 messages."""

    def call(root: int, comm: Communicator) -> Any:
        return student.gather(comm, np.full(comm.rank + 1, 10.0 + comm.rank), root)

    for root, world in _with_roots(student, call):
        for number, rank in enumerate(world):
            if number != root and rank.result is not None:
                raise Wrong(f"with root {root}, rank {number} has a result too; only the root has one")
        parts = world[root].result
        if parts is None:
            raise Wrong(f"with root {root}, the root's result is None: is a `return` missing?")
        if len(parts) != RANKS or any(part is None for part in parts):
            raise Wrong(f"with root {root}, the root's result is no list of {RANKS} arrays, one of each rank")
        order = [round(float(np.ravel(part)[0])) - 10 for part in parts]
        if sorted(order) == list(range(RANKS)) != order:
            raise Wrong(
                f"with root {root}, the arrays come in the order of ranks {', '.join(map(str, order))}"
            )
        for number, part in enumerate(parts):
            same(f"rank {number}'s array at the root", part, np.full(number + 1, 10.0 + number))
        _count("gather", world, RANKS - 1)
    return f"{RANKS - 1} messages on {RANKS} ranks"


def broadcasted(student: Submission) -> str:
    """Broadcast, in place, from any root, with p − 1 messages."""

    def call(root: int, comm: Communicator) -> Array:
        a = np.full(4, 10.0 + comm.rank)
        student.broadcast(comm, a, root)
        return a

    for root, world in _with_roots(student, call):
        for number, rank in enumerate(world):
            known = {}
            if number != root:
                known = {f"rank {number} keeps its own values: fill a in place, a[...] = …": 10.0 + number}
            same(f"with root {root}, a on rank {number}", rank.result, np.full(4, 10.0 + root), known)
        _count("broadcast", world, RANKS - 1)
    return f"{RANKS - 1} messages on {RANKS} ranks"


def _steps(
    student: Submission, train: Callable[..., Any], root: int = 0
) -> tuple[list[Rank[Any]], list[Array]]:
    """Runs a training on the ranks; what they did, and the theta of each afterwards."""
    x, labels = _data()
    thetas = [_model().flat_parameters.copy() for _ in range(RANKS)]

    def call(comm: Communicator) -> Any:
        mine = (x, np.eye(CLASSES)[labels]) if comm.rank == root else (None, None)
        return train(comm, thetas[comm.rank], *mine, _gradient(), RATE, root)

    return on_ranks(student, RANKS, call), thetas


def _root_bytes(params: int, steps: int = 1, once: bool = False) -> int:
    """What root 0 sends: the rows of the others, and theta to each of them in each step."""
    others = N - len(np.array_split(np.arange(N), RANKS)[0])
    return 8 * (others * (FEATURES + CLASSES) * (1 if once else steps) + (RANKS - 1) * params * steps)


def _check_others(what: str, world: list[Rank[Any]], root: int) -> None:
    """Checks that only the root has a result."""
    for number, rank in enumerate(world):
        if number != root and rank.result is not None:
            raise Wrong(f"with root {root}, {what} returns a result on rank {number}, too, not None")


def one_step(student: Submission) -> str:
    """A step equals that of all rows at once."""
    x, labels = _data()
    gradient, t = _gradient(), np.eye(CLASSES)[labels]
    before = _model().flat_parameters.copy()
    loss, right = gradient(before, x, t)
    own = [gradient(before, x[part], t[part])[1] for part in np.array_split(np.arange(N), RANKS)]
    known = {
        "still that of before the step: update it in place, theta -= rate * mean": before,
        "the gradients are summed, not averaged": before - RATE * sum(own),
        "it is the mean of the ranks' means, which counts the rows of small shares more": (
            before - RATE * sum(own) / RANKS
        ),
        "the 1/n is missing: the sums over the rows were not divided by n": before - RATE * N * right,
        "the step goes uphill: subtract the gradient": before + RATE * right,
    }
    for root in (0, 1):
        world, thetas = _steps(student, student.step, root)
        same(f"theta on the root, rank {root}", thetas[root], before - RATE * right, known)
        for number, theta in enumerate(thetas):
            if number != root and (theta == before).all():
                raise Wrong(
                    f"rank {number} still has the theta from before the step: broadcast it afterwards"
                )
            same(f"theta on rank {number}", theta, thetas[root])
        same("the loss that step returns on the root", world[root].result, loss)
        _check_others("step", world, root)
    return "on every rank, from any root"


def like_pdnn(student: Submission) -> str:
    """Four steps equal pdnn's strategy "scatter-gather"."""
    x, labels = _data()

    def train(comm: Communicator, theta: Array, *rest: Any) -> None:
        for _ in range(STEPS):
            student.step(comm, theta, *rest)

    def trained() -> Any:
        model = _model()
        optimizer = optim.SGD(model.parameters(), lr=RATE)
        trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy="scatter-gather")
        trainer.fit(Dataset(x, labels), epochs=STEPS, batch_size=N, verbose=False)
        return model.flat_parameters.copy()

    _, thetas = _steps(student, train)
    return same("theta after four steps", thetas[0], run_threads(trained, RANKS)[0])


def counted(student: Submission) -> str:
    """The bytes of a step, by formula and as sent."""
    params = _model().flat_parameters.size
    right = _root_bytes(params)
    rows = N - len(np.array_split(np.arange(N), RANKS)[0])
    width = FEATURES + CLASSES
    known = {
        "it counts all n rows: the root sends itself nothing": 8 * (N * width + (RANKS - 1) * params),
        "theta goes to each of the other ranks": 8 * (rows * width + params),
        "a float64 has 8 bytes, not 4": right / 2,
        "it counts values, not bytes: 8 each": right / 8,
        "theta goes to the other ranks only, not to all": 8 * (rows * width + RANKS * params),
    }
    what = f"bytes_of_step({N}, {FEATURES}, {CLASSES}, {params}, {RANKS})"
    same(what, student.bytes_of_step(N, FEATURES, CLASSES, params, RANKS), right, known)
    other = student.bytes_of_step(13, 5, 2, 31, 4)  # shares of 4, 3, 3 and 3 rows
    same("bytes_of_step(13, 5, 2, 31, 4)", other, 8 * (9 * 7 + 3 * 31))
    world, _ = _steps(student, student.step)
    if world[0].sent_bytes != right:
        raise Wrong(f"rank 0 sends {world[0].sent_bytes} bytes in a step, and the formula says {right}")
    return f"{right} bytes, and as many were sent"


def only_once(student: Submission) -> str:
    """Rows are scattered once, and the result is the same."""

    def train(comm: Communicator, theta: Array, *rest: Any) -> list[Any]:
        return [student.step(comm, theta, *rest) for _ in range(STEPS)]

    for root in (1, 0):
        every, expected = _steps(student, train, root)
        world, thetas = _steps(student, lambda *given: student.train_once(*given, STEPS), root)
        for number, theta in enumerate(thetas):
            same(f"theta on rank {number} after train_once with root {root}", theta, expected[number])
        losses = np.array(every[root].result, np.float64)
        same("the losses that train_once returns on the root", world[root].result, losses)
        _check_others("train_once", world, root)
    params = thetas[0].size
    right, often = _root_bytes(params, STEPS, once=True), _root_bytes(params, STEPS)
    if world[0].sent_bytes == often:
        raise Wrong(
            f"the rows are scattered in every step: rank 0 sends {often} bytes in {STEPS}, not {right}"
        )
    if world[0].sent_bytes != right:
        raise Wrong(f"rank 0 sends {world[0].sent_bytes} bytes in {STEPS} steps, not {right}")
    return f"{right} bytes in {STEPS} steps instead of {often}"


CHECKS = [dealt, scattered, gathered, broadcasted, one_step, like_pdnn, counted, only_once]
