"""Ranks as threads of which some die: the others hear of it out of any call, and go on without them."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import death_checks
import pdnn
from pdnn.comm import Communicator, RankFailed, die, run_threads
from pdnn.comm.request import Request


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_rank_may_die_at_any_call(ranks: int) -> None:
    for calls in range(1, 27):
        dies = calls % ranks
        left = run_threads(lambda dies=dies, calls=calls: death_checks.survive(2, dies, calls), ranks)
        assert left[dies] is None
        living = {size for size in left if size is not None}
        assert living == {ranks - 1} or (living == {ranks} and calls > 12), calls  # too late for the others


def meet_until_one_fails(comm: Communicator) -> None:
    """The first barriers may pass before a death."""
    while True:
        comm.barrier()


def test_a_death_during_a_started_call_is_heard_out_of_every_later_one() -> None:
    """A header that had not come was compared, and its error kept for all later calls."""
    started = threading.Event()

    def rank() -> None:
        comm = pdnn.world()
        if comm.rank == 1:
            assert started.wait(60)
            die()
        request = comm.start_all_reduce(np.ones(3))
        started.set()
        for call in (*[request.wait] * 4, comm.barrier, lambda: comm.all_reduce(np.ones(3))):
            with pytest.raises(RankFailed):
                call()

    run_threads(rank, 2)


def test_nobody_hears_of_a_death_outside_of_the_group() -> None:
    heard = threading.Event()

    def rank() -> str:
        comm = pdnn.world()
        part = comm.shrink().split(comm.rank % 2)  # shrinks to itself
        comm.barrier()
        if comm.rank == 0:
            die()
        with pytest.raises(RankFailed, match="rank 0 died") as caught:
            meet_until_one_fails(part)  # rank 0 is not of 1's and 3's, but of the group that it was split off
        assert caught.value.ranks == [0]
        if comm.rank == 2:
            heard.set()
        left = part.shrink()  # from here on the others are nobody's concern
        if comm.rank == 1:
            assert heard.wait(60)  # a slow rank 2 would hear of both deaths at once
            die()
        return f"{left.size} {left.all_reduce(np.ones(1))[0]:.0f}" if comm.rank % 2 == 0 else ""

    assert run_threads(rank, 4) == [None, None, "1 1", ""]


def test_several_may_die_one_after_another_and_at_once() -> None:
    def rank() -> int:
        comm = pdnn.world()
        while comm.size > 1:
            if comm.rank >= max(1, comm.size - 2):
                die(after=1 + comm.rank)
            try:
                for _ in range(20):
                    comm.all_reduce(np.ones(1))
            except RankFailed:
                pass
            comm = comm.shrink()
        return comm.size

    assert run_threads(rank, 7) == [1, *[None] * 6]


def test_what_is_true_is_agreed_on() -> None:
    def rank() -> list[bool]:
        comm = pdnn.world()
        return [comm.agree(flag) for flag in (2, -1, "yes", comm.rank, "")]  # type: ignore[arg-type]

    assert run_threads(rank, 2) == [[True, True, True, False, False]] * 2


def test_an_error_of_a_rank_is_no_death() -> None:
    def rank() -> None:
        comm = pdnn.world()
        if comm.rank == 1:
            raise KeyError("a mistake")
        comm.agree(True)

    with pytest.raises(KeyError, match="a mistake"):
        run_threads(rank, 3)


def test_who_does_not_come_to_an_agreement_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDNN_TIMEOUT", "1")

    def rank() -> None:
        if pdnn.world().rank != 1:
            pdnn.world().agree(True)

    with pytest.raises(pdnn.CommunicationError, match=r"agree: no answer from rank 1 for 1 s"):
        run_threads(rank, 3)


def test_a_death_in_the_past_is_refused() -> None:
    with pytest.raises(ValueError, match="die: after = -1; expected an integer from 0"):
        die(after=-1)


def test_a_call_that_has_failed_is_never_done() -> None:
    def rank() -> None:
        comm = pdnn.world()
        request = comm.start_all_reduce(np.ones(3 + comm.rank), check=False)
        for _ in range(4):
            with pytest.raises((ValueError, pdnn.CommunicationError)):
                request.wait()
        raise KeyError  # the group is of no use any more

    with pytest.raises(KeyError):
        run_threads(rank, 2)


def test_an_interrupted_look_at_a_call_leaves_it_under_way() -> None:
    class Late:
        looks = 0

        def test(self) -> bool:
            self.looks += 1
            if self.looks == 1:
                raise KeyboardInterrupt
            return True

    request = Request(Late(), None)  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        request.test()
    assert request.test()
