"""``pdnn estimate``: described clusters, files that are wrong in one place, numbers and pictures."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pdnn import cli
from pdnn.cli.estimate import ranks
from pdnn.estimate import Link, Machine, step
from pdnn.estimate.machine import load, save
from pdnn.models import mlp
from processes import Completed

TEXT = """
name = "four cores twice"
nodes = 2
cores = 4
[core]
flops = 1e10
half_rows = 2
memory = 1e9
[threads]
barrier = 1e-6
[inside]
latency = 1e-6
bandwidth = 1e9
[between]
latency = 1e-4
bandwidth = 1e8
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.toml"
    path.write_text(TEXT)
    return path


def test_a_cluster_file_is_read_and_written(file: Path, root: Path) -> None:
    machine = load(file)
    assert machine == Machine(
        "four cores twice", 2, 4, 1e10, 2, 1e9, 1e-6, Link(1e-6, 1e9), between=Link(1e-4, 1e8)
    )
    save(machine, file)
    assert load(file) == machine
    assert Machine.from_dict(json.loads(json.dumps(machine.to_dict()))) == machine
    assert "a message between nodes: 100 µs + bytes / (0.1 GB/s)" in str(machine)
    assert load(root / "docs" / "cluster.toml").nodes == 32


def test_a_cluster_file_with_a_former_key_is_read(file: Path) -> None:
    file.write_text(file.read_text().replace("memory = 1e9", "memory = 1e9\ncrowding = 1.5"))
    with pytest.warns(DeprecationWarning, match=r"core\.crowding is core\.contention now"):
        assert load(file).contention == 1.5


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (
            "flops = 1e10",
            "",
            "core.flops is missing; expected floating-point operations a second, more than 0",
        ),
        ("flops = 1e10", 'flops = "fast"', "core.flops = 'fast'; expected floating-point operations"),
        ("flops = 1e10", "flops = 0", "core.flops = 0; expected"),
        ("flops = 1e10", "flops = inf", "core.flops = inf; expected"),
        ("flops = 1e10", "flops = true", "core.flops = True; expected"),
        ("half_rows", "half_row", "unknown key core.half_row; [core] has flops and half_rows and memory"),
        ("nodes = 2", "nodes = 2.5", "nodes = 2.5; expected a whole number, 1 or more"),
        ("nodes = 2", "nodes = 0", "nodes = 0; expected a whole number, 1 or more"),
        ("nodes = 2", "node = 2", "unknown key node; expected some of name, nodes, cores, [core]"),
        ("[between]", "[across]", "unknown key across; expected some of"),
        ("latency = 1e-4", "", "between.latency is missing; expected seconds, 0 or more"),
        (
            "[between]\nlatency = 1e-4\nbandwidth = 1e8",
            "",
            "nodes = 2 without [between]; expected its latency",
        ),
        (
            "memory = 1e9",
            "memory = 1e9\ncontention = 0.5",
            "core.contention = 0.5; expected a factor, 1 or more",
        ),
        ("cores = 4", "cores = ", "is no TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    file: Path, before: str, after: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert before in TEXT
    file.write_text(TEXT.replace(before, after))
    assert cli.main(["estimate", "--cluster", str(file)]) == 1
    assert f"pdnn estimate: {file}: {message}" in capsys.readouterr().err


def test_ranks_double_up_to_the_last() -> None:
    assert ranks("2..16") == [2, 4, 8, 16]
    assert ranks("3..10") == [3, 6, 10]
    assert ranks("2,5") == [2, 5] and ranks("7") == [7]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--ranks", "8..2"], "goes down"),
        (["--ranks", "two"], "'two' is not a whole number"),
        (["--model", "vgg"], "'vgg' names no model"),
        (["--strategy", "ddp", "auto"], '--strategy auto measures steps on this machine; "fastest" goes by'),
        (["--csv", "/nowhere/at/all.csv"], "there is no such folder"),
        (["--json", "x", "--csv", "x"], "--json and --csv are the same file, x"),
        (["--json", "/tmp"], "'/tmp' is a folder; expected a file"),
        (["--output", "picture.xyz"], "'picture.xyz' ends in none of ."),
        (["--optimizer", "adam", "--momentum", "0.5"], "--momentum is for sgd and rmsprop; adam has none"),
        (["--max-iter", "3"], "--max-iter is for lbfgs; sgd has none"),
        (["--optimizer", "lbfgs"], "--optimizer lbfgs: its steps evaluate a batch as often as they need"),
        (["--optimizer", "gauss-newton"], "--optimizer gauss-newton: its steps"),
    ],
)
def test_words_that_make_no_sense_are_refused(
    file: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["estimate", "--cluster", str(file), *words])
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "option", ["--output file.png", "--json file", "--csv file", "--ranks 2..8", "--strategy ddp", "--weak"]
)
def test_what_is_of_estimates_is_refused_where_nothing_is_estimated(
    tmp_path: Path, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["estimate", "--measure", str(tmp_path / "here.toml"), *option.split()])
    assert f"{option.split()[0]} needs --cluster FILE; --measure estimates nothing" in capsys.readouterr().err


