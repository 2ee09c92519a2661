"""Reproducible sums: a training has the same bits on any number of threads, ranks and stages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim
from pdnn.data import Dataset
from pdnn.strategies import (
    DataParallel,
    Grid,
    ModelAveraging,
    Pipeline,
    Pool,
    Serial,
    Strategy,
    Team,
    TensorParallel,
    parse,
)

RNG = np.random.default_rng(0)
INPUTS, CLASSES, ROWS, BATCH, EPOCHS = 13, 4, 67, 29, 3  # batches of 29, 29 and 9 rows in 8 leaves
FLAT = Dataset(RNG.random((ROWS, INPUTS)), RNG.integers(0, CLASSES, ROWS))
IMAGES = Dataset(RNG.random((ROWS, 2, 6, 6)), RNG.integers(0, CLASSES, ROWS))


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


def cnn(dtype: str) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 5, 3, padding=1),
        nn.BatchNorm2d(5, sync=True),
        nn.ReLU(),
        nn.Conv2d(5, 3, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(27, CLASSES),
        dtype=dtype,
        seed=2,
    )


def digits(dtype: str) -> nn.Sequential:
    return models.mlp([784, 256, 10], "sigmoid", dtype=dtype, seed=2)


def pooled(dtype: str) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 5, 3),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(20, CLASSES),
        dtype=dtype,
        seed=2,
    )


def wide(dtype: str) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(INPUTS, 40),
        nn.Sigmoid(),
        nn.Linear(40, 421),
        nn.ReLU(),
        nn.Linear(421, 150),
        nn.Tanh(),
        nn.Linear(150, CLASSES),
        dtype=dtype,
        seed=2,
    )


def lenet(dtype: str) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, padding=2),
        nn.BatchNorm2d(8, sync=True),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 5),
        nn.BatchNorm2d(16, sync=True),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(400, 10),
        dtype=dtype,
        seed=2,
    )


DIGITS = Dataset(RNG.integers(0, 256, (371, 784), dtype=np.uint8), RNG.integers(0, 10, 371), scale=1 / 255)
PICTURES = Dataset(DIGITS.x.reshape(-1, 1, 28, 28), DIGITS.y, scale=1 / 255)
NETWORKS = {
    "mlp": (mlp, FLAT),
    "cnn": (cnn, IMAGES),
    "pooled": (pooled, IMAGES),
    "wide": (wide, FLAT),
    "784-256-10": (digits, DIGITS),
    "lenet": (lenet, PICTURES),
}


def train(
    strategy: str | Strategy,
    network: str,
    dtype: str,
    clip: float | None = None,
    batch_size: int = BATCH,
    **options: Any,
) -> tuple[Any, ...]:
    """What must not depend on who computes: the fingerprint, losses and accuracies."""
    make, data = NETWORKS[network]
    model = make(dtype)
    adam = optim.Adam(model.parameters(), lr=0.01)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), adam, strategy=strategy, clip_norm=clip, **options)
    history = trainer.fit(data, EPOCHS, batch_size, verbose=False)
    buffers = model.flat_buffers.tobytes()
    return history.fingerprint, buffers, history.history["loss"], history.history["accuracy"]


def on_ranks(ranks: int, *arguments: Any, **options: Any) -> tuple[Any, ...]:
    found = pdnn.run(train, *arguments, **options, ranks=ranks, backend="threads")
    assert all(each == found[0] for each in found)
    first: tuple[Any, ...] = found[0]
    return first


LAYOUTS: list[tuple[str | Strategy, int]] = [
    ("team:2/8", 1),
    ("pool:1/8", 1),
    ("pool:2", 1),
    ("pool:3/8", 1),
    *(("ddp/8", ranks) for ranks in (1, 2, 3, 4, 5, 7)),
    (DataParallel(Serial(8), shared_memory=False), 3),
    ("ddp+team:2/8", 2),
    (DataParallel(Serial(8), bucket_bytes=300), 3),
    (DataParallel(Team(2, 8), bucket_bytes=1000), 2),
    *(("ddp+pool:2", ranks) for ranks in (2, 7)),
    (DataParallel(Pool(2), shared_memory=False), 3),
]


PIPELINES: list[tuple[str | Strategy, int]] = [
    ("pipeline:1/8", 1),
    ("pipeline:1 x ddp/8", 2),
    ("pipeline:2/8", 2),
    ("pipeline:3/8:gpipe", 3),
    *(("pipeline:2 x ddp/8", ranks) for ranks in (2, 4, 6)),
    ("pipeline:2:interleaved x ddp/8+team:2", 4),
    (Grid(Pipeline(2), data=DataParallel(Serial(8), bucket_bytes=300)), 6),
]


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_a_training_has_the_same_bits_on_any_ranks(network: str, dtype: str, clip: float | None) -> None:
    want = train("serial/8", network, dtype, clip)
    for strategy, ranks in [*LAYOUTS, *(PIPELINES if network == "mlp" else [])]:
        assert on_ranks(ranks, strategy, network, dtype, clip) == want, f"{strategy} on {ranks}"
    assert train("serial/7", network, dtype, clip)[0] != want[0]  # other leaves have other bits
    assert np.allclose(train("serial", network, dtype, clip)[2], want[2], rtol=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("network", ["784-256-10", "lenet"])
def test_larger_networks_have_the_same_bits_on_any_ranks(network: str, dtype: str) -> None:
    want = train("serial/8", network, dtype, batch_size=105)
    for strategy, ranks in [*LAYOUTS, *(PIPELINES[:1] if network == "784-256-10" else [])]:
        if isinstance(strategy, DataParallel) and strategy.bucket_bytes is not None:
            strategy = replace(strategy, bucket_bytes=100 * strategy.bucket_bytes)  # else thousands
        got = on_ranks(ranks, strategy, network, dtype, batch_size=105)
        assert got == want, f"{strategy} on {ranks}"


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_two_ranks_that_share_large_weights_have_the_same_bits(dtype: str, clip: float | None) -> None:
    for leaves in (2, 3, 8):  # of three, one rank has two nodes
        want = train(f"serial/{leaves}", "wide", dtype, clip)
        for engine in (Serial(leaves), Team(2, leaves), Pool(2, leaves)):
            strategy = DataParallel(engine, shared_memory=True)
            if leaves >= 2 * engine.threads:
                assert on_ranks(2, strategy, "wide", dtype, clip) == want, str(strategy)


def test_leaves_add_up_many_rows_more_exactly() -> None:
    x, y = np.random.default_rng(0).random((100_000, 32)), np.zeros((100_000, 8))

    def gradient(strategy: str, dtype: str) -> np.ndarray:
        layers = nn.Linear(32, 32), nn.Sigmoid(), nn.Linear(32, 8)
        model = nn.Sequential(*layers, dtype=dtype, seed=1)
        before = model.flat_parameters.astype(np.float64)
        trainer = pdnn.Trainer(model, nn.MSELoss(), optim.SGD(model.parameters(), 1.0), strategy=strategy)
        trainer.fit((x.astype(dtype), y.astype(dtype)), 1, len(x), shuffle=False, verbose=False)
        return before - model.flat_parameters

    exact = gradient("serial", "float64")
    plain, leaves = (abs(gradient(strategy, "float32") - exact).max() for strategy in ("serial", "serial/64"))
    assert leaves < plain / 5


def test_a_convolution_and_its_pooling_are_in_one_stage() -> None:
    want = train("serial/8", "pooled", "float32")
    for cut in (None, (3,), (4,)):  # by what the layers take, too
        assert on_ranks(2, Pipeline(2, 8, cut=cut), "pooled", "float32") == want
    assert on_ranks(3, "pipeline:3/8", "pooled", "float32") == want
    refused: list[tuple[int, str | Strategy]] = [(2, Pipeline(2, 8, cut=(cut,))) for cut in (1, 2)]
    for ranks, strategy in (*refused, (4, "pipeline:4/8")):
        with pytest.raises(ValueError, match=r"layers 0 to 2, .* cut before layer 0 or 3, or into fewer"):
            on_ranks(ranks, strategy, "pooled", "float32")


def test_a_training_by_default_asks_for_eight_leaves() -> None:
    want = train("serial/8", "mlp", "float64")
    assert on_ranks(2, "auto", "mlp", "float64", reproducible=True) == want
    assert on_ranks(2, "pipeline:2", "mlp", "float64", reproducible=True) == want


def test_statistics_of_own_rows_are_refused() -> None:
    model = nn.Sequential(nn.Linear(INPUTS, 5), nn.BatchNorm1d(5), nn.Linear(5, CLASSES))
    trainer = pdnn.Trainer(
        model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1), strategy="serial/8"
    )
    with pytest.raises(ValueError, match=r"a layer with sync=False .* pass sync=True"):
        trainer.fit(FLAT, 1, BATCH, verbose=False)


@pytest.mark.parametrize("strategy", ["serial", "pool:2", "pool:2/8", "ddp+pool:2"])
def test_statistics_of_own_rows_are_refused_where_the_same_bits_are_asked_for(strategy: str) -> None:
    inner = nn.Sequential(nn.Linear(INPUTS, INPUTS), nn.BatchNorm1d(INPUTS))
    model = nn.Sequential(nn.Residual(inner), nn.Linear(INPUTS, CLASSES))
    sgd = optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"a layer with sync=False, .* pass sync=True"):
        pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy, reproducible=True)


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
        "pipeline:2 x ddp": "pipeline:2 x ddp/8",
        "pipeline:2:gpipe x ddp/5": "pipeline:2:gpipe x ddp/5",
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
        ("tp:2 x ddp", "ranks that hold parts of the network"),
        ("pipeline:2/4 x ddp", "name their number behind ddp alone"),
        ("pipeline:2:int8 x ddp", "what a codec loses"),
        ("pipeline:2 x ddp:int8", "what a codec loses"),
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
        lambda: TensorParallel(2, Serial(8)),
        lambda: Pipeline(2, engine=Team(2, 8)),
        lambda: parse("tp:2 x ddp/8"),
        lambda: parse("pipeline:2/4 x ddp/8"),
        lambda: parse("pipeline:2:int8 x ddp/8"),
        lambda: parse("pipeline:2 x ddp+team:2/8"),
    ):
        with pytest.raises(ValueError, match="does not take part in reproducible sums"):
            strategy()
    assert DataParallel(Pool(2), codec="int8").leaves == 0  # its pieces are of a rank's own rows
    with pytest.raises(ValueError, match=r'strategy "ddp/8\+team:2", which may mean'):
        parse("ddp/8+team:2")


def test_more_ranks_than_leaves_are_refused_with_what_fits() -> None:
    for spec, fits in (("ddp/8", "ddp/9"), ("ddp+pool:2", r"ddp\+pool:2/9")):
        why = parse(spec).misfit(9)
        assert why is not None and fits.replace("\\", "") in why
        assert parse(spec).fits(8)
    assert parse("pipeline:2 x ddp/4").misfit(8) is None
    assert parse("pipeline:2 x ddp/3").misfit(8) == (
        'cuts a batch into 3 leaves for 4 replicas; "pipeline:2 x ddp/4" fits'
    )
    with pytest.raises(
        ValueError, match=r'cuts a batch into 2 leaves, this world has 3 ranks; "ddp\+pool:1/3"'
    ):
        on_ranks(3, "ddp+pool:1/2", "mlp", "float64")


def test_the_fastest_strategy_is_not_reproducible() -> None:
    with pytest.raises(ValueError, match="with reproducible=True name the strategy"):
        train("fastest", "mlp", "float64", reproducible=True)
