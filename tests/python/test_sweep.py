"""``pdnn sweep``: grids that fit, results that survive any end, failures that are told and tried again."""

from __future__ import annotations

import copy
import csv
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import processes
from blobs import write_blobs
from pdnn import _core, cli, sweep
from pdnn.sweep.results import OF_RANK


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_blobs(tmp_path / "blobs.npz")


def words(file: Path, data: Path, *more: str | Path) -> list[str]:
    given = ["sweep", file, "--data", f"npz:{data}", "--model", "mlp:4-8-3:tanh", "--epochs", "2", *more]
    return [str(word) for word in given]


def runs_of(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text())["runs"] if file.exists() else []  # type: ignore[no-any-return]


def test_a_grid_has_what_fits_and_names_what_does_not() -> None:
    configurations, left_out = sweep.grid(["m"], ["serial", "ddp", "auto", "fastest"], [1, 2], [8, 16], 2)
    fitting = [("serial", 1), ("ddp", 1), ("ddp", 2), ("auto", 1), ("auto", 2)]
    fitting += [("fastest", 1), ("fastest", 2)]
    assert configurations == [
        sweep.Configuration("m", strategy, ranks, batch_size, repeat)
        for repeat in (0, 1)
        for batch_size in (8, 16)
        for strategy, ranks in fitting
    ]
    assert len(left_out) == 1 and '"serial"' in left_out[0]
    with pytest.raises(ValueError, match='"team:2" is for one process'):
        sweep.grid(["m"], ["team:2"], [2], [8], 1)
    with pytest.raises(ValueError, match='strategy "guess"'):
        sweep.grid(["m"], ["guess"], [1], [8], 1)


def test_a_strategy_that_fits_no_number_of_ranks_is_refused_however_often_they_are_named() -> None:
    with pytest.raises(ValueError, match='"tp:2" deals the network out to 2 ranks, this world has 3'):
        sweep.grid(["mlp:4-2"], ["tp:2"], [3, 3], [None], 1)


def test_workers_are_ranks_times_threads() -> None:
    def workers(strategy: str, ranks: int) -> int:
        return sweep.Configuration("m", strategy, ranks, 8, 0).workers(8, None)

    assert [workers("serial", 1), workers("ddp+team:3", 2), workers("hogwild:4", 1)] == [1, 6, 4]
    assert [workers("auto", 1), workers("auto", 2), workers("auto", 9)] == [8, 8, 9]
    assert [workers("fastest", 1), workers("fastest", 2)] == [8, 8]
    assert sweep.Configuration("m", "auto", 2, 8, 0).workers(8, "team:2") == 4


