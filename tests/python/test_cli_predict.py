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


def test_outputs_that_no_label_can_be_compared_with_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, table = saved(tmp_path / "model.safetensors", [1, 0], [0, 1]), tmp_path / "table.csv"
    table.write_text("a,b,price\n1,2,3.5\n4,5,6.5\n")
    words = ["predict", model, str(table), "--target", "price"]
    assert cli.main(words) == 1
    said = "labels are float64 of shape (2,), expected integer classes (n,) or floats (n, 2)\n"
    assert capsys.readouterr().err.endswith(said)
    out = tmp_path / "out.csv"
    assert cli.main([*words, "--outputs", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"no score: {said}"
    assert out.read_text() == "output 0,output 1\n1,2\n4,5\n"


def test_predictions_are_in_the_order_of_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, table, out = saved(tmp_path / "model.safetensors", [1, 2]), tmp_path / "t.csv", tmp_path / "o.npy"
    x = RNG.normal(size=(20, 2))
    np.savetxt(table, np.c_[x, x @ [1, 2]], "%.17g", delimiter=",", header="a,b,y", comments="")
    assert cli.main(["predict", model, str(table), "--out", str(out)]) == 0
    np.testing.assert_allclose(np.load(out)[:, 0], x @ [1, 2])
    np.savetxt(table, x, "%.17g", delimiter=",")
    assert cli.main(["predict", model, str(table), "--target", "none", "--outputs", "--out", str(out)]) == 0
    np.testing.assert_allclose(np.load(out)[:, 0], x @ [1, 2])


@pytest.mark.parametrize("data", ["mnist-mini", "samples.npy"])
@pytest.mark.parametrize("option", ["--target", "--weight", "--header"])
def test_options_of_tables_are_refused_for_other_data(
    data: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["predict", "model.safetensors", data, option, "no"])
    assert f"{option} is for tables: FILE.csv" in capsys.readouterr().err
