"""Block streams: trainings on blocks that a function makes equal those on the same rows in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import _core, models, nn, optim
from pdnn.comm import die, run_threads
from pdnn.data import BlockStream, DataLoader, Dataset, PadCropFlip
from pdnn.data.batches import epoch_order
from pdnn.data.block_source import block_source
from pdnn.data.blocks import Ahead
from pdnn.data.stream import KEYS
from processes import Completed

RNG = np.random.default_rng(0)
ROWS = 93
X = RNG.integers(0, 256, (ROWS, 6), dtype=np.uint8)
Y = RNG.integers(0, 4, ROWS)
SIZES = (8, 1, 20, 0, 5, 30, 2, 27)
Block = tuple[Any, ...]


def blocks(epoch: int) -> Iterator[Block]:
    """Of other sizes each, in another order every epoch."""
    begins = np.cumsum((0, *SIZES))
    for number in np.random.default_rng(epoch).permutation(len(SIZES)):
        rows = slice(begins[number], begins[number + 1])
        yield X[rows], Y[rows]


def stream(make: Callable[[int], Any] = blocks, rows: int = ROWS, window: int = 3) -> BlockStream:
    return BlockStream(make, rows, 1 / 255, window=window)


def make(strategy: str = "serial", **options: object) -> pdnn.Trainer:
    model = models.mlp([6, 9, 4], "tanh", dtype="float64", seed=2)
    adam = optim.Adam(model.parameters(), lr=0.01)
    options = {"strategy": strategy, "seed": 5} | options
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), adam, **options)  # type: ignore[arg-type]


def fit(trainer: pdnn.Trainer, data: Any, epochs: int = 2, **options: object) -> pdnn.Trainer:
    trainer.fit(data, epochs, 10, verbose=False, **options)  # type: ignore[arg-type]
    return trainer


def epoch_of(data: BlockStream, epoch: int, shuffle: bool, step: int = 10, first: int = 0) -> Dataset:
    """The rows of an epoch as they are taken, in memory."""
    parts = [(part.data[part.order], part) for part in data.parts(epoch, 5, first, step, shuffle)]
    assert [part.begin for _, part in parts] == [first, *(part.end for _, part in parts[:-1])]
    assert all((part.end - part.begin) % step == 0 for _, part in parts[:-1])
    gathered = [rows.dataset.x[rows.indices] for rows, _ in parts]
    labels = [rows.dataset.y[rows.indices] for rows, _ in parts]
    return Dataset(np.concatenate(gathered), np.concatenate(labels), 1 / 255)


def in_memory(shuffle: bool = True, epochs: int = 2, **options: object) -> pdnn.Trainer:
    trainer = make(**options)
    for epoch in range(epochs):
        fit(trainer, epoch_of(stream(), epoch, shuffle), 1, shuffle=False)
    return trainer


@pytest.mark.parametrize("step", [1, 10, 40, 100])
@pytest.mark.parametrize("shuffle", [False, True])
def test_parts_have_each_row_once_whatever_a_step_is(step: int, shuffle: bool) -> None:
    data = stream()
    whole = epoch_of(data, 1, shuffle, step)
    assert sorted(map(tuple, whole.x)) == sorted(map(tuple, X))
    np.testing.assert_array_equal(whole.x, epoch_of(data, 1, shuffle, 7).x)
    np.testing.assert_array_equal(whole.y[40:], epoch_of(data, 1, shuffle, step, 40).y)
    plain = np.concatenate([x for x, _ in blocks(1)])
    assert (whole.x == plain).all() == (not shuffle)
    first = sum(len(x) for x, _ in list(blocks(1))[:3])
    assert sorted(map(tuple, whole.x[:first])) == sorted(map(tuple, plain[:first]))


def test_keys_of_windows_are_drawn_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of all windows before were drawn again for each one."""
    draw, drawn = _core.draw_rows, []

    def counted(seed: int, epoch: int, count: int, rows: int) -> Any:
        drawn.append(count)
        return draw(seed, epoch, count, rows)

    monkeypatch.setattr(_core, "draw_rows", counted)
    fives = stream(lambda epoch: [(X[:5].copy(), Y[:5]) for _ in range(100)], rows=500, window=1)
    orders = [part.order for part in fives.parts(2, 7, 0, 1, True)]
    assert len(orders) == 100 and sum(drawn) <= 400
    for number, order in enumerate(orders):
        key = int(draw(7, 2, number + 1, KEYS)[number])
        np.testing.assert_array_equal(order, epoch_order(5, key, 2))


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_training_has_the_bits_of_one_in_memory(shuffle: bool) -> None:
    want, got = in_memory(shuffle), make(metrics=["top2"])
    fit(got, stream(), shuffle=shuffle, validation=(X / 255, Y))
    np.testing.assert_array_equal(got.model.flat_parameters, want.model.flat_parameters)
    for name in ("loss", "accuracy"):
        np.testing.assert_allclose(got.history.history[name], want.history.history[name], rtol=1e-12)
    assert [epoch["count"] for epoch in got.history.updates] == [10, 10] and got.step == 20
    assert len(got.history.history["val_top2"]) == 2


