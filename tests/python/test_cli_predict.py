"""``pdnn predict``: how tables are read and models are judged, and what is said where they do not fit."""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

import pdnn
from pdnn import cli, nn
from pdnn.files import safetensors

RNG = np.random.default_rng(0)


def saved(path: Path, *weights: list[float], end: nn.Module | None = None) -> str:
    """A linear model with these weights, a list for each output, and no bias, in a file."""
    layers = [nn.Linear(len(weights[0]), len(weights), bias=False), *([] if end is None else [end])]
    model = nn.Sequential(*layers, dtype="float64", seed=0)
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
    said = "labels are float64 of shape (2,), expected numbers (n, 2)\n"
    assert capsys.readouterr().err.endswith(said)
    out = tmp_path / "out.csv"
    assert cli.main([*words, "--outputs", "--out", str(out)]) == 0
    assert capsys.readouterr().out == f"no score: {said}"
    assert out.read_text() == "output 0,output 1\n1,2\n4,5\n"
    pdnn.load_model(model).save(model, {"pdnn.loss": "quantile:0.1,0.9"})
    assert cli.main(words) == 0
    assert capsys.readouterr().out == "loss 0.8000 on 2 samples\n"
    assert cli.main([*words, "--outputs"]) == 0
    assert capsys.readouterr().out == "loss 0.8000 on 2 samples\n1.0,2.0\n4.0,5.0\n"


def test_labels_that_the_loss_of_the_training_cannot_compare_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that names its loss gave an error, and no predictions."""
    x, out = RNG.normal(size=(40, 2)), tmp_path / "out.csv"
    for name, y in (("names", np.where(x[:, 0] > 0, "red", "blue")), ("numbers", x[:, 0] + 0.5)):
        lines = [f"{a},{b},{label}" for (a, b), label in zip(x, y, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b,y", *lines]))
        words = [
            "train",
            "--data",
            f"{tmp_path / name}.csv",
            "--strategy",
            "serial",
            "--epochs",
            "1",
            "--quiet",
        ]
        assert cli.main([*words, "--save", f"{tmp_path / name}.safetensors"]) == 0
    for model, labels, heading in (("names", "numbers", "class"), ("numbers", "names", "output 0")):
        words = ["predict", f"{tmp_path / model}.safetensors", f"{tmp_path / labels}.csv"]
        capsys.readouterr()
        assert cli.main([*words, "--out", str(out)]) == 0
        assert capsys.readouterr().out.startswith("no score: the labels do not fit what it was")
        lines = out.read_text().splitlines()
        assert lines[0] == heading and len(lines) == 41
        assert model == "numbers" or {*lines[1:]} <= {"red", "blue"}
        assert cli.main(words) == 1
        assert f"{model}.safetensors: the labels do not fit" in capsys.readouterr().err


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_outputs_are_written_to_their_last_bit(dtype: str, tmp_path: Path) -> None:
    model, table, out = (tmp_path / name for name in ("model.safetensors", "table.csv", "out.csv"))
    linear = nn.Sequential(nn.Linear(1, 2), dtype=dtype, seed=0)
    linear.save(model)
    x = np.array([[1.0], [1700000006.287], [1e-30], [-3e35]])
    table.write_text("a,b\n" + "".join(f"{value},0\n" for (value,) in x.tolist()))
    words = ["predict", str(model), str(table), "--outputs", "--out", str(out)]
    assert cli.main([*words, "--target", "b"]) == 0
    written = np.loadtxt(out, dtype, delimiter=",", skiprows=1)
    np.testing.assert_array_equal(written, linear.predict(x.astype(dtype)))


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


@pytest.mark.parametrize(
    ("words", "numbers"),
    [
        (["--target", "price"], True),
        (["--target", "price", "--standardize-target"], True),
        (["--target", "kind"], False),
        (["--target", "kind", "--loss", "mse", "--model", "mlp:2-4-1"], False),
    ],
)
def test_numbers_are_predicted_of_a_table_without_labels_if_those_trained_on_were(
    words: list[str], numbers: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All rows were of class 1, above 0.5."""
    model, table, new = (str(tmp_path / name) for name in ("model.safetensors", "table.csv", "new.csv"))
    target = "price" if "price" in words else "kind"
    x = np.random.default_rng(1).normal(size=(40, 2))
    y = 100 + x @ [1, 2] if numbers else x[:, 0] > 0
    np.savetxt(
        table,
        np.c_[x, y],
        "%.17g" if numbers else ["%.17g", "%.17g", "%d"],
        ",",
        header=f"a,b,{target}",
        comments="",
    )
    np.savetxt(new, x, "%.17g", ",", header="a,b", comments="")
    assert (
        cli.main(["train", "--data", table, *words, "--strategy", "serial", "--save", model, "--quiet"]) == 0
    )
    capsys.readouterr()
    assert cli.main(["predict", model, new, "--target", "none"]) == 0
    said = capsys.readouterr().out.split()
    assert cli.main(["predict", model, new, "--target", "none", "--outputs"]) == 0
    assert (said == capsys.readouterr().out.split()) is numbers
    assert set(said) <= {"0", "1"} or numbers


