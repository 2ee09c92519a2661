"""Sparse samples of a Dataset: read as CSR, trained on to the bits of the same rows with their zeros."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.data import BlockStream, DataLoader, Dataset, Stream, Subset, train_test_split
from pdnn.data.checks import digest
from pdnn.strategies import DataParallel

sparse = pytest.importorskip("scipy.sparse")

N, FEATURES, CLASSES = 210, 300, 4
WORDS = sparse.random(N, FEATURES, 0.04, "csr", dtype=np.float32, random_state=1)
DENSE = WORDS.toarray()
Y = np.random.default_rng(2).integers(0, CLASSES, N)
DOCS = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text()


def with_starts(row: int, start: int) -> Any:
    """Rows whose starts are damaged, and which SciPy has not looked at yet."""
    damaged = sparse.csr_array((WORDS.data, WORDS.indices, WORDS.indptr.copy()), shape=WORDS.shape)
    damaged.indptr[row] = start
    return damaged


def trained(
    data: Any, strategy: Any = "serial", rule: Callable[..., Any] = optim.Adam, dtype: str = "float32"
) -> pdnn.Trainer:
    model = pdnn.models.mlp([FEATURES, 16, CLASSES], "tanh", seed=3, dtype=dtype)
    trainer = pdnn.Trainer(
        model, nn.CrossEntropyLoss(), rule(model.parameters()), strategy=strategy, comm=pdnn.world()
    )
    trainer.fit(data, epochs=2, batch_size=32, validation=data, verbose=False)
    return trainer


def assert_same(a: pdnn.Trainer, b: pdnn.Trainer) -> None:
    np.testing.assert_array_equal(a.model.flat_parameters, b.model.flat_parameters)
    for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
        assert a.history.history[name] == b.history.history[name]


@pytest.mark.parametrize("strategy", ["serial", "serial/4", "team:2", "pool:2/4", "hogwild:1", "pipeline:1"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_training_has_the_bits_of_dense_rows(strategy: str, dtype: str) -> None:
    weight = np.random.default_rng(4).random(N)
    ours = trained(Dataset(WORDS, Y, weight=weight), strategy, dtype=dtype)
    assert_same(ours, trained(Dataset(DENSE, Y, weight=weight), strategy, dtype=dtype))
    for x in (WORDS, Dataset(WORDS, Y), Subset(Dataset(WORDS, Y), np.arange(N))):
        np.testing.assert_array_equal(ours.predict(x), ours.predict(DENSE))
    assert ours.evaluate((WORDS, Y)) == ours.evaluate((DENSE, Y))
    assert ours.evaluate((WORDS, Y), metrics=["top2"]) == ours.evaluate((DENSE, Y), metrics=["top2"])


@pytest.mark.parametrize("rule", [optim.LBFGS, optim.GaussNewton])
def test_optimizers_that_evaluate_a_batch_several_times_take_them(rule: Callable[..., Any]) -> None:
    few = slice(40)
    assert_same(
        trained((WORDS[few].astype(np.float64), Y[few]), rule=rule, dtype="float64"),
        trained((DENSE[few].astype(np.float64), Y[few]), rule=rule, dtype="float64"),
    )


def test_ranks_compare_and_share_them() -> None:
    def train(data: Any) -> list[pdnn.Trainer]:
        together = DataParallel(shared_memory=True)
        return pdnn.run(trained, data, together, ranks=2, backend="threads")

    for ours, theirs in zip(train((WORDS, Y)), train((DENSE, Y)), strict=True):
        assert_same(ours, theirs)

    def other_rows() -> None:
        trained((WORDS * np.float32(1 + pdnn.world().rank), Y), "ddp")

    with pytest.raises(ValueError, match="training data with the digest"):
        pdnn.run(other_rows, ranks=2, backend="threads")


@pytest.mark.parametrize("format", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.bool_])
def test_every_format_and_type_is_read_as_csr(format: str, dtype: Any) -> None:
    assert "| [sparse](#sparse-samples) array or matrix of SciPy, of any format |" in DOCS
    dense = (DENSE[:20, :40] * 9).astype(dtype)
    for kind in (sparse.csr_array, sparse.csr_matrix):
        data = Dataset(kind(dense).asformat(format), Y[:20])
        wide = dtype in (np.float64, np.int64)
        assert data.x.format == "csr"
        assert data.x.dtype == (np.float64 if wide else np.float32)
        as_it_is = format == "csr" and dtype in (np.float32, np.float64)
        wanted = f"x from {format.upper()} of {np.dtype(dtype)} to CSR of {data.x.dtype}"
        assert data.converted == ("" if as_it_is else wanted)
        np.testing.assert_array_equal(data.gather()[0], dense.astype(np.float32))


def test_columns_in_any_order_and_twice_are_put_in_order_in_a_copy() -> None:
    values = np.array([1, 2, 3, 4], np.float32)
    given = sparse.csr_array((values, np.array([2, 0, 2, 1]), np.array([0, 3, 4])), shape=(2, 3))
    data = Dataset(given, [0, 1])
    np.testing.assert_array_equal(data.gather()[0], [[2, 0, 4], [0, 4, 0]])
    np.testing.assert_array_equal(given.indices, [2, 0, 2, 1])
    flags = sparse.csr_array((values > 0, np.array([2, 0, 2, 1]), np.array([0, 3, 4])), shape=(2, 3))
    np.testing.assert_array_equal(Dataset(flags, [0, 1]).gather()[0], [[1, 0, 1], [0, 1, 0]])
    assert Dataset(WORDS, Y).x is WORDS


def test_a_data_set_of_them_is_one() -> None:
    data = Dataset(WORDS, Y)
    assert repr(data) == f"Dataset({N} sparse samples of {FEATURES}, float32, labels int64)"
    assert len(data) == N
    assert len(data[10:20]) == 10
    np.testing.assert_array_equal(data[10:20].gather()[0], DENSE[10:20])
    np.testing.assert_array_equal(data[[5, 3]].gather()[0], DENSE[[5, 3]])
    np.testing.assert_array_equal(data[7][0], DENSE[7])
    batches = [np.asarray(x) for x, _ in DataLoader(data, batch_size=32)]
    np.testing.assert_array_equal(np.concatenate(batches), DENSE)
    train, test = train_test_split(data, 0.25)
    np.testing.assert_array_equal(test.gather()[0], DENSE[test.indices])
    assert len(train) + len(test) == N
    assert digest(range(N), WORDS) == digest(range(N), DENSE)


def test_blocks_of_a_stream_may_be_sparse() -> None:
    def stream(x: Any) -> BlockStream:
        return BlockStream(lambda _: ((x[at : at + 50], Y[at : at + 50]) for at in range(0, N, 50)), rows=N)

    parameters = []
    for x in (WORDS, DENSE):
        model = pdnn.models.mlp([FEATURES, 16, CLASSES], seed=3)
        sgd = optim.SGD(model.parameters(), 0.1)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="serial")
        trainer.fit(stream(x), epochs=2, batch_size=32, verbose=False)
        parameters.append(model.flat_parameters.copy())
    np.testing.assert_array_equal(*parameters)


BLOCKS = BlockStream(lambda _: ((x[:5], Y[:5]) for x in (DENSE, WORDS)), rows=10)


def test_auto_measures_them_and_estimates_are_made() -> None:
    trainer = trained((WORDS, Y), "auto")
    assert trainer.choice is not None
    assert trainer.estimate((WORDS, Y), batch_size=32)


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Dataset(WORDS, Y, scale=2), ValueError, "scale=2 and shift=0 of sparse samples; multiply x"),
        (lambda: Dataset(WORDS, Y, shift=1), ValueError, "scale=1 and shift=1 of sparse samples"),
        (lambda: Dataset(WORDS, Y[1:]), ValueError, f"x has {N} rows and y has {N - 1}"),
        (lambda: Dataset(WORDS * 1j, Y), TypeError, "x has dtype complex"),
        (lambda: Dataset(with_starts(5, 10**8), Y), ValueError, "indptr does not rise from 0 to"),
        (lambda: Dataset(with_starts(5, 0), Y), ValueError, "indptr does not rise from 0 to its"),
        (lambda: Dataset(with_starts(N, 10**8), Y), ValueError, "indptr does not rise from 0 to"),
        (lambda: next(BLOCKS.parts(0, 0, 0, 1, False)), ValueError, "block 1 has samples sparse float32 of"),
        (lambda: Dataset(sparse.csr_array(np.array([[2**53 + 1]])), [0]), ValueError, r"beyond 2\*\*53"),
        (lambda: Stream(WORDS, Y), TypeError, "Stream: x is sparse; pass a Dataset, or blocks"),
        (lambda: trained((WORDS[:, 1:], Y)), ValueError, "input has 299 features, this layer takes 300"),
    ],
)
def test_what_cannot_be_is_refused(make: Callable[[], Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        make()


@pytest.mark.parametrize("format", ["csr", "csc", "bsr"])
@pytest.mark.parametrize("damage", ["far", "short", "long"])
def test_damaged_lines_of_any_format_are_refused(format: str, damage: str) -> None:
    """SciPy looks at them when an array is made, and then no more."""
    x = sparse.random(8, 6, 0.5, "csr", dtype=np.float32, random_state=1).asformat(format, copy=True)
    starts = x.indptr.copy()
    starts[2] = 10**8
    x.indptr = {"far": starts, "short": x.indptr[:-1], "long": np.r_[x.indptr, x.indptr[-1]]}[damage]
    with pytest.raises(ValueError, match="Dataset: sparse x: its indptr does not rise"):
        Dataset(x, np.zeros(8, int))


def test_values_may_be_a_column_of_a_table() -> None:
    table = np.stack([WORDS.data, WORDS.data], axis=1)
    column = sparse.csr_array((table[:, 1], WORDS.indices, WORDS.indptr), shape=WORDS.shape)
    assert not column.data.flags.c_contiguous
    np.testing.assert_array_equal(Dataset(column, Y).gather()[0], Dataset(WORDS, Y).gather()[0])


def test_wide_columns_are_not_cut_to_narrow_ones() -> None:
    for column in (2**32 + 1, -(2**32) + 1):
        x = sparse.csr_array(([1.0, 2.0], ([0, 0], [0, 5])), shape=(1, 10))
        x.indices = np.array([0, column])
        with pytest.raises(ValueError, match=rf"an element in column {column} of 10"):
            Dataset(x, [0]).core_source("float32")


def test_cubes_are_refused() -> None:
    pytest.importorskip("scipy", "1.13")  # the first that has such
    with pytest.raises(ValueError, match=r"Dataset: sparse x has shape \(2, 2, 2\), expected"):
        Dataset(sparse.coo_array(np.ones((2, 2, 2))), [0, 1])


def test_a_row_that_is_not_finite_is_named() -> None:
    spoiled = WORDS.copy()
    spoiled.data[spoiled.indptr[100]] = np.nan
    column = spoiled.indices[spoiled.indptr[100]]
    with pytest.raises(FloatingPointError, match=f"Row 100 of x has nan in column {column}"):
        trained((spoiled, Y))


@pytest.mark.parametrize(
    "strategy", ["scatter-gather", "average:2", "elastic-average:2", "tp:2", "pipeline:2/4", "ddp/4"]
)
def test_ranks_train_to_the_bits_of_dense_rows(strategy: str) -> None:
    def train(data: Any) -> list[pdnn.Trainer]:
        return pdnn.run(trained, data, strategy, ranks=2, backend="threads")

    for ours, theirs in zip(train((WORDS, Y)), train((DENSE, Y)), strict=True):
        np.testing.assert_array_equal(ours.model.flat_parameters, theirs.model.flat_parameters)
        assert ours.history.history["loss"] == theirs.history.history["loss"]


@pytest.mark.parametrize("columns", [2**31 + 10, 2**32 + 10])
def test_columns_whose_numbers_are_too_large_are_refused(columns: int) -> None:
    """They wrapped around."""
    x = sparse.csr_array(([1.0], ([0], [columns - 5])), shape=(1, columns))
    with pytest.raises(ValueError, match=rf"sparse x has {columns} columns; at most"):
        Dataset(x, [0]).core_source("float32")