def test_epochs_differ_where_one_window_has_all_rows() -> None:
    whole, want = stream(window=len(SIZES)), make()
    for epoch in range(2):
        fit(want, epoch_of(whole, epoch, True), 1, shuffle=False)
    got = fit(make(), whole)
    np.testing.assert_array_equal(got.model.flat_parameters, want.model.flat_parameters)


def test_steps_are_measured_with_whole_batches() -> None:
    made = make()
    rows = block_source(stream(lambda epoch: [(X[:9], Y[:9])]), made.model, made.loss, 20).rows
    assert rows.tolist() == [*range(9), *range(9), 0, 1]


@pytest.mark.parametrize(
    "strategy",
    [
        *("team:2", "pool:2/4", "hogwild:1", "auto"),
        *("ddp", "ddp/8", "ddp:int8", "scatter-gather", "tp:2", "pipeline:2"),
    ],
)
@pytest.mark.filterwarnings("ignore:strategy:UserWarning")
def test_every_strategy_takes_it(strategy: str) -> None:
    def train() -> np.ndarray:
        return fit(make(strategy), stream()).model.flat_parameters.copy()

    alone = strategy.split(":")[0] in ("team", "pool", "hogwild", "auto")
    want = in_memory().model.flat_parameters
    results = run_threads(train, 1 if alone else 2)
    for got in results:
        np.testing.assert_array_equal(got, results[0])
        if strategy != "ddp:int8":
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-11)


@pytest.mark.parametrize("strategy", ["average:3", "average:end", "ddp:int8"])
def test_ranks_of_their_own_train_as_in_memory(strategy: str) -> None:
    def train(data: object, shuffle: bool) -> np.ndarray:
        return fit(make(strategy), data, 1, shuffle=shuffle).model.flat_parameters.copy()

    whole = epoch_of(stream(), 0, True)
    want = run_threads(lambda: train(whole, False), 2)
    got = run_threads(lambda: train(stream(), True), 2)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("strategy", ["serial", "pool:2/4", "ddp"])
