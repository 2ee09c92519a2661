"""What is started for N ranks: options of each mpiexec, threads, binding and settings."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import pdnn
from pdnn.comm.mpiexec import Mpiexec, find
from pdnn.launch import launch
from pdnn.launch.plan import Plan, plan
from processes import Completed

OPEN_MPI = Mpiexec("/bin/mpiexec", "Open MPI", "5.0.11")


@pytest.fixture(autouse=True)
def cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of 8 cores, and no word from the user."""
    set_cores(monkeypatch, affinity=8)
    for name in list(os.environ):
        if name.startswith(("OMPI_", "OMP_", "PDNN_", "SLURM_", "OPENBLAS_", "MKL_", "I_MPI_")):
            monkeypatch.delenv(name)


def set_cores(monkeypatch: pytest.MonkeyPatch, affinity: int, quota: float = 0.0) -> None:
    monkeypatch.setattr("pdnn._core.read_cores", lambda: (16, affinity, quota))


def bound_to(job: Plan) -> int:
    """The cores that each rank takes; 0: it is not bound."""
    (shim,) = [index for index, word in enumerate(job.command) if word.endswith("start_rank.py")]
    return int(job.command[shim + 1])


def test_cores_are_shared_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    job = plan(["train.py"], 3, OPEN_MPI)
    assert job.command[-1] == "train.py"
    assert bound_to(job) == 2
    assert job.environment["PDNN_THREADS"] == job.environment["OMP_NUM_THREADS"] == "2"
    assert not job.warnings


def test_the_user_sets_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert bound_to(plan(["train.py"], 2, OPEN_MPI, threads=3)) == 3
    monkeypatch.setenv("PDNN_THREADS", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    job = plan(["train.py"], 2, OPEN_MPI)
    assert bound_to(job) == 1
    assert "OMP_NUM_THREADS" not in job.environment
    assert plan(["train.py"], 2, OPEN_MPI, threads=3).environment["PDNN_THREADS"] == "3"


def test_crowded_ranks_are_not_bound_and_are_warned_of() -> None:
    for job in (plan(["train.py"], 9, OPEN_MPI), plan(["train.py"], 4, OPEN_MPI, threads=3)):
        assert bound_to(job) == 0
        assert "share 8 cores" in job.warnings[0]
    assert not plan(["train.py"], 8, OPEN_MPI).warnings, "a core for each"
    assert bound_to(plan(["train.py"], 2, OPEN_MPI, bind=False)) == 0


def test_a_quota_limits_threads_and_forbids_binding(monkeypatch: pytest.MonkeyPatch) -> None:
    set_cores(monkeypatch, affinity=8, quota=3.5)
    job = plan(["train.py"], 2, OPEN_MPI)
    assert bound_to(job) == 0
    assert job.environment["PDNN_THREADS"] == "2"
    set_cores(monkeypatch, affinity=2, quota=4.0)
    assert bound_to(plan(["train.py"], 2, OPEN_MPI)) == 1


def test_quick_start_is_for_one_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plan(["train.py"], 2, OPEN_MPI).environment["OMPI_MCA_btl"] == "^ofi"
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    assert "OMPI_MCA_btl" not in plan(["train.py"], 2, OPEN_MPI).environment


@pytest.mark.parametrize(("lines", "one"), [("n01\n\nn01\n", True), ("n01 4 q\nn02 4 q\n", False)])
@pytest.mark.parametrize("name", ["PBS_NODEFILE", "PE_HOSTFILE", "LSB_DJOB_HOSTFILE"])
def test_a_batch_system_may_give_one_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, lines: str, one: bool
) -> None:
    set_cores(monkeypatch, affinity=2)
    (tmp_path / "hosts").write_text(lines)
    monkeypatch.setenv(name, str(tmp_path / "hosts"))
    job = plan(["train.py"], 9, OPEN_MPI)
    assert ("OMPI_MCA_btl" in job.environment) == bool(job.warnings) == one
    monkeypatch.setenv(name, str(tmp_path / "none"))
    assert "OMPI_MCA_btl" not in plan(["train.py"], 9, OPEN_MPI).environment


