"""Sheet 7: an all-reduce in a ring and a pipeline schedule, under pdnn's own strategies."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np

from pdnn import nn, optim, strategies
from pdnn.comm import SELF, Communicator, register, run_threads, world
from pdnn.course.compare import Array, returned, same
from pdnn.course.ranks import on_ranks
from pdnn.course.submission import Submission, Wrong
from pdnn.models import mlp
from pdnn.trainer import Trainer

RANKS, STAGES, MICRO_BATCHES = 3, 3, 5
SIZES = (12, 11, 2)  # a multiple of the ranks, none, and fewer than there are ranks


def _digits(total: float, ranks: int) -> str | None:
    """What is wrong with a sum over ranks that brought 1, 10, 100, …; None if it is their sum."""
    if total == (10**ranks - 1) // 9:
        return None
    if abs(total * ranks - (10**ranks - 1) // 9) < 1e-9:
        return "is averaged, not summed: an all-reduce of pdnn's is the sum"
    if not 0 <= total < np.inf or total != int(total) or total >= 10**ranks:
        return f"is {total:g}, which is no sum of the ranks' values"
    times = [int(total) // 10**rank % 10 for rank in range(ranks)]
    lacks = [str(rank) for rank, count in enumerate(times) if count == 0]
    often = [f"rank {rank}'s {count} times" for rank, count in enumerate(times) if count > 1]
    told = [f"lacks the values of rank {', '.join(lacks)}"] if lacks else []
    return " and ".join(told + ([f"has {', '.join(often)}"] if often else []))


def _check_sum(array: Array, rank: int, ranks: int) -> None:
    chunks = np.array_split(np.arange(array.size), ranks)
    if array.size and (array == 10.0**rank).all():
        raise Wrong(f"rank {rank} still has its own values: fill `array` in place, as in chunk[:] = …")
    for number, places in enumerate(chunks):
        for place in places:
            if words := _digits(float(array[place]), ranks):
                raise Wrong(
                    f"{array.size} values on {ranks} ranks: on rank {rank} chunk {number} "
                    f"(elements {places[0]} to {places[-1]}) {words}"
                )


def _bytes(n: int, rank: int, ranks: int) -> int:
    """What a rank of the ring sends: chunk r, r − 1, …, r − 2 (p − 1) + 1."""
    sizes = [len(chunk) for chunk in np.array_split(np.empty(n), ranks)]
    return 8 * sum(sizes[(rank - step) % ranks] for step in range(2 * (ranks - 1)))


def summed(student: Submission) -> str:
    """The ring leaves the sum over the ranks in place."""

    def call(n: int, comm: Communicator) -> Array:
        array = np.full(n, 10.0**comm.rank)
        student.ring_all_reduce(comm, array)
        return array

    for ranks in (2, RANKS):
        for n in SIZES:
            for rank, did in enumerate(on_ranks(student, ranks, partial(call, n))):
                assert did.result is not None
                _check_sum(did.result, rank, ranks)
    return f"on 2 and {RANKS} ranks, for {', '.join(map(str, SIZES))} values"


def counted(student: Submission) -> str:
    """The ring sends the least that is possible, and the formula says how much."""
    for ranks, n in ((6, 24), (4, 20)):
        right = 8 * 2 * (ranks - 1) * n // ranks
        known = {
            "it is what a rank sends that sends all to all": 8.0 * n * (ranks - 1),
            "it counts values, not bytes: 8 each": right / 8,
            "a float64 has 8 bytes, not 4": right / 2,
            "it counts one of the two phases": right / 2,
            "each phase has p − 1 steps, not p": 8.0 * 2 * n,
        }
        same(f"ring_bytes({n}, {ranks})", student.ring_bytes(n, ranks), right, known)
    did = on_ranks(student, ranks, lambda comm: student.ring_all_reduce(comm, np.ones(n)))
    for rank, each in enumerate(did):
        others = sorted({made.name for made in each.calls if made.peer is None})
        if others:
            raise Wrong(f"ring_all_reduce calls comm.{', comm.'.join(others)}: write it with messages")
        peers = {made.peer for made in each.calls if made.name.endswith("send")}
        if peers != {(rank + 1) % ranks}:
            told = ", ".join(f"rank {peer}" for peer in sorted(map(str, peers))) or "nobody"
            raise Wrong(f"rank {rank} sends to {told}; in the ring to rank {(rank + 1) % ranks} only")
        if each.sent_bytes != _bytes(n, rank, ranks):
            raise Wrong(
                f"rank {rank} sends {each.sent_bytes} bytes in {each.messages} messages for {n} values on "
                f"{ranks} ranks; the ring sends {right} in {2 * (ranks - 1)}: one chunk in a message"
            )
    return f"{right} bytes for {n} values on {ranks} ranks, in {2 * (ranks - 1)} messages"


def _train(strategy: str | strategies.Strategy, comm: Communicator | None = None) -> tuple[Array, float]:
    """A small training: its parameters, and the bytes that this rank sent in a step of the last epoch."""
    random = np.random.default_rng(0)
    x, labels = random.normal(size=(30, 5)), random.integers(0, 3, 30)
    model = mlp([5, 7, 6, 3], "sigmoid", dtype="float64", seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of fewer cores than threads
        trainer = Trainer(
            model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.5), strategy=strategy, comm=comm
        )
    trainer.fit((x, labels), 2, 10, verbose=False)
    sent = trainer.history.ranks[-1][trainer.comm.rank]
    return model.flat_parameters.copy(), sent["bytes"] / sent["steps"]


def plugged_in(student: Submission) -> str:
    """The ring adds up the gradients of pdnn's data parallel."""
    summed(student)  # of what would never end in a training, words
    alone, _ = _train("serial", SELF)

    def job() -> tuple[int, Array, float]:
        with register("all_reduce", student.ring_all_reduce):
            return world().rank, *_train("ddp")

    for rank, parameters, sent in run_threads(job, RANKS):
        same(f"rank {rank}'s parameters after 6 steps", parameters, alone)
        right = _bytes(alone.size, rank, RANKS) + _bytes(3, rank, RANKS)
        if sent != right:
            raise Wrong(
                f"rank {rank} sends {sent:.0f} bytes in a step, not {right}: {alone.size} values of gradient "
                "and 3 sums; pass check=False, or a header goes before each message"
            )
    return f"equal to serial on {RANKS} ranks, and {right} bytes in a step as the formula says"


