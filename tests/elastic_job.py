"""A training by hand that goes on when ranks die; run as a script, on ranks of MPI, of which one is killed.

``python elastic_job.py RANK SECONDS SIGNAL``: a rank, and when a signal comes to it after the first step.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pdnn
from leftovers import tell_files
from pdnn import ddp, nn, optim
from pdnn.data import Dataset

EPOCHS, BATCH = 3, 40


def data(rows: int = 500) -> Dataset:
    """Points in three classes that a network can learn to tell apart."""
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((3, 10))
    y = rng.integers(0, 3, rows)
    return Dataset(centers[y] + 0.5 * rng.standard_normal((rows, 10)), y)


def network() -> Any:
    layers = [nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 3)]
    return nn.Sequential(*layers, dtype="float64", seed=1)


@ddp.elastic
def train(state: ddp.State, every: int, pause: float = 0, stepped: Callable[[], None] = lambda: None) -> None:
    """Batches from where the state is; a commit after every so many, and a call after each."""
    batches, _ = ddp.partition_dataset(data(), BATCH, dtype="float64", verbose=False)
    optimizer = ddp.DistributedOptimizer(state.optimizer)
    criterion = nn.CrossEntropyLoss()
    while state.epoch < EPOCHS:
        batches.set_epoch(state.epoch)
        for number, (x, y) in enumerate(batches):
            if number < state.batch:
                continue
            optimizer.zero_grad()
            criterion(state.model(x), y).backward()
            optimizer.step()
            state.batch = number + 1
            if state.batch % every == 0:
                state.commit()
            stepped()
            time.sleep(pause)
        state.epoch, state.batch = state.epoch + 1, 0
    optimizer.remove()


def fresh() -> ddp.State:
    model = network()
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    schedule = optim.StepLR(optimizer, 2)
    return ddp.State(model=model, optimizer=optimizer, schedule=schedule, epoch=0, batch=0)


def run(
    every: int = 4, pause: float = 0, stepped: Callable[[], None] = lambda: None
) -> tuple[ddp.State, NDArray[Any]]:
    """The state at the end, and the parameters; `stepped` is called after each step."""
    state = fresh()
    ddp.broadcast_parameters(state.model)
    train(state, every, pause, stepped)
    return state, state.model.flat_parameters.copy()


if __name__ == "__main__":
    comm = pdnn.world()
    dies, after, number = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    tell_files()
    pids = np.concatenate(comm.all_gather(np.array([os.getpid()])))
    timer = threading.Timer(after, os.kill, (int(pids[dies]), number))

    def stepped() -> None:
        """Not before: where a rank dies while others make a communicator, Open MPI 5.0 may crash in them."""
        if comm.rank == 0 and timer.ident is None:
            timer.start()

    state, values = run(pause=0.01, stepped=stepped)
    timer.cancel()
    alone = pdnn.run(run, ranks=1, backend="threads")[0][1]
    assert pdnn.world().size == comm.size - state.failures
    assert np.abs(values - alone).max() < 1e-9 * np.abs(alone).max()
    left = pdnn.world()
    if left.size - left.spares == comm.size - comm.spares:  # a rank in waiting took the dead one's place
        assert (run()[1] == values).all()
        print("has the bits of an undisturbed run", flush=True)
    print(f"rank {comm.rank} ends among {pdnn.world().size}", flush=True)
