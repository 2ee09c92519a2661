"""Former names: found for one release, with a warning that says the present one."""

from __future__ import annotations

import re
from importlib import import_module

import pytest

MOVED = {
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
