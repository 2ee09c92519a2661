"""Streams: the order by blocks, reading ahead, trainings that equal those in memory, what memory holds."""

from __future__ import annotations

import copy
import pickle
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim
from pdnn.comm import run_threads
from pdnn.data import DataLoader, Dataset, PadCropFlip, Stream, Subset, stream
from processes import Completed

RNG = np.random.default_rng(0)
ROWS = 93
X = RNG.integers(0, 256, (ROWS, 6), dtype=np.uint8)
Y = RNG.integers(0, 4, ROWS)


@pytest.fixture
def data(tmp_path: Path) -> Stream:
    """In files, in 12 blocks of 8 rows, of which the last has 5."""
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    return Stream(tmp_path / "x.npy", tmp_path / "y.npy", 1 / 255, block=8, window=3)


def make(strategy: str = "serial", **options: object) -> pdnn.Trainer:
    model = models.mlp([6, 9, 4], "tanh", dtype="float64", seed=2)
    adam = optim.Adam(model.parameters(), lr=0.01)
    options = {"strategy": strategy, "seed": 5} | options
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), adam, **options)  # type: ignore[arg-type]


def fit(trainer: pdnn.Trainer, data: Dataset | Subset, epochs: int = 2, **options: object) -> pdnn.Trainer:
    trainer.fit(data, epochs, 10, verbose=False, **options)  # type: ignore[arg-type]
    return trainer


def in_memory(data: Dataset, epochs: int = 2, seed: int = 5) -> pdnn.Trainer:
    """A training on the rows in the stream's order, an epoch at a time."""
    trainer = make()
    whole = Dataset(X, Y, 1 / 255)
    for epoch in range(epochs):
        fit(trainer, Subset(whole, data.epoch_order(len(data), seed, epoch)), 1, shuffle=False)
    return trainer