def test_on_several_machines_each_rank_takes_its_share_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    job = plan(["train.py"], 4, OPEN_MPI)
    assert bound_to(job) == 0 and not {"PDNN_THREADS", "OMP_NUM_THREADS"} & job.environment.keys()
    job = plan(["train.py"], 4, OPEN_MPI, threads=8)
    assert bound_to(job) == 8 and job.environment["PDNN_THREADS"] == "8"
    assert job.environ()["SLURM_JOB_NUM_NODES"] == "2"


def test_ranks_that_are_to_be_here_know_no_other_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDNN_MPI", "0")
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "1")
    job = plan(["train.py"], 4, OPEN_MPI, here=True)
    assert bound_to(job) == 2 and not job.warnings
    assert job.environ()["PDNN_MPI"] == "1" and job.environ()["SLURM_JOB_NUM_NODES"] == "1"
    monkeypatch.setenv("SLURM_JOB_NUM_NODES", "2")
    monkeypatch.setenv("HYDRA_LAUNCHER", "slurm")
    monkeypatch.setenv("HYDRA_HOST_FILE", "hosts")
    job = plan(["train.py"], 4, OPEN_MPI, here=True)
    assert bound_to(job) == 2 and "OMPI_MCA_btl" in job.environment
    assert not {"SLURM_JOB_NUM_NODES", "HYDRA_HOST_FILE"} & job.environ().keys()
    assert job.environ()["HYDRA_LAUNCHER"] == "fork"


def test_ranks_that_are_told_not_to_join_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDNN_MPI", "0")
    assert plan(["train.py"], 4, OPEN_MPI).warnings == [
        "PDNN_MPI=0 is set: the ranks do not join, and each works by itself"
    ]


@pytest.mark.parametrize("text", ["#!/bin/sh\nexec sleep 60", "no program"])
def test_a_launcher_that_does_not_say_its_version_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str
) -> None:
    monkeypatch.setattr("pdnn.comm.mpiexec._LIMIT", 0.2)
    (program := tmp_path / "mpiexec").write_text(text)
    program.chmod(0o755)
    with pytest.raises(RuntimeError, match=r"/mpiexec does not say its version \(.*--mpiexec"):
        find(str(program))


def test_each_mpiexec_hears_its_own_options() -> None:
    assert "--oversubscribe" in plan(["train.py"], 2, OPEN_MPI).command
    command = plan(["train.py"], 2, Mpiexec("/bin/mpiexec", "MPICH", "5.0.2")).command
    assert command[:5] == ["/bin/mpiexec", "-n", "2", "-bind-to", "none"]
    assert "--oversubscribe" not in command


def test_intel_mpi_binds_no_rank_unless_the_user_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    intel = Mpiexec("/bin/mpiexec", "MPICH", "2021.17")
    assert plan(["train.py"], 2, intel).environment["I_MPI_PIN"] == "0"
    monkeypatch.setenv("I_MPI_PIN", "1")
    assert "I_MPI_PIN" not in plan(["train.py"], 2, intel).environment


