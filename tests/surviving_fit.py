"""A `fit` that goes on when ranks die; run as a script, on ranks of MPI, of which one is killed.

``python surviving_fit.py STRATEGY RANK SECONDS SIGNAL``: a rank, and when after the first epoch a signal
comes to it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from typing import Any

import pdnn
from elastic_job import data, network
from leftovers import tell_files
from pdnn import nn, optim
from pdnn.callbacks import Callback
from pdnn.comm import SELF, Communicator
from pdnn.strategies import Strategy

EPOCHS, BATCH = 3, 16


def trainer(strategy: str | Strategy, comm: Communicator | None = None) -> pdnn.Trainer:
    model = network()
    optimizer = optim.Adam(model.parameters(), lr=0.01)
    schedule = optim.StepLR(optimizer, 10)
    return pdnn.Trainer(
        model,
        nn.CrossEntropyLoss(),
        optimizer,
        strategy=strategy,
        comm=comm,
        schedule=schedule,
        schedule_per="step",
    )


def fit(strategy: str | Strategy, **options: Any) -> pdnn.Trainer:
    made = trainer(strategy)
    made.fit(data(300), EPOCHS, BATCH, validation=data(50), verbose=False, **options)
    return made


class Slow(Callback):
    """Time to be killed in, from the first epoch on: Open MPI 5.0 may crash where ranks make a group."""

    def __init__(self, comm: Communicator) -> None:
        self.at: list[float] = []
        self._begun = comm.share(1)

    def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
        time.sleep(0.01)
        self.at.append(time.perf_counter())
        assert self._begun is not None
        self._begun[0] = 1

    def kill(self, seconds: float, number: int, ended: threading.Event) -> None:
        """A signal to this process so many seconds after a rank's first epoch, unless its fit has ended."""
        assert self._begun is not None
        while not self._begun[0]:
            time.sleep(0.001)
        if not ended.wait(seconds):
            os.kill(os.getpid(), number)


def main(strategy: str, dies: int, seconds: float, number: int) -> None:
    comm = pdnn.world()
    made, slow, ended = trainer(strategy), Slow(comm), threading.Event()
    tell_files()
    comm.barrier()
    if comm.rank == dies:
        threading.Thread(target=slow.kill, args=(seconds, number, ended), daemon=True).start()
    made.fit(data(300), 40, BATCH, callbacks=[slow], elastic=7)
    ended.set()
    size = made.comm.size
    assert size == comm.size or pdnn.world() is made.comm
    assert made.comm.spares == max(0, size - (comm.size - comm.spares))
    assert made.epoch == 40
    assert len(made.history.history["loss"]) == 40
    if made.strategy.leaves:
        alone = trainer(f"serial/{made.strategy.leaves}", SELF)
        alone.fit(data(300), 40, BATCH, verbose=False)
        assert made.history.fingerprint == alone.history.fingerprint
        print("has the fingerprint of an undisturbed run", flush=True)
    accuracy = made.evaluate(data(300))["accuracy"]
    longest = max([0.0, *(b - a for a, b in zip(slow.at, slow.at[1:], strict=False))])
    print(
        f"rank {comm.rank} ends among {size}: accuracy {accuracy:.3f}, longest epoch {longest:.3f} s",
        flush=True,
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
