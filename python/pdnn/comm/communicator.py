"""Communicator: collective operations and messages on NumPy arrays, in place or into a given one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from math import prod
from typing import TypeVar

import numpy as np
from numpy.typing import DTypeLike

from pdnn import _core
from pdnn.comm import calls, messages, tree
from pdnn.comm.agree import (
    HEADER_BYTES,
    Array,
    Header,
    add_note,
    announced,
    compare,
    decode,
    describe_new,
    encode,
    with_integer,
)
from pdnn.comm.calls import Call, Op
from pdnn.comm.request import Begun, Check, Request, Turn
from pdnn.comm.scatter import Parts, scatter, scatter_evenly

Result = TypeVar("Result")


class Communicator:
    """A group of ranks, seen by one of them: `pdnn.world`, `from_mpi4py`, ``SELF``, or a `split` of one.

    Arrays are C-ordered, of float32, float64, int32, int64 or uint8, with at most 8 dimensions. Every rank
    makes the same collective calls in the same order, one thread of it at a time; other threads may send,
    receive, and wait for requests meanwhile. Each call first exchanges a small header, so that calls or
    arguments that do not match are an error on every rank, which names two of them; ``check=False``, on every
    rank, leaves this out. A ``start_`` form begins the call and returns a `Request`; its header is sent
    beside the data, and `Request.wait` raises the error, after which this group takes no more calls. Between
    threads, sums are taken in the order of ranks; MPI has its own.

    Parameters
    ----------
    core : _core.Communicator
        The communicator of the core.

    Attributes
    ----------
    core : _core.Communicator
        As given; what C++ takes.
    rank, size : int
        This rank's number, from 0, and how many there are.
    spares : int
        How many of them, the last ones, wait while `Trainer.fit` or `ddp.elastic` runs on the others, until
        they take the place of one that dies: 0, or what ``pdnn launch --spares`` says. May be set, the same
        on every rank. See docs/elastic.md.

    Raises
    ------
    ValueError, TypeError
        From every call: wrong arguments, or arguments of two ranks that do not match.
    CommunicationError
        From every call: MPI failed; or another rank did, where ranks are threads, or did not answer within
        ``PDNN_TIMEOUT`` seconds (default 300; 0: forever). Under MPI that ends the job.
    RankFailed
        From every call, where this group `survives`: a rank of it died, or of a group that it was split off.
    """

    def __init__(self, core: _core.Communicator) -> None:
        self.core = core
        self.rank = core.rank
        self.size = core.size
        self.spares = 0
        self._begun = Begun()
        self._turn = Turn(self.size)

    def __repr__(self) -> str:
        return f"Communicator(rank {self.rank} of {self.size})"

    def broadcast(self, a: Array, root: int = 0, *, check: bool = True) -> Array:
        """Copies the root's `a` to every rank, in place; returns it."""
        return self._run(calls.broadcast(self.core, a, root), check)

    def start_broadcast(self, a: Array, root: int = 0, *, check: bool = True) -> Request[Array]:
        """`broadcast` without waiting."""
        return self._start(calls.broadcast(self.core, a, root), check)

    def reduce(
        self, a: Array, root: int = 0, op: Op = "sum", out: Array | None = None, *, check: bool = True
    ) -> Array | None:
        """`all_reduce` on the root only; other ranks keep `a`, do not use `out`, and get None."""
        return self._run(calls.reduce(self.core, a, root, op, out), check)

    def start_reduce(
        self, a: Array, root: int = 0, op: Op = "sum", out: Array | None = None, *, check: bool = True
    ) -> Request[Array | None]:
        """`reduce` without waiting."""
        return self._start(calls.reduce(self.core, a, root, op, out), check)

    def all_reduce(
        self,
        a: Array,
        op: Op = "sum",
        out: Array | None = None,
        *,
        reproducible: bool = False,
        check: bool = True,
    ) -> Array:
        """The sum of all ranks' `a`, or their mean, maximum or minimum, on every rank.

        Parameters
        ----------
        a : array
            Of the same shape and type on every rank.
        op : {"sum", "mean", "max", "min"}
            The mean, of floats only, divides by the number of ranks. The maximum or minimum of a NaN and a
            number is either, as MPI has it. A sum of integers must fit their type: beyond, threads and MPI
            differ (of uint8, Open MPI wraps some elements around and leaves others at 255).
        out : array, optional
            Filled and returned; like `a`, and `a` itself by default.
        reproducible : bool
            Sums and means have the same bits on threads and over any MPI, whatever its algorithm: ranks 0
            and 1 are added, 2 and 3, …, then these sums in pairs, and so on. A registered all-reduce is not
            called. It takes two rounds of messages.
        check : bool
            Whether the ranks compare their arguments first.
        """
        made = tree.all_reduce if reproducible else calls.all_reduce
        return self._run(made(self.core, a, op, out), check)

    def start_all_reduce(
        self, a: Array, op: Op = "sum", out: Array | None = None, *, check: bool = True
    ) -> Request[Array]:
        """`all_reduce` without waiting."""
        return self._start(calls.all_reduce(self.core, a, op, out), check)

    def scatter(self, parts: Parts = None, root: int = 0, *, check: bool = True) -> Array:
        """This rank's part of the root's array.

        Parameters
        ----------
        parts : array, shape (n, ...), or sequence of arrays, one for each rank
            At the root; None elsewhere. An array is divided by rows: the first n % size ranks get one more.
            Parts of a sequence have any shapes and one type; they are joined in a copy.
        root : int
            The rank that has them.
        check : bool
            Whether the ranks compare their arguments first.

        Returns
        -------
        array
            New; of the part's shape.
        """
        return self._run(scatter(self.core, parts, root), check)

    def start_scatter(self, a: Array | None, root: int, out: Array, *, check: bool = True) -> Request[Array]:
        """The root's `a` in equal parts, into `out`, of the same shape on every rank; does not wait."""
        return self._start(scatter_evenly(self.core, a, root, out), check)

    def gather(self, a: Array, root: int = 0, *, check: bool = True) -> list[Array] | None:
        """A list of all ranks' `a` at the root, None elsewhere.

        They have one type and any shapes; with ``check=False`` one shape.
        """
        return self._run(calls.gather(self.core, a, root), check)

    def start_gather(self, a: Array, root: int = 0, *, check: bool = True) -> Request[list[Array] | None]:
        """`gather` of arrays of one shape, without waiting."""
        return self._start(calls.gather(self.core, a, root), check)

    def all_gather(self, a: Array, *, check: bool = True) -> list[Array]:
        """A list of all ranks' `a` on every rank.

        They have one type and any shapes; with ``check=False`` one shape.
        """
        return self._run(calls.all_gather(self.core, a), check)

    def start_all_gather(self, a: Array, *, check: bool = True) -> Request[list[Array]]:
        """`all_gather` of arrays of one shape, without waiting."""
        return self._start(calls.all_gather(self.core, a), check)

    def reduce_scatter(self, a: Array, op: Op = "sum", *, check: bool = True) -> Array:
        """This rank's rows of `all_reduce`, in a new array: the first n % size ranks get one row more."""
        return self._run(calls.reduce_scatter(self.core, a, op), check)

    def start_reduce_scatter(self, a: Array, op: Op = "sum", *, check: bool = True) -> Request[Array]:
        """`reduce_scatter` without waiting."""
        return self._start(calls.reduce_scatter(self.core, a, op), check)

    def barrier(self, *, check: bool = True) -> None:
        """Returns when every rank has called it."""
        self._run(calls.barrier(self.core), check)

    def start_barrier(self, *, check: bool = True) -> Request[None]:
        """`barrier` without waiting."""
        return self._start(calls.barrier(self.core), check)

    def split(self, color: int, key: int = 0) -> Communicator:
        """The group of the ranks that pass the same `color` (0 or more), ordered by key; collective."""
        header = with_integer(Header("split"), "color", color, 0)
        self._agree(with_integer(header, "key", key))
        return Communicator(self.core.split(color, key))

    def share(self, shape: int | tuple[int, ...], dtype: DTypeLike = np.float32) -> Array | None:
        """Memory that all ranks share, as an array of zeros; collective.

        Only calls order the ranks' reads and writes: after a `barrier` a rank sees what the others wrote
        before it.

        Parameters
        ----------
        shape : int or tuple of int
            The same on every rank.
        dtype : dtype
            One of those that arrays may have.

        Returns
        -------
        array or None
            None, on every rank, if they are not all on one machine.

        Raises
        ------
        MemoryError
            On every rank, if rank 0's machine has not so much memory.
        """
        header = describe_new(shape, dtype)
        self._agree(header)
        size = prod(header.shape) * np.dtype(dtype).itemsize
        if size > sys.maxsize:
            raise MemoryError(f"share: {size} bytes of shape {shape} are more than a machine can have")
        memory = self.core.share(size)
        return None if memory is None else np.asarray(memory).view(dtype).reshape(header.shape)

    def machine(self) -> Communicator:
        """The group of the ranks on this one's machine; collective."""
        self._agree(Header("machine"))
        return Communicator(self.core.ranks_of_machine())

    def send(self, a: Array, dest: int, tag: int = 0, *, check: bool = True) -> None:
        """Sends `a` to a rank, which may be this one; under MPI it may wait until the other receives.

        Messages to one rank with one tag (0 to 32766) arrive in order.
        """
        messages.start_send(self.core, a, dest, tag, check).wait()

    def start_send(self, a: Array, dest: int, tag: int = 0, *, check: bool = True) -> Request[None]:
        """`send` without waiting."""
        return messages.start_send(self.core, a, dest, tag, check)

    def recv(self, source: int, tag: int = 0, out: Array | None = None, *, check: bool = True) -> Array:
        """Receives an array from a rank into `out`, or into a new one; returns it.

        With ``check=False``, of both sender and receiver, `out` is needed.
        """
        return messages.recv(self.core, source, tag, out, check)

    def start_recv(self, source: int, tag: int, out: Array, *, check: bool = True) -> Request[Array]:
        """`recv` into `out` without waiting."""
        return messages.start_recv(self.core, source, tag, out, check)

    @property
    def survives(self) -> bool:
        """Whether the ranks that are left when one dies can go on, by `agree` and `shrink`.

        True between threads, and under MPI if that is Open MPI 5 or later, started with ``--with-ft ulfm``
        as ``pdnn launch --elastic`` does. Elsewhere the death of a rank ends the job.
        """
        return self.core.survives

    def agree(self, flag: bool) -> bool:
        """Whether all ranks pass True; collective over the ranks that live, and the same on all of them.

        Parameters
        ----------
        flag : bool
            That of a rank that dies meanwhile counts or not.

        Raises
        ------
        CommunicationError
            If the group does not survive a death.
        """
        return self.core.agree(int(bool(flag)), False) == 1

    def shrink(self) -> Communicator:
        """The group of the ranks that live, in their order; collective over those.

        As many as before do not wait, if so many are left.

        Raises
        ------
        CommunicationError
            If the group does not survive a death.
        """
        left = Communicator(self.core.shrink())
        left.spares = max(0, left.size - (self.size - self.spares))
        return left

    @property
    def traffic(self) -> _core.Traffic:
        """The bytes that this rank has sent in this group's calls so far, and the seconds of its waits.

        ``bytes`` are those of good algorithms for the calls (docs/algorithms.md), whatever the MPI library
        really sends; they include the headers of checked calls. ``shared_bytes`` is what `Trainer` read in
        shared memory where other ranks wrote. ``seconds`` is the time of waits. Groups that were split off
        have counts of their own.
        """
        return self.core.traffic

    def at_step(self, step: int) -> None:
        """Sets the training step of this rank, for the message of a wait that takes too long."""
        self.core.at_step(step)

    def _run(self, call: Call[Result], check: bool) -> Result:
        return self._turn.within(call.header.call, self._made, call, check)

    def _made(self, call: Call[Result], check: bool) -> Result:
        if check:
            headers = self._agree(call.header, uneven=call.uneven)
        else:
            self._begun.match(call.header.call)
            headers = self._assume(call.header)
        request, result = call.begin(headers)
        request.wait()
        return result

    def _start(self, call: Call[Result], check: bool) -> Request[Result]:
        return self._turn.within(call.header.call, self._started, call, check)

    def _started(self, call: Call[Result], check: bool) -> Request[Result]:
        self._begun.match(call.header.call, wait=False)
        exchange = None
        if check and self.size > 1:
            request, compared, everyones = self._exchange(call.header, uneven=False)

            def refused() -> bool:
                return all(decode(row).problem for row in everyones)

            exchange = Check(call.header.call, request, compared, refused)
            self._begun.add(exchange)
        try:
            began, result = call.begin(self._assume(call.header))
        except (ValueError, TypeError):
            if exchange is not None:
                exchange.wait()  # which raises what the other ranks hear
            raise
        return Request(began, result, exchange, self._begun)

    def _assume(self, header: Header) -> Sequence[Header]:
        """All ranks' headers, if they are like this one's."""
        header.check()
        return [header] * self.size

    def _agree(self, header: Header, *, uneven: bool = False) -> Sequence[Header]:
        """All ranks' headers, which fit together."""
        if self.size == 1:
            return self._assume(header)
        return self._turn.within(header.call, self._agreed, header, uneven)

    def _agreed(self, header: Header, uneven: bool) -> Sequence[Header]:
        self._begun.match(header.call)
        request, compared, _ = self._exchange(header, uneven)
        request.wait(header.call)
        return compared()

    def _exchange(
        self, header: Header, uneven: bool
    ) -> tuple[_core.Request, Callable[[], Sequence[Header]], Array]:
        """Starts the exchange of headers; beside it, what compares them and the array that they fill."""
        mine, size = encode(header), self.size  # no part of a request keeps this object
        everyones = np.empty((size, HEADER_BYTES), np.uint8)

        request = self.core.start_all_gather(mine, everyones, [], announced(header, uneven=uneven))

        def compared() -> Sequence[Header]:
            if not header.problem and (everyones == mine).all():
                return [header] * size
            headers = [decode(row) for row in everyones]
            try:
                compare(headers, uneven=uneven)
            except (ValueError, TypeError) as error:
                add_note(error, request.calls_side_by_side())
                raise
            return headers

        return request, compared, everyones


def check_communicator(where: str, comm: object) -> None:
    """Raises TypeError if it is no Communicator."""
    if not isinstance(comm, Communicator):
        got = f"{where}: comm is of type {type(comm).__name__}, expected a pdnn.comm.Communicator"
        raise TypeError(f"{got}: pdnn.world(), or a part of it by split")