def test_a_table_of_one_column_whose_name_ends_in_capitals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, table = saved(tmp_path / "model.safetensors", [2]), tmp_path / "T.CSV"
    table.write_text("a\n1.5\n-2\n")
    assert cli.main(["predict", model, str(table), "--target", "none", "--outputs"]) == 0
    assert capsys.readouterr().out == "3.0\n-4.0\n"


def test_columns_must_be_those_that_were_trained_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, table, new = (tmp_path / name for name in ("model.safetensors", "table.csv", "new.csv"))
    x = RNG.normal(size=(40, 2))
    lines = [f"{a},{b},{'up' if a > 0 else 'down'}" for a, b in x.tolist()]
    table.write_text("\n".join(["größe,b,kind", *lines]))
    assert cli.main(["train", "--data", str(table), "--epochs", "1", "--quiet", "--save", str(model)]) == 0
    for text, target, found, place in (
        ("b,größe,kind\n1,2,up\n", "kind", "['b', 'größe']", 0),
        ("größe,b\n1,2\n", "b", "['größe']", 1),
        ("größe,b,kind\n1,2,3\n", "größe", "['b', 'kind']", 0),
        ("größe,b,kind\n1,2,3\n", "none", "['größe', 'b', 'kind']", 2),
    ):
        new.write_text(text)
        capsys.readouterr()
        assert cli.main(["predict", str(model), str(new), "--target", target]) == 1
        said = (
            f"the inputs of the table are {found}, {model} was trained on ['größe', 'b'], and number {place} "
            "is the first that differs; put them in"
        )
        assert said in capsys.readouterr().err
    table.write_text("\n".join(["größe,2020,kind", *lines]))
    years = ["--data", str(table), "--header", "yes", "--target", "2", "--epochs", "1", "--quiet"]
    assert cli.main(["train", *years, "--save", str(tmp_path / "years.safetensors")]) == 0
    new.write_text("2020,größe,kind\n1,2,up\n")
    assert cli.main(["predict", str(tmp_path / "years.safetensors"), str(new), "--header", "yes"]) == 1
    assert "the inputs of the table are ['2020', 'größe'], " in capsys.readouterr().err
    for text in ("größe,b\n1,2\n", "1,2\n"):  # without names, columns are known by their places
        new.write_text(text)
        assert cli.main(["predict", str(model), str(new), "--target", "none"]) == 0
    np.savetxt(table, np.c_[x, x[:, 0] > 0], ["%.9g", "%.9g", "%d"], delimiter=",")
    assert cli.main(["train", "--data", str(table), "--epochs", "1", "--quiet", "--save", str(model)]) == 0
    assert "pdnn.columns" not in safetensors.read(model)[1]
    for columns in ("no list", "5", '"ab"', "[1, 2]"):
        pdnn.load_model(model).save(model, {"pdnn.columns": columns})
        assert cli.main(["predict", str(model), str(table)]) == 1
        assert f"{model}: its metadata pdnn.columns has no names" in capsys.readouterr().err


