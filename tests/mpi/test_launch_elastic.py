"""``pdnn launch --elastic`` and ``--restarts``: jobs of which a rank is killed."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import processes
from leftovers import check_files
from processes import Completed

pytestmark = pytest.mark.mpi
pytest.importorskip("mpi4py")

KILLED, CRASHED = signal.SIGKILL, signal.SIGSEGV
MOST = 2.0  # seconds without an epoch's end, of which the ranks make a hundred a second
FULL = pytest.mark.full_length

Run = Callable[..., Completed]


def launched(run_python: Run, root: Path, job: str, spares: int, *words: object) -> str:
    """The output of a job of three ranks, which leaves nothing."""
    elastic = ["--elastic", *(["--spares", str(spares)] if spares else [])]
    launch = ["-m", "pdnn", "launch", *elastic, "-n", "3", root / "tests" / job, *map(str, words)]
    output = run_python(launch, timeout=60, tidy=True).stdout
    check_files(output)
    return output


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=FULL) for number in range(1, 50))])
@pytest.mark.parametrize(
    ("strategy", "spares", "how"),
    [
        ("ddp/8", 0, KILLED),
        ("ddp/8", 1, CRASHED),
        pytest.param("ddp/8", 0, CRASHED, marks=FULL),
        pytest.param("ddp/8", 1, KILLED, marks=FULL),
        pytest.param("average:3", 0, KILLED, marks=FULL),
        pytest.param("pipeline:3/8", 1, KILLED, marks=FULL),
        pytest.param("tp:3", 1, KILLED, marks=FULL),
    ],
)
def test_fit_goes_on_when_a_rank_is_killed(
    run_python: Run, root: Path, strategy: str, spares: int, how: int, number: int
) -> None:
    dies, seconds = random.randrange(3 + spares), random.uniform(0, 1.5 if number else 0.5)
    output = launched(run_python, root, "surviving_fit.py", spares, strategy, dies, seconds, int(how))
    ends = re.findall(r"rank (\d) ends among (\d): accuracy (\S+), longest epoch (\S+) s", output)
    everyone = {*range(3 + spares)}
    assert {int(rank) for rank, *_ in ends} in (everyone, everyone - {dies}), output
    assert output.count("has the fingerprint of") == (len(ends) if "/8" in strategy else 0), output
    sizes = {int(size) for _, size, *_ in ends}
    # Of a death after the last step the others do not hear.
    assert sizes in ({len(ends)}, {3 + spares}), output
    for *_, accuracy, longest in ends:
        assert float(accuracy) > 0.95
        assert number == 0 or float(longest) < MOST, output
        print(f"rank {dies} killed after {seconds:.3f} s: longest epoch {longest} s")
    if sizes == {2 + spares}:
        place = "rank 3 takes its place; " if spares else ""
        assert re.search(rf"fit: rank {dies} died; ({place}|)\d go on from step", output), output


@pytest.mark.parametrize("number", [0, *(pytest.param(number, marks=FULL) for number in range(1, 50))])
@pytest.mark.parametrize("spares", [1, pytest.param(0, marks=FULL)])
def test_a_loop_by_hand_goes_on_when_a_rank_is_killed(
    run_python: Run, root: Path, spares: int, number: int
) -> None:
    dies, seconds = random.randrange(3 + spares), random.uniform(0, 0.3)
    output = launched(run_python, root, "elastic_job.py", spares, dies, seconds, int(KILLED))
    assert output.count(f"ends among {2 + spares}") == 2 + spares, output
    assert output.count("has the bits of") == (3 if spares else 0), output


ENDING = """
import contextlib, os, sys, time
import numpy as np
import pdnn

comm, dies, how = pdnn.world(), int(sys.argv[1]), int(sys.argv[2])
with contextlib.suppress(pdnn.RankFailed):  # it may die before all others have its message
    comm.all_reduce(np.ones(3))
time.sleep(float(sys.argv[3 + (comm.rank == dies)]))
if comm.rank == dies:
    os.kill(os.getpid(), how)
