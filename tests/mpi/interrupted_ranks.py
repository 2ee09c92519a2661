"""Ranks of MPI of which Ctrl-C takes one out of a call: what the others hear, and what MPI does to memory."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.callbacks import Callback
from pdnn.progress import Progress
from pdnn.strategies import DataParallel, Pipeline

WORLD = pdnn.world()
SPECS = [
    DataParallel(bucket_bytes=4000),
    DataParallel(codec="int8"),
    DataParallel(shared_memory=True),
    "average:end",
    "elastic-average:10",
    "pipeline:2/4",
    "tp:2",
    "hogwild-processes:2",
]


def press_ctrl_c(seconds: float) -> threading.Timer:
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    return timer


@contextlib.contextmanager
def an_interruption() -> Iterator[None]:
    """At the second look up in an epoch rank 1 falls asleep, and Ctrl-C is pressed for rank 0 meanwhile."""
    looks, usual = [0], Progress.at_step

    def at_step(self: Progress, *arguments: Any) -> None:
        looks[0] += 1
        if looks[0] == 2 and WORLD.rank == 0:
            press_ctrl_c(0.2)
        if looks[0] == 2 and WORLD.rank == 1:
            time.sleep(0.6)
        usual(self, *arguments)

    Progress.at_step = at_step  # type: ignore[method-assign]
    try:
        yield
    finally:
        Progress.at_step = usual  # type: ignore[method-assign]


def trainer_of(strategy: Any, width: int = 32) -> pdnn.Trainer:
    net = nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, 4), seed=1)
    sgd = optim.SGD(net.parameters(), 0.05)
    return pdnn.Trainer(net, nn.CrossEntropyLoss(), sgd, strategy=strategy)


def data(rows: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((rows, 20)).astype(np.float32), rng.integers(0, 4, rows)


def interrupt(trainer: pdnn.Trainer, rows: int, batch: int) -> None:
    """Rank 0 catches Ctrl-C, which takes it out of a step, and rank 1 hears of it."""
    train = data(rows)
    with an_interruption():
        if WORLD.rank == 0:
            with pytest.raises(KeyboardInterrupt):
                trainer.fit(train, 50, batch, verbose=False)
        else:
            with pytest.raises(pdnn.CommunicationError, match="communicator: rank 0 failed"):
                trainer.fit(train, 50, batch, verbose=False)


def check_fit_goes_on() -> None:
    for spec in SPECS:
        trainer = trainer_of(spec, width=256)  # so wide that the second look comes in the first epoch
        interrupt(trainer, 400_000, 4)
        assert trainer.epoch == 0, spec
        trainer.fit(data(80), 2, 8, verbose=False)
        assert trainer.epoch == 2
        for other in WORLD.all_gather(trainer.model.flat_parameters):
            np.testing.assert_array_equal(other, trainer.model.flat_parameters)


def check_validation() -> None:
    """Rank 0 is interrupted while both validate; either would be at it for several seconds."""
    held_out, usual, began = data(200_000), pdnn.Trainer.evaluate_source, [0.0]

    def evaluate_source(self: pdnn.Trainer, *arguments: Any) -> dict[str, float]:
        WORLD.barrier()
        began[0] = time.monotonic()
        if WORLD.rank == 0:
            press_ctrl_c(0.3)
        return usual(self, *arguments)

    for spec in ("ddp", "average:2"):
        trainer = trainer_of(spec, width=16_384)
        pdnn.Trainer.evaluate_source = evaluate_source  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt if WORLD.rank == 0 else pdnn.CommunicationError):
            trainer.fit(data(20), 1, 8, validation=held_out, verbose=False)
        assert time.monotonic() - began[0] < 2
        assert trainer.epoch == 0, spec
        pdnn.Trainer.evaluate_source = usual  # type: ignore[method-assign]
        trainer.fit(data(20), 1, 8, validation=data(20), verbose=False)
        assert trainer.epoch == 1
        for other in WORLD.all_gather(trainer.model.flat_parameters):
            np.testing.assert_array_equal(other, trainer.model.flat_parameters)


def check_errors_of_callbacks_are_heard() -> None:
    class Fails(Callback):
        def __init__(self, error: BaseException, hook: str) -> None:
            self.error = error
            setattr(self, hook, self.fail)

        def fail(self, *_: object) -> None:
            if WORLD.rank == 1:
                raise self.error

    for error in (LookupError("rank 1 has had enough"), SystemExit(0)):
        for hook in ("on_train_begin", "on_epoch_end", "on_train_end"):
            trainer, fails = trainer_of("ddp"), Fails(error, hook)
            with pytest.raises(type(error) if WORLD.rank == 1 else pdnn.CommunicationError):
                trainer.fit(data(80), 2, 8, validation=data(20), verbose=False, callbacks=[fails])
            trainer.fit(data(80), 1, 8, validation=data(20), verbose=False)


def unchanged(keep: list[Any]) -> None:
    """Gives MPI time to finish what was given up; new arrays must not be written to."""
    end = time.monotonic() + 1
    meeting = WORLD.core.start_barrier()
    while time.monotonic() < end:
        meeting.test()
        time.sleep(0.005)
    meeting.wait()
    for array in keep:
        assert (array == 7.25).all()


def check_memory_of_a_step() -> None:
    trainer = trainer_of(Pipeline(2, 4, "gpipe", cut=(2,)), width=4096)
    interrupt(trainer, 4000, 256)
    del trainer
    gc.collect()
    unchanged([np.full(64 * 4096, 7.25, np.float32) for _ in range(40)])


def check_memory_of_a_call() -> None:
    over = WORLD.share(2)
    assert over is not None
    for number, size in enumerate((16, 100_000)):
        given = np.ones(size)
        if WORLD.rank == 0:
            press_ctrl_c(0.2)
            with pytest.raises(KeyboardInterrupt):
                WORLD.all_reduce(given, check=False)
            over[number] = 1
        else:
            while not over[number]:
                time.sleep(0.01)
            WORLD.all_reduce(given, check=False)
            assert (given == 2).all()
        del given
        gc.collect()
        unchanged([np.full(size, 7.25) for _ in range(100)])


if __name__ == "__main__":
    globals()[sys.argv[1]]()
    print(f"rank {WORLD.rank} is content", flush=True)
