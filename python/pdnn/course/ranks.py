"""Ranks as threads for a check: their calls are recorded, and a deadlock is found and told in words."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Generic, TypeVar

import numpy as np

from pdnn import _core, comm
from pdnn.comm import Communicator, Request
from pdnn.comm.agree import Array
from pdnn.comm.calls import Call
from pdnn.comm.threads import CURRENT
from pdnn.course.submission import Submission, Wrong

Result = TypeVar("Result")
_WAITS = (str(Path(comm.__file__).parent), __file__)  # a rank whose innermost frame is there waits for others
_QUIET = 0.8  # seconds in which no rank moves, all of them in waits for calls that they have started


@dataclass(frozen=True)
class Made:
    """A call that a rank made.

    Attributes
    ----------
    name : str
        As `Communicator` calls it, such as ``"all_reduce"``.
    bytes : int
        Of the array that it passed, or 0.
    peer : int or None
        The rank that a message goes to or comes from.
    tag : int
        Of the message.
    """

    name: str
    bytes: int = 0
    peer: int | None = None
    tag: int = 0


class Send(Request[None]):
    """A send, which ends when the other rank receives, and knows whether this one has waited for that.

    The array must not change before: MPI may read it until then.
    """

    def __init__(self, request: Request[None], receives: _core.Request, array: Array) -> None:
        self._of, self._receives, self.ended = request, receives, False
        self._array, self._sent = array, array.copy()

    def test(self) -> bool:
        """`Request.test`."""
        if not self.ended and self._of.test() and self._receives.test():
            self._end()
        return self.ended

    def wait(self) -> None:
        """`Request.wait`."""
        self._of.wait()
        self._receives.wait()
        self._end()

    def _end(self) -> None:
        if not self.ended and self._array.tobytes() != self._sent.tobytes():
            raise Wrong(
                "an array changes after start_send, before request.wait() has returned: it may not have gone "
                "yet, and then the other rank gets the new values; wait first, or send a copy"
            )
        self.ended = True


@dataclass
class Rank(Generic[Result]):
    """What a rank did.

    Attributes
    ----------
    calls : list of Made
    result : object
        What its function returned.
    sends : list of Send
        Those that it began.
    """

    calls: list[Made] = field(default_factory=list)
    result: Result | None = None
    done: bool = False
    error: BaseException | None = None
    sends: list[Send] = field(default_factory=list)

    @property
    def messages(self) -> int:
        """How many messages it has sent."""
        return sum(made.name.endswith("send") for made in self.calls)

    @property
    def sent_bytes(self) -> int:
        """How many bytes of arrays its messages had."""
        return sum(made.bytes for made in self.calls if made.name.endswith("send"))

    @property
    def collectives(self) -> int:
        """How many calls of all ranks it has made."""
        return sum(made.peer is None for made in self.calls)

    def count(self, name: str, peer: int | None = None, tag: int | None = None) -> int:
        """How many calls of a name, with a rank, it has made, in either form; of all tags or of one."""
        return sum(
            made.name.removeprefix("start_") == name and made.peer == peer and tag in (None, made.tag)
            for made in self.calls
        )


class Recorder(Communicator):
    """A communicator that writes down which calls are made, as they begin.

    Its sends wait until the other rank receives, which those of MPI may do and those between threads never
    do. `receives` has a message for each receive, as it begins.
    """

    def __init__(self, core: _core.Communicator, receives: _core.Communicator, own: Rank[Any]) -> None:
        super().__init__(core)
        self._calls, self._sends, self._receives = own.calls, own.sends, receives

    def _run(self, call: Call[Result], check: bool) -> Result:
        self._calls.append(_made(call, ""))
        return super()._run(call, check)

    def _start(self, call: Call[Result], check: bool) -> Request[Result]:
        self._calls.append(_made(call, "start_"))
        return super()._start(call, check)

    def send(self, a: Array, dest: int, tag: int = 0, *, check: bool = True) -> None:
        """`Communicator.send`."""
        self._calls.append(Made("send", getattr(a, "nbytes", 0), dest, tag))
        self._begin(super().start_send(a, dest, tag, check=check), a, dest, tag).wait()

    def start_send(self, a: Array, dest: int, tag: int = 0, *, check: bool = True) -> Request[None]:
        """`Communicator.start_send`."""
        self._calls.append(Made("start_send", getattr(a, "nbytes", 0), dest, tag))
        return self._begin(super().start_send(a, dest, tag, check=check), a, dest, tag)

    def recv(self, source: int, tag: int = 0, out: Array | None = None, *, check: bool = True) -> Array:
        """`Communicator.recv`."""
        self._calls.append(Made("recv", 0, source, tag))
        self._tell(source, tag)
        return super().recv(source, tag, out, check=check)

    def start_recv(self, source: int, tag: int, out: Array, *, check: bool = True) -> Request[Array]:
        """`Communicator.start_recv`."""
        self._calls.append(Made("start_recv", 0, source, tag))
        self._tell(source, tag)
        return super().start_recv(source, tag, out, check=check)

    def _begin(self, request: Request[None], a: Array, dest: int, tag: int) -> Send:
        send = Send(request, self._receives.start_recv(np.empty(0, np.uint8), dest, tag), a)
        self._sends.append(send)
        return send

    def _tell(self, source: int, tag: int) -> None:
        with suppress(ValueError, TypeError):  # of a rank that there is not: the receive says so
            self._receives.start_send(np.empty(0, np.uint8), source, tag)


def _made(call: Call[Any], form: str) -> Made:
    header = call.header
    size = 1
    for extent in header.shape:
        size *= extent
    return Made(form + header.call, size * {"float32": 4, "int32": 4, "uint8": 1}.get(header.dtype, 8))


def on_ranks(
    student: Submission, ranks: int, function: Callable[[Communicator], Result]
) -> list[Rank[Result]]:
    """Calls a function on ranks that are threads; inside, `pdnn.world` gives what it gets.

    Parameters
    ----------
    student : Submission
        Whose code runs there.
    ranks : int
    function : callable
        Takes the rank's communicator.

    Returns
    -------
    list of Rank
        What rank 0, 1, … did.

    Raises
    ------
    Wrong
        If the ranks wait for each other, or a message was never received, or its end never waited for.
    Exception
        The first error of a rank.
    """
    group, receives = _core.ThreadGroup(ranks), _core.ThreadGroup(ranks)
    world: list[Rank[Result]] = [Rank() for _ in range(ranks)]

    def abort() -> None:
        group.abort()
        receives.abort()

    def work(rank: int) -> None:
        own = world[rank]
        recorder = Recorder(group.communicator(rank), receives.communicator(rank), own)
        CURRENT.set(recorder)
        try:
            own.result = function(recorder)
        except BaseException as error:
            own.error = error
            abort()
        own.done = True

    threads = [
        threading.Thread(target=work, args=(rank,), name=f"rank {rank}", daemon=True) for rank in range(ranks)
    ]
    for thread in threads:
        thread.start()
    words = _watch(student, world, threads)
    if words:
        abort()
    for thread in threads:
        thread.join()
    errors = [rank.error for rank in world if rank.error is not None]
    if words:
        raise Wrong(words)
    if errors:
        raise next((error for error in errors if not isinstance(error, _core.Aborted)), errors[0])
    _check_messages(world)
    return world


def _watch(student: Submission, world: list[Rank[Result]], threads: list[threading.Thread]) -> str | None:
    """Returns when all ranks have ended, or when they never will, with words for that."""
    seen: object = None
    since = time.monotonic()
    while alive := [thread for thread in threads if thread.is_alive()]:
        alive[0].join(0.02)
        frames = sys._current_frames()
        now = [
            _state(frames.get(thread.ident or 0), rank) for thread, rank in zip(threads, world, strict=True)
        ]
        if any(state == "runs" for state in now) or now != seen:
            seen, since = now, time.monotonic()
        moved = [len(rank.calls) for rank in world]
        stuck = all(_is_stuck(number, world) for number in range(len(world)))
        stuck = stuck and moved == [len(rank.calls) for rank in world]  # seen all at one time
        ended = all(rank.done for rank in world) or any(rank.error is not None for rank in world)
        if (stuck or time.monotonic() - since > _QUIET) and not ended:
            places = [student.waits(frames.get(thread.ident or 0)) for thread in threads]
            return "a deadlock: " + "; ".join(
                _waits(number, world, place)
                for number, (rank, place) in enumerate(zip(world, places, strict=True))
                if not rank.done
            )
    return None


def _state(frame: FrameType | None, rank: Rank[Any]) -> object:
    """Whether a rank runs; else what tells one of its waits from another."""
    if rank.done:
        return "has ended"
    if frame is None or not frame.f_code.co_filename.startswith(_WAITS):
        return "runs"
    return len(rank.calls), id(frame), frame.f_lasti


def _is_stuck(number: int, world: list[Rank[Any]]) -> bool:
    """Whether a rank can't go on before another one makes a call; never so for calls that were started."""
    rank = world[number]
    if rank.done or not rank.calls:
        return rank.done
    made = rank.calls[-1]
    if made.name in ("send", "recv") and made.peer is not None and 0 <= made.peer < len(world):
        other = "recv" if made.name == "send" else "send"
        met = world[made.peer].count(other, number, made.tag)
        return rank.count(made.name, made.peer, made.tag) > met
    if made.peer is None and not made.name.startswith("start_"):
        return any(each.collectives < rank.collectives for each in world)
    return False