def test_an_epoch_takes_each_row_once_by_blocks_in_windows(data: Stream) -> None:
    order = data.epoch_order(ROWS, 5, 0)
    assert sorted(order) == list(range(ROWS))
    assert len(set(order[:24] // 8)) == 3 and (np.diff(order[:24]) != 1).any()
    blocks = [tuple(sorted(set(order[begin : begin + 24] // 8))) for begin in (0, 24)]
    assert not set(blocks[0]) & set(blocks[1])
    np.testing.assert_array_equal(order, data.epoch_order(ROWS, 5, 0))
    assert (order != data.epoch_order(ROWS, 5, 1)).any() and (order != data.epoch_order(ROWS, 6, 0)).any()
    assert {data.epoch_order(ROWS, 0, epoch)[0] // 8 for epoch in range(60)} == set(range(12))


@pytest.mark.parametrize(("block", "window", "rows"), [(1, 1, 7), (50, 2, 7), (2, 100, 7), (3, 2, 0)])
def test_blocks_of_any_size(block: int, window: int, rows: int) -> None:
    data = Stream(X[:rows], Y[:rows], block=block, window=window)
    assert sorted(data.epoch_order(rows, 1, 2)) == list(range(rows))


def test_a_block_of_more_than_all_rows_takes_no_more_memory_or_time() -> None:
    whole, more = (Stream(X, Y, block=block) for block in (len(X), 2**50))
    np.testing.assert_array_equal(whole.epoch_order(len(X), 1, 2), more.epoch_order(len(X), 1, 2))


@pytest.mark.parametrize("rows", [slice(None), slice(11, 50)])
@pytest.mark.parametrize("clone", [copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_a_copy_reads_the_same_file(clone: Any, rows: slice, tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, X)
    mapped = np.load(file, mmap_mode="r")[rows]
    data = Stream(mapped, Y[rows], block=8, window=3, scale=0.5)
    copied = clone(data)
    assert isinstance(copied.x, np.memmap) and copied.x.filename == str(file)
    np.testing.assert_array_equal(copied.x, X[rows])
    assert repr(copied) == repr(data)
    again = clone(copied)
    np.testing.assert_array_equal(again.x, X[rows])
    np.testing.assert_array_equal(clone(Stream(X[rows], Y[rows])).x, X[rows])  # of no file
    written = np.load(file, mmap_mode="c")
    written[0] = 7  # in memory alone
    np.testing.assert_array_equal(clone(Stream(written, Y)).x, written)


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_a_copy_of_a_slice_has_its_rows(clone: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    data = Stream(tmp_path / "x.npy", Y)
    for step in (1, 2, -1, -3):
        for rows in (
            slice(None, None, step),
            slice(*((9, 40) if step > 0 else (40, 9)), step),
            slice(7, 7 + step, step),
        ):
            part = data[rows]
            copied = clone(part)
            assert isinstance(copied.x, np.memmap) and copied.x.filename == str(tmp_path / "x.npy")
            np.testing.assert_array_equal(copied.x, part.x)
            np.testing.assert_array_equal(clone(copied[::-2]).x, part.x[::-2])
    assert clone(data[5:5]).x.shape == (0, *X.shape[1:])


def test_a_slice_reads_what_is_mapped(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    data = Stream(tmp_path / "x.npy", Y)
    (tmp_path / "x.npy").unlink()  # as scratch files are
    part = data[3:9]
    assert isinstance(part, Stream)
    np.testing.assert_array_equal(part.x, X[3:9])


def test_a_copy_of_a_stream_whose_file_has_changed_says_so(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, X)
    state = pickle.dumps(Stream(file, Y))
    np.save(file, X[:3])
    with pytest.raises(
        ValueError, match=r"x.npy: it has no longer the samples, \(\d+, .* this stream was made"
    ):
        pickle.loads(state)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"x\.npy"):
        pickle.loads(state)


def test_a_row_may_be_larger_than_a_block() -> None:
    data = Stream(np.zeros((2, stream.BLOCK_BYTES + 1), np.uint8), [0, 1])
    assert data.block == 1 and sorted(data.epoch_order(2, 1, 2)) == [0, 1]


def test_a_training_has_the_bits_of_one_in_memory(data: Stream) -> None:
    want = in_memory(data)
    got = fit(make(), data, validation=data)
    np.testing.assert_array_equal(got.model.flat_parameters, want.model.flat_parameters)
    whole = Dataset(X, Y, 1 / 255)
    assert got.evaluate(data) == want.evaluate(whole)
    np.testing.assert_array_equal(got.predict(data), want.predict(whole))
    assert isinstance(data.x, np.memmap)


def test_rows_have_weights(data: Stream, tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", RNG.random(ROWS))
    weighted = Stream(data.x, data.y, 1 / 255, weight=tmp_path / "w.npy", block=8, window=3)
    order = data.epoch_order(ROWS, 5, 0)
    whole = Dataset(X, Y, 1 / 255, weight=np.load(tmp_path / "w.npy"))
    want = fit(make(), Subset(whole, order), 1, shuffle=False)
    got = fit(make(), weighted, 1)
    np.testing.assert_array_equal(got.model.flat_parameters, want.model.flat_parameters)
    assert got.evaluate(weighted) == want.evaluate(whole) != want.evaluate(data)


@pytest.mark.parametrize(
    "strategy",
    ["team:2", "pool:2/4", "hogwild:1", "ddp", "scatter-gather", "tp:2", "pipeline:2", "average:1"],
)
@pytest.mark.filterwarnings("ignore:strategy:UserWarning")
def test_every_strategy_takes_its_order(data: Stream, strategy: str) -> None:
    def train() -> np.ndarray:
        return fit(make(strategy), data, validation=data).model.flat_parameters.copy()

    alone = strategy.split(":")[0] in ("team", "pool", "hogwild")
    want = in_memory(data).model.flat_parameters
    for got in run_threads(train, 1 if alone else 2):
        if strategy == "average:1":  # a batch of each rank in a step: another training
            assert np.isfinite(got).all() and (got != want).any()
        else:
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-11)


def test_it_goes_on_within_an_epoch(data: Stream, tmp_path: Path) -> None:
    want = fit(make(), data, 3).model.flat_parameters

    fit(make(), data, 1, checkpoint=tmp_path / "run", every_steps=7, every=9, keep=2)
    kept = make()
    kept.load(tmp_path / "run" / "checkpoint.1.safetensors")
    assert kept.position is not None and kept.position.row == 70
    with pytest.raises(ValueError, match=r"shuffle=windows of 3 blocks of 8 rows, but got .* of 4 blocks"):
        fit(kept, Stream(X, Y, 1 / 255, block=8, window=4))
    fit(kept, data, 3)
    np.testing.assert_array_equal(kept.model.flat_parameters, want)


def test_ranks_must_have_the_same_blocks() -> None:
    def train() -> None:
        fit(make("ddp"), Stream(X, Y, block=8 + pdnn.world().rank))

    with pytest.raises(ValueError, match=r"shuffle.*blocks of"):
        run_threads(train, 2)


def test_parts_of_a_stream_and_loaders_keep_to_blocks(data: Stream) -> None:
    part = data[20:60]
    assert isinstance(part, Stream) and len(part) == 40 and np.shares_memory(part.x, data.x)
    fit(make(), part, validation=data[60:])
    chosen = Subset(data, np.arange(0, ROWS, 2))
    fit(make(), chosen)
    batches = list(DataLoader(data, 10, shuffle=True, seed=5))
    order = data.epoch_order(ROWS, 5, 0)
    np.testing.assert_array_equal(np.concatenate([y for _, y in batches]), Y[order])
    x = np.concatenate([x for x, _ in batches])
    np.testing.assert_allclose(x, X[order] / 255, rtol=1e-6)


def test_images_are_augmented(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X.reshape(-1, 1, 2, 3))
    images = Stream(tmp_path / "x.npy", Y, block=8)
    trainer = pdnn.Trainer(
        model := nn.Sequential(nn.Flatten(), nn.Linear(6, 4), seed=0),
        nn.CrossEntropyLoss(),
        optim.SGD(model.parameters(), lr=0.01),
        strategy="serial",
    )
    fit(trainer, images, augment=PadCropFlip(1))
    assert trainer.step == 20


def test_the_window_after_the_one_in_use_is_read_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = np.repeat(np.arange(40.0)[:, np.newaxis], 512, axis=1)
    data = Stream(pages, np.zeros(40, np.int64), block=2, window=5)
    seen: list[float] = []
    changed = threading.Condition()

    def touch(part: np.ndarray) -> None:
        with changed:
            seen.extend(part[:, 0] if part.ndim == 2 else [])
            changed.notify()

    monkeypatch.setattr(stream, "_touch", touch)
    order = data.epoch_order(40, 0, 0)

    def wait(rows: int) -> None:
        with changed:
            assert changed.wait_for(lambda: len(seen) >= rows, timeout=20)
        assert sorted(seen) == sorted(order[:rows])

    with stream.reading_ahead(data, order) as taken:
        wait(20)
        taken(9)
        taken(10)
        wait(30)
        taken(25)
        wait(40)
    seen.clear()
    with stream.reading_ahead(data, order, 30):
        with changed:
            assert changed.wait_for(lambda: len(seen) == 10, timeout=20)
        assert sorted(seen) == sorted(order[30:])
    with pytest.raises(ZeroDivisionError), stream.reading_ahead(data, order):
        raise ZeroDivisionError
    assert not [thread for thread in threading.enumerate() if thread.name == "pdnn-read-ahead"]


def test_rows_near_one_another_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a part whose rows are apart, one by one takes longer than to train."""
    data = Stream(np.zeros((9000, 1)), np.zeros(9000))
    touched: list[int] = []
    monkeypatch.setattr(stream, "_touch", lambda part: touched.append(len(part)))
    rows = np.delete(np.arange(0, 9000, 3), slice(1000, 2000))
    with stream.reading_ahead(data, rows):
        until = time.monotonic() + 20
        while len(touched) < 4 and time.monotonic() < until:
            time.sleep(0.01)
    assert touched == [2998, 2998, 2998, 2998]  # rows 0 to 2997 and 6000 to 8997, of x and y


def test_touching_reads_pages_in_any_layout() -> None:
    for array in (np.ones((5000, 3)), np.ones((50, 8))[:, :3], np.ones((0, 4)), np.ones(7, np.int32)):
        stream._touch(array)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc/self/status tells what a process holds")
def test_memory_holds_no_samples(run_python: Callable[..., Completed], tmp_path: Path) -> None:
    script = (
        "import re, sys, numpy as np, pdnn\n"
        "from pdnn import models, nn, optim\n"
        "from pdnn.data import Stream\n"
        "def held():\n"
        "    return int(re.search(r'RssAnon:\\s+(\\d+)', open('/proc/self/status').read())[1]) / 1024\n"
        "file = sys.argv[1]\n"
        "x = np.lib.format.open_memmap(file, 'w+', np.float32, (96 * 2**20 // 4096, 1024))\n"
        "x[:] = np.arange(1024) % 7\n"
        "del x\n"
        "model = models.mlp([1024, 8, 2], seed=0)\n"
        "trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.01),\n"
        "                       strategy='serial')\n"
        "data = Stream(file, np.zeros(96 * 256, np.int64), window=4)\n"
        "most = []\n"
        "class Look(pdnn.callbacks.Callback):\n"
        "    def on_epoch_end(self, *_):\n"
        "        most.append(held())\n"
        "before = held()\n"
        "trainer.fit(data, 2, 128, validation=data, callbacks=[Look()], verbose=False)\n"
        "print(max(most) - before)\n"
    )
    assert float(run_python(["-c", script, tmp_path / "x.npy"], timeout=60).stdout) < 24


@pytest.mark.parametrize(
    ("x", "options", "error", "words"),
    [
        (X.astype(np.int16), {}, TypeError, "x is <i2; expected uint8, float32 or float64"),
        (np.asfortranarray(X), {}, TypeError, r"x is \|u1, not in C order"),
        (X.astype(">f4"), {}, TypeError, "x is >f4"),
        (X, {"block": 0}, ValueError, "Stream: block = 0; expected an integer from 1"),
        (X, {"window": 0}, ValueError, "window = 0"),
        (X, {"block": 2.5}, TypeError, "Stream: block is 2.5, expected an integer from 1"),
        (X[:5], {}, ValueError, "x has 5 rows and y has 93"),
    ],
)
def test_what_cannot_be_read_in_place_is_refused(
    x: np.ndarray, options: dict[str, int], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        Stream(x, Y, **options)  # type: ignore[arg-type]


def test_broken_files_are_refused_by_name(data: Stream, tmp_path: Path) -> None:
    file, archive = tmp_path / "x.npy", tmp_path / "x.npz"
    np.savez(archive, x=X)
    for content in (b"", b"words", file.read_bytes()[:-1], archive.read_bytes()):
        (tmp_path / "broken.npy").write_bytes(content)
        with pytest.raises(ValueError, match=r"broken\.npy: not a sound \.npy file"):
            Stream(tmp_path / "broken.npy", Y)


def test_labels_in_a_list_are_checked_as_a_datasets() -> None:
    with pytest.raises(TypeError, match="y holds strings beside values of type float"):
        Stream(np.zeros((3, 2)), ["b", float("nan"), "b"])
    torch = pytest.importorskip("torch", reason="passes a tensor of PyTorch: pip install torch")
    assert Stream(torch.zeros(2, 2), [0, 1]).sample_shape == (2,)
    with pytest.raises(TypeError, match="Stream: x is no array that NumPy can read"):
        Stream(torch.zeros(2, 2).bfloat16(), [0, 1])


def test_what_would_be_copied_is_refused() -> None:
    with pytest.raises(TypeError, match="Stream: x is of type list, which NumPy would copy into memory"):
        Stream([[1.0, 2.0], [3.0, 4.0]], [0, 1])  # type: ignore[arg-type]

    np.testing.assert_array_equal(Stream(memoryview(X), Y).x, X)  # type: ignore[arg-type]

    class OnDisk:
        """As h5py's data sets, and others that NumPy reads whole."""

        def __array__(self, *_: object, **__: object) -> np.ndarray:
            raise AssertionError("it was read")

    with pytest.raises(TypeError, match=r"Stream: x is of type OnDisk.* BlockStream"):
        Stream(OnDisk(), [0, 1])  # type: ignore[arg-type]
    apart = np.frombuffer(bytearray(17), np.uint8)[1:].view(np.float32).reshape(2, 2)
    with pytest.raises(TypeError, match="x is <f4, at an address that is no multiple of an element's size"):
        Stream(apart, [0, 1])
