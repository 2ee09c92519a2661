"""Pipelines through the Trainer, with ranks as threads: they train as one process does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.data import Dataset
from pdnn.history import History
from pdnn.parallel import schedule

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


def test_replicas_of_interleaved_pipelines_train_as_one_process_does() -> None:
    check_equal(
        pdnn.run(train, "pipeline:2/3:interleaved x ddp", ranks=4, backend="threads"), train("serial")
    )


def timeline_of(strategy: Any) -> Any:
    return train(strategy, timeline=True)[1]


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
        history.save(tmp_path / "history.json")
        read = History.load(tmp_path / "history.json").timeline
        assert read is not None
        assert read.lanes == timeline.lanes
        assert len(json.loads(read.chrome_trace())["traceEvents"]) == 2 + sum(map(len, timeline.lanes))


def test_without_a_pipeline_there_is_no_timeline() -> None:
    assert train("serial")[1].timeline is None
    with pytest.raises(ValueError, match='timeline=True is for pipelines, strategy "team:2" has none'):
        train("team:2", timeline=True)
