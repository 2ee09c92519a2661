"""Promises of DataLoader, the batching rules and the split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pdnn
from pdnn import nn, optim
from pdnn.data import DataLoader, Dataset, PadCropFlip, minibatches, train_test_split
from pdnn.exercises import legacy_batches


def bytes_data(n: int = 20, features: int = 6) -> Dataset:
    x = np.random.default_rng(1).integers(0, 256, (n, features), dtype=np.uint8)
    return Dataset(x, np.arange(n, dtype=np.int32), scale=1 / 255, shift=-0.5)


@given(n=st.integers(0, 40), size=st.integers(1, 12), shuffle=st.booleans(), drop_last=st.booleans())
def test_an_epoch_of_a_loader_has_every_row_once(n: int, size: int, shuffle: bool, drop_last: bool) -> None:
    data = bytes_data(n)
    loader = DataLoader(data, size, shuffle=shuffle, drop_last=drop_last, seed=3)
    batches = list(loader)
    rows = np.concatenate([y for _, y in batches]) if batches else np.zeros(0, np.int64)
    assert len(batches) == len(loader)
    assert all(len(x) == size for x, _ in batches[:-1])
    assert len(rows) == (n // size * size if drop_last else n) and len(set(rows.tolist())) == len(rows)
    if not shuffle:
        assert rows.tolist() == list(range(len(rows)))
    for x, y in batches:
        np.testing.assert_array_equal(x, data.gather(y)[0])


def labels_of_an_epoch(loader: DataLoader) -> list[int]:
    return [int(label) for _, y in loader for label in y]


def test_a_shuffle_depends_on_seed_and_epoch_only() -> None:
    loader = DataLoader(bytes_data(), 3, shuffle=True, seed=5)
    first, second = labels_of_an_epoch(loader), labels_of_an_epoch(loader)
    assert first != second and loader.epoch == 2
    loader.set_epoch(0)
    assert labels_of_an_epoch(loader) == first
    assert labels_of_an_epoch(DataLoader(bytes_data(), 7, shuffle=True, seed=5)) == first
    assert labels_of_an_epoch(DataLoader(bytes_data(), 3, shuffle=True, seed=6)) != first


def test_a_loader_takes_a_subset_and_a_dtype() -> None:
    x, y = next(iter(DataLoader(bytes_data()[[9, 8, 7]], 2, dtype="float64")))
    assert x.dtype == np.float64 and y.tolist() == [9, 8]


def test_batches_and_losses_answer_numpy_and_compute_as_plain_arrays() -> None:
    ((x, y),) = DataLoader(Dataset(np.arange(6.0).reshape(3, 2), [0, 1, 0]), 3, dtype="float64")
    loss = nn.CrossEntropyLoss()(nn.Sequential(nn.Linear(2, 2), dtype="float64", seed=0)(x), y)
    for values in (x, y, loss.data):
        assert type(values.numpy()) is np.ndarray
        assert np.shares_memory(values.numpy(), values)
        assert repr(values) == repr(values.numpy())
        assert type(values + values) is type(values.numpy() + values.numpy())
        assert type(values.sum()) is type(values.numpy().sum())


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("raw", [np.uint8, np.float32, np.float64])
def test_whoever_gathers_gets_the_same_bits(raw: type, dtype: str) -> None:
    x = np.random.default_rng(1).integers(0, 256, (200, 3, 8, 7)).astype(raw)
    data = Dataset(x, np.arange(200), scale=1 / 255, shift=-0.4914)
    net = nn.Sequential(nn.Flatten(), nn.Linear(168, 168, bias=False), dtype=dtype)
    net.flat_parameters[:] = np.eye(168).ravel()  # so that the outputs are the samples
    trainer = pdnn.Trainer(net, nn.MSELoss(), optim.SGD(net.parameters(), lr=0), strategy="serial")
    want = trainer.predict(data).reshape(x.shape)
    np.testing.assert_array_equal(data.gather(dtype=dtype)[0], want)
    if dtype == "float32":
        np.testing.assert_array_equal(data[7][0], want[7])
    for augment in (None, PadCropFlip(0, flip=False)):
        got = np.concatenate([x for x, _ in DataLoader(data, 64, dtype=dtype, augment=augment)])
        np.testing.assert_array_equal(got, want)
    moved = np.concatenate([x for x, _ in DataLoader(data, 64, dtype=dtype, augment=PadCropFlip(2))])
    outside = np.dtype(dtype).type(-0.4914)
    for image, whole in zip(moved, want, strict=True):
        assert np.isin(image, np.append(whole, outside)).all()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"batch_size": 0}, ValueError, "batch_size = 0"),
        ({"batch_size": 2.5}, TypeError, "batch_size is 2.5, expected an integer from 1"),
        ({"seed": -1}, ValueError, "seed = -1"),
        ({"seed": 1.5}, TypeError, "seed is 1.5, expected an integer from 0"),
        ({"dtype": "uint8"}, ValueError, "dtype is uint8, expected float32 or float64"),
        ({"dtype": "bfloat16"}, ValueError, "dtype is bfloat16, expected float32 or float64"),
        ({"dataset": [1]}, TypeError, r"dataset is of type list.*Dataset\(x, y\)"),
    ],
)
def test_unfit_loader_options_are_refused(options: dict[str, object], error: type, words: str) -> None:
    with pytest.raises(error, match=f"DataLoader: {words}"):
        DataLoader(**{"dataset": bytes_data(), **options})  # type: ignore[arg-type]


@given(n=st.integers(0, 200), size=st.integers(1, 50), epoch=st.integers(0, 3))
def test_minibatches_hold_every_row_once(n: int, size: int, epoch: int) -> None:
    batches = minibatches(n, size, seed=1, epoch=epoch)
    assert sorted(int(i) for rows in batches for i in rows) == list(range(n))
    assert [len(rows) for rows in batches] == [size] * (n // size) + [n % size] * (n % size > 0)


@pytest.mark.parametrize(("n", "options", "name"), [(-1, {}, "n"), (3, {"epoch": -1}, "epoch")])
def test_minibatches_name_a_number_below_0(n: int, options: dict[str, int], name: str) -> None:
    with pytest.raises(ValueError, match=f"minibatches: {name} = -1; expected an integer from 0"):
        minibatches(n, 2, **options)
    assert len(minibatches(3, 2, seed=2**64 - 1)) == 2


def test_minibatches_are_fresh_every_epoch() -> None:
    assert minibatches(50, 50, epoch=0)[0].tolist() != minibatches(50, 50, epoch=1)[0].tolist()


def test_the_legacy_rule_makes_100_batches_of_105_of_the_exercise() -> None:
    batches = legacy_batches(10_500)
    assert [len(rows) for rows in batches] == [105] * 100
    order = np.arange(10_500)
    np.random.RandomState(42).shuffle(order)
    np.testing.assert_array_equal(np.concatenate(batches), order)


@pytest.mark.parametrize("n", [10_400, 14_000, 60_000, 10_501])
def test_the_legacy_rule_refuses_other_sizes(n: int) -> None:
    with pytest.raises(ValueError, match=f"{n} rows make .* use minibatches"):
        legacy_batches(n)


def test_the_legacy_rule_refuses_no_batches() -> None:
    with pytest.raises(ValueError, match="count = 0; expected an integer from 1"):
        legacy_batches(10_500, count=0)
    with pytest.raises(TypeError, match=r"n is 10500\.0, expected an integer"):
        legacy_batches(10_500.0)


def test_a_split_holds_out_the_first_rows_of_the_permutation() -> None:
    train, test = train_test_split(bytes_data(14), test=0.25, seed=0)
    order = np.random.RandomState(0).permutation(14)
    assert test.indices.tolist() == order[:4].tolist() and train.indices.tolist() == order[4:].tolist()
    with pytest.raises(ValueError, match=r"test = 1.5; expected a share"):
        train_test_split(bytes_data(), test=1.5)
    with pytest.raises(TypeError, match=r"train_test_split: test is 'a', expected a share in \[0, 1\]"):
        train_test_split(bytes_data(), test="a")  # type: ignore[arg-type]


def test_minibatches_take_the_seeds_of_a_trainer() -> None:
    for seed, same in [(-1, 2**64 - 1), (2**65 + 3, 3)]:
        np.testing.assert_array_equal(minibatches(9, 9, seed=seed), minibatches(9, 9, seed=same))


def test_batches_of_a_subset_have_the_weights_of_its_rows() -> None:
    data = Dataset(np.zeros((5, 2)), np.arange(5), weight=np.arange(5.0))
    batches = list(DataLoader(data[[4, 1, 3]], 2))
    assert [(y.tolist(), weight.tolist()) for _, y, weight in batches] == [([4, 1], [4, 1]), ([3], [3])]
