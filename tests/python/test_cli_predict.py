"""``pdnn predict``: how tables are read and models are judged, and what is said where they do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pdnn import cli, nn

RNG = np.random.default_rng(0)


def saved(path: Path, *weights: list[float]) -> str:
    """A linear model with these weights, a list for each output, and no bias, in a file."""
    model = nn.Sequential(nn.Linear(len(weights[0]), len(weights), bias=False), dtype="float64", seed=0)
    (weight,) = model.parameters()
    weight.data = np.array(weights).T
    model.save(path)
    return str(path)


def test_a_first_line_of_numbers_is_names_if_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, table = saved(tmp_path / "model.safetensors", [1, 2]), tmp_path / "years.csv"
    x = RNG.normal(size=(20, 2))
    np.savetxt(table, np.c_[x, x @ [1, 2]], "%.17g", delimiter=",", header="2019,2020,2021", comments="")
    words = ["predict", model, str(table)]
    assert cli.main([*words, "--header", "yes"]) == 0
    assert capsys.readouterr().out == "r2 1.0000, mae 0.0000 on 20 samples\n"
    assert cli.main([*words, "--header", "no"]) == 0
    assert capsys.readouterr().out.endswith(" on 21 samples\n")