def test_rows_have_weights(strategy: str) -> None:
    def weighted(epoch: int) -> Iterator[Block]:
        return ((x, y, x[:, 0] % 5) for x, y in blocks(epoch))

    def train(data: object, shuffle: bool) -> pdnn.Trainer:
        return fit(make(strategy), data, 1, shuffle=shuffle)

    plain = epoch_of(stream(), 0, True)
    whole = Dataset(plain.x, plain.y, 1 / 255, weight=plain.x[:, 0] % 5)
    ranks = 2 if strategy == "ddp" else 1
    want = run_threads(lambda: train(whole, False), ranks)[0]
    got = run_threads(lambda: train(stream(weighted), True), ranks)[0]
    np.testing.assert_allclose(got.model.flat_parameters, want.model.flat_parameters, rtol=0, atol=1e-12)
    np.testing.assert_allclose(got.history.history["loss"], want.history.history["loss"], rtol=1e-12)
    unlike = run_threads(lambda: train(stream(), True), ranks)[0].history.history["loss"]
    assert abs(unlike[0] - want.history.history["loss"][0]) > 1e-4
    (_, _, weight), *_ = DataLoader(stream(weighted), 93, shuffle=True, seed=5)
    np.testing.assert_array_equal(weight, whole.weight)


def test_it_goes_on_when_a_rank_dies() -> None:
    want = fit(make("ddp/8"), stream(), 4).model.fingerprint()

    def rank(calls: int) -> str:
        if pdnn.world().rank == 1:
            die(after=30 + calls)  # in fit, not in what goes before
        return fit(make("ddp/8"), stream(), 4, elastic=4).model.fingerprint()

    for calls in (20, 61):
        assert run_threads(lambda calls=calls: rank(calls), 3) == [want, None, want]


def test_it_goes_on_within_an_epoch_and_schedules_count(tmp_path: Path) -> None:
    def scheduled() -> pdnn.Trainer:
        plain = make()
        schedule = optim.CosineAnnealingLR(plain.optimizer, 30)
        options = {"strategy": "serial", "seed": 5, "schedule": schedule, "schedule_per": "step"}
        return pdnn.Trainer(plain.model, plain.loss, plain.optimizer, **options)  # type: ignore[arg-type]

    want = fit(scheduled(), stream(), 3).model.flat_parameters
    fit(scheduled(), stream(), 1, checkpoint=tmp_path, every_steps=3, every=9, keep=3)
    for name, row in (("checkpoint.1", 90), ("checkpoint.2", 60)):
        kept = scheduled()
        kept.load(tmp_path / f"{name}.safetensors")
        assert kept.position is not None and kept.position.row == row
        with pytest.raises(ValueError, match="shuffle=windows of 3 blocks, but got"):
            fit(kept, stream(window=4))
        fit(kept, stream(), 3)
        np.testing.assert_array_equal(kept.model.flat_parameters, want)


def test_each_part_asks_a_schedule_for_its_own_steps() -> None:
    """It asked for those of all that was left of the epoch: an epoch of parts took a time with a square."""
    asked = []
    plain = make()
    schedule = optim.LambdaLR(plain.optimizer, lambda step: asked.append(step) or 1.0)  # type: ignore[func-returns-value]
    options = {"strategy": "serial", "schedule": schedule, "schedule_per": "step"}
    trainer = pdnn.Trainer(plain.model, plain.loss, plain.optimizer, **options)  # type: ignore[arg-type]
    asked.clear()
    fit(trainer, stream(window=1), 1)
    parts = stream(window=1).rows // 10
    assert trainer.step < len(asked) <= 2 * (trainer.step + parts + 1), (len(asked), trainer.step, parts)


def test_the_next_part_is_made_while_one_is_in_use() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield 0
        begun.set()
        assert go_on.wait(20)
        yield 1
        raise OSError("no more")

    ahead = Ahead(items())
    try:
        assert ahead.take() == 0
        assert begun.wait(20)
        go_on.set()
        assert ahead.take() == 1
        with pytest.raises(OSError, match="no more"):
            ahead.take()
    finally:
        ahead.close()


