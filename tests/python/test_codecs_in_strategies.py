"""Codecs between replicas: bytes as computed, one model on all ranks, resumed as if never stopped."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import codec, nn, optim, strategies
from pdnn.codec import CompressionStats
from pdnn.data import Dataset
from pdnn.strategies import DataParallel, Grid, ModelAveraging

pytestmark = pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # more threads than cores

RNG = np.random.default_rng(0)
DATA = Dataset(RNG.integers(0, 256, (53, 12), dtype=np.uint8), RNG.integers(0, 4, 53), scale=1 / 255)
SIZES = (12, 70, 9, 4)
COUNT = sum((inputs + 1) * outputs for inputs, outputs in pairwise(SIZES))
SPECS = ("fp16", "bf16", "int8:32", "1bit:64", "topk:0.05", "powersgd:1")


def train(strategy: str | strategies.Strategy, epochs: int = 2, batch_size: int = 17, **options: Any) -> Any:
    """What one rank has afterwards."""
    model = pdnn.models.mlp(SIZES, "sigmoid", dtype="float64", seed=2)
    sgd = optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
    history = trainer.fit(DATA, epochs, batch_size, validation=DATA, verbose=False, **options)
    return model.flat_parameters.copy(), history


def on_ranks(ranks: int, *arguments: Any, **options: Any) -> list[Any]:
    return pdnn.run(train, *arguments, ranks=ranks, backend="threads", **options)


# ---- the strings


@pytest.mark.parametrize(
    ("spec", "strategy"),
    [
        ("ddp:int8", DataParallel(codec="int8")),
        ("ddp:sum:bf16", DataParallel(average="sum", codec=codec.BFloat16())),
        ("ddp:topk:0.01+team:2", DataParallel(strategies.Team(2), codec=codec.TopK(0.01))),
        ("average:8:1bit:64", ModelAveraging(8, codec="1bit:64")),
        (
            "average:end:powersgd:2+pool:2/8",
            ModelAveraging(None, engine=strategies.Pool(2), codec="powersgd:2"),
        ),
        ("tp:2 x ddp:int8", Grid(tensor=strategies.TensorParallel(2), data=DataParallel(codec="int8"))),
        (
            "pipeline:2 x ddp:sum:fp16",
            Grid(strategies.Pipeline(2), data=DataParallel(average="sum", codec="fp16")),
        ),
    ],
)
def test_codecs_are_spelled_behind_a_colon(spec: str, strategy: strategies.Strategy) -> None:
    assert strategies.parse(spec) == strategy
    assert str(strategy) == spec


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: strategies.parse("ddp:int9"), 'strategy "ddp:int9": codec "int9"; expected one of "fp16"'),
        (lambda: strategies.parse("average:8:topk:2"), '"average:8:topk:2": TopK: fraction = 2'),
        (lambda: DataParallel(codec="int8", shared_memory=True), 'codec "int8" is of messages'),
        (lambda: DataParallel(error_feedback=True), "error_feedback is of a codec"),
        (lambda: DataParallel(error_feedback=False), "error_feedback is of a codec"),
        (lambda: ModelAveraging(8, by="master", codec="int8"), "sums that all ranks make"),
        (lambda: strategies.parse("average:end:own-init:int8"), "same_init=False"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


def test_ranks_must_have_the_same_codec() -> None:
    def different() -> None:
        train(DataParallel(codec="int8", error_feedback=pdnn.world().rank == 1))

    with pytest.raises(ValueError, match=r"rank 1 has strategy ddp:int8 with error_feedback=True"):
        pdnn.run(different, ranks=2, backend="threads")


# ---- bytes


def bytes_of_sum(spec: str, shapes: list[tuple[int, ...]], ranks: int, rank: int) -> int:
    """That leave a rank, by the formulas of docs/codecs.md; the arrays lie one after another."""
    chosen, count = codec.parse(spec), sum(map(math.prod, shapes))
    if spec.startswith("powersgd"):
        code = sum(chosen.bytes(shape, "float64") for shape in shapes)
        return 2 * (ranks - 1) * code // ranks
    if ranks == 2:
        return chosen.bytes(count, "float64")
    parts = [len(part) for part in np.array_split(np.arange(count), ranks)]
    of_parts = [chosen.bytes(part, "float64") for part in parts]
    return sum(of_parts) - of_parts[rank] + (ranks - 1) * of_parts[rank]


def buckets(spec: str, shapes: list[tuple[int, ...]], bucket_bytes: int) -> list[list[tuple[int, ...]]]:
    """As DataParallel cuts them: from the end, equal; or whole parameters, until there are as many bytes."""
    size = bucket_bytes // 8
    if not spec.startswith("powersgd"):
        return [[(min(size, end),)] for end in range(COUNT, 0, -size)]
    cut: list[list[tuple[int, ...]]] = [[]]
    for shape in reversed(shapes):
        if sum(map(math.prod, cut[-1])) >= size:
            cut.append([])
        cut[-1].insert(0, shape)
    return cut


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_data_parallel_sends_as_many_bytes_as_computed(spec: str, ranks: int) -> None:
    shapes = [parameter.shape for parameter in pdnn.models.mlp(SIZES, dtype="float64").parameters()]
    steps = 4
    for bucket_bytes in (None, 3000):
        strategy = DataParallel(codec=spec, bucket_bytes=bucket_bytes)
        cut = buckets(spec, shapes, bucket_bytes or 256 * 1024)
        models = on_ranks(ranks, strategy)
        for rank, (model, history) in enumerate(models):
            np.testing.assert_array_equal(model, models[0][0])
            want = steps * sum(bytes_of_sum(spec, bucket, ranks, rank) for bucket in cut)
            plain = steps * sum(2 * (ranks - 1) * sum(map(math.prod, bucket)) * 8 // ranks for bucket in cut)
            for stats in history.compression:
                assert (stats["sums"], stats["bytes"], stats["bytes_uncompressed"]) == (steps, want, plain)
                assert stats["encode_seconds"] > 0
                assert stats["decode_seconds"] > 0
                assert 0 < stats["error"] < 1


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("ranks", [2, 3])
def test_averages_send_as_many_bytes_as_computed(spec: str, ranks: int) -> None:
    shapes = [parameter.shape for parameter in pdnn.models.mlp(SIZES, dtype="float64").parameters()]
    for every, averages in ((2, [2, 3]), (None, [0, 1])):  # of 5 steps an epoch, and when training ends
        models = on_ranks(ranks, ModelAveraging(every, codec=spec), batch_size=11 if ranks == 2 else 4)
        steps = math.ceil(53 / (11 * 2 if ranks == 2 else 4 * 3))
        if every == 2:
            done = [steps // 2, 2 * steps // 2 - steps // 2]
            averages = [done[0], done[1] + (2 * steps) % 2]
        for rank, (model, history) in enumerate(models):
            np.testing.assert_array_equal(model, models[0][0])
            for stats, sums in zip(history.compression, averages, strict=True):
                if sums == 0:
                    assert stats == {}
                    continue
                assert stats["sums"] == sums
                assert stats["bytes"] == sums * bytes_of_sum(spec, shapes, ranks, rank)
                assert stats["bytes_uncompressed"] == sums * (2 * (ranks - 1) * COUNT * 8 // ranks)
                assert 0 < stats["error"] < 1


def test_without_a_codec_or_alone_nothing_is_counted() -> None:
    assert on_ranks(2, "ddp")[0][1].compression == [{}, {}]
    assert on_ranks(1, "ddp:int8")[0][1].compression == [{}, {}]


def test_statistics_add_up_and_are_kept_with_a_history(tmp_path: Path) -> None:
    history = on_ranks(2, "ddp:topk:0.05")[0][1]
    history.save(tmp_path / "history.json")
    assert pdnn.trainer.History.load(tmp_path / "history.json").compression == history.compression
    assert CompressionStats(1, 2, 3, 4.0, 5.0, 6.0, 7.0) + CompressionStats(bytes=5) == CompressionStats(
        1, 7, 3, 4.0, 5.0, 6.0, 7.0
    )
    said = str(CompressionStats(2, 500, 2000, 0.001, 0.002, 1.0, 400.0))
    assert said == (
        "2 sums, 250 bytes sent in each instead of 1,000 (4 times fewer), "
        "0.001 s to encode and 0.002 s to decode, 5.00% lost"
    )
    assert str(CompressionStats(sums=1)).startswith("1 sum, ")
    assert math.isnan(CompressionStats().error)


# ---- numbers


@pytest.mark.parametrize("strategy", ["ddp", "ddp:sum", "average:2", "tp:2 x ddp", "pipeline:2 x ddp"])
def test_a_codec_that_loses_nothing_changes_nothing(strategy: str) -> None:
    ranks = 4 if "x" in strategy else 3
    want = on_ranks(ranks, strategy)[0]
    for model, history in on_ranks(ranks, f"{strategy}:topk:1.0"):
        np.testing.assert_allclose(model, want[0], rtol=0, atol=1e-12)
        np.testing.assert_allclose(history.history["val_loss"], want[1].history["val_loss"], rtol=1e-11)
        assert history.compression[0]["sums"] > 0


@pytest.mark.parametrize("strategy", ["tp:2 x ddp", "pipeline:2 x ddp", "pipeline:2:interleaved x ddp"])
@pytest.mark.parametrize("spec", ["int8:32", "powersgd:2"])
def test_in_a_product_the_replicas_sums_are_coded(strategy: str, spec: str) -> None:
    want = on_ranks(4, strategy)[0][0]
    models = on_ranks(4, f"{strategy}:{spec}")
    for model, history in models:
        np.testing.assert_array_equal(model, models[0][0])
        assert 0 < np.abs(model - want).max() < 0.02
        assert history.compression[0]["bytes"] < history.compression[0]["bytes_uncompressed"]


@pytest.mark.parametrize("across", ["ddp", "average:2"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_resumed_training_remembers_what_codecs_lost(across: str, ranks: int, tmp_path: Path) -> None:
    for spec in ("int8:32", "1bit:64", "topk:0.05", "powersgd:1"):
        folder = tmp_path / spec
        want = on_ranks(ranks, f"{across}:{spec}", epochs=3)
        on_ranks(ranks, f"{across}:{spec}", epochs=1, checkpoint=folder)
        for (model, history), (wanted, whole) in zip(
            on_ranks(ranks, f"{across}:{spec}", epochs=3, checkpoint=folder, resume=True), want, strict=True
        ):
            np.testing.assert_array_equal(model, wanted)
            assert history.history["val_loss"] == whole.history["val_loss"]
            sent, expected = ([stats["bytes"] for stats in each.compression[1:]] for each in (history, whole))
            assert sent == expected  # the first epoch's are rank 0's, as all of the history that was kept


def test_a_checkpoint_of_other_feedback_is_refused(tmp_path: Path) -> None:
    on_ranks(2, "ddp:topk:0.05", epochs=1, checkpoint=tmp_path)
    on_ranks(2, DataParallel(codec="topk:0.05", error_feedback=False), checkpoint=tmp_path, resume=True)
    other = tmp_path / "other"
    on_ranks(2, DataParallel(codec="int8", error_feedback=False), epochs=1, checkpoint=other)
    with pytest.raises(
        ValueError, match=r"holds 0 values that a codec remembers on rank ., this run needs 1589"
    ):
        on_ranks(2, DataParallel(codec="int8", error_feedback=True), checkpoint=other, resume=True)
