"""MPI ranks with different jobs do not begin; a rank that fails on the way ends the job at once."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import processes

pytestmark = pytest.mark.mpi


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_difference_is_refused_by_every_rank(
    mpiexec: Callable[..., processes.Completed], root: Path, ranks: int
) -> None:
    said = mpiexec(ranks, [root / "tests" / "job_checks.py"]).stdout
    for rank in range(ranks):
        assert f"rank {rank} of {ranks}: all refused" in said


TRAINING = """
import os, signal, sys, threading, time
import numpy as np
import pdnn
from pdnn import models, nn, optim

comm = pdnn.world()
model = models.mlp([50, 40, 5], "tanh", seed=0)
x, y = np.ones((600, 50), np.float32), np.arange(600) % 5
descent, criterion = optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss()

def fail():
    print("failed at", time.time(), flush=True)
    {fail}

class AfterSomeEpochs(pdnn.callbacks.Callback):
    def on_epoch_end(self, trainer, epoch, logs):
        if comm.rank == 1 and epoch == 20:
            {how}

def hook(gradient):
    if comm.rank == 1 and step == 20:
        fail()
    return comm.all_reduce(gradient)

if {by_hand}:
    list(model.parameters())[1].register_hook(hook)
    for step in range(10**9):
        descent.zero_grad()
        criterion(model(x), y).backward()
        descent.step()
else:
    trainer = pdnn.Trainer(model, criterion, descent, strategy="ddp")
    trainer.fit((x, y), 10**9, 30, verbose=False, callbacks=[AfterSomeEpochs()])
"""
LATER = "threading.Timer(0.1, fail).start()"  # while the core is in the middle of some step


@pytest.mark.parametrize(
    ("by_hand", "how", "fail", "said"),
    [
        (True, "fail()", "raise ArithmeticError('enough')", "ArithmeticError: enough"),
        (False, "fail()", "raise ArithmeticError('enough')", "ArithmeticError: enough"),
        (False, LATER, "os.kill(os.getpid(), signal.SIGINT)", "KeyboardInterrupt"),
        (False, LATER, "os.kill(os.getpid(), signal.SIGKILL)", ""),
        (False, LATER, "raise ArithmeticError('enough')", "ArithmeticError: enough"),
    ],
    ids=["in a hook", "between epochs", "Ctrl-C in a step", "killed in a step", "another thread in a step"],
)
def test_a_rank_that_fails_on_the_way_ends_the_job(by_hand: bool, how: str, fail: str, said: str) -> None:
    program = TRAINING.format(by_hand=by_hand, how=how, fail=fail)
    child = processes.start(processes.mpi_command(2, ["-c", program]))
    try:
        output, _ = child.communicate(timeout=90)
        ended = time.time()
    finally:
        processes.stop(child)
    failed = re.search(r"failed at (\S+)", output)
    assert failed, output
    assert ended - float(failed[1]) < 30, "half of what ranks wait for each other"
    assert said in output
    assert child.returncode != 0