STUCK = """
import os, signal, sys, threading, time
import numpy as np
import pdnn
from pdnn import models, nn, optim
from pdnn.data import BlockStream

class Stderr:
    def write(self, text):
        sys.__stderr__.write(text)
        if text.startswith("BlockStream: waits for the block that is being made"):
            told.set()

    def flush(self):
        sys.__stderr__.flush()

def blocks(epoch):
    yield rows
    while trainer.step < 2:  # those of the first block
        time.sleep(0.01)
    while not heard.is_set():  # one that comes just before Python begins to wait for a lock is not heard
        os.kill(os.getpid(), signal.SIGINT)
        heard.wait(2)
    answers.append(told.wait(20))
    yield rows

def hear(*_):
    heard.set()
    raise KeyboardInterrupt

heard, told, answers, sys.stderr = threading.Event(), threading.Event(), [], Stderr()
signal.signal(signal.SIGINT, hear)
model, rows = models.mlp([3, 2]), (np.ones((8, 3)), np.zeros(8, int))
sgd = optim.SGD(model.parameters(), 0.1)
trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="serial")
try:
    trainer.fit(BlockStream(blocks, 16, window=1), 1, 4, verbose=False)
except KeyboardInterrupt:
    print("interrupted, told:", *answers)
"""


def test_a_ctrl_c_that_waits_for_a_block_says_so(run_python: Callable[..., Completed]) -> None:
    output = run_python(["-c", STUCK], timeout=60).stdout
    assert output.endswith("interrupted, told: True\n"), output


def test_an_epoch_takes_as_many_rows_as_are_said_and_no_thread_stays() -> None:
    asked = []

    def endless(epoch: int) -> Iterator[Block]:
        while True:
            asked.append(epoch)
            yield X[:10], Y[:10]

    trainer = fit(make(), stream(endless, rows=35, window=2))
    assert trainer.step == 8 and asked.count(1) == 4
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pdnn-read-ahead")]


@pytest.mark.parametrize(
    ("made", "error", "words"),
    [
        ([(X[:40], Y[:40])], ValueError, r"epoch 0 has 40 rows, expected rows=93"),
        (None, TypeError, r"make\(0\) returned None, expected blocks"),
        ([X, Y], TypeError, r"block 0 is of type ndarray, expected \(x, y\) or"),
        ([(X[:9], Y[:9]), (X[9:, :5], Y[9:])], ValueError, r"block 1 has samples uint8 of shape \(5,\)"),
        ([(X[:9], Y[:9]), (X[9:] / 255, Y[9:])], ValueError, "block 1 has samples float64"),
        ([(X[:9], Y[:9], Y[:9]), (X[9:], Y[9:])], ValueError, "block 1 has .* no weights, those before"),
        ([(X, Y.astype(str))], TypeError, "labels are names of classes; pass their numbers"),
        ([(X[:9], Y[:9]), (X[9:], Y[9:] + 9)], ValueError, "label .* is outside 0 … 3"),
        ([(X[:9], Y[:9]), (X[9:], Y[8:])], ValueError, "block 1 of epoch 0: .*x has 84 rows and y has 85"),
    ],
)
def test_what_is_wrong_with_blocks_is_told_on_all_ranks(
    made: Any, error: type[Exception], words: str
) -> None:
    def train() -> None:
        fit(make("ddp"), stream(lambda epoch: made, window=1))

    with pytest.raises(error, match=words):
        run_threads(train, 2)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pdnn-read-ahead")]


def test_another_width_in_a_later_epoch_is_told() -> None:
    words = "epoch 1 has samples of shape .* and targets of width 4, its first block .* and 0"
    with pytest.raises(ValueError, match=words):
        fit(make(), stream(lambda epoch: [(X, np.eye(4)[Y] if epoch else Y)]))


def test_the_function_knows_which_rank_it_reads_for() -> None:
    def seen() -> set[int]:
        ranks = set()

        def make_blocks(epoch: int) -> Iterator[Block]:
            ranks.add(pdnn.world().rank)
            return blocks(epoch)

        fit(make("ddp"), stream(make_blocks))
        return ranks

    assert run_threads(seen, 2) == [{0}, {1}]


