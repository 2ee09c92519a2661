"""Messages between two ranks: a header with the type and the shape, then the array."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from pdnn import _core
from pdnn.comm.agree import HEADER_BYTES, Array, Header, decode, describe, encode, with_integer
from pdnn.comm.request import Check, Request

_NOTHING = np.empty(0, np.uint8)  # in place of an array that cannot be sent


def start_send(core: _core.Communicator, a: Array, dest: int, tag: int, check: bool) -> Request[None]:
    """`Communicator.start_send`."""
    _check_numbers("send", dest=dest, tag=tag)
    header = describe("send", a)
    exchange = None
    if check:
        exchange = Check("send", core.start_send(encode(header), dest, tag), header.check)
    if header.problem and exchange is not None:
        core.start_send(_NOTHING, dest, tag).wait()  # so that the next message is the next
        exchange.wait()  # which raises the problem
    header.check()
    return Request(core.start_send(a, dest, tag), None, exchange)


def recv(core: _core.Communicator, source: int, tag: int, out: Array | None, check: bool) -> Array:
    """`Communicator.recv`."""
    _check_numbers("recv", source=source, tag=tag)
    if not check:
        return start_recv(core, source, tag, out, check).wait()
    if out is not None:
        describe("recv", out, writes=True).check()
    data = np.empty(HEADER_BYTES, np.uint8)
    core.start_recv(data, source, tag).wait()
    sent = decode(data)
    if sent.problem:
        core.start_recv(np.empty(0, np.uint8), source, tag).wait()
    _refuse_problems(sent, source)
    fits = out is None or (sent.dtype, sent.shape) == (str(out.dtype), out.shape)
    received = out if out is not None and fits else np.empty(sent.shape, sent.dtype)
    # Also where it does not fit, so that the next message is the next.
    core.start_recv(received, source, tag).wait()
    if out is not None and not fits:
        raise _misfit(sent, source, out, core.rank)
    return received


def start_recv(
    core: _core.Communicator, source: int, tag: int, out: Array | None, check: bool
) -> Request[Array]:
    """`Communicator.start_recv`."""
    _check_numbers("recv", source=source, tag=tag)
    describe("recv", out, writes=True).check()
    assert out is not None
    exchange = None
    if check:
        data = np.empty(HEADER_BYTES, np.uint8)

        def compare() -> None:
            sent = decode(data)
            if not sent.problem and (sent.dtype, sent.shape) == (str(out.dtype), out.shape):
                return
            with suppress(ValueError, _core.CommunicationError):  # MPI's own, where it is longer
                request.wait()  # also what does not fit, so that the next message is the next
            _refuse_problems(sent, source)
            raise _misfit(sent, source, out, core.rank)

        exchange = Check("recv", core.start_recv(data, source, tag), compare)
    request = core.start_recv(out, source, tag)
    return Request(request, out, exchange)


def _check_numbers(call: str, **numbers: int) -> None:
    for name, value in numbers.items():
        with_integer(Header(call), name, value).check()


def _refuse_problems(sent: Header, source: int) -> None:
    if sent.problem:
        raise sent.error(f"rank {source} passed {sent.problem}")


def _misfit(sent: Header, source: int, out: Array, rank: int) -> ValueError:
    return ValueError(
        f"recv: rank {source} sent a {sent.shape} array of {sent.dtype}, rank {rank} receives into a "
        f"{out.shape} array of {out.dtype}; pass out like what is sent, or none"
    )