print(f"rank {comm.rank} ends", flush=True)
"""


@pytest.mark.parametrize(
    "number", [*range(3), *(pytest.param(number, marks=FULL) for number in range(3, 50))]
)
def test_ranks_end_though_one_dies_while_they_do(run_python: Run, number: int) -> None:
    dies, how = random.randrange(4), random.choice([KILLED, CRASHED])
    waits = [0.1, random.uniform(0, 0.2)] if number else [0.2, 0.0]
    launch = ["-m", "pdnn", "launch", "--elastic", "-n", "4", "-c", ENDING, dies, int(how), *waits]
    output = run_python(list(map(str, launch)), timeout=30, tidy=True).stdout
    assert sorted(re.findall(r"rank (\d) ends", output)) == [str(rank) for rank in range(4) if rank != dies]


LEAVES = """
import os
import numpy as np
import pdnn

comm = pdnn.world()
comm.barrier()
if comm.rank == 0:
    os._exit(1)  # of which Open MPI tells the others nothing
try:
    comm.all_reduce(np.ones(3))
except pdnn.CommunicationError as error:
    print(f"{comm.rank} ends: {error}", flush=True)
"""


def test_a_process_that_is_gone_without_a_word_ends_the_job(run_python: Run) -> None:
    launch = ["-m", "pdnn", "launch", "--elastic", "-n", "3", "-c", LEAVES]
    ended = run_python(launch, timeout=60, tidy=True, check=False)
    assert ended.returncode != 0
    for rank in (1, 2):
        heard = rf"{rank} ends: .*(waits in vain for ranks? 0\b.* in #3 all_reduce|died)"
        assert re.search(heard, ended.stdout), ended.stdout


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


@pytest.mark.parametrize("shrink", [False, True])
def test_a_job_is_restarted_when_a_rank_is_killed(root: Path, tmp_path: Path, shrink: bool) -> None:
    words = ["-c", RESTARTED, tmp_path / "checkpoints", tmp_path / "died"]
    path = os.pathsep.join([str(root / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    launch = [
        sys.executable,
        "-m",
        "pdnn",
        "launch",
        "-n",
        "2",
        "--restarts",
        "1",
        *["--shrink"][:shrink],
        *words,
    ]
    left = 1 if shrink else 2
    output = processes.run(launch, timeout=60, env={"PYTHONPATH": path}).stdout
    assert output.count("ends at epoch 5 having trained 5") == left
    assert output.count(f"rank was lost (exit code 137); starting again on {left} rank") == 1
    assert "the job ended with exit code 137" not in output


TERMINATED = """
import os, signal
import surviving_fit
from pdnn.callbacks import Callback

class Stop(Callback):
    def on_epoch_end(self, trainer, epoch, logs):
        if epoch == 2 and trainer.comm.rank == 1:
            os.kill(os.getpid(), signal.SIGTERM)

surviving_fit.trainer("ddp").fit(surviving_fit.data(300), 1000, 16, callbacks=[Stop()], verbose=False)
"""


def test_a_sigterm_to_a_rank_is_the_exit_code_of_the_job(root: Path) -> None:
    path = os.pathsep.join([str(root / "tests"), *filter(None, [os.environ.get("PYTHONPATH")])])
    launch = [sys.executable, "-m", "pdnn", "launch", "--elastic", "-n", "2", "-c", TERMINATED]
    child = processes.run(launch, timeout=60, check=False, env={"PYTHONPATH": path}, tidy=True)
    assert child.returncode == 128 + signal.SIGTERM, child.stdout


def test_a_rank_that_ends_before_fit_is_no_death_and_not_waited_for(run_python: Run) -> None:
    code = (
        "import sys, pdnn\n"
        "comm = pdnn.world()\n"
        "if comm.rank == 1:\n    sys.exit(0)\n"
        "try: comm.agree(True)\n"
        "except pdnn.CommunicationError as error: print(error, flush=True)\n"
    )
    said = run_python(["-m", "pdnn", "launch", "--elastic", "-n", "2", "-c", code], timeout=30).stdout
    assert "rank 0 waits in vain for rank 1 in #1 barrier (agree)" in said


def test_an_error_is_no_reason_to_start_again(run_python: Callable[..., Completed]) -> None:
    words = ["-m", "pdnn", "launch", "-n", "1", "--restarts", "2", "-c", "print('once'); raise SystemExit(3)"]
    child = run_python(words, timeout=60, check=False)
    assert child.stdout.count("once") == 1
    assert child.returncode == 3
