"""Gradients cut into buckets, each added up over the ranks while the backward pass goes on below."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np

from pdnn.comm import Communicator, Request
from pdnn.nn.parameter import Array, Parameter, Store


class Bucket:
    """Neighbouring parameters whose gradients travel together.

    Attributes
    ----------
    gradients : ndarray
        Theirs: a stretch of the model's flat gradient.
    waiting : int
        How many of the parameters are not final yet.
    """

    def __init__(self, parameters: list[Parameter], store: Store) -> None:
        begin, end = parameters[-1].offset, parameters[0].offset + parameters[0].size
        self.parameters = parameters
        self.gradients: Array = store.flat_gradients[begin:end]
        self.waiting = len(parameters)


def cut(parameters: Iterable[Parameter], store: Store, bucket_bytes: int) -> list[Bucket]:
    """Buckets by falling place, as a backward pass goes: of at most so many bytes, or of one parameter."""
    falling = sorted((each for each in parameters if each.size), key=lambda each: -each.offset)
    runs: list[list[Parameter]] = []
    size = 0
    for parameter in falling:
        own = parameter.size * store.flat_gradients.itemsize
        together = runs and runs[-1][-1].offset == parameter.offset + parameter.size
        if together and size + own <= bucket_bytes:
            runs[-1].append(parameter)
            size += own
        else:
            runs.append([parameter])
            size = own
    return [Bucket(run, store) for run in runs]


class Reducer:
    """Adds buckets up over the ranks, each started as soon as it and all before it are final.

    The order in which buckets are started is the same on every rank, whatever the order in which their
    parameters become final, or whether they do: what is missing is started by `finish`. A group of its own
    keeps this order apart from whatever else the ranks do meanwhile, such as the sums of a BatchNorm.

    From `start` to the end of `finish`, nobody else may touch the gradients.

    Parameters
    ----------
    buckets : list of Bucket
    comm : Communicator
        Of which a group of its own is split off; collective.
    """

    def __init__(self, buckets: list[Bucket], comm: Communicator) -> None:
        self.buckets = buckets
        self._comm = comm.split(0, comm.rank)
        self._bucket_of = {parameter: bucket for bucket in buckets for parameter in bucket.parameters}
        self._counts: Array = np.zeros(0)
        self._flying: deque[Request[Array]] = deque()
        self._next = 0  # the first bucket that was not started
        self.started = False

    def start(self, counts: Sequence[float]) -> None:
        """Starts with a few numbers that are added up beside the gradients; as many on every rank."""
        self._counts = np.array(counts, np.float64)
        self.started = True
        self._fly(self._counts)

    def final(self, parameter: Parameter) -> None:
        """The gradient of this parameter is final: starts what can be, and moves along what is under way."""
        self._bucket_of[parameter].waiting -= 1
        while self._next < len(self.buckets) and self.buckets[self._next].waiting == 0:
            self._fly(self.buckets[self._next].gradients)
            self._next += 1
        while self._flying and self._flying[0].test():  # MPI makes no progress by itself
            self._flying.popleft()

    def finish(self) -> list[float]:
        """Starts what was not, and returns the sums of the counts when the gradients are sums, too."""
        for bucket in self.buckets[self._next :]:
            self._fly(bucket.gradients)
        while self._flying:
            self._flying.popleft().wait()
        for bucket in self.buckets:
            bucket.waiting = len(bucket.parameters)
        self._next, self.started = 0, False
        sums: list[float] = self._counts.tolist()
        return sums

    def _fly(self, values: Array) -> None:
        self._flying.append(self._comm.start_all_reduce(values, check=False))
