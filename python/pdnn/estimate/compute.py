"""Compute models: the time of a training step's arithmetic, by a machine's numbers or measured now."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil
from statistics import median
from typing import Any, Protocol, TypeVar

import numpy as np

from pdnn import _core, models, nn
from pdnn._core import OnNonfinite
from pdnn.comm import SELF, Communicator
from pdnn.comm.threads import start
from pdnn.core import CoreSession, core_for
from pdnn.data import PadCropFlip
from pdnn.data.sparse import core_source
from pdnn.estimate.machine import Machine
from pdnn.estimate.network import Network
from pdnn.optim import Optimizer
from pdnn.strategies import Serial, Strategy

Array = np.ndarray[Any, Any]
Key = TypeVar("Key")

EPOCHS = 7
"""Times that a probe is measured; the second fastest counts, which others on the machine disturb least."""

LENGTH = 0.008
"""Seconds that one of them lasts at least; never less than two steps."""

MOST = 0.5
"""Seconds that a probe lasts at most; of steps that are slower, one is measured."""

MOST_COPIES = 8
"""Threads, at most, that work beside each other on models of their own to find out how they contend."""


class ComputeModel(Protocol):
    """Times of arithmetic, for estimates. All ranks must make the same calls, and get the same results."""

    def step(self, network: Network, rows: int, threads: int = 1) -> float:
        """Seconds of forward, backward and update on one thread, while as many of each rank do the same."""
        ...

    def stages(self, network: Network, cut: tuple[int, ...], rows: int) -> list[tuple[float, float]]:
        """Seconds of each stage forward and backward, on one thread, while all ranks do the same."""
        ...

    def cut(self, network: Network, stages: int, rows: int) -> tuple[int, ...]:
        """Where a pipeline cuts the network."""
        ...


@dataclass(frozen=True)
class AnalyticCompute:
    """Steps by a machine's numbers: (rows + half_rows) · flops of a row / rate, and the update's bytes.

    Parameters
    ----------
    machine : Machine
    ranks : int
        With one rank of one thread, no other core is at work.
    """

    machine: Machine
    ranks: int = 1

    def step(self, network: Network, rows: int, threads: int = 1) -> float:
        """By the formula; cores contend wherever there is more than one at work."""
        contention = self.machine.contention if threads * self.ranks > 1 else 1.0
        return self._products(network.flops, rows) * contention + network.size / self.machine.memory

    def stages(self, network: Network, cut: tuple[int, ...], rows: int) -> list[tuple[float, float]]:
        """By the stages' parameters: a third of the products forward, the rest backward."""
        ends = [0, *cut, len(network.layer_params)]
        flops = [sum(network.layer_flops[a:b]) for a, b in pairwise(ends)]
        times = [self._products(share, rows) * self.machine.contention for share in flops]
        return [(time / 3, 2 * time / 3) for time in times]

    def cut(self, network: Network, stages: int, rows: int) -> tuple[int, ...]:
        """Where the stage with the most products has fewest."""
        return tuple(_core.cut_by_cost([float(flops) for flops in network.layer_flops], stages))

    def _products(self, flops: float, rows: float) -> float:
        return flops * (rows + self.machine.half_rows) / self.machine.flops


@dataclass(frozen=True)
class Samples:
    """Rows like those that will be trained on, as the core reads them; x may be a CSR array."""

    x: Array
    targets: Array
    width: int
    scale: float = 1.0
    shift: float = 0.0
    augment: PadCropFlip | None = None


