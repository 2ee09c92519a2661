"""Signals to one rank of MPI: it ends at once, the others hear of it, and memory is safe afterwards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from processes import Completed

pytestmark = pytest.mark.mpi
RANKS = Path(__file__).with_name("interrupted_ranks.py")


@pytest.mark.parametrize(
    "check",
    [
        "check_fit_goes_on",
        "check_validation",
        "check_errors_of_callbacks_are_heard",
        "check_memory_of_a_step",
        "check_memory_of_a_call",
    ],
)
def test_a_rank_that_is_interrupted(mpiexec: Callable[..., Completed], check: str) -> None:
    words = ["-W", "ignore::UserWarning", RANKS, check]
    output = mpiexec(2, words, timeout=100, env={"PDNN_TIMEOUT": "20"}).stdout
    assert output.count("is content") == 2


TERMINATED = """
import os, signal, sys, time
import numpy as np
import pdnn
from pdnn import nn, optim
from pdnn.progress import Progress

net = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 4), seed=1)
trainer = pdnn.Trainer(net, nn.CrossEntropyLoss(), optim.SGD(net.parameters(), 0.05), strategy=sys.argv[1])
x, y = np.ones((2_000_000, 20), np.float32), np.arange(2_000_000) % 4
sent = None
def at_step(self, *arguments):
    global sent
    if sent is None and pdnn.world().rank == 1:
        os.kill(os.getpid(), signal.SIGTERM)
    sent = sent or time.monotonic()
Progress.at_step = at_step
try:
    trainer.fit((x, y), 1, 4, verbose=False)
except SystemExit as end:
    late = sent is not None and time.monotonic() - sent > 3
    print(end.code, trainer.step, late, flush=True)
pdnn.world().barrier()
"""


@pytest.mark.parametrize("strategy", ["average:end", "average:250000", "hogwild-processes:2", "ddp"])
def test_a_sigterm_to_one_rank_ends_all_between_two_steps(
    mpiexec: Callable[..., Completed], strategy: str
) -> None:
    output = mpiexec(2, ["-W", "ignore::UserWarning", "-c", TERMINATED, strategy], timeout=60).stdout
    first, second = output.splitlines()
    assert first == second
    code, steps, late = first.split()
    assert (code, late) == ("143", "False")
    assert 0 < int(steps) < 250_000


PIECES = """
import numpy as np
from mpi4py import MPI
import pdnn
from pdnn import _mpi
from pdnn.comm import Communicator

pdnn.world()
comm = Communicator(_mpi.wrap(MPI.COMM_WORLD.handle, 4))
if comm.rank == 1:
    comm.core.start_send(np.arange(6.0), 0, 5).wait()
    comm.barrier()
    comm.core.start_send(np.arange(3.0) + 1, 0, 5).wait()
else:
    try:
        comm.core.start_recv(np.zeros(12), 1, 5).wait()
    except ValueError as error:
        print(error)
    comm.barrier()
    got = np.zeros(3)
    comm.core.start_recv(got, 1, 5).wait()
    print(got)
comm.barrier()
"""


def test_the_pieces_of_a_message_that_does_not_fit_take_no_other_message(
    mpiexec: Callable[..., Completed],
) -> None:
    output = mpiexec(2, ["-c", PIECES], timeout=60, env={"PDNN_TIMEOUT": "5"}).stdout
    assert output == "recv: rank 1 sent 2 float64, rank 0 expects 4\n[1. 2. 3.]\n"
