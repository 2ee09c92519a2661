"""Data parallel training written by hand, over hooks and collectives; data_parallel.py runs it.

A wrapper gives every rank rank 0's parameters and puts a hook on each gradient that adds it up over the
ranks, as soon as a backward pass has made it. Everything else is the loop of one process.

The hooks of all ranks must match: a rank whose pass does not use a parameter does not call its collective.
The others then wait for it, or its next call takes the place of the missing one. pdnn names the ranks and
ends the job if the calls do not match, or after ``PDNN_TIMEOUT`` seconds. To avoid this, either all ranks
make the same pass, or the gradients are reduced after it, parameter by parameter, used or not.

After each iteration the ranks compare their parameters; copies that have come apart end the training.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from understanding_training import Config, Line

import pdnn
from pdnn import nn, optim
from pdnn.comm import Communicator
from pdnn.data import Dataset
from pdnn.ddp import check_parameter_closeness


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
    """Trains, step s on batch s · ranks + rank; a line at step 0 and every so many steps, shown on rank 0.

    Raises
    ------
    RuntimeError
        On all ranks, if their parameters differ after a step.
    """
    comm, criterion = pdnn.world(), nn.CrossEntropyLoss()
    descent = optim.SGD(model.parameters(), lr=config.learning_rate)
    schedule = optim.LinearLR(descent, 1.0, config.last_lr_factor, total_iters=1000)
    x, y = seen.gather(dtype=config.dtype)
    batch, batches = config.batch_size, len(seen) // config.batch_size
    lines: list[Line] = []
    seconds, since = 0.0, 0
    for step in range(config.niters):
        told = step % config.every == 0
        before = mean_loss(model, seen, config.dtype, comm) if told else 0.0
        began = time.perf_counter()
        first = (step * comm.size + comm.rank) % batches * batch
        descent.zero_grad()
        loss = criterion(model(x[first : first + batch]), y[first : first + batch])
        loss.backward()
        descent.step()
        schedule.step()
        seconds += time.perf_counter() - began
        if not (verdict := check_parameter_closeness(model)):
            raise RuntimeError(f"after step {step}: {verdict}")
        if told:
            mean = comm.all_reduce(np.array([loss.item()]), op="mean").item()
            test_loss, held_out_loss = (
                mean_loss(model, data, config.dtype, comm) for data in (seen, held_out)
            )
            milliseconds = 1000 * seconds / (step + 1 - since)
            lines.append(Line(step, before, test_loss, mean, held_out_loss, milliseconds))
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