def test_a_strategy_that_there_is_not_is_refused(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["estimate", "--cluster", str(file), "--ranks", "2", "--strategy", "ddp", "dpd:N"]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith('pdnn estimate: strategy "dpd:2", which may mean "tp:2"; expected one of "auto", ')


def test_a_cluster_is_estimated_drawn_and_kept(
    file: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    numbers, table, picture = tmp_path / "numbers.json", tmp_path / "table.csv", tmp_path / "picture.png"
    words = ["--model", "mlp:64-32-10", "--batch-size", "64", "--ranks", "1..8"]
    words += ["--strategy", "ddp", "tp:N", "pipeline:N", "serial", "fastest"]
    words += ["--json", str(numbers), "--csv", str(table), "--output", str(picture)]
    done = run_python(["-m", "pdnn", "estimate", "--cluster", file, *words], timeout=60)
    assert "four cores twice: nodes 2, cores of each 4" in done.stdout and "fastest: " in done.stdout
    assert "left out: pipeline:N on 4 ranks: 4 stages of 3 layers; a stage has at least one" in done.stdout
    assert 'left out: serial on 2 ranks: strategy "serial" is for one process' in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    points = json.loads(numbers.read_text())["points"]
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["strategy"] for row in rows] == [point["strategy"] for point in points]

    (ddp,) = (point for point in points if point["asked"] == "ddp" and point["ranks"] == 8)
    known = step(mlp([64, 32, 10], seed=0), (64,), "ddp", 64, 8, load(file))
    assert ddp["seconds"] == known.seconds and ddp["bytes"] == known.bytes
    (serial,) = (point for point in points if point["asked"] == "serial")
    assert serial["speedup"] == 1 and ddp["speedup"] == pytest.approx(serial["seconds"] / ddp["seconds"])
    assert ddp["efficiency"] == pytest.approx(ddp["speedup"] / 8)
    for number in (1, 2, 4, 8):  # the fastest is no slower than any exact strategy that was asked for
        same = {point["asked"]: point["seconds"] for point in points if point["ranks"] == number}
        assert same["fastest"] <= min(same.values())


def test_weak_scaling_gives_every_rank_its_rows(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "mlp:64-32-10", "--ranks", "1,4", "--strategy", "ddp", "average:8", "--weak"]
    assert cli.main(["estimate", "--cluster", str(file), *words]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("ddp")]
    assert float(lines[1][-2]) > 2.5  # a rank's own rows do not get fewer


def test_nothing_that_fits_is_an_error(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["estimate", "--cluster", str(file), "--ranks", "3", "--strategy", "tp:2"]) == 1
    assert "no strategy fits" in capsys.readouterr().err


def test_this_machine_is_described_by_measuring_it(
    tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    pytest.importorskip("mpi4py")
    path = tmp_path / "here.toml"
    run_python(["-m", "pdnn", "estimate", "--measure", path, "--model", "mlp:64-32-10"], timeout=90)
    machine = load(path)
    assert machine.nodes == 1 and machine.flops > 1e8 and 0 < machine.memory < 1e13
    assert machine.cores == 1 or machine.inside is not None
