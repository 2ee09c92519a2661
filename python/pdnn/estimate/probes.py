"""Probes: a machine's numbers, measured now by the ranks that will train; a second in all, or less."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from math import ceil, prod
from platform import node as name_of_machine
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from pdnn import _core, models, nn, optim
from pdnn.comm import SELF, Communicator, cores_of_every_rank, cores_of_rank, world
from pdnn.comm.costs import Link, fit, rounds
from pdnn.core import array_dtype
from pdnn.estimate.compute import Array, MeasuredCompute, Samples, timed
from pdnn.estimate.machine import Machine
from pdnn.estimate.network import Network
from pdnn.launch import run
from pdnn.strategies import DataParallel

if TYPE_CHECKING:
    from pdnn.estimate.compute import ComputeModel

SIZES = (64, 1 << 14, 1 << 18, 1 << 20)
"""Bytes of the messages that are sent to and fro, and added up."""

_SECONDS = 0.004  # of one measurement; each is made three times
_TAG = 7

MOST_RANKS = 8
"""Ranks that are started; more would show how the cores of a larger node contend, and take longer."""


def measure(
    comm: Communicator, compute: MeasuredCompute, network: Network, rows: int, warn: bool = False
) -> Machine:
    """The machine that these ranks run on; collective.

    Parameters
    ----------
    comm : Communicator
    compute : MeasuredCompute
        Of the network: the rate of a core is that of its steps, on rank 0 while the others wait.
    network : Network
    rows : int
        Of a rank's step.
    warn : bool
        Whether to warn if the rate of a core is a guess.

    Returns
    -------
    Machine
        The same on every rank. Links are None where no two ranks could measure them.
    """
    node = comm.machine() if comm.size > 1 else comm
    sizes = np.array([node.size])
    comm.broadcast(sizes, root=0, check=False)  # links are rank 0's; another machine may have fewer ranks
    local, nodes = int(sizes[0]), -(-comm.size // int(sizes[0]))
    numbers = np.array([barrier(comm), adding(network.itemsize)])
    comm.all_reduce(numbers, op="max", check=False)
    update = network.size * float(numbers[1])
    cores = cores_of_every_rank(comm)
    several = comm.size * cores > 1
    together = compute.step(network, rows, cores) - update
    of_a_core = np.zeros(3)
    if comm.rank == 0:
        alone = compute.on(SELF) if several else compute
        flops, half_rows, guessed = core_rate(alone, network, rows, update)
        of_a_core[:] = flops, half_rows, alone.step(network, rows) - update
        if warn and guessed:
            warnings.warn(
                f"estimate: a step of {max(2, rows)} rows took hardly longer than one of a fourth of them, "
                "so the rate of a core is a guess; other programs disturb it, or the network is too small: "
                "measure again, or with more rows",
                stacklevel=3,
            )
    comm.broadcast(of_a_core, root=0, check=False)
    flops, half_rows, by_itself = of_a_core.tolist()
    return Machine(
        name="this machine" if nodes == 1 else f"these {nodes} machines",
        nodes=nodes,
        cores=local * cores,
        flops=flops,
        half_rows=half_rows,
        memory=1 / float(numbers[1]),
        barrier=float(numbers[0]),
        inside=messages(comm, _partner(comm, node, same=True)) if local > 1 else None,
        sums=sums(node, comm) if local > 1 else None,
        shared=agreement(node, comm) if local > 1 else None,
        between=messages(comm, _partner(comm, node, same=False)) if nodes > 1 else None,
        contention=max(1.0, together / by_itself) if by_itself > 0 else 1.0,
        ranks=local if nodes > 1 else 0,
    )


def describe(model: nn.Sequential, loss: nn.Loss, sample: tuple[int, ...], rows: int) -> Machine:
    """This machine: as many ranks as cores, at most `MOST_RANKS`, measure links and steps of the network.

    Parameters
    ----------
    model : nn.Sequential
        A classifier; the rate of a core is that of its steps.
    loss : Loss
        Its.
    sample : tuple of int
    rows : int
        Of a rank's step.

    Raises
    ------
    RuntimeError
        If there are several cores, and no mpiexec.
    """
    cores = _core.available_cores()
    ranks = min(cores, MOST_RANKS)
    if ranks == 1 or find_spec("mpi4py") is None:
        found = _on_a_rank(model, loss, sample, rows)
    else:
        found = run(_on_a_rank, model, loss, sample, rows, ranks=ranks, timeout=120)[0]
    return replace(found, name=name_of_machine() or "this machine", cores=cores, barrier=barrier(SELF))


def _on_a_rank(model: nn.Sequential, loss: nn.Loss, sample: tuple[int, ...], rows: int) -> Machine:
    rng = np.random.default_rng(0)
    dtype, count = array_dtype(model.dtype), max(2, 2 * rows)
    outputs = prod(model.output_shape(sample))
    indices = any(isinstance(module, nn.Embedding) for module in model.modules())
    x = (rng.random((count, *sample)) * (not indices)).astype(dtype)  # 0 is an index of any Embedding
    samples = Samples(x, rng.integers(0, outputs, count).astype(np.int32), 0)
    comm, sgd = world(), optim.SGD(model.parameters(), lr=0.1)
    compute = MeasuredCompute(loss, sgd, samples, comm)
    return measure(comm, compute, Network(model, sample), rows, warn=True)


def core_rate(compute: ComputeModel, network: Network, rows: int, update: float) -> tuple[float, float, bool]:
    """Flop/s of very many rows, and the rows with half of it: the line through two sizes of step.

    Of a step, `update` are the seconds that do not count, as an estimate adds them. The last is whether it is
    a guess, as both sizes took as long.
    """
    many, few = max(2, rows), max(1, rows // 4)
    long, short = compute.step(network, many), compute.step(network, few)
    guessed = long - short < 0.02 * long
    a_row = (0.02 * long if guessed else long - short) / (many - few)
    flops = max(network.flops, 1) / a_row
    return flops, max(0.0, (long - update) / a_row - many), guessed


def barrier(comm: Communicator) -> float:
    """Seconds in which a rank's threads meet, spinning: the round trip of a word between two cores."""
    if cores_of_rank(comm) == 1:
        return 0.0
    return median(_core.measure_round_trip() for _ in range(5))


