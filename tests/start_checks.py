"""Calls that some ranks refuse: an error on all of them, and none meets another one later; a script, too."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

import pdnn
from comm_checks import refused
from pdnn.comm import Communicator, Request

UNFIT = "an earlier start_all_reduce did not match on all ranks"
ODD: Any = "median"
MISTAKES: list[Callable[[Communicator], object]] = [  # of the last rank; the others begin the call
    lambda group: group.start_all_reduce(np.asfortranarray(np.ones((4, 2)))),
    lambda group: group.start_all_reduce(np.ones((4, 2)), ODD),
]


def until_done(request: Request[None]) -> None:
    while not request.test():
        time.sleep(0.001)


def wait_for_the_call(group: Communicator) -> None:
    refused((TypeError, ValueError), group.start_all_reduce(np.ones((4, 2))).wait)


def wait_for_the_next_call(group: Communicator) -> None:
    group.start_all_reduce(np.ones((4, 2)))
    assert UNFIT in refused(ValueError, lambda: group.start_barrier().wait())


def look_at_the_next_call(group: Communicator) -> None:
    group.start_all_reduce(np.ones((4, 2)))
    assert UNFIT in refused(ValueError, lambda: until_done(group.start_barrier()))


def wait_for_nothing(group: Communicator) -> None:
    group.start_all_reduce(np.ones((4, 2)))


def check_a_call_that_one_rank_refuses(comm: Communicator) -> None:
    for mistake in MISTAKES:
        for others in (wait_for_the_call, wait_for_the_next_call, look_at_the_next_call, wait_for_nothing):
            group = comm.split(0)
            before = group.start_barrier()
            if comm.rank == comm.size - 1:
                refused((TypeError, ValueError), lambda m=mistake, g=group: m(g))
                assert UNFIT in refused(ValueError, group.start_barrier)
            else:
                others(group)
            assert UNFIT in refused(ValueError, lambda g=group: g.all_reduce(np.ones(3)))
            assert UNFIT in refused(ValueError, lambda g=group: g.all_reduce(np.ones(3), check=False))
            assert UNFIT in refused(ValueError, lambda g=group: g.split(0))
            before.wait()
            comm.barrier()


def check_a_call_that_all_ranks_refuse(comm: Communicator) -> None:
    refused(TypeError, lambda: comm.start_all_reduce([1.0]))  # type: ignore[arg-type]
    refused(ValueError, lambda: comm.start_all_reduce(np.ones(3), ODD))
    assert comm.all_reduce(np.ones(3)).tolist() == [comm.size] * 3


def check_a_message_that_its_sender_refuses(comm: Communicator) -> None:
    if comm.rank == 1:
        for call in (comm.send, comm.start_send, comm.send):
            refused(ValueError, lambda c=call: c(np.ones((4, 4))[:, ::2], 0))
        comm.start_send(np.ones(3), 0).wait()
        comm.start_send(np.ones(9), 0).wait()
        comm.send(np.full(5, 7.0), 0)
    elif comm.rank == 0:
        out = np.zeros((4, 2))
        for call in (
            lambda: comm.recv(1),
            lambda: comm.recv(1, out=out),
            lambda: comm.start_recv(1, 0, out).wait(),
        ):
            assert "rank 1 passed a strided (4, 2) array" in refused(ValueError, call)
        assert "rank 1 sent a (3,) array" in refused(ValueError, comm.start_recv(1, 0, out).wait)
        assert "rank 1 sent a (9,) array" in refused(ValueError, comm.start_recv(1, 0, out).wait)
        assert comm.recv(1).tolist() == [7.0] * 5
    comm.barrier()


def check_groups_end_with_their_last_name(comm: Communicator) -> None:
    """Not when Python's garbage is collected: MPI frees a group with all of its ranks."""
    group = comm.split(0)
    left = weakref.ref(group)
    request = group.start_all_reduce(np.ones(3))
    request.wait()
    del group, request
    assert left() is None
    comm.barrier()


ALL = [
    check_groups_end_with_their_last_name,
    check_a_call_that_one_rank_refuses,
    check_a_call_that_all_ranks_refuse,
    check_a_message_that_its_sender_refuses,
]


if __name__ == "__main__":
    for each in ALL:
        each(pdnn.world())
    print(f"rank {pdnn.world().rank} is content", flush=True)
