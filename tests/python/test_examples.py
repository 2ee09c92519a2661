"""Options of the programs in examples that can do nothing are refused before any work; published figures."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from processes import Completed

NONE = "argument {}: '0' is not a whole number of at least 1"


def test_the_main_job_keeps_its_model_where_nothing_can_be_drawn(
    root: Path, run_python: Callable[..., Completed], tmp_path: Path
) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError('not here')\n")
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    words = [root / "train.py", "--epochs", "1", "--out", tmp_path / "out"]
    child = run_python(words, check=False, env={"PYTHONPATH": path, "PDNN_MPI": "0"})
    assert child.returncode == 1 and "matplotlib is missing" in child.stdout
    assert (tmp_path / "out" / "model.safetensors").exists() and (tmp_path / "out" / "history.json").exists()


@pytest.mark.parametrize(
    ("script", "words", "said"),
    [
        ("threadpool_minibatches", ["--epochs", "0"], NONE.format("--epochs")),
        ("threadpool_minibatches", ["--batch", "50"], "batches have 105 rows; add --batching general"),
        ("hogwild", ["--workers", "0"], NONE.format("--workers")),
        ("hogwild", ["--workers", "2", "--sweep", "1"], "--workers is for one job; --sweep says how many"),
        ("parameter_averaging", ["--sweep", "1", "0"], NONE.format("--sweep")),
        ("model_pipeline_quantized", ["--micro-batches", "0"], NONE.format("--micro-batches")),
        ("gradient_codecs", ["--epochs", "0"], NONE.format("--epochs")),
        ("gradient_codecs", ["--ranks", "1"], "--ranks 1: one rank sends nothing to encode; at least 2"),
        ("gradient_codecs", ["--plot", "none/codecs.png"], "none/codecs.png: there is no such folder"),
        ("gradient_codecs", ["--json", "none/codecs.json"], "none/codecs.json: there is no such folder"),
        ("sklearn_mlp", ["--parts", "alpha,beta"], "unknown part 'beta'; expected some of learning, alpha"),
    ],
)
def test_a_useless_option_is_refused_before_any_work(
    root: Path, run_python: Callable[..., Completed], script: str, words: list[str], said: str
) -> None:
    refused = run_python([root / "examples" / f"{script}.py", *words], check=False)
    assert refused.returncode == 2 and said in refused.stdout


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("threadpool_minibatches", ["--fast"]),
        ("hogwild", ["--embedded", "--sweep", "1"]),
        ("parameter_averaging", ["--embedded", "--sweep", "1"]),
        ("scatter_gather", ["--embedded", "--fast"]),
        ("sklearn_mlp", ["--fast", "--parts", "weights"]),
    ],
)
def test_a_program_that_draws_says_before_its_work_that_matplotlib_is_missing(
    root: Path, run_python: Callable[..., Completed], tmp_path: Path, script: str, words: list[str]
) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ModuleNotFoundError")
    environment = {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    command = [root / "examples" / f"{script}.py", *words, "--out", tmp_path / "out"]
    ended = run_python(command, check=False, env=environment)
    assert ended.returncode == 2
    assert ended.stdout.strip() == f"{script}.py: matplotlib is missing; pip install matplotlib"


@pytest.mark.parametrize("script", ["hogwild", "parameter_averaging"])
def test_a_folder_that_cannot_be_made_ends_a_program_before_its_training(
    root: Path, run_python: Callable[..., Completed], tmp_path: Path, script: str
) -> None:
    (tmp_path / "file").touch()
    words = ["--embedded", "--epochs", "1", "--out", tmp_path / "file"]
    ended = run_python([root / "examples" / f"{script}.py", *words], check=False)
    assert ended.returncode == 1 and "FileExistsError" in ended.stdout and "Epoch" not in ended.stdout


def test_the_main_job_tries_its_folder_before_it_trains(
    root: Path, run_python: Callable[..., Completed], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    child = run_python([root / "train.py", "--out", tmp_path / "file"], check=False, env={"PDNN_MPI": "0"})
    assert child.returncode == 1 and "FileExistsError" in child.stdout and "epoch" not in child.stdout


def test_published_figures_stand_beside_those_of_as_long_a_training(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(root / "examples"))
    names = ("scatter_gather", "resnet9_cifar10", "parallel_sgd", "parameter_averaging")
    scatter, resnet, sgd, averaging = map(importlib.import_module, names)

    costs = [1 / count for count in range(1, 301)]
    lines = scatter.published_lines(2.0, costs)
    assert lines[2:] == [
        "after  200 iterations: cost 0.005; published: precision 0.93, cost 0.572",
        "after  300 iterations: cost 0.003; published: precision 0.94, cost 0.485",
    ]
    assert scatter.published_lines(0.1, costs[:60]) == ["published: precision 0.36"]
    assert scatter.published_lines(0.1, costs) == scatter.published_lines(1.0, costs) == []

    result = resnet.Result(losses=[3.5] * 101, accuracies=[0.4])
    first = ["loss at batch 0: 3.50, published 3.61", "loss at batch 100: 3.50, published 1.68"]
    assert resnet.published_lines(result, 3) == [*first, "accuracy of epoch 1: 0.400, published 0.37 to 0.38"]
    assert resnet.published_lines(result, 2) == first

    told = [sgd.published_line(sgd.Result(2, 1.0, 0.9), *averaging.PUBLISHED[epochs]) for epochs in (20, 50)]
    assert told[0].startswith("published: 193 s, accuracy 36% (20 epochs")
    assert told[1].startswith("published: 553 s, accuracy 40% (50 epochs")
    assert "nothing of 7" in sgd.published_line(sgd.Result(7, 1.0, 0.9), *averaging.PUBLISHED[20])
