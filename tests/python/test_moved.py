"""Former names: found for one release, with a warning that says the present one."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from pdnn import nn
from pdnn.codec import CompressedAllReduce
from pdnn.comm import SELF
from pdnn.history import History
from pdnn.strategies import Pipeline, schedule

MOVED = {
    "pdnn.codec.Books": "pdnn.codec.CompressionStats",
    "pdnn.data.legacy_batches": "pdnn.exercises.legacy_batches",
    "pdnn.datasets.ex4": "pdnn.exercises.ex4",
    "pdnn.datasets.ex4_weights": "pdnn.exercises.ex4_weights",
    "pdnn.estimate.Clock": "pdnn.estimate.ComputeModel",
    "pdnn.estimate.MeasuredClock": "pdnn.estimate.MeasuredCompute",
    "pdnn.estimate.RatedClock": "pdnn.estimate.AnalyticCompute",
    "pdnn.models.lenet_psgd": "pdnn.exercises.lenet_psgd",
}


@pytest.mark.parametrize(("former", "now"), MOVED.items())
def test_a_former_name_is_found_and_warns(former: str, now: str) -> None:
    module, _, name = former.rpartition(".")
    with pytest.warns(DeprecationWarning, match=re.escape(f"{former} is {now} now")):
        found = getattr(import_module(module), name)
    place, _, present = now.rpartition(".")
    assert found is getattr(import_module(place), present)


def test_other_names_are_errors_as_ever() -> None:
    for module in {former.rpartition(".")[0] for former in MOVED}:
        with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'sundial'"):
            _ = import_module(module).sundial


def test_a_former_property_is_found_and_warns(tmp_path: Path) -> None:
    history = History()
    history.add({"loss": 1.0}, {}, compression={"bytes": 5.0})
    with pytest.warns(DeprecationWarning, match=r"History\.books is History\.compression now"):
        assert history.books is history.compression
    former = {"books" if name == "compression" else name: it for name, it in history.to_dict().items()}
    (tmp_path / "history.json").write_text(json.dumps(former))
    assert History.load(tmp_path / "history.json").compression == [{"bytes": 5.0}]
    reduce = CompressedAllReduce(SELF, "int8", 4)
    with pytest.warns(DeprecationWarning, match=r"\.books is CompressedAllReduce\.stats now"):
        assert reduce.books == reduce.stats
    with pytest.warns(DeprecationWarning, match="micros= is micro_batches= now"):
        assert schedule("1f1b", stages=2, micros=4).programs == schedule("1f1b", 2, 4).programs  # type: ignore[call-arg]
    with pytest.warns(DeprecationWarning, match=r"Pipeline\.micros is Pipeline\.num_micro_batches now"):
        assert Pipeline(2).micros == Pipeline(2).num_micro_batches == 8
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with pytest.warns(DeprecationWarning, match=r"Sequential\.flat_state is Sequential\.flat_buffers now"):
        assert np.shares_memory(model.flat_state, model.flat_buffers)
