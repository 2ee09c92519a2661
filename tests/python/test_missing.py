"""Who is missing among ranks that are threads: warnings, time-outs, calls side by side, labels of a step."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim, strategies
from pdnn.codec import CustomCodec
from pdnn.comm import run_threads
from prompt import soon

WAIT = 2  # seconds of a time-out


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDNN_TIMEOUT", str(WAIT))
    monkeypatch.setenv("PDNN_STALL_WARNING", "1")


def said_by(work: Callable[[threading.Event], object], ranks: int = 2) -> str:
    """The error that ends ranks of which one lets the others wait, with its notes."""
    over = threading.Event()

    def rank() -> None:
        try:
            work(over)
        finally:
            over.set()

    with pytest.raises(pdnn.CommunicationError) as error:
        run_threads(rank, ranks)
    return "\n".join([str(error.value), *getattr(error.value, "__notes__", [])])


def spin(over: threading.Event) -> None:
    while not over.is_set():
        pass


@pytest.mark.parametrize("shift", range(3))
def test_a_long_name_of_a_script_ends_with_a_whole_character(shift: int) -> None:
    name = "-" * shift + 20 * "€" + ".py"
    call = "import numpy, pdnn\npdnn.world().all_reduce(numpy.zeros(2 + pdnn.world().rank))"
    code = compile(call, name, "exec")

    def rank() -> None:
        with pytest.raises(ValueError, match="all_reduce"):
            exec(code, {})

    run_threads(rank, 2)


def test_of_forty_ranks_one_tells_of_the_one_that_is_missing() -> None:
    told: list[str] = []

    def meet(over: threading.Event) -> None:
        if pdnn.world().rank == 39:
            over.wait(10 * WAIT)
            return
        try:
            pdnn.world().barrier()
        except Exception as error:
            told.append(str(error))
            raise

    assert "rank 39 never entered #1 barrier" in said_by(meet, 40)
    (answer,) = (text for text in told if "no answer" in text)
    assert f"no answer from rank 39 for {WAIT} s" in answer


@pytest.mark.parametrize(
    ("act", "state"),
    [
        (lambda over: over.wait(10), "sleeping"),
        (spin, "running (computing, or in an endless loop)"),
    ],
)
def test_a_rank_that_does_not_come_is_named(
    act: Callable[[threading.Event], object], state: str, capfd: pytest.CaptureFixture[str]
) -> None:
    waited: list[float] = []

    def work(over: threading.Event) -> None:
        comm = pdnn.world()
        comm.barrier()
        if comm.rank == 1:
            act(over)
            return
        began = time.monotonic()
        try:
            comm.all_reduce(np.ones(3))
        finally:
            waited.append(time.monotonic() - began)

    def seconds() -> float:
        waited.clear()
        said = said_by(work, ranks=3)
        missing = (
            r"\n  rank 1 never entered #3 all_reduce, last seen at test_missing\.py:\d+ "
            rf"\(#2 barrier, [\d.]+ s ago\), {re.escape(state)}"
        )
        assert re.search(
            rf"^all_reduce: no answer from rank 1 for {WAIT} s \(rank [02] waits\); .*{missing}$", said
        )
        warning = rf"^pdnn: rank [02] has waited 1 s in #3 all_reduce at test_missing\.py:\d+{missing}\n$"
        assert re.search(warning, capfd.readouterr().err), "once, from one rank"
        return max(waited)

    soon(seconds, within=WAIT + 1)


def test_calls_that_differ_are_told_side_by_side() -> None:
    def work() -> None:
        comm = pdnn.world()
        comm.barrier()
        comm.all_reduce(np.ones(3 + (comm.rank == 1)))

    with pytest.raises(ValueError, match="their arguments must agree") as error:
        run_threads(work, 3)
    if sys.version_info >= (3, 11):
        assert re.fullmatch(
            r"  ranks 0, 2: #3 all_reduce\(\(3,\) float64, op=sum\) at test_missing\.py:(\d+)\n"
            r"  rank 1: #3 all_reduce\(\(4,\) float64, op=sum\) at test_missing\.py:\1",
            "\n".join(error.value.__notes__),
        )


@pytest.mark.skipif(sys.version_info < (3, 11), reason="errors have no notes")
def test_a_folder_whose_name_goes_on_behind_pdnns_is_the_users() -> None:
    call = "import numpy, pdnn\npdnn.world().all_reduce(numpy.zeros(2 + pdnn.world().rank))"
    code = compile(call, f"{Path(pdnn.__file__).parent}_of_mine/script.py", "exec")
    with pytest.raises(ValueError, match="their arguments must agree") as error:
        run_threads(lambda: exec(code, {}), 2)
    assert "\n".join(error.value.__notes__).count("at script.py:2") == 2


class Stuck(CustomCodec):
    """A codec that lets its second thread wait in the sixth call."""

    def __init__(self, over: threading.Event) -> None:
        self.over, self.calls = over, dict[int, int]()

    def encode_values(self, values: np.ndarray) -> bytes:
        me = threading.get_ident()
        self.calls[me] = self.calls.get(me, 0) + 1
        if pdnn.world().rank == 1 and self.calls[me] > 6:
            self.over.wait(10)
        return values.tobytes()

    def decode_values(self, data: np.ndarray, count: int) -> np.ndarray:
        return data.view(f"f{len(data) // count}")


def test_a_training_says_what_it_sends_and_where_fit_was_called() -> None:
    x, y = np.random.default_rng(0).random((64, 5), np.float32), np.arange(64) % 3

    def work(over: threading.Event) -> None:
        model = nn.Sequential(nn.Linear(5, 3))
        sgd = optim.SGD(model.parameters(), lr=0.1)
        strategy = strategies.DataParallel(codec=Stuck(over))
        pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy).fit(x, y, 9, 8, verbose=False)

    said = said_by(work)
    place = r"at test_missing\.py:\d+"
    assert re.search(
        rf"rank 1 never entered #\d+ all_gather \(bucket 0, step \d+\), last seen {place} \(#", said
    )


@pytest.mark.parametrize("shared", [False, True])
def test_a_rank_that_an_error_has_released_waits_no_more(shared: bool) -> None:
    x = np.repeat([0, 9], 4).astype(np.float32)[:, None]  # the second rank's rows are refused

    def work(over: threading.Event) -> None:
        model = nn.Sequential(nn.Embedding(3, 2), nn.Flatten(), nn.Linear(2, 2))
        strategy = strategies.DataParallel(shared_memory=shared)
        sgd = optim.SGD(model.parameters(), lr=0.1)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
        with pytest.raises((ValueError, pdnn.CommunicationError)):
            trainer.fit(x, np.arange(8) % 2, 1, 8, shuffle=False, verbose=False)
        if pdnn.world().rank == 1:
            pdnn.world().barrier()
        spin(over)

    said = said_by(work)
    assert "rank 0 never entered" in said
    assert "waits in" not in said and "entered 1" not in said and "entered 2" not in said
