"""``pdnn train`` and ``pdnn predict``: from a file of samples to a model and its predictions."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import numpy as np
import pytest

import cifar_made
import pdnn
from blobs import write_blobs
from pdnn import _core, cli, estimate, models, nn, optim
from pdnn.cli import specs, values
from pdnn.comm import run_threads


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_blobs(tmp_path_factory.mktemp("data") / "blobs.npz")


def train(blobs: Path, *words: str | Path) -> int:
    small = ["--model", "mlp:4-8-3:tanh", "--batch-size", "32", "--strategy", "serial"]
    return cli.main(["train", "--data", f"npz:{blobs}", *small, *map(str, words)])


def test_training_keeps_what_it_is_told_to_and_predicts_as_it_says(
    blobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history, plot, model = tmp_path / "history.json", tmp_path / "history.png", tmp_path / "model.safetensors"
    words = ["--epochs", "4", "--json", history, "--plot", plot, "--save", model, "--validation", "0.2"]
    assert train(blobs, *words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 7  # a line an epoch, no terminal here
    assert lines[-3].startswith("serial: estimated ") and " a step, measured " in lines[-3]
    assert (", difference " in lines[-3]) != ("; both are disturbed: other programs used " in lines[-3])
    fingerprint = pdnn.load_model(model).fingerprint()
    assert lines[-2] == f"fingerprint: {fingerprint} ({_core.active_isa()})"
    assert lines[-1].startswith("test: loss ")
    accuracy = lines[-1].rpartition(" ")[2]
    assert float(accuracy) > 0.9
    kept = json.loads(history.read_text())
    assert len(kept["history"]["val_accuracy"]) == 4 and kept["fingerprint"] == fingerprint
    assert kept["test"].keys() == {"loss", "accuracy"}
    assert lines[-1] == f"test: loss {kept['test']['loss']:.4f}, accuracy {kept['test']['accuracy']:.4f}"
    assert plot.read_bytes().startswith(b"\x89PNG")

    csv, npy = tmp_path / "classes.csv", tmp_path / "classes.npy"
    assert cli.main(["predict", str(model), f"npz:{blobs}", "--out", str(csv)]) == 0
    assert capsys.readouterr().out == f"accuracy {accuracy} on 60 samples\n"
    np.save(tmp_path / "samples.npy", np.load(blobs)["x_test"])
    assert cli.main(["predict", str(model), str(tmp_path / "samples.npy"), "--out", str(npy)]) == 0
    assert np.array_equal(np.loadtxt(csv, skiprows=1), np.load(npy))
    assert csv.read_text().startswith("class\n")
    assert cli.main(["predict", str(model), str(tmp_path / "samples.npy")]) == 0
    assert capsys.readouterr().out.split() == [str(label) for label in np.load(npy)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("isa", _core.supported_isas())
def test_a_fingerprint_says_what_it_compares_with(
    blobs: Path, isa: str, dtype: str, run_python: Callable[..., CompletedProcess[str]]
) -> None:
    words = ["--data", f"npz:{blobs}", "--model", "mlp:4-8-3", "--epochs", "1", "--reproducible"]
    lines = run_python(
        ["-m", "pdnn", "train", *words, "--dtype", dtype], env={"PDNN_ISA": isa}
    ).stdout.splitlines()
    others = {
        ("v2", dtype): "v3, v4 and neon",
        ("v4-bf16", "bfloat16"): "v3",
        ("v4-amx", "bfloat16"): "v3 and v4-bf16",
        ("neon-bf16", "bfloat16"): "v3 and v4-bf16",
    }.get((isa, dtype))
    assert lines[-2].endswith(f" (8 leaves, {isa}{f', which differs from {others}' if others else ''})")


def test_the_fastest_strategy_says_why(
    blobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = tmp_path / "history.json"
    assert train(blobs, "--strategy", "fastest", "--epochs", "2", "--json", history) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("fastest: ") and "estimated" in lines[0]
    chosen = json.loads(history.read_text())["estimate"]["strategy"]
    assert f"fastest: {chosen};" in lines[0] and lines[-3].startswith(f"{chosen}: estimated ")
    assert train(blobs, "--strategy", "fastest", "--epochs", "1", "--quiet") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_a_fingerprint_is_that_of_the_model_that_is_saved(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two tables that are the same once they are standardized had one fingerprint."""
    x, told = np.random.default_rng(0).normal(size=(80, 2)), []
    for factor in (1, 2):
        table, model = tmp_path / f"{factor}.csv", tmp_path / f"{factor}.safetensors"
        np.savetxt(table, factor * np.c_[x, x @ [1, 2] + 50], "%.17g", ",", header="a,b,c", comments="")
        words = ["train", "--data", str(table), "--standardize", "--standardize-target", "--epochs", "1"]
        assert cli.main([*words, "--strategy", "serial", "--save", str(model)]) == 0
        told += re.findall(r"fingerprint: (\w+)", capsys.readouterr().out)
        assert told[-1] == pdnn.load_model(model).fingerprint()
    assert told[0] != told[1]


