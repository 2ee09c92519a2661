"""Benchmarks that start ranks: they measure them, and the slow link is as slow as it says."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from processes import Completed

pytestmark = pytest.mark.mpi
pytest.importorskip("mpi4py")
pytest.importorskip("cloudpickle")


@pytest.fixture
def slow_link(root: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(root / "benchmarks")
    module = importlib.import_module("slow_link")
    if reason := module.refusal():
        pytest.skip(f"no slow link here: {reason}")
    return module


SENDS = """
import socket, time
import numpy as np
import pdnn
comm, data = pdnn.world(), np.zeros(500_000, np.uint8)
print(socket.gethostname(), "is rank", comm.rank, "of", comm.size)
for _ in range(2):
    began = time.perf_counter()
    comm.send(data, 1) if comm.rank == 0 else comm.recv(0)
    comm.barrier()
if comm.rank == 0:  # the other may begin late
    print(f"4 megabits took {time.perf_counter() - began:.3f} s")
"""


def test_ranks_on_two_machines_get_no_more_than_the_link_has(
    slow_link: ModuleType, run_python: Callable[..., Completed]
) -> None:
    job = slow_link.command(["python", "-m", "pdnn", "launch", "-n", "2", "-c", SENDS], 40)
    said = run_python(job[1:], timeout=60).stdout
    assert "[0] node0 is rank 0 of 2" in said
    assert "[1] node1 is rank 1 of 2" in said
    (seconds,) = re.findall(r"took (\S+) s", said)
    assert 0.08 < float(seconds) < 5  # .1 s at 40 Mbit/s, of which a burst of 40 kB passes at once


def test_a_program_over_the_link_ends_with_its_own_code(
    slow_link: ModuleType, run_python: Callable[..., Completed]
) -> None:
    failing = slow_link.command(["sh", "-c", "exit 5"])
    assert run_python(failing[1:], check=False).returncode == 5


@pytest.mark.long
@pytest.mark.parametrize("strategy", ["auto", "ddp"])
def test_ranks_over_a_slow_link_are_told_what_would_pay(
    strategy: str, slow_link: ModuleType, run_python: Callable[..., Completed]
) -> None:
    words = ["--strategy", strategy, "--epochs", "1", "--batch-size", "500", "--validation", "none"]
    job = slow_link.command(["mpiexec", "-n", "2", "python", "-m", "pdnn", "train", *words], 100)
    begins = "auto: ddp on 2 ranks; measured" if strategy == "auto" else "ddp: estimated"
    lines = run_python(job[1:], timeout=100).stdout.splitlines()
    # Not always the first line: mpiexec warns of a process of the second machine that was quicker than it.
    told = next((line for line in lines if line.startswith(begins)), "")
    assert told, lines
    assert "the exchange costs more than it brings; what would pay: 1 rank" in told  # 65 ms against 2
    assert "average:" in told


@pytest.mark.long
def test_two_ranks_are_measured_beside_one(
    root: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    script, report, picture = root / "benchmarks" / "scaling.py", tmp_path / "s.json", tmp_path / "s.png"
    words = ["--networks", "w0", "--blocks", "1", "--warm-up", "5", "--no-torch", "--round-trip", "1e9"]
    printed = run_python([script, *words, "--json", report, "--plot", picture], timeout=100).stdout
    assert "of the gradients' way hidden" in printed
    for result in json.loads(report.read_text())["results"]:
        times = {row["side"]: row["microseconds"] for row in result["sides"]}
        ranks = {"pdnn ddp", "pdnn ddp, buckets", "pdnn ddp, one bucket"}
        assert times.keys() == {"pdnn, one core", "pdnn team", "pdnn, ranks apart", *ranks}
        assert min(times.values()) > 0
        parts = next(row["parts"] for row in result["sides"] if row["side"] == "pdnn ddp")
        assert 0 < parts["gradient"] < times["pdnn ddp"]
    assert picture.stat().st_size > 1000


@pytest.mark.long
def test_ways_to_split_a_network_are_measured_side_by_side(
    root: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    script, report = root / "benchmarks" / "split.py", tmp_path / "split.json"
    words = ["--blocks", "1", "--warm-up", "5", "--batch", "16", "--no-peers", "--round-trip", "1e9"]
    assert "pdnn tp:2" in run_python([script, *words, "--json", report], timeout=100).stdout
    rows = {row["side"]: row for row in json.loads(report.read_text())["results"][0]["sides"]}
    assert min(row["microseconds"] for row in rows.values()) > 0
    parameters = 203_530
    sent = {name: row["sent"] for name, row in rows.items() if "sent" in row}
    assert sent.pop("pdnn ddp, messages") == 4 * (parameters + 3)
    assert sent == {
        "pdnn, one core": 0,
        "pdnn team:2": 0,
        "pdnn tp:2": 16 * 10 * 4 + 24,
        "pdnn pipeline:2/4": 16 * 256 * 4 + 24,
        "pdnn ddp, shared memory": 0,
    }
    assert rows["pdnn ddp, shared memory"]["read"] > 4 * parameters


@pytest.mark.long
def test_all_reduces_are_measured_by_size(
    root: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    script, report, picture = root / "benchmarks" / "collectives.py", tmp_path / "c.json", tmp_path / "c.png"
    run_python([script, "--quick", "--json", report, "--plot", picture], timeout=100)
    results = json.loads(report.read_text())["results"]
    assert [result["bytes"] for result in results] == [4**power for power in range(1, 11)]
    names = {"pdnn, core", "pdnn", "pdnn, checked", "MPI_Allreduce", "MPI_Iallreduce", "comm.share", "limit"}
    for result in results:
        assert result["seconds"].keys() == names
        assert min(result["seconds"].values()) > 0
    assert picture.stat().st_size > 1000


@pytest.mark.long
def test_estimates_stand_beside_measured_steps(
    root: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    report, picture = tmp_path / "estimates.json", tmp_path / "estimates.png"
    words = ["--networks", "w0", "--rounds", "1", "--json", report, "--plot", picture]
    said = run_python([root / "benchmarks" / "estimates.py", *words], timeout=90).stdout
    for spec in ("serial", "team:2", "pool:2/8", "ddp", "tp:2", "pipeline:2"):
        assert re.search(rf"^{spec} +\d+ µs +\d+ µs +[+-]\d", said, re.MULTILINE)
    alone, together = json.loads(report.read_text())["results"]["w0"]
    assert alone["chosen"] in alone["measured"] and together["chosen"] in together["measured"]
    assert together["machine"]["inside"]["bandwidth"] > 0 and "inside" not in alone["machine"]
    assert picture.read_bytes().startswith(b"\x89PNG")
