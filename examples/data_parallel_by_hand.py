"""Data parallel training written by hand, over hooks and collectives; data_parallel.py runs it.

A wrapper gives every rank rank 0's parameters and puts a hook on each gradient that adds it up over the
ranks, as soon as a backward pass has made it. Everything else is the loop of one process.

The hooks of all ranks must match: a rank whose pass does not use a parameter does not call its collective.
The others then wait for it, or its next call takes the place of the missing one. pdnn names the ranks and
ends the job if the calls do not match, or after ``PDNN_TIMEOUT`` seconds. To avoid this, either all ranks
make the same pass, or the gradients are reduced after it, parameter by parameter, used or not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from understanding_training import BATCH, Config, Line

import pdnn
from pdnn import nn, optim
from pdnn.comm import Communicator
from pdnn.data import Dataset


class DataParallel(nn.Module):
    """A module whose gradients are agreed on by all ranks.

    Parameters
    ----------
    module : nn.Module
        Rank 0's parameters are what counts.
    average : bool
        The mean of the ranks' gradients keeps the size of a step; their sum multiplies it by their number.
    """

    def __init__(self, module: nn.Module, average: bool = True) -> None:
        super().__init__()
        comm = pdnn.world()
        self.module = module
        for parameter in module.parameters():
            comm.broadcast(parameter.data, root=0)
            parameter.register_hook(lambda grad: comm.all_reduce(grad, op="mean" if average else "sum"))

    def forward(self, x: Any) -> Any:
        return self.module(x)


def train(
    model: nn.Module,
    config: Config,
    seen: Dataset,
    held_out: Dataset,
    show: Callable[[Line], None] = print,
) -> list[Line]:
    """Trains, step s on batch s · ranks + rank; a line at step 0 and every so many steps, shown on rank 0."""
    comm, criterion = pdnn.world(), nn.CrossEntropyLoss()
    descent = optim.SGD(model.parameters(), lr=config.lr)
    schedule = optim.LinearLR(descent, 1.0, config.last_lr_factor, total_iters=1000)
    x, y = seen.gather(dtype=config.dtype)
    lines: list[Line] = []
    seconds, since = 0.0, 0
    for step in range(config.steps):
        began = time.perf_counter()
        first = (step * comm.size + comm.rank) % (len(seen) // BATCH) * BATCH
        descent.zero_grad()
        loss = criterion(model(x[first : first + BATCH]), y[first : first + BATCH])
        loss.backward()
        descent.step()
        schedule.step()
        seconds += time.perf_counter() - began
        if step % config.every == 0:
            mean = comm.all_reduce(np.array([loss.item()]), op="mean").item()
            losses = (mean_loss(model, data, config.dtype, comm) for data in (seen, held_out))
            lines.append(Line(step, mean, *losses, milliseconds=1000 * seconds / (step + 1 - since)))
            seconds, since = 0.0, step + 1
            if comm.rank == 0:
                show(lines[-1])
    return lines


@pdnn.no_grad()
def mean_loss(model: nn.Module, data: Dataset, dtype: str, comm: Communicator) -> float:
    """The mean over all rows, of which each rank does its share; the same on every rank."""
    n = len(data)
    x, y = data.gather(slice(n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size), dtype)
    total = np.array([nn.CrossEntropyLoss(reduction="sum")(model(x), y).item()])
    return float(comm.all_reduce(total).item()) / n