def test_one_rank_that_cannot_read_ends_all() -> None:
    def train() -> None:
        def failing(epoch: int) -> Iterator[Block]:
            yield X[:40], Y[:40]
            if pdnn.world().rank == 1:
                raise OSError("the disk is gone")
            yield X[40:], Y[40:]

        fit(make("ddp"), stream(failing, window=1))

    with pytest.raises(OSError, match="the disk is gone"):
        run_threads(train, 2)


def test_a_loader_left_half_way_says_nothing_at_the_end(run_python: Callable[..., Completed]) -> None:
    code = """
import numpy as np
from pdnn.data import BlockStream, DataLoader
blocks = lambda epoch: ((np.ones((100, 3)), np.zeros(100, int)) for _ in range(10))
batches = iter(DataLoader(BlockStream(blocks, 1000), batch_size=7))
print(len(next(batches)))
"""
    assert run_python(["-c", code]).stdout == "2\n"


@pytest.mark.parametrize("drop_last", [False, True])
def test_loaders_take_it_too(drop_last: bool) -> None:
    loader = DataLoader(stream(), 10, shuffle=True, seed=5, drop_last=drop_last)
    for epoch in range(2):
        whole, rows = epoch_of(stream(), epoch, True), 90 if drop_last else ROWS
        batches = list(loader)
        assert len(batches) == len(loader) == (9 if drop_last else 10)
        np.testing.assert_array_equal(np.concatenate([y for _, y in batches]), whole.y[:rows])
        x = np.concatenate([x for x, _ in batches])
        np.testing.assert_array_equal(x, whole.gather(slice(0, rows))[0])
    next(iter(loader))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("pdnn-read-ahead")]
    with pytest.raises(ValueError, match="a BlockStream's function orders its rows and changes its images"):
        DataLoader(stream(), 10, augment=PadCropFlip(1))


@pytest.mark.parametrize(("buffers", "window"), [(1, 1), (1, 3), (2, 3)])
@pytest.mark.parametrize("take", [lambda data: fit(make(), data), lambda data: list(DataLoader(data, 10))])
def test_blocks_in_the_same_buffers_are_refused(
    take: Callable[[BlockStream], object], buffers: int, window: int
) -> None:
    """They would be trained on as the last of them, without a word."""
    x, y = np.zeros((buffers, 31, 6), np.uint8), np.zeros((buffers, 31), np.int64)

    def in_turn(epoch: int) -> Iterator[Block]:
        for number, begin in enumerate((0, 31, 62)):
            one = number % buffers
            x[one], y[one] = X[begin : begin + 31], Y[begin : begin + 31]
            yield x[one], y[one]

    with pytest.raises(ValueError, match="a block after block 0 overwrites its memory"):
        take(stream(in_turn, window=window))
    take(stream(lambda epoch: [(X[:31], Y[:31])] * 3))  # the same rows again are no other ones


def test_what_it_does_not_do_is_refused() -> None:
    with pytest.raises(TypeError, match="make is of type generator, expected a function of the epoch"):
        BlockStream(blocks(0), ROWS)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="BlockStream: rows = 0; expected an integer from 1"):
        BlockStream(blocks, 0)
    with pytest.raises(TypeError, match=r"BlockStream: rows is 2\.5, expected an integer from 1"):
        BlockStream(blocks, 2.5)  # type: ignore[arg-type]
    for wrong in (blocks, blocks(0)):
        for take in (lambda data: fit(make(), data), DataLoader):
            with pytest.raises(TypeError, match=r"trains as pdnn.data.BlockStream\(function, rows=…\)"):
                take(wrong)
    with pytest.raises(TypeError, match="validation: got BlockStream"):
        fit(make(), stream(), validation=stream())
    with pytest.raises(TypeError, match="evaluate: got BlockStream"):
        make().evaluate(stream())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="augment= is for a Dataset"):
        fit(make(), stream(), augment=PadCropFlip(1))
