"""``pdnn train`` and ``pdnn predict`` on tables: numbers and classes, losses by name, standardized."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import numpy as np
import pytest

import pdnn
from pdnn import cli, datasets, nn
from pdnn.cli import tables
from pdnn.cli.standardizing import Moments, Standardization, TargetStandardization
from pdnn.data import Dataset

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table to regress on, with inputs of other means and sizes, and one of classes."""
    folder = tmp_path_factory.mktemp("tables")
    x = RNG.normal(size=(300, 3)) * [1, 100, 0.01] + [0, 5000, 7]
    y = np.tanh((x - [0, 5000, 7]) / [1, 100, 0.01]) @ [1, 2, 3] + 20
    np.savetxt(folder / "numbers.csv", np.c_[x, y, -y], delimiter=";", header="a;b;c;y;z", comments="")
    words = np.where(x[:, 0] > 0.2, "up", "down")
    lines = [f"{a},{b},{word}" for (a, b), word in zip(x[:, :2].tolist(), words, strict=True)]
    (folder / "words.csv").write_text("a,b,kind\n" + "\n".join(lines) + "\n")
    return folder


def run(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, float]:
    """What the last line has of a command that ends well."""
    assert cli.main([*map(str, words)]) == 0
    last = capsys.readouterr().out.splitlines()[-1].removeprefix("test: ").split(" on ")[0]
    return {name: float(value) for name, value in (part.split(" ") for part in last.split(", "))}


def train(folder: Path, model: str, *words: object) -> list[object]:
    data = ["--data", folder / ("words.csv" if "kind" in words else "numbers.csv"), "--model", model]
    how = ["--optimizer", "adam", "--lr", "0.02", "--epochs", "40", "--batch-size", "25"]
    return ["train", *data, *how, "--strategy", "serial", "--dtype", "float64", *words]


