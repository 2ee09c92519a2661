"""Sheet 6: a step of a pipeline from messages, and a codec under pdnn's own pipeline."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from pdnn import nn, optim, strategies
from pdnn.comm import SELF, Communicator, run_threads
from pdnn.course.compare import Array, read_only, same
from pdnn.course.ranks import on_ranks
from pdnn.course.submission import Submission, Wrong
from pdnn.models import mlp
from pdnn.trainer import Trainer

N, WIDTHS, MICRO_BATCHES = 11, (4, 5, 3, 2), 4  # micro-batches of 3, 3, 3 and 2 rows
RANKS = len(WIDTHS) - 1


class _Stage:
    """A Linear and a tanh, which knows what it must get: the x and dy of each micro-batch."""

    def __init__(self, number: int) -> None:
        random = np.random.default_rng(number)
        self.number = number
        self.w = random.normal(size=WIDTHS[number : number + 2])
        self.dw = np.zeros_like(self.w)
        self.xs: dict[int, Array] = {}
        self.ys: dict[int, Array] = {}
        self.back: set[int] = set()
        self.ahead = 0  # how many had gone forward when the first went backward
        self.right_x: list[Array] = []
        self.right_dy: list[Array] = []

    def forward(self, k: int, x: Any) -> Array:
        self._expect("forward", k, "x", x, self.right_x)
        if k in self.xs:
            raise Wrong(f"rank {self.number} goes forward with micro-batch {k} twice")
        self.xs[k] = x
        self.ys[k] = np.tanh(x @ self.w)
        return self.ys[k]

    def backward(self, k: int, dy: Any) -> Array:
        if k not in self.xs:
            raise Wrong(f"rank {self.number} goes backward with micro-batch {k} before it went forward")
        self._expect("backward", k, "dy", dy, self.right_dy)
        self.ahead = self.ahead or len(self.xs)
        self.back.add(k)
        da = dy * (1 - self.ys[k] ** 2)
        self.dw += self.xs[k].T @ da
        return np.asarray(da @ self.w.T)

    def _expect(self, way: str, k: int, what: str, got: Any, right: list[Array]) -> None:
        """Wrong, if this is not what the micro-batch has there."""
        if not right:
            return
        if got is None:
            raise Wrong(f"rank {self.number}: {way}({k}, …) gets None as {what}")
        for other, each in enumerate(right):
            if np.shape(got) == each.shape and _parallel(got, each):
                if other != k:
                    raise Wrong(
                        f"the order is wrong: rank {self.number} calls {way} for micro-batch {k} with the "
                        f"{what} of micro-batch {other}"
                    )
                return
        raise Wrong(f"rank {self.number}: {way}({k}, …) gets as {what} an array of no micro-batch")


def _parallel(a: Array, b: Array) -> bool:
    """Whether an array is another one, up to a positive factor."""
    length = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.vdot(a, b)) > (1 - 1e-9) * length


def _loss(y: Array, t: Array) -> tuple[float, Array]:
    """Half the squared error, the mean over the rows, and its gradient."""
    return float(((y - t) ** 2).sum() / 2 / len(y)), (y - t) / len(y)


def _data() -> tuple[list[Array], list[Array]]:
    random = np.random.default_rng(9)
    x, t = random.normal(size=(N, WIDTHS[0])), random.normal(size=(N, WIDTHS[-1]))
    return np.array_split(x, MICRO_BATCHES), np.array_split(t, MICRO_BATCHES)


def _alone(weights: list[float]) -> tuple[list[_Stage], float]:
    """The stages after a step by one process, and the loss; each micro-batch counts by its weight."""
    stages, total = [_Stage(number) for number in range(RANKS)], 0.0
    for k, (x, t) in enumerate(zip(*_data(), strict=True)):
        for stage in stages:
            stage.right_x, before = [], stage.right_x
            y = stage.forward(k, x)
            stage.right_x = [*before, x]
            x = y
        value, dy = _loss(x, t)
        total, dy = total + weights[k] * value, weights[k] * dy
        for stage in reversed(stages):
            stage.right_dy.append(dy)
            dy = stage.backward(k, dy)
    return stages, total


def stepped(student: Submission) -> str:
    """A step of the pipeline equals one process."""
    xs, ts = _data()
    right, loss = _alone([len(x) / N for x in xs])
    summed, plain = _alone([1.0] * len(xs)), _alone([1 / len(xs)] * len(xs))
    stages = [_Stage(number) for number in range(RANKS)]
    for stage, other in zip(stages, right, strict=True):
        stage.right_x, stage.right_dy = other.right_x, other.right_dy

    def call(comm: Communicator) -> Any:
        mine = (xs if comm.rank == 0 else None, ts if comm.rank == RANKS - 1 else None)
        return student.pipeline_step(comm, stages[comm.rank], MICRO_BATCHES, *mine, N, _loss)

    world = on_ranks(student, RANKS, call)
    known = {"the means of the micro-batches are summed, not averaged": summed}
    known["it is the plain mean over the micro-batches, but the last has fewer rows"] = plain
    for rank, (stage, expected) in enumerate(zip(stages, right, strict=True)):
        missing = [str(k) for k in range(MICRO_BATCHES) if k not in stage.xs]
        if missing:
            raise Wrong(f"rank {rank} never goes forward with micro-batch {', '.join(missing)}")
        missing = [str(k) for k in range(MICRO_BATCHES) if k not in stage.back]
        if missing:
            raise Wrong(f"rank {rank} never goes backward with micro-batch {', '.join(missing)}")
        if stage.ahead < min(MICRO_BATCHES, RANKS - rank):
            raise Wrong(
                f"rank {rank} goes backward when only {stage.ahead} of {MICRO_BATCHES} micro-batches have "
                "gone forward, so the other ranks wait meanwhile: first all go forward, then all backward"
            )
        wrong = {words: each[rank].dw for words, (each, _) in known.items()}
        same(f"the gradient of stage {rank}", stage.dw, expected.dw, wrong)
    losses = {words: value for words, (_, value) in known.items()}
    same("the loss on the last rank", world[-1].result, loss, losses)
    for number, each in enumerate(world[:-1]):
        if each.result is not None:
            raise Wrong(f"rank {number} returns a loss, too; only the last rank has one")
    sent = sum(rank.messages for rank in world)
    if sent != 2 * MICRO_BATCHES * (RANKS - 1):
        raise Wrong(f"{sent} messages on {RANKS} ranks, not {2 * MICRO_BATCHES * (RANKS - 1)}")
    size = sum(rank.sent_bytes for rank in world)
    if size != 2 * 8 * N * sum(WIDTHS[1:-1]):
        raise Wrong(f"{size} bytes in all messages, not {2 * 8 * N * sum(WIDTHS[1:-1])}")
    return f"{sent} messages with {size} bytes: m up and m down at each of {RANKS - 1} borders"


def waiting(student: Submission) -> str:
    """The formula for idle time is that of the schedules."""
    for stages, micro_batches in ((1, 3), (2, 1), (4, 8), (3, 32)):
        known = {
            "it is (p − 1) / m: the waits count in the time, too": (stages - 1) / micro_batches,
            "it is the part in which it works": micro_batches / (micro_batches + stages - 1),
            "there are p − 1 waits, not p": stages / (micro_batches + stages),
        }
        right = strategies.schedule("gpipe", stages, micro_batches).bubble
        same(f"idle({stages}, {micro_batches})", student.idle(stages, micro_batches), right, known)
    return f"{right:.0%} with {stages} stages and {micro_batches} micro-batches"


def coded(student: Submission) -> str:
    """The codec takes n + 4 bytes, and its error is at most s / 254."""
    codec = student.EightBits()
    random = np.random.default_rng(0)
    cases = {
        "random values": random.normal(size=1001),
        "values of which the largest is negative": -np.abs(random.normal(size=50)) * 1e-3,
        "one value": np.array([2.5]),
        "zeros": np.zeros(7),
    }
    for what, values in cases.items():
        try:
            with np.errstate(divide="raise", invalid="raise"):
                size = len(codec.encode_values(values.copy()))
        except FloatingPointError as undefined:
            raise Wrong(f"{what}: {student.explain(undefined)}") from None
        if size != len(values) + 4:
            raise Wrong(f"{what}: {size} bytes for {len(values)} values, not {len(values) + 4}")
        back = codec.decode(codec.encode(values), values.shape, "float64")
        s, error = float(np.abs(values).max()), np.abs(back - values)
        if s == 0 and back.any():
            raise Wrong(f"{what} come back as {back[back != 0][0]:g}")
        worst = int(error.argmax())
        if not error[worst] <= 1.01 * s / 127:  # nan, too
            raise Wrong(
                f"{what}, of magnitude {s:.4g} at most: {values[worst]:.4g} comes back as {back[worst]:.4g}; "
                "an int8 goes from −128 to 127, so 127 v / s fits, and signs stay"
            )
        if error[worst] > 1.01 * s / 254:
            raise Wrong(
                f"{what}: the error is {error[worst] / s * 254:.2g} × s / 254: round to the nearest number, "
                ".astype alone cuts the digits off"
            )
    return f"also for {', '.join(list(cases)[1:])}"


def _train(codec: Any, comm: Communicator | None = None) -> tuple[float, dict[str, float]]:
    """A small training on a pipeline: the last loss, and what was sent in the last epoch."""
    random = np.random.default_rng(0)
    x = random.normal(size=(40, 5))
    labels = (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)
    model = mlp([5, 8, 3], "tanh", dtype="float64", seed=3)
    optimizer = optim.SGD(model.parameters(), lr=0.5)
    strategy = "serial" if comm else strategies.Pipeline(2, 4, cut=(2,), codec=codec)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fewer cores than threads
        trainer = Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy=strategy, comm=comm)
    history = trainer.fit((x, labels), 20, 20, verbose=False)
    return history.history["loss"][-1], history.compression[-1] if history.compression else {}


def pipelined(student: Submission) -> str:
    """The codec trains in pdnn's pipeline, with the bytes of the formula."""
    coded(student)  # in words, what would go wrong in a training
    alone, _ = _train(None, SELF)
    for loss, sent in run_threads(lambda: _train(student.EightBits()), 2):
        if abs(loss - alone) > 0.05 * alone:
            raise Wrong(f"the loss after 20 epochs is {loss:.4f} with your codec, {alone:.4f} without one")
        right = 2 * 4 * (5 * 8 + 4)  # steps, micro-batches of 5 rows, 8 values a row
        if sent["bytes"] != right:
            raise Wrong(f"a rank sends {sent['bytes']} bytes in an epoch, not {right}")
    return f"loss {loss:.4f}, {alone:.4f} without a codec; {right} bytes instead of {2 * 4 * 5 * 8 * 8}"


