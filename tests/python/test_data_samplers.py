"""Promises of samplers: torch's rows where torch's are defined, every row once, the same on all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdnn import comm
from pdnn.data import (
    BatchSampler,
    DataLoader,
    DataPartitioner,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
)

ROWS, RANKS = st.integers(0, 40), st.integers(1, 7)


def data(n: int = 20) -> Dataset:
    return Dataset(np.arange(2 * n, dtype=np.float32).reshape(n, 2), np.arange(n))


def of_ranks(n: int, ranks: int, **options: Any) -> list[DistributedSampler]:
    return [DistributedSampler(range(n), ranks, rank, **options) for rank in range(ranks)]


# ---- the same rows as torch's


@pytest.fixture(scope="module")
def torch_data() -> Any:
    return pytest.importorskip("torch.utils.data", reason="compares with PyTorch where it is installed")


def test_unshuffled_rows_are_torchs(torch_data: Any) -> None:
    for n in (1, 2, 3, 7, 10, 24):
        assert list(SequentialSampler(range(n))) == list(torch_data.SequentialSampler(range(n)))
        for ranks in (1, 2, 3, 5, 12):
            for drop_last in (False, True):
                options = {"num_replicas": ranks, "shuffle": False, "drop_last": drop_last}
                for rank in range(ranks):
                    ours = DistributedSampler(range(n), rank=rank, **options)
                    theirs = torch_data.DistributedSampler(range(n), rank=rank, **options)
                    assert list(ours) == list(theirs), (n, ranks, rank, drop_last)
                    assert (len(ours), ours.total_size) == (len(theirs), theirs.total_size)


def test_batches_are_torchs(torch_data: Any) -> None:
    for n in (0, 1, 5, 12):
        for size in (1, 4, 5, 20):
            for drop_last in (False, True):
                ours = BatchSampler(SequentialSampler(range(n)), size, drop_last)
                theirs = torch_data.BatchSampler(torch_data.SequentialSampler(range(n)), size, drop_last)
                assert list(ours) == list(theirs)
                assert len(ours) == len(theirs)


def test_a_loader_takes_samplers_as_torchs_does(torch_data: Any) -> None:
    def labels(make: Callable[..., Any], module: Any, **options: Any) -> list[list[int]]:
        batches = make(data(), **{name: option(module) for name, option in options.items()})
        return [[int(label) for label in y] for _, y in batches]

    for options in (
        {"sampler": lambda module: module.SequentialSampler(range(7)), "batch_size": lambda _: 3},
        {
            "sampler": lambda module: module.DistributedSampler(range(20), 3, 1, False),
            "batch_size": lambda _: 4,
            "drop_last": lambda _: True,
        },
        {"batch_sampler": lambda module: module.BatchSampler(module.SequentialSampler(range(7)), 3, False)},
        {"batch_sampler": lambda _: [[3, 1], [2, 2, 19]]},
    ):
        from pdnn import data as ours

        assert labels(ours.DataLoader, ours, **options) == labels(
            torch_data.DataLoader, torch_data, **options
        )


# ---- every row once


@given(n=ROWS, seed=st.integers(0, 3), epoch=st.integers(0, 3))
def test_a_random_sampler_has_every_row_once(n: int, seed: int, epoch: int) -> None:
    sampler = RandomSampler(range(n), seed=seed)
    sampler.set_epoch(epoch)
    rows = list(sampler)
    assert sorted(rows) == list(range(n)) and len(sampler) == n and sampler.epoch == epoch + 1
    loader = DataLoader(data(n), 7, shuffle=True, seed=seed)
    loader.set_epoch(epoch)
    assert rows == [int(label) for _, y in loader for label in y]


@given(n=ROWS, ranks=RANKS, seed=st.integers(0, 3), epoch=st.integers(0, 3), shuffle=st.booleans())
def test_ranks_share_the_rows_as_the_mode_says(
    n: int, ranks: int, seed: int, epoch: int, shuffle: bool
) -> None:
    for mode in ("pad", "drop", "exact"):
        samplers = of_ranks(n, ranks, shuffle=shuffle, seed=seed, mode=mode)
        for sampler in samplers:
            sampler.set_epoch(epoch)
        rows = [list(sampler) for sampler in samplers]
        assert [len(mine) for mine in rows] == [len(sampler) for sampler in samplers]
        assert {sampler.num_samples for sampler in samplers} == {max(map(len, rows))}
        assert {sampler.min_samples for sampler in samplers} == {min(map(len, rows))}
        counts = Counter(row for mine in rows for row in mine)
        if mode == "exact":
            assert counts == Counter(range(n)) and max(map(len, rows)) - min(map(len, rows)) <= 1
        elif mode == "drop":
            assert set(counts.values()) <= {1} and counts.total() == n // ranks * ranks
        else:
            assert set(counts) == set(range(n)) and counts.total() == -(-n // ranks) * ranks
            assert not n or max(counts.values()) - min(counts.values()) <= 1


@given(n=ROWS, ranks=RANKS, size=st.integers(1, 9), drop_last=st.booleans())
def test_exact_ranks_have_the_same_number_of_batches_of_nearly_the_same_size(
    n: int, ranks: int, size: int, drop_last: bool
) -> None:
    samplers = of_ranks(n, ranks, seed=1, mode="exact")
    batches = [list(BatchSampler(sampler, size, drop_last)) for sampler in samplers]
    counts = {len(mine) for mine in batches} | {len(BatchSampler(s, size, drop_last)) for s in samplers}
    assert len(counts) == 1
    for together in zip(*batches, strict=True):
        sizes = [len(mine) for mine in together]
        assert max(sizes) - min(sizes) <= 1
        assert not drop_last or set(sizes) == {size}
    if not drop_last:
        assert sorted(row for mine in batches for rows in mine for row in rows) == list(range(n))


def test_a_loader_gives_an_exact_rank_its_empty_batch() -> None:
    loaders = [DataLoader(data(9), 4, sampler=sampler) for sampler in of_ranks(9, 2, mode="exact")]
    sizes = [[(len(x), len(y)) for x, y in loader] for loader in loaders]
    assert sizes == [[(4, 4), (1, 1)], [(4, 4), (0, 0)]]
    assert [len(loader) for loader in loaders] == [2, 2]


@given(n=st.integers(0, 200), shares=st.lists(st.integers(0, 9), min_size=1, max_size=6))
def test_a_partition_leaves_no_row_out(n: int, shares: list[int]) -> None:
    total = sum(shares) or 1
    parts = DataPartitioner(data(n), [share / total for share in shares], seed=n)
    rows = [parts.use(number).indices for number in range(len(shares))]
    assert sorted(int(row) for mine in rows for row in mine) == (list(range(n)) if sum(shares) else [])
    for share, mine in zip(shares, rows, strict=True):
        assert abs(len(mine) - n * share / total) <= 1


def test_equal_shares_differ_by_a_row() -> None:
    """50,000 rows over three ranks: the published rule drops two."""
    sizes = [len(DataPartitioner(data(50_000), [1 / 3] * 3).use(rank)) for rank in range(3)]
    assert sum(sizes) == 50_000 and max(sizes) - min(sizes) == 1
    few = DataPartitioner(data(10), [0.2, 0.3])
    assert [len(few.use(number)) for number in range(2)] == [2, 3]
    assert few.use(0).dataset.x.shape == (10, 2)


def test_a_part_that_is_not_there_is_told() -> None:
    parts = DataPartitioner(data(10), [0.5, 0.5])
    assert len(parts.use(-1)) == 5
    for wrong in (2, -3):
        with pytest.raises(IndexError, match=f"DataPartitioner: there is no part {wrong}; it has 2, from 0"):
            parts.use(wrong)


# ---- orders


def test_orders_depend_on_seed_and_epoch_only() -> None:
    def rows(sampler: Any, epoch: int) -> list[int]:
        sampler.set_epoch(epoch)
        return list(sampler)

    for make in (RandomSampler, lambda source, seed: DistributedSampler(source, 2, 1, seed=seed)):
        first, again, other = make(range(50), seed=1), make(range(50), seed=1), make(range(50), seed=2)
        assert rows(first, 0) != rows(first, 1) == rows(again, 1) != rows(other, 1)
        assert rows(first, 0) == rows(again, 0)
    random = RandomSampler(range(50))
    assert list(random) != list(random)  # a fresh order each time
    shared = DistributedSampler(range(50), 2, 0)
    assert list(shared) == list(shared)  # ranks move on together, when they are told


def test_draws_with_replacement_come_from_all_rows() -> None:
    sampler = RandomSampler(range(10), replacement=True, num_samples=4000, seed=3)
    rows = list(sampler)
    assert len(rows) == len(sampler) == 4000
    assert np.all(np.abs(np.bincount(rows, minlength=10) - 400) < 5 * np.sqrt(400))
    assert rows != list(sampler)
    sampler.set_epoch(0)
    assert rows == list(sampler)
    assert len(list(RandomSampler(range(10), num_samples=3))) == 3


def test_a_loader_passes_its_epoch_on() -> None:
    sampler = DistributedSampler(range(20), 2, 0)
    for options in (
        {"sampler": sampler, "batch_size": 4},
        {"batch_sampler": BatchSampler(sampler, 4, False)},
    ):
        loader = DataLoader(data(), **options)
        loader.set_epoch(6)
        assert (sampler.epoch, loader.epoch) == (6, 6)
        rows = [int(label) for _, y in loader for label in y]
        assert (sampler.epoch, loader.epoch) == (6, 7) and rows == list(sampler)


def test_ranks_are_those_of_the_world() -> None:
    def mine() -> list[int]:
        return list(DistributedSampler(range(7), shuffle=False, mode="exact"))

    assert comm.run_threads(mine, 3) == [[0, 3, 6], [1, 4], [2, 5]]
    assert mine() == list(range(7))


# ---- mistakes


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: RandomSampler(range(3), num_samples=4),
            "num_samples is 4, the data have 3 rows.*replacement",
        ),
        (lambda: RandomSampler(range(3), num_samples=-1), "num_samples = -1"),
        (lambda: RandomSampler(range(0), True, 4), "num_samples is 4, the data have 0 rows"),
        (lambda: RandomSampler(range(3), seed=-1), "RandomSampler: seed = -1; expected an integer from 0"),
        (lambda: RandomSampler(range(3)).set_epoch(-1), "RandomSampler: epoch = -1"),
        (
            lambda: BatchSampler(SequentialSampler(range(3)), 0, False),
            "batch_size = 0; expected an integer from 1",
        ),
        (lambda: DistributedSampler(range(3), 2, 2), "rank is 2, expected 0 to 1"),
        (lambda: DistributedSampler(range(3), 2, -1), "rank = -1"),
        (lambda: DistributedSampler(range(3), 2, 0, seed=-1), "DistributedSampler: seed = -1"),
        (lambda: DistributedSampler(range(3), 2, 0, mode="most"), 'mode is "most", expected "pad", "drop"'),
        (lambda: DistributedSampler(range(3), 2, 0, drop_last=True, mode="pad"), 'expected "drop", which'),
        (lambda: DistributedSampler(range(3), 2, 0).set_epoch(-1), "epoch = -1"),
        (lambda: DataPartitioner(data(), [0.7, 0.4]), "sizes are .* sum to at most 1"),
        (lambda: DataPartitioner(data(), [-0.1, 0.4]), "sizes are"),
        (lambda: DataLoader(data(), shuffle=True, sampler=range(3)), "shuffle and sampler both"),
        (lambda: DataLoader(data(), 2, batch_sampler=[[1]]), "pass it alone"),
        (lambda: DataLoader(data(), batch_sampler=[[1]], sampler=range(3)), "pass it alone"),
    ],
)
def test_mistakes_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: RandomSampler(range(3), num_samples="a"), "RandomSampler: num_samples is 'a'"),
        (lambda: BatchSampler(range(3), 2.5, False), "BatchSampler: batch_size is 2.5, expected an integer"),
        (lambda: DistributedSampler(range(3), 2.0, 0), "DistributedSampler: num_replicas is 2.0"),
        (lambda: DistributedSampler(range(3), 2, 0).set_epoch(0.5), "DistributedSampler: epoch is 0.5"),
        (lambda: DataPartitioner(data(), seed=None), "DataPartitioner: seed is None"),
        (lambda: DataLoader(data()).set_epoch("a"), "DataLoader: epoch is 'a'"),
    ],
)
def test_numbers_that_are_no_integers_are_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        make()


@pytest.mark.parametrize("name", ["sampler", "batch_sampler"])
def test_what_serves_one_epoch_is_refused(name: str) -> None:
    """Of a generator the second epoch had no batches."""
    for sampler, kind in ((iter([[0]]), "list_iterator"), (map(list, [[0]]), "map"), (3, "int")):
        with pytest.raises(TypeError, match=f"DataLoader: {name} is of type {kind}, expected what can be"):
            DataLoader(data(), **{name: sampler})  # type: ignore[arg-type]


def test_rows_that_are_none_are_refused() -> None:
    with pytest.raises(IndexError, match="DataLoader: index 20 lies outside a data set of 20 rows"):
        list(DataLoader(data(), batch_sampler=[[20]]))
    with pytest.raises(TypeError, match="DataLoader: the indices have dtype float64"):
        list(DataLoader(data(), batch_sampler=[[0.5]]))