def _plan(student: Submission, stages: int, micro_batches: int) -> strategies.Schedule:
    passes = returned("schedule", student.schedule(stages, micro_batches))
    if len(passes) != stages:
        raise Wrong(f"schedule({stages}, {micro_batches}) has {len(passes)} lists, not {stages}, one a stage")
    try:
        plan = strategies.schedule_of_passes(passes)
    except (ValueError, TypeError) as error:
        raise Wrong(
            f"schedule({stages}, {micro_batches}): {str(error).removeprefix('schedule: ')}"
        ) from error
    count = 1 + max(each.micro for each in plan.programs[0])
    if count != micro_batches:
        raise Wrong(f"schedule({stages}, {micro_batches}) has {count} micro-batches, not {micro_batches}")
    return plan


def runs(student: Submission) -> str:
    """The schedule can run: each micro-batch once forward and once backward, and no deadlock."""
    for stages, micro_batches in ((1, 3), (2, 1), (STAGES, MICRO_BATCHES), (4, 2), (4, 8)):
        _plan(student, stages, micro_batches)
    return "with 1 to 4 stages, and more or fewer micro-batches"


def lean(student: Submission) -> str:
    """The schedule is as short as possible, and holds at most p − i micro-batches in stage i."""
    for stages, micro_batches in ((STAGES, MICRO_BATCHES), (4, 2), (4, 8)):
        plan = _plan(student, stages, micro_batches)
        for stage, held in enumerate(plan.in_flight):
            most = min(micro_batches, stages - stage)
            if held > most:
                raise Wrong(
                    f"schedule({stages}, {micro_batches}): stage {stage} holds {held} micro-batches between "
                    f"forward and backward, not {most}: it goes backward too late"
                )
        idle, right = plan.bubble, (stages - 1) / (micro_batches + stages - 1)
        if idle > right + 1e-9:
            raise Wrong(
                f"schedule({stages}, {micro_batches}) is idle for {idle:.0%} of the time, not {right:.0%}: "
                "are there too few forward passes before the first backward pass?"
            )
    return f"idle for {right:.0%} of the time with {stages} stages and {micro_batches} micro-batches"


def pipelined(student: Submission) -> str:
    """The schedule trains in pdnn's pipeline."""
    _plan(student, STAGES, MICRO_BATCHES)
    alone, _ = _train("serial", SELF)
    pipeline = strategies.Pipeline(STAGES, schedule=student.schedule(STAGES, MICRO_BATCHES))
    words = ""
    for rank, (parameters, _) in enumerate(run_threads(lambda: _train(pipeline), STAGES)):
        words = same(f"rank {rank}'s parameters after 6 steps", parameters, alone)
    return words


CHECKS = [summed, counted, plugged_in, runs, lean, pipelined]
