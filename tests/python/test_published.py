"""Published figures say where they come from, and to whom they belong."""

from __future__ import annotations

import pytest

from pdnn.exercises import published
from pdnn.exercises.published import Figure

FIGURES = {name: value for name, value in vars(published).items() if isinstance(value, Figure)}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_has_conditions_and_a_source(name: str) -> None:
    figure = FIGURES[name]
    assert figure.what and figure.conditions and figure.source
    assert str(figure) == f"{figure.what}: {figure.conditions}; {figure.source}"


def test_the_printed_losses_of_data_parallel_are_those_of_two_workers() -> None:
    """All steps that were measured lie in the ranges of the mean; one worker is far above at step 100."""
    theirs = published.DATA_PARALLEL_TEST_LOSS.value
    for step, (low, high) in published.MEAN_RANGES.value.items():
        assert low <= round(theirs[step], 2) <= high
    assert theirs[100] < published.SUM_RANGES.value[100][0] < published.ONE_WORKER_RANGES.value[100][0]


def test_curves_of_a_run_have_the_same_epochs() -> None:
    assert published.VANILLA_LOSS.value.keys() == published.VANILLA_ACCURACY.value.keys()
    assert published.PARALLEL_LOSS.value.keys() == published.PARALLEL_ACCURACY.value.keys()
    assert published.PSGD_SECONDS.value.keys() == published.HOGWILD_ACCURACY.value.keys()