def _waits(number: int, world: list[Rank[Any]], place: str | None) -> str:
    """What a rank waits in, and which ranks never came."""
    rank = world[number]
    at = f", {place}" if place else ""
    if not rank.calls or rank.calls[-1].name.startswith("start_"):
        return f"rank {number} waits for a call that it has started{at}"
    made = rank.calls[-1]
    if made.peer is not None:
        way = "in recv from" if made.name == "recv" else "until its send is received by"
        ended = ", which has returned" if world[made.peer].done else ""
        other = "itself" if made.peer == number else f"rank {made.peer}"
        return f"rank {number} waits {way} {other}{ended}{at}"
    times = rank.count(made.name)
    absent = [other for other, each in enumerate(world) if each.count(made.name) < times]
    never = f", which rank {', '.join(map(str, absent))} never entered" if absent else ""
    return f"rank {number} waits in {made.name} #{times}{never}{at}"


def _check_messages(world: list[Rank[Any]]) -> None:
    for source, sender in enumerate(world):
        for dest, receiver in enumerate(world):
            sent, received = sender.count("send", dest), receiver.count("recv", source)
            if sent != received:
                raise Wrong(
                    f"rank {source} sends rank {dest} {sent} messages, which receives {received} of them"
                )
        if waiting := sum(not send.ended for send in sender.sends):
            raise Wrong(
                f"rank {source} never waits for {waiting} of the sends that it started: call request.wait(), "
                "or the array may change before it has gone"
            )
