"""Pipelines through the Trainer, with ranks as threads: they train as one process does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import codec, models, nn, optim, strategies
from pdnn.data import Dataset
from pdnn.history import History
from pdnn.strategies import Pipeline, schedule

pytestmark = pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # more threads than cores

RNG = np.random.default_rng(0)
ROWS, BATCH = 38, 9  # five steps, the last of two rows
DATA = Dataset(RNG.integers(0, 256, (ROWS, 12), dtype=np.uint8), RNG.integers(0, 4, ROWS), scale=1 / 255)


def make(strategy: Any) -> pdnn.Trainer:
    layers = [
        nn.Linear(12, 9),
        nn.Tanh(),
        nn.Residual(nn.Sequential(nn.Linear(9, 9), nn.ReLU(), nn.Dropout(0.2))),
        nn.Linear(9, 11),
        nn.ReLU(),
        nn.Dropout(0.1),
        nn.Linear(11, 7),
        nn.Sigmoid(),
        nn.Linear(7, 4),
    ]
    model = nn.Sequential(*layers, dtype="float64", seed=2)
    sgd = optim.SGD(model.parameters(), lr=0.3, momentum=0.9, weight_decay=1e-3)
    return pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)


def train(strategy: Any, **options: Any) -> Any:
    """What one rank has afterwards."""
    trainer = make(strategy)
    trainer.fit(DATA, 1, BATCH, validation=DATA, verbose=False, **options)
    return trainer.model.flat_parameters, trainer.history


def check_equal(ranks: list[Any], want: Any) -> None:
    model, history = want
    for got, log in ranks:
        np.testing.assert_array_equal(got, ranks[0][0])  # the whole model is on every rank
        np.testing.assert_allclose(got, model, rtol=0, atol=1e-12 * np.abs(model).max())
        for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
            np.testing.assert_allclose(log.history[name], history.history[name], rtol=1e-12)


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved"])
def test_a_pipeline_trains_as_one_process_does(stages: int, name: str) -> None:
    spec = f"pipeline:{stages}/4:{name}"  # the last step has fewer rows
    check_equal(pdnn.run(train, spec, ranks=stages, backend="threads"), train("serial"))


@pytest.mark.parametrize("stages", [1, 2])
def test_batch_norm_sees_micro_batches_as_a_pool_s_pieces(stages: int) -> None:
    def fit(strategy: str) -> Any:
        layers = nn.Linear(12, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 4)
        model = nn.Sequential(*layers, dtype="float64", seed=2)
        sgd = optim.SGD(model.parameters(), lr=0.3)
        pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy).fit(DATA, 2, BATCH, verbose=False)
        return np.concatenate([model.flat_parameters, model.flat_buffers])

    want = fit("pool:1/3")
    for got in pdnn.run(fit, f"pipeline:{stages}/3", ranks=stages, backend="threads"):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-12)
    assert np.abs(fit("serial") - want).max() > 1e-3


def test_replicas_of_interleaved_pipelines_train_as_one_process_does() -> None:
    check_equal(
        pdnn.run(train, "pipeline:2/3:interleaved x ddp", ranks=4, backend="threads"), train("serial")
    )


CODECS = ["fp16", "bf16", "int8:16", "1bit:16", "topk:0.2"]


def two_layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(12, 9), nn.Tanh(), nn.Linear(9, 4), dtype="float64", seed=2)


def train_coded(spec: str, codec: Any, epochs: int = 1) -> Any:
    """Parameters after some steps of a pipeline cut behind the Tanh, and what was counted of messages."""
    words = strategies.parse(spec)
    assert isinstance(words, Pipeline)
    model = two_layers()
    pipeline = Pipeline(2, words.micro_batches, words.schedule, cut=(2,), codec=codec)
    trainer = pdnn.Trainer(
        model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.3), strategy=pipeline
    )
    trainer.fit(DATA, epochs, BATCH, shuffle=False, verbose=False)
    return model.state_dict(), trainer.history.compression


@pytest.mark.parametrize("spec", ["pipeline:2/3", "pipeline:2/3:gpipe", "pipeline:2/1"])
@pytest.mark.parametrize("name", CODECS)
def test_what_travels_is_what_the_codec_keeps(spec: str, name: str) -> None:
    """The same steps in NumPy, with the activations and their gradients through the codec."""
    kept = codec.parse(name)
    micro_batches = int(spec[11])

    def through(values: np.ndarray) -> np.ndarray:
        return kept.decode(kept.encode(values), values.shape, "float64")

    w1, b1, w2, b2 = (values.copy() for values in two_layers().state_dict().values())
    for start in range(0, ROWS, BATCH):
        rows = np.arange(start, min(start + BATCH, ROWS))
        d1, e1, d2, e2 = (np.zeros_like(values) for values in (w1, b1, w2, b2))
        for micro in np.array_split(rows, micro_batches):
            if len(micro) == 0:
                continue
            x = DATA.x[micro] / 255
            y = np.tanh(x @ w1 + b1)
            sent = through(y)
            out = np.exp(sent @ w2 + b2)
            slope = (out / out.sum(axis=1, keepdims=True) - np.eye(4)[DATA.y[micro]]) / len(rows)
            d2 += sent.T @ slope
            e2 += slope.sum(axis=0)
            slope = through(slope @ w2.T) * (1 - y**2)
            d1 += x.T @ slope
            e1 += slope.sum(axis=0)
        for values, gradient in ((w1, d1), (b1, e1), (w2, d2), (b2, e2)):
            values -= 0.3 * gradient
    for got, _ in pdnn.run(train_coded, spec, name, ranks=2, backend="threads"):
        for values, want in zip(got.values(), (w1, b1, w2, b2), strict=True):
            np.testing.assert_allclose(values, want, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", [None, *CODECS])
def test_the_bytes_of_an_epoch_are_those_of_the_formula(name: str | None) -> None:
    pieces = [len(piece) for n in (9, 9, 9, 9, 2) for piece in np.array_split(range(n), 4)]
    plain = sum(rows * 9 * 8 for rows in pieces)
    sent = sum(codec.parse(name).bytes((rows, 9), "float64") for rows in pieces) if name else plain
    for _, stats in pdnn.run(train_coded, "pipeline:2/4", name, 2, ranks=2, backend="threads"):
        for epoch in stats:  # rank 0 sends y, rank 1 as much dx
            assert (epoch["bytes"], epoch["bytes_uncompressed"]) == (sent, plain)
            assert (epoch["encode_seconds"] > 0) == (epoch["decode_seconds"] > 0) == (name is not None)
        assert len(stats) == 2


def test_how_codecs_of_pipelines_are_spelled() -> None:
    for spec in ("pipeline:2:int8", "pipeline:2/8:gpipe:bf16", "pipeline:2/8:topk:0.25+team:2"):
        assert str(strategies.parse(spec)) == spec
    assert strategies.parse("pipeline:2/8:int8:64 x ddp") == strategies.Grid(
        Pipeline(2, 8, codec=codec.Int8(64)), data=strategies.DataParallel()
    )
    with pytest.raises(ValueError, match=r'schedule "int9"; expected one of 1f1b, gpipe, .*or a codec'):
        strategies.parse("pipeline:2:int9")
    with pytest.raises(ValueError, match=r'codec "powersgd:2" makes factors .* "int8" fits'):
        Pipeline(2, codec="powersgd:2")
    with pytest.raises(TypeError, match="codec is of type ErrorFeedback"):
        Pipeline(2, codec=codec.ErrorFeedback("1bit"))  # type: ignore[arg-type]


def timeline_of(strategy: Any) -> Any:
    return train(strategy, timeline=True)[1]


def test_a_step_without_micro_batches_has_no_timeline() -> None:
    with pytest.raises(ValueError, match='timeline=True is for pipelines, strategy "tp:2" has none'):
        pdnn.run(timeline_of, "tp:2", ranks=2, backend="threads")


def test_a_measured_step_is_in_the_history(tmp_path: Path) -> None:
    for history in pdnn.run(timeline_of, "pipeline:2/4:gpipe", ranks=2, backend="threads"):
        timeline = history.timeline
        programs = schedule("gpipe", 2, 4).programs
        assert [[(e.what, e.micro) for e in lane] for lane in timeline.lanes] == [
            [(i.what, i.micro) for i in program] for program in programs
        ]
        for lane in timeline.lanes:
            times = [time for event in lane for time in (event.begin, event.end)]
            assert times == sorted(times)
        assert 0 < timeline.bubble < 1
        assert timeline.in_flight == schedule("gpipe", 2, 4).in_flight == [4, 4]
        history.save(tmp_path / "history.json")
        read = History.load(tmp_path / "history.json").timeline
        assert read is not None
        assert read.lanes == timeline.lanes
        assert len(json.loads(read.chrome_trace())["traceEvents"]) == 2 + sum(map(len, timeline.lanes))


def test_a_step_of_lbfgs_is_in_the_history_too() -> None:
    def job() -> Any:
        model = models.mlp([4, 6, 3], seed=0)
        lbfgs = optim.LBFGS(model.parameters(), max_iter=2)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), lbfgs, strategy="pipeline:2/2:gpipe")
        return trainer.fit(np.ones((8, 4)), np.arange(8) % 3, 1, 8, timeline=True, verbose=False).timeline

    for timeline in pdnn.run(job, ranks=2, backend="threads"):
        first, second = timeline.lanes  # of each evaluation two micro-batches, forward and backward
        assert len(first) == len(second) >= 8 and len(first) % 4 == 0


def test_a_schedule_that_is_none_is_refused() -> None:
    for given in (None, 3, [None, None]):
        with pytest.raises(TypeError, match="expected the name of one, or for each rank its passes"):
            Pipeline(2, schedule=given)  # type: ignore[arg-type]


def test_without_a_pipeline_there_is_no_timeline() -> None:
    assert train("serial")[1].timeline is None
    with pytest.raises(ValueError, match='timeline=True is for pipelines, strategy "team:2" has none'):
        train("team:2", timeline=True)