@pytest.mark.parametrize(
    ("ranks", "threads", "said"),
    [
        (0, None, "launch: ranks = 0; expected an integer from 1"),
        (2, 0, "launch: threads = 0; expected an integer from 1"),
        (2, 10**20, "launch: threads = 10{20}; expected an integer from 1"),
    ],
)
def test_impossible_numbers_are_refused(ranks: int, threads: int | None, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        plan(["train.py"], ranks, OPEN_MPI, threads=threads)


def test_other_arguments_than_numbers_are_refused() -> None:
    odd: Any = 3
    for backend in ("mpi", "threads"):
        with pytest.raises(TypeError, match="run: got 3, expected a function that each rank calls"):
            pdnn.run(odd, ranks=2, backend=backend)
    for odd in (1.5, "2"):
        for backend in ("mpi", "threads"):
            with pytest.raises(TypeError, match=f"ranks is {odd!r}, expected an integer from 1"):
                pdnn.run(print, ranks=odd, backend=backend)
    odd = "1"
    with pytest.raises(TypeError, match="run: timeout is '1', expected seconds above 0"):
        pdnn.run(print, ranks=1, timeout=odd)


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_time_out_is_above_0(timeout: float) -> None:
    with pytest.raises(ValueError, match=f"run: timeout = {timeout}; expected seconds above 0"):
        pdnn.run(print, ranks=1, timeout=timeout)
    with pytest.raises(ValueError, match=f"launch: timeout = {timeout}; expected seconds above 0"):
        launch(["-c", "pass"], 1, timeout=timeout)


def test_the_others_survive_a_death_where_the_launcher_can() -> None:
    command = plan(["train.py"], 2, OPEN_MPI, elastic=True).command
    assert command[:3] == ["/bin/mpiexec", "--with-ft", "ulfm"]
    assert "--with-ft" not in plan(["train.py"], 2, OPEN_MPI).command
    for family, version in [("Open MPI", "4.1.6"), ("MPICH", "4.2.1"), ("Open MPI", "")]:
        with pytest.raises(RuntimeError, match=f"is {family} {version}, which ends the job .* Open MPI 5"):
            plan(["train.py"], 2, Mpiexec("/bin/mpiexec", family, version), elastic=True)


def test_spares_are_started_beside_the_ranks() -> None:
    job = plan(["train.py"], 3, OPEN_MPI, elastic=True, spares=1)
    assert job.command[job.command.index("-n") + 1] == "4"
    assert job.environment["PDNN_SPARES"] == "1"
    assert job.environment["PDNN_THREADS"] == "2", "of 8 cores, for the three that train"
    assert bound_to(job) == 2
    assert bound_to(plan(["train.py"], 4, OPEN_MPI, elastic=True, spares=1)) == 0, "not enough for five"
    assert "PDNN_SPARES" not in plan(["train.py"], 3, OPEN_MPI).environment
    with pytest.raises(ValueError, match="1 spares; they need elastic=True"):
        plan(["train.py"], 3, OPEN_MPI, spares=1)
    with pytest.raises(ValueError, match="spares = -1; expected an integer from 0"):
        plan(["train.py"], 3, OPEN_MPI, elastic=True, spares=-1)
    for name in ("threads", "spares"):
        odd: Any = "1"
        with pytest.raises(TypeError, match=f"launch: {name} is '1', expected an integer from"):
            plan(["train.py"], 3, OPEN_MPI, elastic=True, **{name: odd})


def test_a_job_without_a_home_gets_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open MPI does not start without."""
    monkeypatch.delenv("HOME", raising=False)
    assert os.path.isdir(plan(["x.py"], 2, OPEN_MPI).environment["HOME"])
    monkeypatch.setenv("HOME", "/home/own")
    assert "HOME" not in plan(["x.py"], 2, OPEN_MPI).environment


def test_lines_of_ranks_are_not_kept_back_unless_the_user_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    assert plan(["x.py"], 2, OPEN_MPI).environment["PYTHONUNBUFFERED"] == "1"
    monkeypatch.setenv("PYTHONUNBUFFERED", "")
    assert "PYTHONUNBUFFERED" not in plan(["x.py"], 2, OPEN_MPI).environment


def test_root_alone_is_allowed_to_run_as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """Open MPI refuses without; as any other user a job has no such leave."""
    for user in (0, 1000):
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        found = [name for name in plan(["x.py"], 2, OPEN_MPI).environment if "RUN_AS_ROOT" in name]
        assert len(found) == (0 if user else 2)


def test_a_limit_of_open_files_is_said_with_ways_out(run_python: Callable[..., Completed]) -> None:
    code = """
import os, resource
from pdnn.launch.job import Job
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (60, most))
try:
    Job(["true"], dict(os.environ), 40, print)
except OSError as error:
    print(error.errno, error)
"""
    said = run_python(["-c", code]).stdout
    assert f"{errno.EMFILE} " in said and "can be made (Too many open files)" in said
    assert "ulimit -n" in said and "TMPDIR" in said and "--no-tag" in said


@pytest.mark.parametrize(
    ("wrong", "words"),
    [({"restarts": -1}, "restarts = -1; expected an integer from 0"), ({"shrink": True}, "needs restarts")],
)
def test_restarts_that_make_no_sense_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=f"launch: .*{words}"):
        launch(["x.py"], 2, dry_run=True, **wrong)


def test_mpiexec_says_its_version_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without one Open MPI does not start, which here is a program that has a HOME to look at."""
    program = tmp_path / "mpiexec"
    program.write_text(
        '#!/bin/sh\n[ -n "$HOME" ] && echo "mpiexec (Open MPI) 5.0.9" || echo "Open MPI: no HOME"\n'
    )
    program.chmod(0o755)
    monkeypatch.delenv("HOME", raising=False)
    assert find(str(program)).version == "5.0.9"
