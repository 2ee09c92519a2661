"""Summaries: a line a layer, the counts of papers, and the memory of a step."""

from __future__ import annotations

import pytest

from pdnn import exercises, models, nn


def test_a_summary_counts_parameters_and_operations() -> None:
    model = models.mlp([784, 256, 10], seed=0)
    summary = model.summary((784,), batch_size=100)
    assert summary.parameters == 203_530 == model.flat_parameters.size
    assert summary.flops == 2 * (784 * 256 + 256 * 10)
    assert summary.model_bytes == 2 * 4 * 203_530
    assert [(row.name, row.layer, row.output) for row in summary.rows] == [
        ("0", "Linear", (256,)), ("1", "ReLU", (256,)), ("2", "Linear", (10,)),
    ]  # fmt: skip
    # At least a row's inputs, hidden and output values.
    assert summary.batch_bytes >= 4 * 100 * (784 + 256 + 10)
    twice = model.summary((784,), batch_size=200).batch_bytes
    assert summary.batch_bytes < twice <= 2 * summary.batch_bytes
    text = str(summary)
    assert "203,530" in text
    assert f"{summary.flops:,}" in text
    assert len(text.splitlines()) == 9


def test_layers_inside_layers_have_lines_of_their_own() -> None:
    inner = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU())
    model = nn.Sequential(nn.Flatten(), nn.Residual(inner), nn.Linear(6, 2), dtype="float64")
    summary = model.summary((1, 2, 3))
    assert [(row.name, row.depth, row.parameters) for row in summary.rows] == [
        ("0", 0, 0), ("1", 0, 54), ("1.fn", 1, 54), ("1.fn.0", 2, 42), ("1.fn.1", 2, 12), ("1.fn.2", 2, 0),
        ("2", 0, 14),
    ]  # fmt: skip
    assert summary.rows[0].output == (6,)
    assert "    0  Linear" in str(summary) and "0.fn" not in str(summary)
    assert summary.parameters == 68
    assert summary.flops == 2 * (36 + 12)
    assert summary.model_bytes == 8 * (2 * 68 + 12)


def test_workload_networks_have_the_published_sizes() -> None:
    assert models.mlp([1024, 256, 256, 256, 32], "tanh", bias=False).summary((1024,)).parameters == 401_408
    assert exercises.lenet_psgd().summary((1, 32, 32)).parameters == 213_194
    summary = models.ResNet9(seed=0).summary((3, 32, 32), batch_size=128)
    assert summary.parameters == 431_946
    assert "431,946" in str(summary)
    first, block = summary.rows[0], next(row for row in summary.rows if row.layer == "Residual")
    assert (first.output, first.flops) == ((16, 8, 8), 2 * 7 * 7 * 3 * 16 * 8 * 8)
    assert (block.output, block.flops) == ((32, 4, 4), 2 * 2 * 3 * 3 * 32 * 32 * 4 * 4)


def test_what_does_not_fit_is_refused() -> None:
    model = models.mlp([4, 2])
    with pytest.raises(ValueError, match="input has 5 features, this layer takes 4"):
        model.summary((5,))
    with pytest.raises(ValueError, match="batch_size = 0"):
        model.summary((4,), batch_size=0)
