"""``pdnn launch --elastic`` and ``--restarts``: jobs of which a rank is killed."""

from __future__ import annotations

import os
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import processes
from processes import Completed

pytestmark = pytest.mark.mpi
pytest.importorskip("mpi4py")

LONG = [pytest.param(number, marks=pytest.mark.full_length) for number in range(1, 50)]


@pytest.mark.parametrize("number", [0, *LONG])
@pytest.mark.parametrize("strategy", ["ddp", pytest.param("average:3", marks=pytest.mark.full_length)])
def test_fit_goes_on_when_a_rank_is_killed(
    run_python: Callable[..., Completed], root: Path, strategy: str, number: int
) -> None:
    dies, seconds = random.randrange(3), random.uniform(0, 1.5 if number else 0.5)
    words = ["-m", "pdnn", "launch", "--elastic", "-n", "3", root / "tests" / "surviving_fit.py"]
    child = run_python([*words, strategy, str(dies), str(seconds)], timeout=60)
    ends = re.findall(r"rank (\d) ends among (\d): accuracy (\S+), longest epoch (\S+) s", child.stdout)
    assert sorted(int(rank) for rank, *_ in ends) in ([0, 1, 2], sorted({0, 1, 2} - {dies})), child.stdout
    for _, size, accuracy, longest in ends:
        assert int(size) == len(ends), child.stdout
        assert float(accuracy) > 0.95
        print(f"rank {dies} killed after {seconds:.3f} s: longest epoch {longest} s")


RESTARTED = """
import os, signal, sys
import pdnn
import surviving_fit
from pdnn.callbacks import Callback

class Die(Callback):
    def on_epoch_end(self, trainer, epoch, logs):
        if epoch == 2 and trainer.comm.rank == 1 and not os.path.exists(sys.argv[2]):
            open(sys.argv[2], "w").close()
            os.kill(os.getpid(), signal.SIGKILL)

trainer = surviving_fit.trainer("ddp")
options = dict(checkpoint=sys.argv[1], resume=True, callbacks=[Die()], verbose=False)
trainer.fit(surviving_fit.data(300), 5, 16, **options)
print("ends at epoch", trainer.epoch, "having trained", len(trainer.history.history["loss"]), flush=True)
"""


def test_a_job_is_restarted_when_a_rank_is_killed(root: Path, tmp_path: Path) -> None:
    words = ["-c", RESTARTED, tmp_path / "checkpoints", tmp_path / "died"]
    path = os.pathsep.join([str(root / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    launch = [sys.executable, "-m", "pdnn", "launch", "-n", "2", "--restarts", "1", *words]
    output = processes.run(launch, timeout=60, env={"PYTHONPATH": path}).stdout
    assert output.count("ends at epoch 5 having trained 5") == 2
    assert output.count("launch: a rank was lost (exit code 137); starting again") == 1


def test_an_error_is_no_reason_to_start_again(run_python: Callable[..., Completed]) -> None:
    words = ["-m", "pdnn", "launch", "-n", "1", "--restarts", "2", "-c", "print('once'); raise SystemExit(3)"]
    child = run_python(words, timeout=60, check=False)
    assert child.stdout.count("once") == 1
    assert child.returncode == 3