@dataclass
class MeasuredCompute:
    """Steps of the network itself, measured now, on all ranks at the same time.

    Parameters
    ----------
    loss : Loss
    optimizer : Optimizer
        Its rule is used on copies; it is left as it is.
    samples : Samples
    comm : Communicator
        The ranks that will train together; all of them must make the same calls.
    clip : (float or None, float or None)
        Norm or value to which gradients are clipped.
    """

    loss: nn.Loss
    optimizer: Optimizer
    samples: Samples
    comm: Communicator
    clip: tuple[float | None, float | None] = (None, None)
    _known: dict[Any, Any] = field(default_factory=dict)

    def step(self, network: Network, rows: int, threads: int = 1) -> float:
        """Measured: the serial strategy, on `threads` copies at once."""
        threads = min(threads, MOST_COPIES)
        key = (str(network.model.config()), max(1, rows), threads)

        def measure() -> float:
            serial = Serial()
            trials = [self.trial(network, serial, SELF, max(1, rows)) for _ in range(threads)]
            return timed(trials, self.comm)

        return self._once(key, measure)

    def stages(self, network: Network, cut: tuple[int, ...], rows: int) -> list[tuple[float, float]]:
        """Measured: each stage bound by itself, as a rank of a pipeline has it."""
        core, rows = core_for(network.model.dtype), max(1, rows)

        def measure() -> list[tuple[float, float]]:
            self.comm.barrier(check=False)
            times = np.array(core.stage_seconds(network.model.core, list(network.sample), list(cut), rows))
            self.comm.all_reduce(times, op="max", check=False)
            return [(float(forward), float(backward)) for forward, backward in times]

        return self._once((str(network.model.config()), cut, rows), measure)

    def cut(self, network: Network, stages: int, rows: int) -> tuple[int, ...]:
        """Where rank 0 finds the slowest stage to take least, by the layers' times."""
        core, rows = core_for(network.model.dtype), max(1, rows)

        def measure() -> tuple[int, ...]:
            cut = np.zeros(stages - 1, np.int64)
            if self.comm.rank == 0:
                cut[:] = core.measured_cut(network.model.core, list(network.sample), stages, rows)
            self.comm.broadcast(cut, root=0, check=False)
            return tuple(map(int, cut))

        return self._once((str(network.model.config()), stages, "cut", rows), measure)

    def trial(
        self, network: Network, strategy: Strategy, comm: Communicator, rows: int
    ) -> Callable[[int], float]:
        """A strategy on a copy of the network: makes so many steps, and returns the seconds of one."""
        trial = Trial(self, network, strategy, comm, rows)
        trial.begin()
        return trial

    def on(self, comm: Communicator) -> MeasuredCompute:
        """The same of other ranks, of which nothing is known yet."""
        return replace(self, comm=comm, _known={})

    def _once(self, key: Any, measure: Callable[[], Key]) -> Key:
        if key not in self._known:
            self._known[key] = measure()
        known: Key = self._known[key]
        return known


class Trial:
    """A session on a copy of a network, whose parameters stay as they are: the learning rate is 0.

    It begins with the first steps, or by `begin`, at which all ranks meet.
    """

    def __init__(
        self,
        compute: MeasuredCompute,
        network: Network,
        strategy: Strategy,
        comm: Communicator,
        rows: int,
    ) -> None:
        self.strategy = strategy
        self._compute, self._network, self._comm = compute, network, comm
        self._rows, self._count = rows, len(compute.samples.targets)
        self._order = np.zeros(0, np.int64)
        self._session: CoreSession | None = None

    def begin(self) -> CoreSession:
        """Makes the session."""
        compute, network, samples = self._compute, self._network, self._compute.samples
        layers = [models.build_layer(**layer) for layer in network.model.config()["layers"]]
        model = nn.Sequential(*layers, dtype=network.model.dtype, seed=0)
        optimizer = compute.optimizer.twin(model.parameters())
        optimizer.core.set_clip(*compute.clip)
        core = core_for(model.dtype)
        self._source = core_source(model.dtype, samples.x, samples.targets, samples.scale, samples.shift)
        if samples.augment is not None:
            samples.augment.tell(self._source, 0, 0)
        self._kept = (model, optimizer)
        self._session = core.Session(
            model=model.core,
            loss=compute.loss.build(core),
            optimizer=optimizer.core,
            comm=self._comm.core,
            sample=list(network.sample),
            target_width=samples.width,
            batch_size=self._rows,
            config=self.strategy.config(),
        )
        return self._session

    def __call__(self, steps: int) -> float:
        """Makes so many steps; seconds of one."""
        session = self._session or self.begin()
        if len(self._order) != steps * self._rows:
            rows = np.arange(steps * self._rows, dtype=np.int64) % self._count
            self._order = np.random.default_rng(0).permutation(rows)
        sums = session.run_epoch(
            self._source,
            self._order,
            self._rows,
            0,
            0,
            np.zeros((steps, 1)),
            OnNonfinite.ignore,
            lambda _: False,
        )
        return float(sums.seconds) / steps


def timed(trials: list[Callable[[int], float]], comm: Communicator) -> float:
    """Seconds a step of trials that run beside each other, on all ranks at once; the slowest rank's."""
    together(trials, 1)
    warm = np.array([max(together(trials, 1))])
    comm.all_reduce(warm, op="max", check=False)
    a_step = max(float(warm[0]), 1e-7)
    steps = max(2, min(64, ceil(LENGTH / a_step)))
    epochs = [] if steps * a_step < MOST else [float(warm[0])]
    for _ in range(max(0, min(EPOCHS, int(MOST / (steps * a_step))))):
        comm.barrier(check=False)
        epochs.append(median(together(trials, steps)))
    result = np.array([sorted(epochs)[min(1, len(epochs) - 1)]])
    comm.all_reduce(result, op="max", check=False)
    return float(result[0])


def together(trials: list[Callable[[int], float]], steps: int) -> list[float]:
    """All trials at once, each in a thread of its own; the last in this one."""
    results = [0.0] * len(trials)
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            results[index] = trials[index](steps)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(trials) - 1)]
    for thread in threads:
        start(thread, "estimate: a thread", "name the strategy")
    run(len(trials) - 1)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return results
