"""Strategies in which every rank or worker holds the whole network."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pdnn.parallel.engines import Engine, Serial, check_positive, suffix

if TYPE_CHECKING:
    from pdnn.codec import Codec


@dataclass(frozen=True)
class DataParallel:
    """Every rank makes the gradient of its share of each batch; the shares add up to the batch's gradient.

    Between ranks of one machine gradients and parameters lie in memory that they share, and each rank updates
    its part of the parameters; elsewhere, or where that is measured to be slower, gradients travel in
    buckets, the last layer's first, while the backward pass goes on.

    Parameters
    ----------
    engine : Serial, Team or Pool
        How a rank makes its gradient.
    average : "mean" or "sum"
        The gradient of an update: of the mean loss over the rows of the whole batch, or the sum over ranks of
        each one's mean over its own rows. The sum is another optimizer: its steps grow with the ranks.
    bucket_bytes : int, optional
        Size of a bucket; given, gradients travel in buckets. None: what the latency and bandwidth of an
        all-reduce, measured when `fit` begins, make best; with a codec 256 KiB.
    shared_memory : bool, optional
        Whether ranks of one machine share memory. None: where it is measured to be faster.
    codec : str or Codec, optional
        By which gradients travel, in buckets: a string as in `pdnn.codec.SPECS`. All ranks get the same bits.
        Under `PowerSGD` buckets end where parameters do, since it must see whole matrices. `History.codec`
        has the books: bytes, seconds, error.
    error_feedback : bool, optional
        Whether what a codec lost is added to the next gradient; by default for 1 bit, top k and PowerSGD.
        What is remembered is kept in checkpoints, and forgotten between two calls of `fit`.
    """

    engine: Engine = field(default_factory=Serial)
    average: str = "mean"
    bucket_bytes: int | None = None
    shared_memory: bool | None = None
    codec: str | Codec | None = None
    error_feedback: bool | None = None

    def __post_init__(self) -> None:
        _take_codec(self)
        if self.average not in ("mean", "sum"):
            raise ValueError(f'DataParallel: average "{self.average}"; expected "mean" or "sum"')
        if self.bucket_bytes is not None:
            check_positive("DataParallel: bucket_bytes", self.bucket_bytes)
            if self.shared_memory:
                raise ValueError("DataParallel: bucket_bytes is of messages, shared_memory=True sends none")
        if self.codec is not None and self.shared_memory:
            raise ValueError(
                f'DataParallel: codec "{self.codec}" is of messages, shared_memory=True sends none; '
                "leave one of them out"
            )

    def __str__(self) -> str:
        words = "ddp:sum" if self.average == "sum" else "ddp"
        return words + _codec_suffix(self.codec) + suffix(self.engine)


@dataclass(frozen=True)
class ScatterGather:
    """Rank 0 holds the data: it scatters each batch, gathers the gradients, updates and broadcasts.

    Parameters
    ----------
    once : bool
        Scatter the rows in the first step only; every batch must then be the whole data set.
    """

    once: bool = False

    def __str__(self) -> str:
        return "scatter-gather:once" if self.once else "scatter-gather"


@dataclass(frozen=True)
class Average:
    """Every rank trains a model of its own; now and then all models become their average.

    An update is one rank's, from `batch_size` rows: a step deals ranks × `batch_size` rows of the epoch, in
    shares that differ by at most one; a rank may get none of the last ones and then makes no update. The
    average weighs parameters and state (running statistics) by the rows that each rank has trained on since
    the last one. The optimizer's memory (momentum) is never averaged: it stays each rank's own.

    `fit` ends with an average, so every rank then holds the same model. Validation and callbacks in between
    see the average of the models so far, which the ranks do not take over.

    Parameters
    ----------
    every : int, optional
        Steps from one average to the next, counted over all of training. None: one average, when `fit` ends.
    by : "all_reduce" or "master"
        Who adds up: all ranks at once, or rank 0, to which they send their models and which sends the sum
        back. The models are equal to rounding, between threads bit for bit.
    same_init : bool
        Whether `fit` begins with rank 0's parameters on all ranks. An average of networks that started apart
        means little: False is there to show it, with models of other seeds.
    engine : Serial, Team or Pool
        How a rank makes its gradient.
    codec : str or Codec, optional
        By which an average travels: each rank sends what its parameters have moved since the last average,
        times its weight. The state, and averages that are only looked at, travel as they are. Basu et al.,
        "Qsparse-local-SGD", NeurIPS 2019. Not with ``by="master"`` or ``same_init=False``.
    error_feedback : bool, optional
        Whether what a codec lost is added to what is sent for the next average; by default for 1 bit, top k
        and PowerSGD. As in `DataParallel`.
    """

    every: int | None = None
    by: str = "all_reduce"
    same_init: bool = True
    engine: Engine = field(default_factory=Serial)
    codec: str | Codec | None = None
    error_feedback: bool | None = None

    def __post_init__(self) -> None:
        _take_codec(self)
        if self.every is not None:
            check_positive("Average: every", self.every)
        if self.by not in ("all_reduce", "master"):
            raise ValueError(f'Average: by "{self.by}"; expected "all_reduce" or "master"')
        if self.codec is not None and self.by == "master":
            raise ValueError(
                f'Average: codec "{self.codec}" is of sums that all ranks make; use by="all_reduce"'
            )
        if self.codec is not None and not self.same_init:
            raise ValueError(
                f'Average: codec "{self.codec}" is of what models moved since they were the same, and with '
                "same_init=False they never were"
            )

    def __str__(self) -> str:
        words = f"average:{'end' if self.every is None else self.every}"
        words += ":master" * (self.by == "master") + ":own-init" * (not self.same_init)
        return words + _codec_suffix(self.codec) + suffix(self.engine)


@dataclass(frozen=True)
class Hogwild:
    """Workers of this process share one vector of parameters and update it without waiting for each other.

    A worker takes the epoch's next batch, makes its gradient on a copy of the parameters, and updates the
    shared ones by its own optimizer. `batch_size` is the rows of one worker's update. How many updates others
    made in the meantime is measured as staleness, see `History.updates`. Runs differ from one to the next,
    unless there is one worker: that is serial, bit for bit.

    Every worker has an optimizer memory and a state (running statistics) of its own. They begin as the
    Trainer's; when an epoch ends, the states become their average, weighed by rows. What checkpoints keep and
    later fits begin with is the first worker's memory.

    Parameters
    ----------
    workers : int
        Threads, the caller's among them.
    """

    workers: int

    def __post_init__(self) -> None:
        check_positive("Hogwild: workers", self.workers)

    def __str__(self) -> str:
        return f"hogwild:{self.workers}"


@dataclass(frozen=True)
class HogwildProcesses:
    """`Hogwild` whose workers are the ranks of one machine, over memory that they share.

    Parameters
    ----------
    workers : int
        The number of ranks.
    """

    workers: int

    def __post_init__(self) -> None:
        check_positive("HogwildProcesses: workers", self.workers)

    def __str__(self) -> str:
        return f"hogwild-processes:{self.workers}"


def _take_codec(strategy: DataParallel | Average) -> None:
    """The codec as a value, if a string spells it."""
    if strategy.codec is not None:
        from pdnn.codec import parse

        object.__setattr__(strategy, "codec", parse(strategy.codec))
    elif strategy.error_feedback is not None:
        raise ValueError(f"{type(strategy).__name__}: error_feedback is of a codec; pass codec=")


def _codec_suffix(codec: str | Codec | None) -> str:
    return "" if codec is None else f":{codec}"