def adding(itemsize: int) -> float:
    """Seconds per byte of adding an array to another in cache, as a pool adds its gradients."""
    total, one = (np.zeros((1 << 20) // itemsize, f"f{itemsize}") for _ in range(2))
    return _repeated(lambda: np.add(total, one, out=total)) / total.nbytes


def messages(comm: Communicator, partner: int) -> Link:
    """Ping-pong between rank 0 and a partner: half a round trip of each size."""
    points = []
    for size in SIZES:
        data, seconds = np.zeros(size, np.uint8), np.zeros(1)

        def there_and_back(data: Array = data) -> None:
            if comm.rank == 0:
                comm.core.start_send(data, partner, _TAG).wait()
                comm.core.start_recv(data, partner, _TAG).wait()
            elif comm.rank == partner:
                comm.core.start_recv(data, 0, _TAG).wait()
                comm.core.start_send(data, 0, _TAG).wait()

        seconds[0] = _repeated(there_and_back, comm) / 2
        comm.broadcast(seconds, root=0, check=False)
        points.append((1.0, float(size), float(seconds[0])))
    return fit(points)


def sums(node: Communicator, comm: Communicator) -> Link:
    """What all-reduces of floats on a node are as fast as, by the form of halving and doubling."""
    points = []
    for size in SIZES:
        data, out = np.zeros(size // 4, np.float32), np.zeros(size // 4, np.float32)

        def add_up(data: Array = data, out: Array = out) -> None:
            node.core.start_all_reduce(data, out, _core.Op.sum).wait()

        seconds = _repeated(add_up, comm)
        points.append((2.0 * rounds(node.size), 2 * (node.size - 1) / node.size * size, seconds))
    return _of_rank_0(fit(points), comm)


def agreement(node: Communicator, comm: Communicator) -> Link | None:
    """What data parallel in shared memory adds to a step, by the bytes that a rank reads of others.

    Steps of one row per rank, with very little computation, minus the same step of one rank.
    """
    points = []
    for widths in ((64, 64), (512, 512)):
        model = models.mlp(widths, seed=0)
        network = Network(model, widths[:1])
        x, y = np.zeros((node.size, widths[0]), np.float32), np.zeros((node.size, widths[1]), np.float32)
        sgd = optim.SGD(model.parameters(), lr=0.1)
        compute = MeasuredCompute(nn.MSELoss(), sgd, Samples(x, y, widths[1]), comm)
        together = None
        with suppress(ValueError):  # these ranks share no memory
            together = compute.trial(network, DataParallel(shared_memory=True), node, node.size)
        missing = np.array([together is None], np.int32)
        comm.all_reduce(missing, op="max", check=False)
        if together is None or missing[0]:
            return None
        seconds = timed([together], comm) - compute.step(network, 1)
        read = 2 * (node.size - 1) / node.size * network.size
        points.append((1.0, read, max(seconds, 1e-7)))
    return _of_rank_0(fit(points), comm)


def _of_rank_0(link: Link, comm: Communicator) -> Link:
    """The link that rank 0 has measured, on all ranks."""
    numbers = np.array([link.latency, link.bandwidth])
    comm.broadcast(numbers, root=0, check=False)
    return Link(*numbers.tolist())


def _partner(comm: Communicator, node: Communicator, *, same: bool) -> int:
    """The first rank beside rank 0 that is on rank 0's node, or is not."""
    zero = np.array([comm.rank == 0], np.int32)
    node.all_reduce(zero, op="max", check=False)
    wanted = comm.rank > 0 and bool(zero[0]) == same
    first = np.array([comm.rank if wanted else comm.size], np.int64)
    comm.all_reduce(first, op="min", check=False)
    return int(first[0])


def _repeated(call: Callable[[], object], comm: Communicator = SELF) -> float:
    """Seconds of a call: the fastest of three runs of many; the slowest rank's."""
    call()
    began = perf_counter()
    call()
    first = np.array([perf_counter() - began])
    comm.all_reduce(first, op="max", check=False)
    times = max(2, min(1000, ceil(_SECONDS / max(float(first[0]), 1e-7))))
    runs = []
    for _ in range(3):
        comm.barrier(check=False)
        began = perf_counter()
        for _ in range(times):
            call()
        runs.append((perf_counter() - began) / times)
    result = np.array([min(runs)])
    comm.all_reduce(result, op="max", check=False)
    return float(result[0])
