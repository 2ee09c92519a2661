"""Reproducible sums: a training has the same bits on any number of threads, ranks and stages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.data import Dataset
from pdnn.strategies import (
    DataParallel,
    ModelAveraging,
    Pipeline,
    Pool,
    Serial,
    Strategy,
    Team,
    TensorParallel,
    parse,
)

pytestmark = pytest.mark.filterwarnings("ignore:strategy .* threads share:UserWarning")
RNG = np.random.default_rng(0)
INPUTS, CLASSES, ROWS, BATCH, EPOCHS = 13, 4, 67, 29, 3  # batches of 29, 29 and 9 rows in 8 leaves
FLAT = Dataset(RNG.random((ROWS, INPUTS)), RNG.integers(0, CLASSES, ROWS))


def mlp(dtype: str) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(INPUTS, 11),
        nn.Sigmoid(),
        nn.Dropout(0.2),
        nn.Linear(11, 9),
        nn.Tanh(),
        nn.Linear(9, CLASSES),
        dtype=dtype,
        seed=2,
    )


def train(strategy: str | Strategy, dtype: str, clip: float | None = None, **options: Any) -> tuple[Any, ...]:
    """What must not depend on who computes: the fingerprint, losses and accuracies."""
    model = mlp(dtype)
    adam = optim.Adam(model.parameters(), lr=0.01)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), adam, strategy=strategy, clip_norm=clip, **options)
    history = trainer.fit(FLAT, EPOCHS, BATCH, verbose=False)
    return history.fingerprint, history.history["loss"], history.history["accuracy"]


def on_ranks(ranks: int, *arguments: Any, **options: Any) -> tuple[Any, ...]:
    found = pdnn.run(train, *arguments, **options, ranks=ranks, backend="threads")
    assert all(each == found[0] for each in found)
    first: tuple[Any, ...] = found[0]
    return first


LAYOUTS = [
    ("pool:2", 1),
    ("pool:3/8", 1),
    *(("ddp+pool:2", ranks) for ranks in (1, 2, 3, 4, 5, 7)),
    (DataParallel(Pool(1), shared_memory=False), 3),
]


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_training_has_the_same_bits_on_any_ranks(dtype: str, clip: float | None) -> None:
    want = train("pool:1/8", dtype, clip)
    for strategy, ranks in LAYOUTS:
        assert on_ranks(ranks, strategy, dtype, clip) == want, f"{strategy} on {ranks}"
    assert train("pool:1/7", dtype, clip)[0] != want[0]  # other leaves have other bits


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_pipeline_has_the_bits_of_its_micro_batches_as_leaves(dtype: str) -> None:
    want = train("pool:1/8", dtype)
    for spec, ranks in (("pipeline:2/8", 2), ("pipeline:3/8:gpipe", 3), ("pipeline:2/8+team:2", 2)):
        assert on_ranks(ranks, spec, dtype) == want, spec


def test_what_is_asked_for_is_a_number_of_leaves() -> None:
    for spec, want in {
        "serial": "serial/8",
        "team:2": "team:2/8",
        "pool:3": "pool:3/8",
        "ddp": "ddp/8",
        "ddp+team:2": "ddp+team:2/8",
        "ddp+pool:2/16": "ddp+pool:2/16",
        "pipeline:3": "pipeline:3/8",
        "pipeline:3/4": "pipeline:3/4",
    }.items():
        strategy = parse(spec).reproducible()
        assert str(strategy) == want and parse(want) == strategy
        assert strategy.leaves == int(want.rpartition("/")[2])
        assert strategy.reproducible() == strategy
    assert parse("ddp").leaves == parse("serial").leaves == parse("ddp:int8+pool:2").leaves == 0
    ranks = {DataParallel(engine).identity() for engine in (Serial(8), Team(2, 8), Pool(3, 8))}
    assert ranks == {"ddp/8"}  # ranks may have other engines, but not other leaves


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ("average:2", "average:2"),
        ("hogwild:2", "hogwild:2"),
        ("scatter-gather", "scatter-gather"),
        ("tp:2", "ranks that hold parts of the network"),
        ("pipeline:2 x ddp", "ranks that hold parts of the network"),
        ("ddp:int8", "what a codec loses"),
        ("ddp:sum", "a sum of the ranks' means"),
        ("pipeline:2/8:int8", "what a codec loses"),
    ],
)
def test_what_does_not_take_part_says_so(spec: str, why: str) -> None:
    with pytest.raises(ValueError, match=f"does not take part in reproducible sums.*{why}|{why}.*does not"):
        parse(spec).reproducible()


def test_leaves_are_refused_where_sums_have_none() -> None:
    for strategy in (
        lambda: ModelAveraging(2, engine=Team(2, 8)),
        lambda: DataParallel(Serial(8), average="sum"),
        lambda: DataParallel(Serial(8), codec="int8"),
        lambda: DataParallel(Serial(8), bucket_bytes=100),
        lambda: TensorParallel(2, Serial(8)),
        lambda: Pipeline(2, engine=Team(2, 8)),
    ):
        with pytest.raises(ValueError, match="does not take part in reproducible sums"):
            strategy()
    assert DataParallel(Pool(2), bucket_bytes=100).leaves == 0  # its pieces are of a rank's own rows
    with pytest.raises(ValueError, match=r'strategy "ddp/8\+team:2"; expected one of'):
        parse("ddp/8+team:2")


def test_more_ranks_than_leaves_are_refused_with_what_fits() -> None:
    for spec, fits in (("ddp/8", "ddp/9"), ("ddp+pool:2", r"ddp\+pool:2/9")):
        why = parse(spec).misfit(9)
        assert why is not None and fits.replace("\\", "") in why
        assert parse(spec).fits(8)
    with pytest.raises(
        ValueError, match=r'cuts a batch into 2 leaves, this world has 3 ranks; "ddp\+pool:1/3"'
    ):
        on_ranks(3, "ddp+pool:1/2", "float64")


def test_the_fastest_strategy_is_not_reproducible() -> None:
    with pytest.raises(ValueError, match="with reproducible=True name the strategy"):
        train("fastest", "float64", reproducible=True)