def test_a_sweep_keeps_all_that_was_measured(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, table = tmp_path / "results.json", tmp_path / "results.csv"
    swept = ["--strategy", "serial", "hogwild:2", "--batch-size", "32", "--csv", table, "--seed", "5"]
    assert cli.main(words(file, data, *swept)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "trainings: 2, done: 0"
    assert lines[1].startswith("[1/2] serial, 1 rank, mlp:4-8-3:tanh, batch 32, repeat 0: ")

    results = sweep.Results.load(file)
    serial, hogwild = results.runs.values()
    assert (serial.seed, serial.workers, hogwild.workers) == (5, 1, 2)
    assert serial.history is not None and serial.history.epochs == 2
    assert set(serial.history.history) == {"loss", "accuracy", "val_loss", "val_accuracy", "seconds"}
    assert serial.history.phases[1]["gradient"] > 0
    assert serial.history.updates[1]["count"] == 7
    several_cores = _core.available_cores() > 1  # without which Hogwild has no estimate
    for run, name in ((serial, "serial"), (hogwild, "hogwild:2"))[: 1 + several_cores]:
        assert run.history is not None and run.history.estimate is not None
        assert run.history.estimate.strategy == name and run.history.estimate.steps == 203 / 32
    assert serial.machine == sweep.machine() and serial.versions == sweep.versions()
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [(row["strategy"], row["epoch"]) for row in rows] == [
        (strategy, epoch) for strategy in ("serial", "hogwild:2") for epoch in "12"
    ]
    assert rows[0]["estimated strategy"] == "serial" and float(rows[0]["estimated seconds"]) > 0
    assert float(rows[1]["val_accuracy"]) == serial.history.history["val_accuracy"][1]

    before = file.read_bytes()
    assert cli.main(words(file, data, *swept)) == 0  # nothing is missing
    assert capsys.readouterr().out == "trainings: 2, done: 2\n" and file.read_bytes() == before
    assert cli.main(words(file, data, *swept, "--repeats", "2")) == 0  # the grid may grow
    assert [run["seed"] for run in runs_of(file)] == [5, 5, 6, 6]
    assert runs_of(file)[:2] == json.loads(before)["runs"]


ADDS = """
import sys
from pdnn import sweep

_, file, strategy = sys.argv
results = sweep.Results.open(file, {})
for batch in range(1, 41):
    configuration = sweep.Configuration("m", strategy, 1, batch, 0)
    results.add(sweep.Run(configuration, 0, 1, "2000-01-01", 1.0, None, "", {}, {}), file)
"""


def test_sweeps_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    both = [processes.start([sys.executable, "-c", ADDS, file, strategy]) for strategy in ("serial", "ddp")]
    try:
        assert [one.wait(60) for one in both] == [0, 0]
    finally:
        for one in both:
            processes.stop(one)
    assert len(sweep.Results.load(file).runs) == 80


def test_runs_that_another_sweep_adds_meanwhile_stay(tmp_path: Path) -> None:
    """The file had those of the sweep that ended last."""

    def run(strategy: str, message: str = "") -> sweep.Run:
        configuration = sweep.Configuration("m", strategy, 1, 8, 0)
        return sweep.Run(configuration, 0, 1, "2000-01-01", 1.0, None, message, {}, {})

    file = tmp_path / "results.json"
    one, other = (sweep.Results.open(file, {"--seed": "0"}) for _ in range(2))
    one.add(run("serial", "failed"), file)
    other.add(run("team:2"), file)
    other.add(run("serial", "tried again"), file)
    one.add(run("ddp"), file)
    assert {run.configuration.strategy: run.message for run in sweep.Results.load(file).runs.values()} == {
        "serial": "tried again", "team:2": "", "ddp": ""
    }  # fmt: skip
    file.write_text("{}")
    with pytest.raises(ValueError, match=r"results\.json: holds no results of pdnn sweep"):
        one.add(run("pool:2"), file)


@pytest.mark.parametrize("count", [0, 2])
def test_what_is_saved_is_loaded_also_from_a_file_of_the_former_layout(count: int, tmp_path: Path) -> None:
    saved = sweep.Results({"--seed": "0", "--data": 'é "1"'})
    for batch in range(count):
        configuration = sweep.Configuration("m", "serial", 1, batch + 1, 0)
        run = sweep.Run(configuration, 0, 1, "2000-01-01", 1.5, None, "two\nlines", {"cores": 2}, {"a": "1"})
        saved.runs[configuration] = run
    file, former = tmp_path / "results.json", tmp_path / "former.json"
    saved.save(file)
    assert len(file.read_text().splitlines()) == max(count, 1) + 2, "a line a run"
    former.write_text(json.dumps(json.loads(file.read_text()), indent=1) + "\n")
    assert sweep.Results.load(file) == sweep.Results.load(former) == saved


def test_full_batches_are_the_default_where_the_optimizer_needs_them(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.json"
    swept = ["--strategy", "serial", "--optimizer", "levenberg-marquardt", "--tau", "0.1"]
    assert cli.main(words(file, data, *swept)) == 0
    assert "serial, 1 rank, mlp:4-8-3:tanh, full batch, repeat 0: " in capsys.readouterr().out
    (run,) = sweep.Results.load(file).runs.values()
    assert run.configuration.batch_size is None and run.history is not None
    assert run.history.updates[1]["count"] == 1 and run.history.estimate is None
    assert cli.main(words(file, data, *swept)) == 0  # nothing is missing
    assert capsys.readouterr().out == "trainings: 1, done: 1\n"
    with pytest.raises(SystemExit):
        cli.main(words(file, data, *swept, "--lr", "1"))
    assert "--lr is for sgd, adam, " in capsys.readouterr().err


SIX = "serial team:2 pool:2 ddp tp:2 pipeline:2"


@pytest.mark.parametrize(
    ("swept", "trainings"),
    [
        ("--strategy serial --repeats 4", 4),
        pytest.param(f"--strategy {SIX} --ranks 1 2", 7, marks=[pytest.mark.long, pytest.mark.mpi]),
    ],
)
def test_an_interrupted_sweep_loses_and_repeats_nothing(
    data: Path, tmp_path: Path, swept: str, trainings: int
) -> None:
    file = tmp_path / "results.json"
    command = [sys.executable, "-m", "pdnn", *words(file, data, *swept.split())]
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    kept: list[dict[str, Any]] = []
    for enough, number in [(1, signal.SIGINT), (2, signal.SIGKILL)]:
        child = processes.start(command, env={"TMPDIR": str(temporary)})
        try:
            until = time.monotonic() + 60
            # Killed between two trainings, it could leave the empty folder that the next one is to have.
            while len(runs_of(file)) < enough or not list(temporary.glob("pdnn-sweep-*/0.stdout")):
                assert child.poll() is None and time.monotonic() < until
                time.sleep(0.01)
            child.send_signal(number)
            assert child.wait(30) == (130 if number == signal.SIGINT else -number)
            until = time.monotonic() + 15
            # The training and its files end with the sweep, however that ended.
            while processes.descendants(child) or list(temporary.iterdir()):
                assert time.monotonic() < until
                time.sleep(0.05)
        finally:
            processes.stop(child)
        assert runs_of(file)[: len(kept)] == kept
        kept = runs_of(file)
        assert enough <= len(kept) < trainings
    assert f"trainings: {trainings}, done: {len(kept)}" in processes.run(command, timeout=100).stdout
    whole = runs_of(file)
    assert whole[: len(kept)] == kept
    assert len({json.dumps(run["configuration"]) for run in whole}) == len(whole) == trainings
    assert all(run["result"] for run in whole)


def test_other_settings_are_refused_with_both_sides(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.json"
    assert cli.main(words(file, data, "--strategy", "serial")) == 0
    before = file.read_bytes()
    other = words(file, data, "--strategy", "serial", "--lr", "0.01", "--seed", "3")
    assert cli.main(other) == 1
    said = capsys.readouterr().err
    assert "made with other settings: --seed is 0 in the file, 3 now; " in said
    assert "--lr is (default) in the file, 0.01 now" in said
    settings = sweep.Results.load(file).settings
    with pytest.raises(ValueError, match=r"processor is .* in the file, abacus now"):
        sweep.Results.open(file, settings | {"processor": "abacus"})
    assert file.read_bytes() == before
    with data.open("ab") as more:
        more.write(b" ")
    assert cli.main(words(file, data, "--strategy", "serial")) == 1
    assert re.search(r"checksum of --data is \w{16} in the file, \w{16} now", capsys.readouterr().err)
    older = json.loads(before)  # which has no checksum
    assert older["settings"].pop("checksum of --data")
    file.write_text(json.dumps(older))
    assert cli.main(words(file, data, "--strategy", "serial")) == 0
    file.write_text('{"format": "pdnn sweep 2", "settings": {}, "runs": [{}]}')
    assert cli.main(words(file, data, "--strategy", "serial")) == 1
    assert "holds no results of pdnn sweep" in capsys.readouterr().err


def test_failed_runs_are_told_and_tried_again_when_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, data = tmp_path / "results.json", tmp_path / "later.npz"
    once = words(file, data, "--strategy", "serial")
    assert cli.main(once) == 1
    assert "later.npz" in capsys.readouterr().err
    (failed,) = sweep.Results.load(file).runs.values()
    assert failed.history is None and failed.message.startswith("exit code 1: ")
    write_blobs(data)
    assert cli.main(once) == 1  # told again, not tried again
    assert "trainings: 1, done: 1" in capsys.readouterr().out
    assert cli.main([*once, "--retry-failed", "--timeout", "0.01"]) == 1
    (late,) = sweep.Results.load(file).runs.values()
    assert late.message.startswith("no end after 0.01 s")
    assert cli.main([*once, "--retry-failed"]) == 0
    (run,) = sweep.Results.load(file).runs.values()
    assert run.history is not None and run.message == ""


def test_words_that_training_would_not_take_are_refused_before_anything_runs(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "results.json"
    for wrong in (
        ["--csv", str(file)],
        ["--epochs", "0"],
        ["--optimizer", "guess"],
        ["--model", "guess"],
        ["--batch-size", "0"],
    ):
        with pytest.raises(SystemExit, match="2"):
            cli.main(words(file, data, "--strategy", "serial", *wrong))
        assert wrong[0] in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        cli.main(words(tmp_path / "nowhere" / "results.json", data, "--strategy", "serial"))
    assert "there is no such folder" in capsys.readouterr().err
    assert not file.exists()


def test_a_table_has_a_model_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(3)
    table, file = tmp_path / "table.csv", tmp_path / "results.json"
    rows = [f"{a:.3f},{1e3 * b:.1f},{'up' if a > 0 else 'down'}" for a, b in rng.normal(size=(80, 2))]
    table.write_text("\n".join(["a,b,kind", *rows]))
    given = ["sweep", str(file), "--data", str(table), "--strategy", "serial", "--batch-size", "8"]
    assert cli.main([*given, "--epochs", "30", "--standardize"]) == 0
    (run,) = sweep.Results.load(file).runs.values()
    assert run.configuration.model == "mlp:2-64-2"
    assert run.history is not None and run.history.history["val_accuracy"][-1] > 0.8
    assert cli.main([*given, "--epochs", "30"]) != 0
    assert "--standardize is yes in the file, (default) now" in capsys.readouterr().err
    table.write_text("\n".join(["a,b", *(row.rpartition(",")[0] for row in rows)]))
    numbers = ["sweep", str(tmp_path / "numbers.json"), *given[2:], "--epochs", "2", "--lr", "0.01"]
    assert cli.main([*numbers, "--standardize-target"]) == 0
    (run,) = sweep.Results.load(tmp_path / "numbers.json").runs.values()
    assert run.configuration.model == "mlp:1-64-1"
    assert run.history is not None and run.history.history["val_loss"][-1] < 2


@pytest.mark.mpi
def test_several_ranks_are_launched(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("mpi4py")
    file = tmp_path / "results.json"
    table = tmp_path / "results.csv"
    assert cli.main(words(file, data, "--strategy", "ddp", "--ranks", "2", "--csv", table)) == 0
    (run,) = sweep.Results.load(file).runs.values()
    assert run.history is not None and run.workers == 2
    assert "agreement" in run.history.phases[0]
    assert [len(epoch) for epoch in run.history.ranks] == [2, 2]
    assert run.history.ranks[0][1]["shared_bytes"] + run.history.bytes[0][1] > 0
    row = next(csv.DictReader(table.read_text().splitlines()))
    for rank in (0, 1):
        for name, value in run.history.ranks[0][rank].items():
            assert float(row[f"rank {rank} {name}"]) == value


@pytest.mark.mpi
def test_ranks_join_whatever_the_environment_says_and_what_they_say_is_kept(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mpi4py")
    monkeypatch.setenv("PDNN_MPI", "0")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    file = tmp_path / "results.json"
    assert cli.main(words(file, data, "--strategy", "ddp", "--ranks", "2", "--lr", "1e300")) == 1
    (run,) = sweep.Results.load(file).runs.values()
    assert run.history is None and "NaN" in run.message and "MPI_ABORT" not in run.message


def test_a_rank_of_several_does_not_sweep(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PDNN_MPI", "")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert cli.main(words(tmp_path / "results.json", data, "--strategy", "serial")) == 1
    assert "this process is one of several ranks" in capsys.readouterr().err


def test_results_are_a_file(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    assert cli.main(words(pipe, data, "--strategy", "serial")) == 1
    assert "pipe: is no regular file" in capsys.readouterr().err


def test_a_table_is_not_replaced_by_the_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "w.csv"
    table.write_text("1,2\n3,4\n")
    words = ["--data", str(table), "--csv", str(table), "--strategy", "serial"]
    with pytest.raises(SystemExit):
        cli.main(["sweep", str(tmp_path / "r.json"), *words])
    assert "--data and --csv are the same file" in capsys.readouterr().err
    assert table.read_text() == "1,2\n3,4\n"


def test_a_file_from_which_lines_were_deleted_is_refused(data: Path, tmp_path: Path) -> None:
    """`report` ended in tracebacks, or drew another epoch."""
    file = tmp_path / "results.json"
    assert cli.main(words(file, data, "--strategy", "serial")) == 0
    whole = json.loads(file.read_text())

    def without(*path: str | int) -> dict[str, Any]:
        changed = copy.deepcopy(whole)
        at = changed["runs"][0]["result"]
        for name in path[:-1]:
            at = at[name]
        del at[path[-1]]
        return changed

    for path in (
        ("history", "seconds"), ("history", "loss", 1), ("ranks", 0), ("ranks", 1, 0), ("phases", 1),
        ("updates", 0, "count"), *(("ranks", 0, 0, name) for name in OF_RANK),
    ):  # fmt: skip
        file.write_text(json.dumps(without(*path)))
        with pytest.raises(ValueError, match=r"results\.json"):
            sweep.Results.load(file)
    nothing = {"history": {}, "ranks": [], "phases": [], "updates": []}
    changed = copy.deepcopy(whole)
    changed["runs"][0]["result"] |= nothing
    file.write_text(json.dumps(changed))
    with pytest.raises(ValueError, match="its lists are not of one length"):
        sweep.Results.load(file)
    file.write_text(json.dumps(whole))
    assert len(sweep.Results.load(file).runs) == 1
    whole["runs"][0]["result"]["ranks"][1] *= 2
    file.write_text(json.dumps(whole))
    with pytest.raises(ValueError, match="an epoch of 2 ranks"):
        sweep.Results.load(file)