@pytest.mark.parametrize("data", ["new.csv", "new.npy"])
def test_samples_are_not_overwritten_by_predictions(
    data: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / data).write_text("1,2\n")
    with pytest.raises(SystemExit, match="2"):
        cli.main(["predict", "model.safetensors", str(tmp_path / data), "--out", str(tmp_path / data)])
    assert "DATA and --out are the same file" in capsys.readouterr().err
    assert (tmp_path / data).read_text() == "1,2\n"


@pytest.mark.parametrize("data", ["mnist-mini", "samples.npy"])
@pytest.mark.parametrize("option", ["--target", "--weight", "--header"])
def test_options_of_tables_are_refused_for_other_data(
    data: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["predict", "model.safetensors", data, option, "no"])
    assert f"{option} is for tables: FILE.csv" in capsys.readouterr().err


def test_bytes_of_samples_count_as_0_to_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, samples = saved(tmp_path / "model.safetensors", [1, 2]), tmp_path / "samples.npy"
    np.save(samples, np.array([[255, 0], [255, 255]], np.uint8))
    assert cli.main(["predict", model, str(samples), "--outputs"]) == 0
    assert [float(line) for line in capsys.readouterr().out.splitlines()] == pytest.approx([1, 3])


def test_two_classes_are_told_apart_as_by_the_loss_of_the_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, new = tmp_path / "table.csv", tmp_path / "new.csv"
    x = RNG.normal(size=(200, 2))
    np.savetxt(table, np.c_[x, x[:, 0] > 0], ["%.9g", "%.9g", "%d"], delimiter=",")
    np.savetxt(new, x, "%.9g", delimiter=",")
    model, out = tmp_path / "model.safetensors", tmp_path / "out.npy"
    for loss in ("mse", "huber:1.5", "bce_with_logits"):
        words = ["train", "--data", str(table), "--model", "mlp:2-16-1:tanh", "--strategy", "serial"]
        words += ["--optimizer", "adam", "--lr", "0.02", "--epochs", "20", "--quiet", "--save", str(model)]
        assert cli.main([*words, *([] if loss == "bce_with_logits" else ["--loss", loss])]) == 0
        assert safetensors.read(model)[1]["pdnn.loss"] == loss
        capsys.readouterr()
        assert cli.main(["predict", str(model), str(table)]) == 0
        accuracy = float(capsys.readouterr().out.split()[1])
        assert accuracy > 0.9
        assert cli.main(["predict", str(model), str(new), "--target", "none", "--out", str(out)]) == 0
        assert np.mean(np.load(out) == (x[:, 0] > 0)) == pytest.approx(accuracy, abs=1e-4)
    saved(model, [1, 0], end=nn.Sigmoid())
    assert cli.main(["predict", str(model), str(table)]) == 0
    assert capsys.readouterr().out == "accuracy 1.0000 on 200 samples\n"


def test_a_loss_that_this_version_does_not_have_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, samples = saved(tmp_path / "model.safetensors", [1, 2]), tmp_path / "samples.npy"
    pdnn.load_model(model).save(model, {"pdnn.loss": "other"})
    np.save(samples, np.zeros((1, 2)))
    assert cli.main(["predict", model, str(samples)]) == 1
    assert f"{model}: 'other' names no loss; expected one of " in capsys.readouterr().err


@pytest.mark.parametrize("ending", ["csv", "npy"])
def test_predictions_that_do_not_fit_on_the_disk_leave_those_before(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Half of a table was left, which looks like a whole one, and a .npy file was not named."""
    model, table, out = (
        saved(tmp_path / "model.safetensors", [1, 2]),
        tmp_path / "t.csv",
        tmp_path / f"o.{ending}",
    )
    table.write_text("1,2,0\n" * 5000)
    words, limits = (
        ["predict", model, str(table), "--out", str(out)],
        resource.getrlimit(resource.RLIMIT_FSIZE),
    )
    assert cli.main(words) == 0
    before = out.read_bytes()
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        assert cli.main(words) != 0
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert f"File too large: '{out}'" in capsys.readouterr().err
    assert out.read_bytes() == before
