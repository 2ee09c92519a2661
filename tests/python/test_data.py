"""Promises of Dataset and Subset."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.data import Dataset, Subset, dataset

Array = npt.NDArray[Any]


def bytes_data(n: int = 20, features: int = 6) -> Dataset:
    x = np.random.default_rng(1).integers(0, 256, (n, features), dtype=np.uint8)
    return Dataset(x, np.arange(n, dtype=np.int32), scale=1 / 255, shift=-0.5)


def test_a_dataset_wraps_without_copying() -> None:
    x, y = np.zeros((5, 3), np.float64), np.zeros(5, np.uint8)
    data = Dataset(x, y)
    assert data.x is x and data.y is y
    assert (len(data), data.sample_shape, data.scale, data.shift) == (5, (3,), 1.0, 0.0)


@pytest.mark.parametrize("name", ["scale", "shift"])
def test_what_samples_are_scaled_by_is_a_finite_number(name: str) -> None:
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"Dataset: {name} = {value}; expected a finite number"):
            Dataset(np.zeros((2, 1)), [0, 1], **{name: value})
    with pytest.raises(TypeError, match=f"Dataset: {name} is '0.5', expected a finite number"):
        Dataset(np.zeros((2, 1)), [0, 1], **{name: "0.5"})  # type: ignore[arg-type]


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
        exact = before[rows].astype(np.longdouble) * np.dtype(dtype).type(0.1) + 3
        np.testing.assert_array_max_ulp(x, exact.astype(dtype), maxulp=1, dtype=dtype)
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


def test_rows_may_lie_apart() -> None:
    wide = np.arange(40, dtype=np.float32).reshape(4, 10)
    data = Dataset(wide[:, 2:5], Y)
    assert data.x.base is not None
    np.testing.assert_array_equal(data.gather()[0], wide[:, 2:5])


ROWS = [
    *(slice(0, None, 2), slice(None, None, -1), slice(15, 3, -4), slice(5, 7), slice(7, 7), slice(1, None)),
    *([3], [-1, 0, -20], [4, 4, 4], list(range(19, -1, -1)), [], np.arange(20) % 7 == 2, np.arange(20) != 5),
    *(np.ones(20, bool), np.zeros(20, bool), np.arange(20)[::3]),
]


@pytest.mark.parametrize("rows", ROWS, ids=str)
@pytest.mark.parametrize("kind", ["bytes", "strided", "sparse"])
def test_some_rows_are_those_of_all(kind: str, rows: Any) -> None:
    """A slice with a step was refused: the core reads no order with gaps."""
    wide = np.random.default_rng(2).normal(size=(40, 9))
    data = bytes_data()
    if kind == "strided":
        data = Dataset(wide[::2, 1:5], np.eye(20), scale=0.3, shift=2)
    elif kind == "sparse":
        sparse = pytest.importorskip("scipy.sparse")
        data = Dataset(sparse.csr_array(wide[:20] * (wide[:20] > 0.5)), np.arange(20))
    rows = np.array(rows, np.int64) if isinstance(rows, list) else rows
    for dtype in ("float32", "float64"):
        whole, x = data.gather(dtype=dtype)[0], data.gather(rows, dtype)
        assert x[0].dtype == dtype and x[0].flags.c_contiguous and x[0].shape == whole[rows].shape
        np.testing.assert_array_equal(x[0], whole[rows])
        np.testing.assert_array_equal(x[1], data.y[rows])


def test_one_row_does_not_look_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, made = [], dataset.core_source

    def counted(dtype: str, x: Array, **more: Any) -> Any:
        seen.append(len(x))
        return made(dtype, x, **more)

    monkeypatch.setattr(dataset, "core_source", counted)
    data = bytes_data()
    one, label = data[3]
    assert seen == [1] and label == 3
    np.testing.assert_array_equal(one, data.gather()[0][3])
    data.gather(slice(2, 9))
    assert seen == [1, 20, 7]


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


@pytest.mark.parametrize("name", ["__getitem__", "gather"])
def test_rows_of_a_subclass_are_refused_that_nobody_would_read(name: str) -> None:
    with pytest.raises(
        TypeError, match=f"Own: loaders and trainers .* do not call its {name}; change the ar"
    ):
        type("Own", (Dataset,), {name: lambda self, rows: None})


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


@pytest.mark.parametrize("count", [60, 5])
@pytest.mark.parametrize("kind", ["classes", "names", "targets"])
def test_labels_of_rows_that_are_left_out_say_nothing(kind: str, count: int) -> None:
    """Unlabelled rows are marked by -1, 255 or a name of their own."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((100, 4)).astype(np.float32)
    numbers = rng.integers(0, 2, 100)
    y: Array = numbers if kind != "names" else np.array(["a", "b"])[numbers]
    y = np.where(rng.random(100) < 0.2, {"classes": -1, "targets": 255, "names": "zz"}[kind], y)
    labelled = np.flatnonzero(y == (np.array(["a", "b"])[numbers] if kind == "names" else numbers))[:count]
    model = pdnn.models.mlp((4, 1 if kind == "targets" else 2), seed=1)
    loss: nn.Loss = nn.BCEWithLogitsLoss() if kind == "targets" else nn.CrossEntropyLoss()
    trainer = pdnn.Trainer(model, loss, optim.SGD(model.parameters(), lr=0.1), strategy="serial")
    trainer.fit(x[labelled], y[labelled], epochs=1, verbose=False)
    weight = rng.random(100)
    some = Dataset(x, y, weight=weight)[labelled]
    assert trainer.evaluate(some) == trainer.evaluate(
        Dataset(x[labelled], y[labelled], weight=weight[labelled])
    )
    with pytest.raises(ValueError, match=r"label -1|outside 0|255|'zz' is none"):
        trainer.evaluate(Dataset(x, y)[40:])