@pytest.mark.parametrize(("word", "code", "skipped"), [("raise", 1, 0), ("skip", 0, 2), ("ignore", 0, 0)])
def test_a_number_that_is_not_finite_ends_training_or_is_passed_over(
    blobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str, code: int, skipped: int
) -> None:
    broken, history = tmp_path / "broken.npz", tmp_path / "history.json"
    arrays = dict(np.load(blobs))
    arrays["x_train"][100, 1] = np.nan
    np.savez(broken, **arrays)
    words = ["--on-nonfinite", word, "--epochs", "2", "--quiet", "--json", history]
    assert train(broken, *words) == code
    out, err = capsys.readouterr()
    assert ("the loss is NaN or infinite; this update was not made" in err) == (word == "raise")
    assert ("test: loss nan" in out) == (word == "ignore")
    if code == 0:
        updates = json.loads(history.read_text())["updates"]
        assert sum(each.get("skipped", 0) for each in updates) == skipped


def test_what_auto_takes_is_told_first(blobs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(blobs, "--epochs", "1", "--strategy", "auto") == 0
    lines = capsys.readouterr().out.splitlines()
    chosen = lines[0].split()[1].strip(";")
    assert lines[0].startswith("auto: ") and lines[-3].startswith(f"{chosen}: estimated ")


def test_an_exchange_that_does_not_pay_is_told(
    blobs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = estimate.Alternatives(1e-3, False, {"1 rank": 1e-3})
    monkeypatch.setattr(pdnn.Trainer, "alternatives", lambda *_: slow)
    assert run_threads(lambda: train(blobs, "--strategy", "ddp", "--epochs", "1"), 2) == [0, 0]
    lines = capsys.readouterr().out.splitlines()
    pays = r"ddp: estimated .* a step, one rank alone 1 ms: .*; what would pay: 1 rank 1 ms"
    assert sum(re.fullmatch(pays, line) is not None for line in lines) == 1


def test_resumed_training_equals_uninterrupted_training(blobs: Path, tmp_path: Path) -> None:
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    assert train(blobs, "--epochs", "3", "--save", whole) == 0
    checkpoint = ["--checkpoint", tmp_path / "checkpoint", "--resume"]
    assert train(blobs, "--epochs", "2", *checkpoint) == 0
    assert train(blobs, "--epochs", "3", "--save", parts, *checkpoint) == 0
    assert whole.read_bytes() == parts.read_bytes()


def test_resumed_training_has_the_seed_of_its_checkpoint(
    blobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--validation", "0.2", "--checkpoint", tmp_path / "run", "--resume"]
    assert train(blobs, "--epochs", "1", "--seed", "5", *words) == 0
    assert train(blobs, "--epochs", "2", "--seed", "7", *words) == 1
    assert "was written with seed 5, this run has 7; pass --seed 5" in capsys.readouterr().err
    assert train(blobs, "--epochs", "2", "--seed", "5", *words) == 0


def test_resumed_training_holds_out_the_rows_of_its_checkpoint(
    blobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Others had been trained on before."""
    words = ["--checkpoint", tmp_path / "run", "--resume", "--validation"]
    assert train(blobs, "--epochs", "1", *words, "0.2") == 0
    assert train(blobs, "--epochs", "2", *words, "0.3") == 1
    assert "was trained with --validation 0.2, this trainer has 0.3" in capsys.readouterr().err
    assert train(blobs, "--epochs", "2", *words, "0.2") == 0
    assert train(blobs, "--epochs", "3", *words, "none") == 0
    assert train(blobs, "--epochs", "4", *words, "0.2") == 1
    assert "was trained with --validation None, this trainer has 0.2" in capsys.readouterr().err


def test_gradients_are_clipped_as_asked(blobs: Path, tmp_path: Path) -> None:
    losses = {}
    for name, words in (("free", []), ("held", ["--clip-norm", "1e-9"])):
        assert train(blobs, "--epochs", "2", "--json", tmp_path / name, "--quiet", *words) == 0
        losses[name] = json.loads((tmp_path / name).read_text())["history"]["loss"]
    assert losses["free"][1] < 0.9 * losses["free"][0]
    assert losses["held"][1] == pytest.approx(losses["held"][0], rel=1e-4)


def test_resumed_training_is_standardized_as_before(
    blobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--standardize", "--checkpoint", tmp_path / "run", "--resume", "--validation"]
    assert train(blobs, "--epochs", "1", *words, "0.4") == 0
    assert train(blobs, "--epochs", "2", *words, "none") == 1  # whose rows have other means
    assert "was trained with inputs of the means and deviations" in capsys.readouterr().err
    assert train(blobs, "--epochs", "2", *words, "0.4") == 0


def test_checkpoints_within_epochs_are_kept_as_asked(blobs: Path, tmp_path: Path) -> None:
    words = ["--every-steps", "1", "--every-seconds", "1e-3", "--keep", "3"]
    assert train(blobs, "--epochs", "1", "--checkpoint", tmp_path / "run", *words) == 0
    names = {"checkpoint.safetensors", "checkpoint.1.safetensors", "checkpoint.2.safetensors"}
    assert {path.name for path in (tmp_path / "run").iterdir()} == names
    whole, parts = tmp_path / "whole.safetensors", tmp_path / "parts.safetensors"
    (tmp_path / "run" / "checkpoint.2.safetensors").rename(tmp_path / "run" / "checkpoint.safetensors")
    assert train(blobs, "--epochs", "1", "--save", parts, "--checkpoint", tmp_path / "run", "--resume") == 0
    assert train(blobs, "--epochs", "1", "--save", whole) == 0
    assert whole.read_bytes() == parts.read_bytes()


@pytest.mark.parametrize(
    ("words", "optimizer"),
    [
        (["--optimizer", "adam", "--lr", "0.01"], lambda own: optim.Adam(own, lr=0.01)),
        (["--optimizer", "adamw", "--lr", "0.01"], lambda own: optim.AdamW(own, lr=0.01)),
        (
            ["--optimizer", "rmsprop", "--momentum", "0.5", "--l2", "0.1"],
            lambda own: optim.RMSprop(own, momentum=0.5, weight_decay=0.1),
        ),
        (["--lr", "0.05"], lambda own: optim.SGD(own, lr=0.05, momentum=0.9)),
    ],
)
@pytest.mark.parametrize(
    ("word", "schedule"),
    [
        ("linear:0.5", lambda own: optim.LinearLR(own, 1.0, 0.5, 21)),
        ("cosine:0.1", lambda own: optim.CosineAnnealingLR(own, 21, 0.1 * own.param_groups[0]["lr"])),
        ("step:2:0.5", lambda own: optim.StepLR(own, 14, 0.5)),
    ],
)
def test_words_name_optimizers_and_schedules(
    blobs: Path, tmp_path: Path, words: list[str], optimizer: Any, word: str, schedule: Any
) -> None:
    saved = tmp_path / "model.safetensors"
    three_epochs = ["--epochs", "3", "--quiet", "--validation", "none"]
    assert train(blobs, *three_epochs, *words, "--schedule", word, "--save", saved) == 0
    model = models.mlp([4, 8, 3], "tanh", seed=0)
    own = optimizer(model.parameters())
    trainer = pdnn.Trainer(
        model,
        nn.CrossEntropyLoss(),
        own,
        strategy="serial",
        schedule=schedule(own),
        schedule_per="step",
    )
    trainer.fit(pdnn.datasets.npz(blobs)[0], 3, 32, verbose=False)  # 7 updates an epoch
    np.testing.assert_array_equal(models.load_model(saved).flat_parameters, model.flat_parameters)


def test_lbfgs_takes_all_rows_and_searches_lines(
    blobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = tmp_path / "model.safetensors"
    words = ["--optimizer", "lbfgs", "--max-iter", "4", "--history-size", "3", "--l2", "0.01"]
    how = ["--model", "mlp:4-8-3:tanh", "--strategy", "serial", "--epochs", "3", "--save", saved]
    assert cli.main(["train", "--data", f"npz:{blobs}", *words, *map(str, how)]) == 0
    assert "not estimated: LBFGS evaluates a batch as often as a step needs" in capsys.readouterr().out
    model = models.mlp([4, 8, 3], "tanh", dtype="float64", seed=0)
    own = optim.LBFGS(
        model.parameters(), max_iter=4, history_size=3, line_search_fn="strong_wolfe", weight_decay=0.01
    )
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), own, strategy="serial")
    trainer.fit(pdnn.datasets.npz(blobs)[0], 3, 203, verbose=False)
    np.testing.assert_array_equal(models.load_model(saved).flat_parameters, model.flat_parameters)


@pytest.mark.parametrize(
    ("words", "kind", "options"),
    [
        ("levenberg-marquardt --tau 0.1", optim.LevenbergMarquardt, {"tau": 0.1}),
        ("gauss-newton --damping 0.2 --l2 0.01", optim.GaussNewton, {"damping": 0.2, "weight_decay": 0.01}),
        ("gauss-newton --lr 0.5 --solver normal", optim.GaussNewton, {"lr": 0.5, "solver": "normal"}),
        ("natural-gradient --lr 0.2", optim.NaturalGradient, {"lr": 0.2}),
    ],
)
def test_second_order_takes_all_rows_in_float64_and_goes_on(
    blobs: Path, tmp_path: Path, words: str, kind: Any, options: dict[str, Any]
) -> None:
    saved, folder = tmp_path / "model.safetensors", tmp_path / "run"
    how = ["--model", "mlp:4-8-3:tanh", "--strategy", "serial", "--checkpoint", str(folder), "--resume"]
    for epochs in ("2", "4"):
        ends = ["--epochs", epochs, "--quiet", "--save", str(saved)]
        assert cli.main(["train", "--data", f"npz:{blobs}", "--optimizer", *words.split(), *how, *ends]) == 0
    model = models.mlp([4, 8, 3], "tanh", dtype="float64", seed=0)
    own = kind(model.parameters(), **options)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), own, strategy="serial")
    trainer.fit(pdnn.datasets.npz(blobs)[0], 4, 203, verbose=False)
    np.testing.assert_array_equal(models.load_model(saved).flat_parameters, model.flat_parameters)


def test_patience_ends_a_training_with_its_best_epoch(
    blobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history, model = tmp_path / "history.json", tmp_path / "model.safetensors"
    words = ["--epochs", "300", "--lr", "2", "--validation", "0.3", "--json", history, "--save", model]
    assert train(blobs, *words, "--patience", "4") == 0
    lines = capsys.readouterr().out.splitlines()
    losses = json.loads(history.read_text())["history"]["val_loss"]
    best = int(np.argmin(losses))
    assert len(losses) == best + 5 < 300
    assert lines[best + 5] == f"best epoch: {best + 1}, val_loss {losses[best]:.4f}"
    again = tmp_path / "again.safetensors"
    short = ["--epochs", str(best + 1), "--lr", "2", "--validation", "0.3", "--save", again]
    assert train(blobs, *short) == 0
    assert pdnn.load_model(again).fingerprint() == pdnn.load_model(model).fingerprint()


def test_quiet_training_prints_one_line(blobs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(blobs, "--epochs", "2", "--quiet", "--validation", "none", "--l2", "0.01") == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_images_are_read_augmented_and_predicted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files, _, _ = cifar_made.six_files(".bin", n=8)
    cifar_made.put(files, tmp_path)
    data, models = f"cifar10:{tmp_path}", [tmp_path / "as_they_are.safetensors", tmp_path / "cut.safetensors"]
    words = ["train", "--data", data, "--model", "mlp:3072-4-10", "--epochs", "2", "--batch-size", "16"]
    assert cli.main([*words, "--save", str(models[0])]) == 0
    assert cli.main([*words, "--save", str(models[1]), "--augment", "4"]) == 0
    assert models[0].read_bytes() != models[1].read_bytes()
    capsys.readouterr()
    assert cli.main(["predict", str(models[1]), data]) == 0
    assert capsys.readouterr().out.endswith("on 8 samples\n")


def test_the_convolutional_network_trains_on_digits_as_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rng = np.random.default_rng(0)
    for part, n in (("train", 12), ("t10k", 4)):
        header = np.array([0x803, n, 28, 28], ">u4").tobytes()
        images = rng.integers(0, 256, n * 784, np.uint8).tobytes()
        (tmp_path / f"{part}-images-idx3-ubyte").write_bytes(header + images)
        labels = np.array([0x801, n], ">u4").tobytes() + bytes(i % 10 for i in range(n))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    data, model = f"idx:{tmp_path}:32", tmp_path / "lenet.safetensors"
    words = ["train", "--model", "lenet", "--epochs", "1", "--strategy", "serial", "--save", str(model)]
    assert cli.main([*words, "--data", data]) == 0
    loss = float(capsys.readouterr().out.splitlines()[-1].split()[2].rstrip(","))
    assert abs(loss - np.log(10)) < 0.3  # of logarithms of probabilities, hardly trained
    assert cli.main(["predict", str(model), data]) == 0
    assert capsys.readouterr().out.endswith("on 4 samples\n")
    assert cli.main([*words, "--data", data[: -len(":32")]]) == 1
    assert "784" in capsys.readouterr().err


def test_digits_are_flat_or_images() -> None:
    flat, images = specs.data("mnist-mini")(), specs.data("mnist-mini:14")()
    assert [part.sample_shape for part in (*flat, *images)] == [(784,)] * 2 + [(1, 14, 14)] * 2
    assert abs(flat[1].gather()[0].mean() - images[1].gather()[0].mean()) < 0.01


@pytest.mark.parametrize(
    ("word", "shape"), [("mlp:20-8-10", (20,)), ("lenet", (1, 32, 32)), ("resnet9", (3, 32, 32))]
)
def test_samples_of_a_name_are_what_its_model_takes(word: str, shape: tuple[int, ...]) -> None:
    assert specs.sample(word) == shape
    assert specs.model(word)(shape, 0, "float32").output_shape(shape) == (10,)


def test_resnet9_is_a_model_for_color_images() -> None:
    for word, sync in (("resnet9", True), ("resnet9:local", False)):
        model = specs.model(word)((3, 32, 32), 0, "float32")
        assert model.output_shape((3, 32, 32)) == (10,)
        assert {module.sync for module in model.modules() if hasattr(module, "sync")} == {sync}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--data", "cifar"], "'cifar' names no data"),
        (["--data", __file__], "a table ends in .csv or .tsv: unpack or rename it"),
        (["--data", "npz:"], "'npz:' names no data"),
        (["--data", "mnist:0"], "'mnist:0' names no data"),
        (["--data", "idx:28"], "'idx:28' names no data"),
        (["--augment", "0"], "'0' is not a whole number of at least 1"),
        (["--model", "mlp:784"], "'mlp:784' names no model"),
        (["--model", "mlp:784-0-10"], "names no model"),
        (["--model", "mlp:784-9223372036854775808-10"], "names no model"),
        (["--model", "mlp:784-10:step"], "'step' is none of sigmoid, tanh, relu, gelu, silu, elu, softplus"),
        (["--validation", "1.5"], "'1.5' is neither test, none nor a share"),
        (["--lr", "0"], "'0' is not a number above 0"),
        (["--l2", "-1"], "'-1' is not a number of at least 0"),
        (["--epochs", "few"], "'few' is not a whole number"),
        (["--optimizer", "adagrad"], "invalid choice: 'adagrad'"),
        (["--optimizer", "adam", "--momentum", "0.5"], "--momentum is for sgd and rmsprop; adam has none"),
        (["--momentum", "1"], "--momentum 1 is not below 1"),
        (["--max-iter", "3"], "--max-iter is for lbfgs; sgd has none"),
        (["--optimizer", "adam", "--history-size", "3"], "--history-size is for lbfgs; adam has none"),
        (["--damping", "1"], "--damping is for gauss-newton and natural-gradient; sgd has none"),
        (["--solver", "cg"], "--solver is for levenberg-marquardt, gauss-newton and natural-gradient;"),
        (["--optimizer", "levenberg-marquardt", "--lr", "1"], "; levenberg-marquardt has none"),
        (["--optimizer", "levenberg-marquardt", "--schedule", "cosine"], "levenberg-marquardt has none"),
        (["--strategy", "teem:2"], 'strategy "teem:2", which may mean "team:2"'),
        (["--strategy", "ddp:int9"], 'codec "int9"'),
        (["--stratgy", "serial"], "unrecognized arguments: --stratgy serial; did you mean --strategy?"),
        (["four.csv"], "unrecognized arguments: four.csv; did you mean --data four.csv?"),
        (["--optimizer", "adma"], "did you mean adam?"),
        (["--data", "none.npz"], "write npz:FILE.npz, of arrays x_train"),
        (["--metrics", "r3"], "rmse, top5 (or another number)\n"),
        (["--schedule", "square"], "'square' names no schedule of the learning rate"),
        (["--schedule", "cosine:0.1:2"], "'cosine:0.1:2' names no schedule"),
        (["--schedule", "step:0"], "'0' is not a whole number of at least 1"),
        (["--schedule", "linear:-1"], "'-1' is not a number of at least 0"),
        (["--resume"], "--resume needs --checkpoint"),
        (["--every-steps", "5"], "--every-steps needs --checkpoint"),
        (["--keep", "3"], "--keep needs --checkpoint"),
        (["--patience", "3"], "--patience needs --validation FRACTION"),
        (["--patience", "3", "--validation", "none"], "--patience needs --validation FRACTION"),
        (["--save", "/nowhere/model.safetensors"], "there is no such folder"),
        (["--save", "/tmp"], "'/tmp' is a folder; expected a file"),
        pytest.param(
            ["--json", "/proc/history.json"],
            "/proc/history.json: nothing can be written there (",
            marks=pytest.mark.skipif(not Path("/proc").is_dir(), reason="a folder of Linux"),
        ),
        (["--plot", "history.xyz"], "'history.xyz' ends in none of ."),
        (["--plot", "/tmp"], "'/tmp' is a folder; expected a file"),
        (["--save", "x", "--json", "./x"], "--save and --json are the same file, ./x"),
        (["--data", "t.csv", "--json", "./t.csv"], "--data and --json are the same file, ./t.csv"),
        (["--data", "npz:m.npz", "--save", "./m.npz"], "--data and --save are the same file, ./m.npz"),
        (
            ["--data", "t.csv", "--test", "u.csv", "--json", "./u.csv"],
            "--test and --json are the same file, ./u",
        ),
        (["--save", "a" * 300], "File name too long"),
    ],
)
def test_mistakes_are_refused_before_anything_is_read(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["train", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_what_does_not_fit_is_said_in_a_line(
    blobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken, text = tmp_path / "broken.npy", tmp_path / "text.npy"
    np.save(broken, np.zeros((1000, 4), np.float32))
    broken.write_bytes(broken.read_bytes()[:500])
    np.save(text, np.array(["a", "b"]))
    model = tmp_path / "model.safetensors"
    assert train(blobs, "--epochs", "1", "--quiet", "--save", model) == 0
    for words, said in [
        (["train", "--data", f"npz:{tmp_path / 'none.npz'}"], "none.npz"),
        (["train", "--data", f"cifar10:{tmp_path / 'none'}"], "none: has none of CIFAR-10's files"),
        (["train", "--data", f"npz:{blobs}", "--model", "mlp:5-3"], "5"),
        (["train", "--optimizer", "gauss-newton", "--strategy", "hogwild:2"], '"ddp" does'),
        (["train", "--optimizer", "gauss-newton", "--strategy", "fastest"], '"auto" and "ddp" fit'),
        (["train", "--augment", "4"], "samples are 784, expected images"),
        (["train", "--model", "mlp:784-99999999-99999999-10"], "there is not enough memory (no memory for "),
        (["train", "--data", "mnist-mini:20000"], "there is not enough memory (Unable to allocate 15.3 TiB "),
        (["predict", str(blobs), "mnist-mini"], "blobs.npz"),
        (["predict", str(model), str(broken)], "broken.npy"),
        (["predict", str(model), str(text)], "<U1"),
    ]:
        capsys.readouterr()
        assert cli.main(words) == 1, words
        message = capsys.readouterr().err
        assert message.startswith(f"pdnn {words[0]}: "), words
        assert said in message, words
        assert message.count("\n") == 1, words


def test_resumed_training_must_standardize_as_before(
    blobs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--checkpoint", tmp_path / "run", "--quiet"]
    assert train(blobs, *words, "--standardize", "--epochs", "1") == 0
    assert train(blobs, *words, "--resume", "--epochs", "2") == 1
    assert "--standardize" in capsys.readouterr().err


def test_a_picture_is_not_written_over_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an ending its name gets one."""
    pytest.importorskip("matplotlib", reason="draws")
    words = ["train", "--epochs", "1", "--plot", str(tmp_path / "h"), "--json", str(tmp_path / "h.png")]
    with pytest.raises(SystemExit, match="2"):
        cli.main(words)
    assert "are the same file" in capsys.readouterr().err


def test_fewer_epochs_than_a_checkpoint_has_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savetxt(tmp_path / "t.csv", np.random.default_rng(0).normal(size=(30, 3)), delimiter=",")
    words = ["train", "--data", str(tmp_path / "t.csv"), "--strategy", "serial", "--header", "no"]
    words += ["--checkpoint", str(tmp_path / "run")]
    assert cli.main([*words, "--epochs", "3"]) == 0
    capsys.readouterr()
    assert cli.main([*words, "--epochs", "1", "--resume"]) == 0
    assert "the checkpoint has 3 epochs, and --epochs 1 is no more: nothing was" in capsys.readouterr().out
    assert cli.main([*words, "--epochs", "3", "--resume"]) == 0
    assert "the checkpoint has 3 epochs, and --epochs 3 is no more: nothing was" in capsys.readouterr().out


def test_where_nothing_can_be_written_is_known_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="nothing can be written there"):
        values.output(str(tmp_path / (300 * "n")))

    def refuse(**_: object) -> None:
        raise OSError("no file beside a device")

    monkeypatch.setattr("tempfile.TemporaryFile", refuse)
    assert values.output(os.devnull) == os.devnull


def test_a_picture_has_a_name(tmp_path: Path) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        values.picture("")
    pytest.importorskip("matplotlib", reason="draws")
    for name in ("h", "h.", "h.png"):
        assert values.picture(str(tmp_path / name)) == str(tmp_path / "h.png")
