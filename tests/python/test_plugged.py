"""Parts that a program brings along, on ranks as threads: they train as the core's own, and fail in words."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pdnn
import plugged_parts
from pdnn import strategies


def on_threads(function: Callable[[], Any], ranks: int) -> list[Any]:
    return pdnn.run(function, ranks=ranks, backend="threads")


# ---- an all-reduce


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_an_all_reduce_of_ones_own_trains_as_one_process(ranks: int) -> None:
    on_threads(plugged_parts.check_all_reduce, ranks)


def test_ranks_that_are_started_use_what_was_registered_before() -> None:
    with pdnn.comm.register("all_reduce", plugged_parts.ring, name="circle") as registration:
        assert on_threads(lambda: pdnn.world().core.all_reduce_name, 2) == ["circle", "circle"]
    registration.remove()
    assert on_threads(lambda: pdnn.world().core.all_reduce_name, 2) == [None, None]


def test_an_error_in_an_all_reduce_ends_the_training_with_its_traceback() -> None:
    def fails(comm: pdnn.comm.Communicator, array: plugged_parts.Array) -> None:
        if comm.rank == 1:
            raise ZeroDivisionError("in the ring")
        comm.recv(1, check=False, out=array)

    caught = pytest.raises(ZeroDivisionError, match="in the ring")
    with pdnn.comm.register("all_reduce", fails), caught as error:
        on_threads(lambda: plugged_parts.train("ddp"), 2)
    assert "fails" in [frame.name for frame in traceback.extract_tb(error.value.__traceback__)]


def test_an_all_reduce_that_cannot_be_meant_is_refused() -> None:
    with pytest.raises(ValueError, match='operation "broadcast"; expected all_reduce'):
        pdnn.comm.register("broadcast", plugged_parts.ring)
    with pytest.raises(TypeError, match=r"got a int, expected a function of \(communicator, array\)"):
        pdnn.comm.register("all_reduce", 3)  # type: ignore[arg-type]

    def new(comm: pdnn.comm.Communicator, array: plugged_parts.Array) -> plugged_parts.Array:
        return array * comm.size

    refused = pytest.raises(TypeError, match='all_reduce "new" returned a ndarray; it must fill the array')
    with pdnn.comm.register("all_reduce", new), refused:
        on_threads(lambda: plugged_parts.train("ddp"), 2)

    def differs() -> None:
        if pdnn.world().rank == 1:
            pdnn.comm.register("all_reduce", plugged_parts.ring)
        plugged_parts.train("ddp")

    with pytest.raises(ValueError, match="rank 1 has all_reduce ring, rank 0 has None"):
        on_threads(differs, 2)

    def differs_by_hand() -> None:
        if pdnn.world().rank == 1:
            pdnn.comm.register("all_reduce", plugged_parts.ring)
        pdnn.world().all_reduce(np.ones(3))

    with pytest.raises(ValueError, match=r"op=sum, by=ring\), rank 0 all_reduce\(\(3,\) float64, op=sum\)"):
        on_threads(differs_by_hand, 2)


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        (strategies.DataParallel(shared_memory=True), "ranks that share memory do not call"),
        (strategies.DataParallel(codec="int8"), "codes are not added up by an all_reduce"),
    ],
)
def test_what_would_not_call_the_all_reduce_is_refused(strategy: strategies.Strategy, words: str) -> None:
    with pdnn.comm.register("all_reduce", plugged_parts.ring), pytest.raises(ValueError, match=words):
        on_threads(lambda: plugged_parts.train(strategy), 2)