def fed_back(student: Submission) -> str:
    """With error feedback nothing is lost for good."""
    codec = student.EightBits()
    random, error, sent = np.random.default_rng(2), np.zeros(6), np.zeros(6)
    total = np.zeros(6)
    scales = np.array([1, 1, 1e-3, 2e-3, 1e-3, 1])  # the small ones are lost without feedback

    def decode(code: Array) -> Array:
        return np.asarray(codec.decode(code, (6,), "float64"))

    for step in range(20):
        gradient = random.uniform(0.5, 1, 6) * scales
        both = student.feed_back(codec, read_only(gradient.copy()), read_only(error.copy()))
        if not (isinstance(both, tuple) and len(both) == 2):
            raise Wrong(f"feed_back returned {type(both).__name__}, not the pair (code, error)")
        code, new = both
        right = codec.encode(gradient + error)
        known = {
            "e is not added before the gradient is encoded": decode(codec.encode(gradient)),
            "e is subtracted, not added": decode(codec.encode(gradient - error)),
        }
        same(f"what the code of step {step} is decoded to", decode(code), decode(right), known)
        errors = {
            "it is what was sent minus what should have been: the sign is wrong": decode(right)
            - gradient
            - error,
            "it is g − decoded, without the old e: that is forgotten": gradient - decode(right),
            "e is not kept": np.zeros(6),
        }
        same(f"the error after step {step}", new, gradient + error - decode(right), errors)
        error, sent, total = np.asarray(new), sent + decode(code), total + gradient
    lost = np.abs(sent - total)[2:5].max() / total[2:5].max()
    return f"after 20 steps {lost:.0%} of the small values are still on their way, the last e"


CHECKS = [stepped, waiting, coded, pipelined, fed_back]
