"""One suite for every communicator: this process alone, ranks that are threads, ranks of MPI."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import numpy as np
import pytest

import comm_checks
import pdnn
import start_checks
from pdnn.comm import SELF, Communicator, run_threads
from processes import Completed

Check = Callable[[Communicator], None]


@pytest.mark.parametrize("check", comm_checks.ALL, ids=lambda check: check.__name__)
def test_alone(check: Check) -> None:
    check(SELF)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("check", comm_checks.ALL, ids=lambda check: check.__name__)
def test_threads(check: Check, ranks: int) -> None:
    run_threads(lambda: check(pdnn.world()), ranks)


@pytest.mark.mpi
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_mpi(mpiexec: Callable[..., Completed], root: Path, ranks: int) -> None:
    output = mpiexec(ranks, [root / "tests" / "comm_checks.py"], timeout=110).stdout
    assert output.count("is content") == ranks


@pytest.mark.parametrize("check", start_checks.ALL, ids=lambda check: check.__name__)
def test_calls_that_some_threads_refuse(check: Check) -> None:
    run_threads(lambda: check(pdnn.world()), 3)


@pytest.mark.mpi
def test_calls_that_some_ranks_of_mpi_refuse(mpiexec: Callable[..., Completed], root: Path) -> None:
    script = root / "tests" / "start_checks.py"
    output = mpiexec(3, [script], timeout=60, env={"PDNN_TIMEOUT": "10"}).stdout
    assert output.count("is content") == 3


def test_results_of_threads_come_in_the_order_of_ranks() -> None:
    assert run_threads(lambda: (pdnn.world().rank, pdnn.world().size), 3) == [(0, 3), (1, 3), (2, 3)]
    assert pdnn.world() is SELF


def test_sums_of_threads_are_taken_in_the_order_of_ranks() -> None:
    numbers = np.random.default_rng(0).standard_normal((4, 1000))
    wanted = numbers[0] + numbers[1] + numbers[2] + numbers[3]
    for result in run_threads(lambda: pdnn.world().all_reduce(numbers[pdnn.world().rank].copy()), 4):
        np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("ranks", [5, 6, 7])
def test_the_tree_over_ranks_may_end_in_one_without_a_neighbor(ranks: int) -> None:
    run_threads(
        lambda: comm_checks.check_reproducible_sums_are_made_by_the_tree_over_ranks(pdnn.world()), ranks
    )


def test_the_first_real_error_of_a_thread_is_raised_and_the_others_are_released() -> None:
    def fail() -> None:
        comm = pdnn.world()
        if comm.rank == 1:
            raise KeyError("the real one")
        comm.recv(1) if comm.rank == 0 else comm.split(0).barrier()

    with pytest.raises(KeyError, match="the real one"):
        run_threads(fail, 3)


def test_calls_of_threads_of_a_rank_meet_no_others_without_an_error() -> None:
    """One's header met numbers of another."""
    wrong, together = [], threading.Barrier(6)

    def call(comm: Communicator, thread: int) -> None:
        together.wait(20)
        for _ in range(100):
            total = comm.all_reduce(np.full(3, 10.0**thread))
            if (total != 2 * 10.0**thread).any():
                wrong.append(total)

    def rank() -> None:
        begun = [pool.submit(call, pdnn.world(), thread) for thread in range(3)]
        for task in wait(begun, return_when="FIRST_EXCEPTION").done:
            task.result()

    with ThreadPoolExecutor(6) as pool:
        try:
            run_threads(rank, 2)
        except RuntimeError as error:
            assert "all_reduce: another thread of this rank" in str(error)  # noqa: PT017
        else:
            assert not wrong


def test_a_call_while_another_thread_of_the_rank_is_in_one_is_told() -> None:
    refused, told = threading.Event(), []

    def call(comm: Communicator) -> None:
        try:
            comm.barrier()
        except RuntimeError as error:
            told.append(str(error))
            refused.set()

    def rank() -> float:
        comm = pdnn.world()
        if comm.rank == 1:  # enters when the second thread has called
            assert refused.wait(20)
            comm.barrier()
        else:
            other = threading.Thread(target=call, args=(comm,), daemon=True)
            other.start()
            call(comm)
            other.join(20)
        return float(comm.all_reduce(np.ones(1))[0])

    assert run_threads(rank, 2) == [2, 2]
    (words,) = told
    assert words.startswith("barrier: another thread of this rank is in a call of this communicator; let")


def test_a_thread_that_waits_too_long_says_for_what(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDNN_TIMEOUT", "1")
    released = threading.Event()

    def stop() -> None:
        comm = pdnn.world()
        comm.at_step(812)
        if comm.rank == 1:
            released.wait(10)
        else:
            try:
                comm.all_reduce(np.ones(3))
            finally:
                released.set()

    with pytest.raises(pdnn.CommunicationError) as error:
        run_threads(stop, 2)
    assert str(error.value) == (
        "all_reduce: no answer from rank 1 for 1 s (rank 0 waits at step 812); see PDNN_TIMEOUT"
    )
