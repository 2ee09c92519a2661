"""The parallel-SGD exercise's scripts: their lines, file and pictures; what first weights do to averages."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from data_root import real_data
from processes import Completed

pytestmark = pytest.mark.mpi

Run = Callable[..., Completed]

SMALL = ["--embedded", "--epochs", "1"]


def file_of(out: Path) -> list[tuple[int, float, float]]:
    """The lines P,time,accuracy."""
    lines = (out / "TimeForTraining.txt").read_text().splitlines()
    found = [re.fullmatch(r"(\d+),(\d+\.\d\d),(0\.\d{4})", line) for line in lines]
    return [(int(line[1]), float(line[2]), float(line[3])) for line in found if line]


def test_averaging_writes_its_lines_and_the_file(mpiexec: Run, root: Path, tmp_path: Path) -> None:
    script = root / "examples" / "parameter_averaging.py"
    words = [script, *SMALL, "--out", tmp_path]
    output = mpiexec(2, words).stdout
    assert re.search(
        r"^Epoch \[1/1\], Train Loss: \d\.\d{4}, Train Accuracy: 0\.\d{4}$", output, re.MULTILINE
    )
    assert "2 rank(s), average:end, 256 rows" in output
    assert "average:20:master" in mpiexec(2, [*words, "--by", "master", "--every", "20"]).stdout
    (one, _, by_all), (two, _, by_master) = file_of(tmp_path)
    assert (one, two) == (2, 2)
    assert by_all == pytest.approx(by_master, abs=2e-3)  # 21 steps: an average before the last changes little


def test_by_hand_every_rank_prints_the_exercises_lines(mpiexec: Run, root: Path, tmp_path: Path) -> None:
    words = [root / "examples" / "parameter_averaging.py", *SMALL, "--by", "hand", "--out", tmp_path]
    lines = mpiexec(2, words).stdout.splitlines()
    first = lines.index("-----Experiment: Number of processes=2-----")
    assert [line.split()[0] for line in lines[first - 10 : first : 9]] == ["0.weight", "12.bias"]
    epochs = [line for line in lines if line.startswith("Epoch [1/1], Train Loss: ")]
    assert len(set(epochs)) == 2, "each rank's own"
    for rank in (0, 1):
        (own,) = [line for line in lines if line.startswith(f"Own test accuracy at rank {rank}: ")]
        assert lines.index(f"Finished Training at rank {rank}") < lines.index(own)
    assert "Updating params..." in lines
    ((ranks, seconds, accuracy),) = file_of(tmp_path)
    assert ranks == 2
    assert lines[-2] == f"Total time for training: {seconds:.2f}"
    tested = re.fullmatch(r"Test Data: Average loss: \d\.\d{4}, Final Accuracy: (\d+\.\d\d)%", lines[-1])
    assert tested and float(tested[1]) == pytest.approx(100 * accuracy, abs=0.011)
    refused = mpiexec(2, [*words, "--every", "3"], check=False)
    assert refused.returncode != 0 and "--by hand averages at the end only" in refused.stdout


@pytest.mark.long
def test_a_sweep_starts_its_ranks_and_draws(run_python: Run, root: Path, tmp_path: Path) -> None:
    script = root / "examples" / "parameter_averaging.py"
    output = run_python([script, *SMALL, "--sweep", "1", "3", "--out", tmp_path]).stdout
    assert [ranks for ranks, *_ in file_of(tmp_path)] == [1, 3]
    assert "1 rank(s)" in output and "3 rank(s)" in output
    for name in ("speedup.png", "accuracy.png"):
        assert (tmp_path / name).stat().st_size > 5000


@pytest.mark.full_length
@pytest.mark.timeout(600)
def test_averaging_needs_the_same_first_weights(mpiexec: Run, root: Path, tmp_path: Path) -> None:
    """MNIST, two epochs, two ranks; PyTorch gives .927 from the same weights, .667 from different ones."""
    script, data = root / "examples" / "parameter_averaging.py", real_data("mnist")
    words = [script, "--data", data, "--epochs", "2", "--out", tmp_path]
    for more in ([], ["--different-inits"]):
        mpiexec(2, [*words, *more], timeout=250)
    (_, _, same), (_, _, different) = file_of(tmp_path)
    assert same >= 0.90 and different < same - 0.1


def test_hogwild_by_threads_and_by_processes(
    mpiexec: Run, run_python: Run, root: Path, tmp_path: Path
) -> None:
    words = [root / "examples" / "hogwild.py", *SMALL, "--out", tmp_path]
    threads = run_python([*words, "--workers", "2"]).stdout
    processes = mpiexec(2, words).stdout
    for output, strategy in ((threads, "hogwild:2"), (processes, "hogwild-processes:2")):
        assert f"{strategy}, 256 rows a batch of each worker" in output
        assert "Epoch [1/1], Train Loss: " in output
        assert re.search(r"\d+ updates/s; staleness \d\.\d\d in the mean, \d+ at most", output)
    assert [workers for workers, *_ in file_of(tmp_path)] == [2, 2]
    refused = mpiexec(2, [*words, "--workers", "2"], check=False)
    assert refused.returncode != 0 and "the workers of this job are its ranks" in refused.stdout


@pytest.mark.full_length
@pytest.mark.timeout(600)
def test_hogwild_learns_as_one_worker_does(mpiexec: Run, run_python: Run, root: Path, tmp_path: Path) -> None:
    """MNIST, two epochs, two workers; PyTorch gives .959, and .961 with one."""
    words = [
        root / "examples" / "hogwild.py",
        "--data",
        real_data("mnist"),
        "--epochs",
        "2",
        "--out",
        tmp_path,
    ]
    run_python([*words, "--workers", "2"], timeout=250)
    mpiexec(2, words, timeout=250)
    (_, _, threads), (_, _, processes) = file_of(tmp_path)
    assert min(threads, processes) >= 0.94
