"""Gradients cut into buckets, each added up over the ranks while the backward pass goes on below."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from pdnn.codec import Codec, CompressedAllReduce, CompressionStats
from pdnn.comm import Communicator, Request
from pdnn.store import Array, Parameter, Store


class Bucket:
    """Neighboring parameters whose gradients travel together.

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

    With a codec a bucket is divided by the first of the counts before it is encoded, so that what is fed back
    belongs to a mean, whatever the number of rows: the first bucket waits for the counts.

    Parameters
    ----------
    buckets : list of Bucket
    comm : Communicator
        Of which a group of its own is split off; collective.
    mean : bool
        Whether the sums of gradients are divided by that of the first count, unless it is 0.
    codec : Codec, optional
        By which gradients travel.
    error_feedback : bool, optional
        Whether what it lost is added to the next gradients; by default where the codec wants it.
    """

    def __init__(
        self,
        buckets: list[Bucket],
        comm: Communicator,
        *,
        mean: bool = False,
        codec: Codec | None = None,
        error_feedback: bool | None = None,
    ) -> None:
        self.buckets = buckets
        self._comm = comm.split(0, comm.rank)
        self._mean = mean
        self._sums = [
            CompressedAllReduce(
                self._comm,
                codec,
                [parameter.shape for parameter in reversed(bucket.parameters)],
                bucket.gradients.dtype.name,
                error_feedback=error_feedback,
                measure=16,
            )
            for bucket in buckets
            if codec is not None
        ]
        self._bucket_of = {parameter: bucket for bucket in buckets for parameter in bucket.parameters}
        self._counts: Array = np.zeros(0)
        self._flying: deque[Request[Array]] = deque()
        self._next = 0  # the first bucket that was not started
        self.started = False

    def start(self, counts: Sequence[float]) -> None:
        """Starts with a few numbers that are added up beside the gradients; as many on every rank."""
        self._counts = np.array(counts, np.float64)
        self.started = True
        self._flying.append(self._comm.start_all_reduce(self._counts, check=False))

    def final(self, parameter: Parameter) -> None:
        """The gradient of this parameter is final: starts what can be, and moves along what is under way."""
        self._bucket_of[parameter].waiting -= 1
        while self._next < len(self.buckets) and self.buckets[self._next].waiting == 0:
            self._fly(self._next)
            self._next += 1
        while self._flying and self._flying[0].test():  # MPI makes no progress by itself
            self._flying.popleft()
        for under_way in self._sums[: self._next]:
            under_way.test()

    def finish(self) -> list[float]:
        """Starts what was not, and returns the sums of the counts when the gradients are sums, too."""
        for number in range(self._next, len(self.buckets)):
            self._fly(number)
        self._wait()
        for under_way in self._sums:
            under_way.finish()
        if not self._sums:
            for bucket in self.buckets:
                self._divide(bucket)
        for bucket in self.buckets:
            bucket.waiting = len(bucket.parameters)
        self._next, self.started = 0, False
        sums: list[float] = self._counts.tolist()
        return sums

    @property
    def stats(self) -> CompressionStats:
        """What has been sent by the codec so far; a step is one sum, however many buckets it takes."""
        told = sum((each.stats for each in self._sums), CompressionStats())
        return replace(told, sums=self._sums[0].stats.sums) if self._sums else told

    def _fly(self, number: int) -> None:
        bucket = self.buckets[number]
        if not self._sums:
            self._flying.append(self._comm.start_all_reduce(bucket.gradients, check=False))
            return
        self._wait()
        self._divide(bucket)
        self._sums[number].start(bucket.gradients)

    def _wait(self) -> None:
        """For what travels as it is: everything, or the counts alone."""
        while self._flying:
            self._flying.popleft().wait()

    def _divide(self, bucket: Bucket) -> None:
        count = float(self._counts[0])
        if self._mean and count > 0:
            bucket.gradients /= count
