"""Promises of Dataset, Subset, DataLoader and the batching rules."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdnn.data import DataLoader, Dataset, Subset, legacy_batches, minibatches, train_test_split

Array = npt.NDArray[Any]


def bytes_data(n: int = 20, features: int = 6) -> Dataset:
    x = np.random.default_rng(1).integers(0, 256, (n, features), dtype=np.uint8)
    return Dataset(x, np.arange(n, dtype=np.int32), scale=1 / 255, shift=-0.5)


def test_a_dataset_wraps_without_copying() -> None:
    x, y = np.zeros((5, 3), np.float64), np.zeros(5, np.uint8)
    data = Dataset(x, y)
    assert data.x is x and data.y is y
    assert (len(data), data.sample_shape, data.scale, data.shift) == (5, (3,), 1.0, 0.0)


def test_a_slice_is_a_view_whatever_its_step() -> None:
    data = bytes_data()
    for rows in (slice(3, 9), slice(1, None, 3), slice(None, None, -1), slice(7, 7)):
        part = data[rows]
        assert isinstance(part, Dataset) and len(part) == len(range(20)[rows])
        assert np.shares_memory(part.x, data.x) or not len(part)
        assert (part.scale, part.shift) == (data.scale, data.shift)
    data[3:9].x[0, 0] = 77
    assert data.x[3, 0] == 77


def test_one_sample_comes_scaled_as_float32_with_its_label() -> None:
    data = bytes_data()
    x, y = data[-1]
    assert x.dtype == np.float32 and y == 19
    np.testing.assert_allclose(x, data.x[19] / 255 - 0.5, atol=1e-7)
    with pytest.raises(IndexError):
        data[20]
    assert [label for _, label in data] == list(range(20))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("raw", [np.uint8, np.float32, np.float64])
def test_gather_scales_in_the_width_asked_for_and_leaves_the_data_alone(raw: type, dtype: str) -> None:
    before: Array = np.arange(12, dtype=raw).reshape(4, 3)
    data = Dataset(before.copy(), np.eye(4), scale=0.1, shift=3)
    for rows in (slice(None), np.array([2, 0])):
        x, y = data.gather(rows, dtype)
        assert x.dtype == dtype and x.flags.c_contiguous
        np.testing.assert_array_equal(x, before[rows].astype(dtype) * np.dtype(dtype).type(0.1) + 3)
        np.testing.assert_array_equal(y, np.eye(4)[rows])
        assert not np.shares_memory(x, data.x) and not np.shares_memory(y, data.y)
    np.testing.assert_array_equal(data.x, before)
    with pytest.raises(ValueError, match="dtype is int32, expected float32 or float64"):
        data.gather(dtype="int32")


@pytest.mark.parametrize(
    "y",
    [
        np.arange(4, dtype=np.uint8),
        np.arange(8, dtype=np.int16)[::2],
        np.eye(4, dtype=np.int64),
        np.full((4, 2), 0.5),
        np.full((4, 3), 0.5, np.float32)[:, :2],
    ],
)
def test_labels_are_class_numbers_one_hot_rows_or_targets(y: np.ndarray) -> None:
    assert Dataset(np.zeros((4, 2), np.float32), y).y is y


X, Y = np.zeros((4, 6), np.float32), np.zeros(4, np.int64)


@pytest.mark.parametrize(
    ("x", "y", "error", "words"),
    [
        ([[1.0]], Y, TypeError, "x is a list.*np.asarray"),
        (X.astype(np.int32), Y, TypeError, "x has dtype <i4, expected uint8, float32 or float64"),
        (X.astype(">f4"), Y, TypeError, "x has dtype >f4.*byte order"),
        (X[:, 0], Y, ValueError, r"shape \(4,\).*x\[:, None\]"),
        (np.asfortranarray(X), Y, ValueError, "not C-contiguous; pass np.ascontiguousarray"),
        (X[:, ::2], Y, ValueError, "not C-contiguous"),
        (X.reshape(4, 2, 3).transpose(0, 2, 1), Y, ValueError, "not C-contiguous"),
        (X, [0, 1, 2, 3], TypeError, "y is a list"),
        (X, Y.astype(bool), TypeError, "y has dtype"),
        (X, Y.astype(np.float32), ValueError, r"expected shape \(n, outputs\), as y\[:, None\]"),
        (X, Y.reshape(4, 1, 1), ValueError, r"expected shape \(n,\) or \(n, classes\)"),
        (X, np.asfortranarray(np.eye(4)), ValueError, "rows of y.*not C-contiguous"),
        (X, Y[:3], ValueError, "x has 4 rows and y has 3"),
    ],
)
def test_unfit_arrays_are_refused_with_what_to_do(x: object, y: object, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        Dataset(x, y)  # type: ignore[arg-type]


def test_rows_may_lie_apart() -> None:
    wide = np.arange(40, dtype=np.float32).reshape(4, 10)
    data = Dataset(wide[:, 2:5], Y)
    assert data.x.base is not None
    np.testing.assert_array_equal(data.gather()[0], wide[:, 2:5])


def test_a_subset_keeps_indices_not_rows() -> None:
    data = bytes_data()
    part = data[[3, -1, 3]]
    assert isinstance(part, Subset) and part.dataset is data
    assert part.indices.dtype == np.int64 and part.indices.tolist() == [3, 19, 3]
    assert part.sample_shape == (6,) and part[1][1] == 19 and [y for _, y in part] == [3, 19, 3]
    mask = data[data.y % 2 == 0]
    assert mask.indices.tolist() == list(range(0, 20, 2))
    x, y = part.gather(slice(1, 3), "float64")
    np.testing.assert_allclose(x, data.x[[19, 3]] / 255 - 0.5)
    assert y.tolist() == [19, 3]
    assert len(data[[]]) == 0


def test_subsets_of_subsets_collapse() -> None:
    data = bytes_data()
    once = data[np.arange(10, 20)]
    for twice in (once[[5, 0]], once[5::-5], Subset(once, np.array([5, 0], np.uint8))):
        assert twice.dataset is data and twice.indices.tolist() == [15, 10]


def test_a_subset_keeps_its_own_indices() -> None:
    rows = np.array([1, 2])
    part = bytes_data()[rows]
    rows[0] = 9
    assert part.indices.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("indices", "error", "words"),
    [
        ([20], IndexError, "index 20 lies outside a data set of 20 rows"),
        ([0, -21], IndexError, "index -21"),
        (np.array([2**64 - 1], np.uint64), IndexError, "index 18446744073709551615"),
        ([0.5], TypeError, "dtype float64"),
        ([[1]], ValueError, "one dimension"),
        ([True, False], ValueError, "mask has 2 entries, the data set has 20 rows"),
    ],
)
def test_unfit_indices_are_refused(indices: object, error: type, words: str) -> None:
    with pytest.raises(error, match=words):
        Subset(bytes_data(), indices)  # type: ignore[arg-type]


@pytest.mark.parametrize("clone", [copy.copy, copy.deepcopy, lambda data: pickle.loads(pickle.dumps(data))])
def test_datasets_and_subsets_copy_and_pickle(clone: object) -> None:
    for data in (bytes_data()[::-2], bytes_data()[[4, 2]]):
        other = clone(data)  # type: ignore[operator]
        assert type(other) is type(data) and repr(other) == repr(data)
        for ours, theirs in zip(data.gather(), other.gather(), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_reprs_say_what_is_inside() -> None:
    data = Dataset(np.zeros((4, 1, 28, 28), np.uint8), np.zeros((4, 10)), 1 / 255, -0.5)
    assert repr(data) == "Dataset(4 samples of 1x28x28, uint8 * 0.00392157 - 0.5, labels float64 x 10)"
    assert repr(data[[1]]) == f"Subset(1 of {data!r})"


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


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"dtype": "uint8"}, ValueError, "dtype is uint8, expected float32 or float64"),
        ({"dataset": [1]}, TypeError, r"dataset is a list.*Dataset\(x, y\)"),
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


def test_a_split_holds_out_the_first_rows_of_the_permutation() -> None:
    train, test = train_test_split(bytes_data(14), test=0.25, seed=0)
    order = np.random.RandomState(0).permutation(14)
    assert test.indices.tolist() == order[:4].tolist() and train.indices.tolist() == order[4:].tolist()
    with pytest.raises(ValueError, match=r"test is 1.5, expected a share"):
        train_test_split(bytes_data(), test=1.5)