def test_a_regression_is_trained_told_and_predicted(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, history = tmp_path / "model.safetensors", tmp_path / "history.json"
    keep = ["--save", model, "--json", history, "--validation", "0.2"]
    words = ["--target", "y", "--metrics", "r2,mae", "--standardize", *keep]
    got = run(capsys, *train(folder, "mlp:4-16-1:tanh", *words))
    assert list(got) == ["loss", "r2", "mae"] and got["r2"] > 0.9
    kept = json.loads(history.read_text())["history"]
    assert len(kept["val_r2"]) == 40 and kept["val_r2"][-1] > 0.9
    # what was saved takes the table as it is
    _, test = datasets.csv(folder / "numbers.csv", target="y")
    outputs = pdnn.load_model(model).predict(test.x)[:, 0]
    assert np.abs(outputs - test.y).mean() == pytest.approx(got["mae"], abs=1e-4)
    told = run(capsys, "predict", model, folder / "numbers.csv", "--target", "y")
    assert told["r2"] > 0.9
    out = tmp_path / "out.csv"
    new = tmp_path / "new.csv"
    np.savetxt(new, test.x, delimiter=",")
    words = ["predict", str(model), str(new), "--target", "none", "--outputs", "--out", str(out)]
    assert cli.main(words) == 0
    predicted = np.loadtxt(out, skiprows=1)
    np.testing.assert_allclose(np.sort(predicted), np.sort(outputs), rtol=1e-8)


def test_several_targets_and_a_loss_by_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--target", "y,z", "--metrics", "mse", "--loss", "mse", "--standardize"]
    got = run(capsys, *train(folder, "mlp:3-16-2:tanh", *words))
    assert got["loss"] == pytest.approx(got["mse"], rel=1e-6) and got["mse"] < 1


def test_targets_are_counted_from_the_end(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind a blank, -2,-1 was taken for an option."""
    model = tmp_path / "model.safetensors"
    got = run(capsys, *train(folder, "mlp:3-4-2", "--target", "-2,-1", "--save", model))
    for words in (["--target", "-2,-1"], ["--target=-2,-1"], ["--target", "-2,z"]):
        told = run(capsys, "predict", model, folder / "numbers.csv", *words)
        assert told == run(capsys, "predict", model, folder / "numbers.csv", "--target", "y,z")
    assert got == run(capsys, *train(folder, "mlp:3-4-2", "--target", "y,z"))


def test_targets_far_from_0_are_learned_where_they_are_standardized(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = RNG.normal(size=(300, 2))
    y = np.c_[2e5 + 1e5 * np.tanh(x[:, 0]), 0.1 * x[:, 1]]
    np.savetxt(tmp_path / "numbers.csv", np.c_[x, y], delimiter=",", header="a,b,price,rate", comments="")
    model, history = tmp_path / "model.safetensors", tmp_path / "history.json"
    words = train(tmp_path, "mlp:2-16-2:tanh", "--target", "price,rate", "--metrics", "r2,mae")
    assert run(capsys, *words)["r2"] < 0
    keep = ["--save", model, "--json", history, "--validation", "test"]
    got = run(capsys, *words, "--standardize-target", *keep)
    assert got["r2"] > 0.9 and 100 < got["mae"] < 20_000
    kept = json.loads(history.read_text())["history"]
    assert kept["val_mae"][-1] < 0.2 and kept["val_r2"][-1] == pytest.approx(got["r2"], abs=1e-4)
    told = run(capsys, "predict", model, tmp_path / "numbers.csv", "--target", "price,rate")
    assert told["r2"] > 0.9 and told["mae"] == pytest.approx(got["mae"], rel=0.5)
    words = train(tmp_path, "mlp:3-4-1", "--target", "price")
    for more, hint in (([], True), (["--standardize-target"], False), (["--quiet"], None)):
        assert cli.main([*map(str, words), *more]) == 0
        out = capsys.readouterr().out
        assert ("target: mean 1.9" in out or "target: mean 2" in out) == (hint is not None)
        assert ("--standardize-target trains on numbers near 0" in out) == bool(hint)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "kind"], '--loss mse compares numbers, the labels are names such as "down"'),
        (["--target", "b", "--loss", "poisson_nll"], "is for --loss mse, l1, smooth_l1, huber, quantile"),
    ],
)
def test_what_is_no_number_is_not_standardized(
    folder: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    data = ["--data", str(folder / ("words.csv" if "kind" in words else "numbers.csv"))]
    assert cli.main(["train", *data, "--standardize-target", *words]) == 1
    assert message in capsys.readouterr().err


def test_a_training_goes_on_with_the_table_as_it_was(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, words = tmp_path / "table.csv", "train --quiet --target y --standardize --checkpoint run --resume"
    text = (folder / "numbers.csv").read_text()
    table.write_text(text)
    begun = [str(tmp_path / "run") if word == "run" else word for word in words.split()]
    begun += ["--data", str(table), "--standardize-target", "--test", "0.5", "--epochs"]
    assert cli.main([*begun, "1"]) == 0
    before = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    for left_out, other, said in (
        ("--standardize", "--quiet", "with --standardize True, this trainer has False"),
        ("--standardize-target", "--quiet", "with --standardize-target True, this trainer has False"),
        ("0.5", "0.4", "with --test 0.5, this trainer has 0.4"),
        ("y", "z", r"with inputs \['a', 'b', 'c', 'z'\], this trainer has \['a', 'b', 'c', 'y'\]"),
    ):
        assert cli.main([other if word == left_out else word for word in (*begun, "2")]) == 1
        assert re.search(rf"checkpoint.safetensors: was trained {said}", capsys.readouterr().err)
        assert (tmp_path / "run" / "checkpoint.safetensors").read_bytes() == before
    table.write_text(text.partition("\n")[2])  # without names, columns are known by their places
    assert cli.main([*begun[: begun.index("y")], "3", *begun[begun.index("y") + 1 :], "2"]) == 0


def test_rows_count_what_their_weight_says(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of weight 0 whose label is wrong change nothing of what is learned, nor of the accuracy."""
    lines = (folder / "words.csv").read_text().splitlines()
    weighted = [f"{line},1" for line in lines[1:]]
    wrong = [f"{line.rpartition(',')[0]},{'up' if line.endswith('down') else 'down'},0" for line in lines[1:]]
    file, model = tmp_path / "words.csv", tmp_path / "model.safetensors"
    file.write_text("\n".join(["a,b,kind,w", *weighted, *wrong]) + "\n")
    columns = ["--target", "kind", "--weight", "w"]
    words = train(tmp_path, "mlp:2-8-2:tanh", *columns, "--standardize", "--save", model)
    assert run(capsys, *words)["accuracy"] > 0.9
    assert run(capsys, "predict", model, file, *columns)["accuracy"] > 0.9


def test_names_of_classes(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.safetensors"
    for outputs in (1, 2):
        keep = ["--standardize", "--save", model]
        got = run(capsys, *train(folder, f"mlp:2-8-{outputs}:tanh", "--target", "kind", *keep))
        assert got["accuracy"] > 0.9
        assert run(capsys, "predict", model, folder / "words.csv")["accuracy"] > 0.9
        out = tmp_path / "out.csv"
        assert cli.main(["predict", str(model), str(folder / "words.csv"), "--out", str(out)]) == 0
        assert set(out.read_text().splitlines()) == {"class", "down", "up"}
    classes = pdnn.load_model(model).classes
    assert classes is not None and classes.tolist() == ["down", "up"]
    some = tmp_path / "some.csv"  # a table in which a class is missing has the numbers of the model's classes
    some.write_text("a,b,kind\n9,5000,up\n")
    assert run(capsys, "predict", model, some)["accuracy"] == 1
    some.write_text("9,5000\n9,5001\n")
    assert cli.main(["predict", str(model), str(some), "--target", "none"]) == 0
    assert capsys.readouterr().out == "up\nup\n"
    assert cli.main(list(map(str, train(folder, "mlp:2-8-1", "--target", "kind", "--loss", "mse")))) == 1
    assert '--loss mse compares numbers, the labels are names such as "down"' in capsys.readouterr().err


def test_every_loss_has_a_name() -> None:
    assert {"bce", "bce_with_logits", "cross_entropy", "mse", "nll"} <= set(tables.LOSSES)
    assert set(tables.LOSSES.values()) == {
        kind for name in nn.__all__ if isinstance(kind := getattr(nn, name), type) and _computes(kind)
    }


def _computes(kind: type) -> bool:
    return issubclass(kind, nn.Loss) and kind.core_name is not None


def test_the_usual_loss_follows_from_the_labels() -> None:
    def usual(outputs: int, y: object, *end: nn.Module) -> type[nn.Loss]:
        model = nn.Sequential(nn.Linear(2, outputs), *end, seed=0)
        return type(tables.loss(None, model, Dataset(np.zeros((2, 2)), y)))  # type: ignore[arg-type]

    assert usual(3, [0, 2]) is usual(2, ["a", "b"]) is usual(2, [[0.25, 0.75], [0, 1]]) is nn.CrossEntropyLoss
    assert usual(3, [0, 2], nn.LogSoftmax()) is nn.NLLLoss
    assert usual(1, [0, 1]) is usual(1, ["a", "b"]) is nn.BCEWithLogitsLoss
    assert usual(1, [0, 5]) is usual(1, [0.5, 1]) is usual(2, [[0.5, 2], [1, 0]]) is nn.MSELoss


@pytest.mark.parametrize(
    ("word", "labels", "outputs", "message"),
    [
        ("cross_entropy", [-0.5, 2], 1, "the labels are decimal numbers from -0.5 to 2; --loss mse, l1"),
        ("cross_entropy:0.1", [[-0.5, 2], [1, 0.5]], 2, "or shares that add up to 1; the labels are decimal"),
        ("cross_entropy", [-1, 1], 1, "the labels are whole numbers from -1 to 1; --loss mse, l1"),
        ("cross_entropy", [0, 1], 1, "wants an output for each class, and the model has one"),
        ("bce_with_logits", [-0.5, 1], 1, "takes classes, or numbers from 0 to 1; the labels are decimal"),
        ("nll", [0, 1], 2, "wants log-probabilities, .* a Linear layer; --loss cross_entropy is for that"),
        ("bce", [0, 1], 1, "wants probabilities, .* a Linear layer; --loss bce_with_logits is for that"),
    ],
)
def test_a_loss_that_does_not_fit_is_refused(word: str, labels: object, outputs: int, message: str) -> None:
    data = Dataset(np.zeros((2, 2)), labels)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=f"--loss {word} .*{message}"):
        tables.loss(word, nn.Sequential(nn.Linear(2, outputs), seed=0), data)


@pytest.mark.parametrize(
    ("labels", "usual"),
    [([0, 1], nn.BCEWithLogitsLoss), ([-1, 1], nn.MSELoss), ([0, 2], nn.MSELoss), ([0.5, 1], nn.MSELoss)],
)
def test_one_output_is_for_two_classes_or_a_number(labels: list[float], usual: type[nn.Loss]) -> None:
    model, data = nn.Sequential(nn.Linear(2, 1), seed=0), Dataset(np.zeros((2, 2)), labels)
    assert type(tables.loss(None, model, data)) is usual


def test_losses_of_classes_take_shares() -> None:
    for word, labels in {
        "cross_entropy": [[0.25, 0.75], [0, 1]],
        "bce_with_logits": [[0.5, 1], [1, 1]],
    }.items():
        model, data = nn.Sequential(nn.Linear(2, 2), seed=0), Dataset(np.zeros((2, 2)), labels)
        assert isinstance(tables.loss(word, model, data), tables.LOSSES[word])


def test_a_loss_has_a_number_of_its_own() -> None:
    model, data = nn.Sequential(nn.Linear(2, 2), seed=0), Dataset(np.zeros((2, 2)), [0, 1])
    for word, want in {
        "quantile:0.1,0.9": nn.QuantileLoss([0.1, 0.9]),
        "quantile:.9": nn.QuantileLoss(0.9),
        "huber:1.5": nn.HuberLoss(delta=1.5),
        "smooth-l1:2": nn.SmoothL1Loss(beta=2),
        "cross_entropy:0.1": nn.CrossEntropyLoss(label_smoothing=0.1),
    }.items():
        assert repr(tables.loss(word, model, data)) == repr(want)


@pytest.mark.parametrize(
    ("labels", "loss", "outputs"),
    [
        ([0.5, 2], None, 1),
        ([[0.5, 2], [1, 0]], None, 2),
        (["a", "b"], None, 2),
        (["a", "b"], "bce_with_logits", 1),
        ([0, 2], None, 3),
        ([0, 2], "poisson_nll", 1),
        ([0, 99], None, 100),
        ([0, 100], None, 1),
        ([-1, 3], None, 1),
        ([0.5, 2], "quantile:0.1,0.5,0.9", 3),
    ],
)
def test_a_table_has_a_usual_model(labels: list[object], loss: str | None, outputs: int) -> None:
    data = Dataset(np.zeros((2, 4)), labels)  # type: ignore[arg-type]
    assert tables.model_word(loss, data) == f"mlp:4-64-{outputs}"
    assert tables.model_word(loss, data[:0], data) == f"mlp:4-64-{outputs}"


@pytest.mark.parametrize(("header", "rows"), [("yes", 3), ("no", 4), (None, 4)])
def test_the_first_line_has_names_if_one_says_so(header: str | None, rows: int, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("1,2\n3,4\n5,6\n7,8\n")
    arguments = argparse.Namespace(
        data=tables.Table(str(tmp_path / "t.csv")), target=None, weight=None, test=None, header=header
    )
    assert sum(map(len, tables.load(arguments))) == rows


def test_a_table_is_trained_without_naming_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--data", str(folder / "numbers.csv"), "--target", "y", "--epochs", "1"]
    assert cli.main(words) == 0
    assert "model: mlp:4-64-1 (--model names another one)" in capsys.readouterr().out


def test_the_usual_model_has_an_output_for_each_class_of_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The only row of class 4 is one to test on."""
    train, test = tmp_path / "train.csv", tmp_path / "test.csv"
    train.write_text("1,2,0\n3,4,1\n5,6,2\n5,7,3\n")
    test.write_text("8,9,4\n")
    words = ["train", "--data", str(train), "--test", str(test), "--epochs", "1", "--validation"]
    for validation in ("test", "0.25"):
        assert cli.main([*words, validation]) == 0
        assert "model: mlp:2-64-5" in capsys.readouterr().out


@pytest.mark.parametrize("words", [[], ["--standardize"]])
def test_a_table_without_rows_to_train_on_is_told(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "numbers.csv"
    file.write_text("1,2,0\n")
    assert cli.main(["train", "--data", str(file), *words]) == 1
    assert "rows are test data; pass --test a smaller share" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--target", "3"], "--target is for tables: --data FILE.csv"),
        (["--weight", "3"], "--weight is for tables"),
        (["--test", "0.5"], "--test is for tables"),
        (["--standardize-target"], "--standardize-target is for tables"),
        (["--data", "x.csv", "--test", "2"], "neither a share between 0 and 1 nor a .csv file"),
        (["--data", "x.csv", "--metrics", "r3"], "'r3' names no metric"),
        (["--data", "x.csv", "--loss", "r3"], "'r3' names no loss; expected one of bce, "),
        (["--data", "x.csv", "--loss", "mse:2"], "mse takes no number"),
        (["--data", "x.csv", "--loss", "huber:a"], "expected a number after the colon"),
        (["--data", "x.csv", "--loss", "huber:1,2"], "expected one number after the colon"),
        (
            ["--data", "x.csv", "--loss", "quantile:1.5"],
            "QuantileLoss: quantile = 1.5; expected numbers in (0, 1)",
        ),
    ],
)
def test_options_that_do_not_fit(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["train", *words])
    assert message in capsys.readouterr().err


def test_images_are_not_standardized(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "--standardize"]) == 1
    assert "--standardize is for tables of numbers" in capsys.readouterr().err


def test_a_constant_input_counts_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The deviation of 0.1 is computed as 2.8e-17, and 1.7e9 times a weight is rounded by 100."""
    file, model = tmp_path / "numbers.csv", tmp_path / "model.safetensors"
    x = RNG.normal(size=(150, 2))
    np.savetxt(file, np.c_[x[:, 0], np.full(150, 0.1), np.full(150, 1.7e9), x[:, 0] + 3], delimiter=",")
    words = ["--standardize", "--test", file, "--metrics", "r2", "--dtype", "float32", "--save", model]
    assert run(capsys, *train(tmp_path, "mlp:3-8-1", *words))["r2"] > 0.9
    assert run(capsys, "predict", model, file)["r2"] > 0.9


@pytest.mark.parametrize(("dtype", "far"), [("float32", 1e7), ("bfloat16", 100)])
def test_numbers_that_a_saved_model_cannot_tell_apart_are_refused(
    dtype: str, far: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A model that is not saved takes standardized numbers."""
    file, model = tmp_path / "numbers.csv", tmp_path / "model.safetensors"
    x = RNG.normal(size=(150, 2))
    np.savetxt(
        file, np.c_[x[:, 0], x[:, 1] + far, x[:, 1] + 3], header="a,when,y", delimiter=",", comments=""
    )
    words = ["--standardize", "--test", file, "--metrics", "r2", "--dtype", dtype]
    assert run(capsys, *train(tmp_path, "mlp:2-8-1", *words))["r2"] > 0.9
    words += ["--save", model]
    assert cli.main([*map(str, train(tmp_path, "mlp:2-8-1", *words))]) == 1
    message = capsys.readouterr().err
    assert re.search(r'column "when" has mean [0-9.]+ and deviation [01]\.', message)
    assert f"a saved model of {dtype} numbers; take --dtype float64" in message
    assert run(capsys, *train(tmp_path, "mlp:2-8-1", *words, "--dtype", "float64"))["r2"] > 0.9
    assert run(capsys, "predict", model, file)["r2"] > 0.9


def test_diabetes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published = pytest.importorskip("sklearn.datasets", reason="has the table").load_diabetes(scaled=False)
    file = tmp_path / "diabetes.csv"
    names = ",".join([*published.feature_names, "progression"])
    table = np.c_[published.data, published.target]
    np.savetxt(file, table, "%.10g", delimiter=",", header=names, comments="")
    words = ["--model", "mlp:10-16-1", "--standardize", "--metrics", "r2,mae", "--l2", "0.1", "--seed", "1"]
    how = ["--optimizer", "adam", "--lr", "0.01", "--epochs", "60", "--batch-size", "16"]
    got = run(capsys, "train", "--data", file, "--strategy", "serial", *words, *how)
    assert got["r2"] > 0.3 and got["mae"] < 52


@pytest.mark.parametrize("power", [160, -170, 0])
def test_moments_of_very_large_or_small_numbers(power: int) -> None:
    x = np.random.default_rng(0).random((20, 3)) - [0.5, 0, 2]
    x[:, 1] = 0.3
    of, scale = Moments.of(x, np.inf), 10.0**power
    scaled = Moments.of(x * scale, np.inf)
    np.testing.assert_allclose(scaled.mean, of.mean * scale, rtol=1e-12)
    np.testing.assert_allclose(scaled.deviation, of.deviation * scale, rtol=1e-12)
    np.testing.assert_array_equal(of.deviation[[0, 2]], x[:, [0, 2]].std(axis=0))


@pytest.mark.parametrize(("scale", "dtype"), [(1e35, "float32"), (1e-42, "float32"), (1e305, "float64")])
def test_numbers_that_saved_weights_cannot_hold_are_not_standardized(scale: float, dtype: str) -> None:
    x = np.random.default_rng(0).random((20, 2)) * [scale, 1]
    with pytest.raises(
        ValueError, match=f'column "0" has mean .* beyond the range of a saved model of {dtype}'
    ):
        Standardization(pdnn.data.Dataset(x, np.zeros(20))).check(dtype)
    model = nn.Sequential(nn.Linear(2, 1), dtype=dtype)
    model.place()
    with pytest.raises(ValueError, match=f"beyond the range of a saved model of {dtype}"):
        TargetStandardization(pdnn.data.Dataset(x, x[:, :1]), nn.MSELoss(), model)
    x[:, 0] = abs(scale)  # a constant counts nothing
    Standardization(pdnn.data.Dataset(x, np.zeros(20))).check(dtype)
    if dtype == "float32":
        x[:, 0] = 1e39  # infinite there
        with pytest.raises(ValueError, match=r'column "0" .* beyond the range'):
            Standardization(pdnn.data.Dataset(x, np.zeros(20))).check(dtype)


def test_targets_are_standardized_behind_a_bias_alone() -> None:
    x = np.random.default_rng(0).normal(size=(9, 2))
    model = nn.Sequential(nn.Linear(2, 1, bias=False), seed=0)
    with pytest.raises(ValueError, match="needs a model that ends in a Linear with bias"):
        TargetStandardization(Dataset(x, x[:, :1]), nn.MSELoss(), model)


def test_rows_that_are_held_out_have_no_part_in_moments() -> None:
    x, rows = np.random.default_rng(0).normal(size=(9, 2)), np.arange(0, 9, 2)
    model, data = nn.Sequential(nn.Linear(2, 1), seed=0), Dataset(x, x[:, :1])[rows]
    np.testing.assert_allclose(Standardization(data).moments, [x[rows].mean(axis=0), x[rows].std(axis=0)])
    moments, y = TargetStandardization(data, nn.MSELoss(), model).moments, x[rows, :1]
    np.testing.assert_allclose(moments, [y.mean(axis=0), y.std(axis=0)])
