"""``pdnn launch``: what the ranks find, what is printed, how a job ends, and that nothing of it is left."""

from __future__ import annotations

import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import processes
from leftovers import check_files
from pdnn.comm.mpiexec import find
from pdnn.launch import launch
from pdnn.launch.job import Job

pytestmark = pytest.mark.mpi
pytest.importorskip("mpi4py")

LAUNCH = [sys.executable, "-m", "pdnn", "launch"]
CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1

LOOK = """
import os, sys
cores = sorted(os.sched_getaffinity(0))
print("cores", *cores)
print("threads", os.environ["PDNN_THREADS"], os.environ["OMP_NUM_THREADS"], os.environ["OMPI_MCA_btl"])
print("words", *sys.argv[1:])
print("a word", file=sys.stderr)
sys.stdout.write("no end of line")
"""
LOOK_AT_SESSION = 'import os; print("session", os.environ["PMIX_SERVER_TMPDIR"])'
MEET = """
import sys, time
import pdnn
world = pdnn.world()
world.barrier()
print("met", flush=True)
"""


@pytest.fixture
def job() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts ``pdnn launch words``; whatever is left of it at the end is killed."""
    jobs: list[subprocess.Popen[str]] = []

    def start(*words: str, env: Mapping[str, str | None] | None = None) -> subprocess.Popen[str]:
        jobs.append(processes.start([*LAUNCH, *words], env=env))
        return jobs[-1]

    yield start
    for each in jobs:
        processes.stop(each)


def end(child: subprocess.Popen[str], within: float = 40) -> str:
    """The rest of the output of a job that must end within these seconds, and leave nothing behind.

    One that nobody ends takes a minute.
    """
    assert child.stdout is not None
    timer = threading.Timer(within, child.kill)
    timer.start()
    output = child.stdout.read()
    child.wait()
    in_time = timer.is_alive()
    timer.cancel()
    assert in_time, f"no end within {within} s\n{output}"
    processes.check_nothing_is_left(child)
    return output


def wait_for(child: subprocess.Popen[str], text: str, times: int = 2) -> None:
    """Reads the job's output until as many lines contain the text."""
    assert child.stdout is not None
    for line in child.stdout:
        times -= text in line
        if times == 0:
            return
    pytest.fail(f"the job ended without {text!r}")


def child_of(job: subprocess.Popen[str], parent: int) -> int:
    """The one process that another one of a job has started."""

    def parent_of(pid: int) -> int:
        try:
            found = re.search(r"^PPid:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
        except OSError:
            return 0  # ended meanwhile
        return int(found[1]) if found else 0

    (found,) = (pid for pid in processes.descendants(job) if parent_of(pid) == parent)
    return found


def test_ranks_have_cores_threads_settings_and_tagged_lines(
    job: Callable[..., subprocess.Popen[str]],
) -> None:
    child = job(
        "-n", "2", "-c", LOOK, "-n", "7", "--help", env={"OMP_NUM_THREADS": "5", "OMPI_MCA_btl": None}
    )
    lines = end(child).splitlines()
    assert child.returncode == 0
    each = max(1, CORES // 2)
    for rank in range(2):
        own = [line.removeprefix(f"[{rank}] ") for line in lines if line.startswith(f"[{rank}] ")]
        assert f"threads {each} 5 ^ofi" in own  # what the user set stays
        assert "words -n 7 --help" in own
        assert "a word" in own
        assert "no end of line" in own
    sets = [{*line.split()[2:]} for line in lines if "cores" in line]
    if CORES >= 2:
        assert [len(cores) for cores in sets] == [each, each]
        assert not sets[0] & sets[1]


def test_a_dry_run_prints_a_command_that_works(job: Callable[..., subprocess.Popen[str]]) -> None:
    child = job("-n", "2", "--bind-to", "none", "--dry-run", "-c", 'print("it\'s", 1 > 0)')
    command = end(child).splitlines()[-1]
    said = processes.run(shlex.split(command), timeout=30).stdout
    assert said.splitlines().count("it's True") == 2


def test_more_ranks_than_cores_are_started_with_a_warning(job: Callable[..., subprocess.Popen[str]]) -> None:
    ranks = str(CORES + 1)
    child = job("-n", ranks, "--threads", "1", "--no-tag", "-c", "print('here')")
    lines = end(child).splitlines()
    assert lines.count("here") == CORES + 1
    assert any(line.startswith(f"launch: {ranks} ranks of 1 thread share") for line in lines)


def test_an_error_on_one_rank_ends_the_job_with_its_traceback(
    job: Callable[..., subprocess.Popen[str]],
) -> None:
    fail = "if world.rank == 1: raise ValueError('rank 1 has had enough')\nworld.barrier(); time.sleep(60)"
    child = job("-n", "2", "-c", MEET + fail)
    wait_for(child, "met", times=1)
    output = end(child)
    assert child.returncode not in (0, None)
    assert "[1] ValueError: rank 1 has had enough" in output
    assert "[1] Traceback" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_to_the_launcher_ends_every_rank(
    job: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    child = job("-n", "2", "-c", MEET + "time.sleep(60)")
    wait_for(child, "met")
    child.send_signal(number)
    output = end(child)
    assert child.returncode == (-number if number == signal.SIGKILL else 128 + number)
    assert (f"launch: {number.name} ended the job\n" in output) == (number != signal.SIGKILL)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="looks for processes there")
@pytest.mark.parametrize("who", ["guard", "mpiexec"])
def test_the_end_of_what_starts_the_ranks_is_told(
    job: Callable[..., subprocess.Popen[str]], tmp_path: Path, who: str
) -> None:
    """A job ended without a word."""
    mpiexec = tmp_path / "mpiexec"  # Open MPI's own would end with a code of its own
    mpiexec.write_text(f'#!/bin/sh\n"{find().path}" "$@"\nexit $?\n')
    mpiexec.chmod(0o700)
    child = job("-n", "2", "--mpiexec", str(mpiexec), "-c", MEET + "time.sleep(60)")
    wait_for(child, "met")
    pid = child_of(child, child.pid)
    os.kill(pid if who == "guard" else child_of(child, pid), signal.SIGTERM)
    output = end(child)
    assert child.returncode == 143, output
    assert "launch: the job ended with exit code 143\n" in output


def test_what_killed_mpiexecs_have_left_keeps_no_job_from_starting(
    job: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Open MPI 5 calls the folder of a session after mpiexec's PID, and PIDs come again."""
    if not find().version.startswith("5."):
        pytest.skip("is about Open MPI 5")
    mpiexec, session = tmp_path / "mpiexec", f"{tmp_path}/ompi.$$"
    left = f"{session}/pmix.{platform.node().partition('.')[0]}.tool.$$"
    mpiexec.write_text(f'#!/bin/sh\nmkdir {session}\ntouch {left}\nexec "{find().path}" "$@"\n')
    mpiexec.chmod(0o700)
    words = ["-n", "1", "--mpiexec", str(mpiexec), "-c"]
    unlucky = job(*words, "print('started')", env={"PRTE_MCA_prte_tmpdir_base": str(tmp_path)})
    assert "listener thread failed to start" in end(unlucky), "what a user has named is used"
    lucky = job(*words, LOOK_AT_SESSION, env={"TMPDIR": str(tmp_path)})
    output = end(lucky)
    assert lucky.returncode == 0, output
    (used,) = re.findall(r"session (\S+)", output)
    assert Path(used).parent.parent == tmp_path
    assert not Path(used).parent.exists(), "nothing is left of it"


def test_a_stopped_rank_ends_the_job_after_the_communication_timeout(
    job: Callable[..., subprocess.Popen[str]],
) -> None:
    stop = "import os, signal\nif world.rank == 1: os.kill(os.getpid(), signal.SIGSTOP)\nworld.barrier()"
    child = job("-n", "2", "-c", MEET + stop, env={"PDNN_TIMEOUT": "2"})
    wait_for(child, "met")
    output = end(child)
    assert child.returncode not in (0, None)
    assert "barrier: no answer from" in output
    assert "for 2 s (rank 0 waits" in output


LEAVE = """
import os, sys, time
if os.environ["OMPI_COMM_WORLD_RANK"] == "1":
    with open(sys.argv[1] + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".part", sys.argv[1])
    os._exit(0)
try:
    while True:  # until it is gone: mpiexec ends a job in which a rank leaves after others have started MPI
        if os.path.exists(sys.argv[1]):
            os.kill(int(open(sys.argv[1]).read()), 0)
        time.sleep(0.02)
except ProcessLookupError:
    pass
"""


def test_a_rank_that_ends_before_mpi_starts_is_named(
    job: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    child = job("-n", "3", "-c", LEAVE + MEET, str(tmp_path / "left"))
    wait_for(child, "launch: rank 1 ended before pdnn.world() was called there", times=1)
    child.send_signal(signal.SIGTERM)
    end(child)
    assert child.returncode == 128 + signal.SIGTERM


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="looks for mapped files there")
def test_no_record_of_killed_ranks_is_left(job: Callable[..., subprocess.Popen[str]]) -> None:
    tell = "import os, re\nfor path in re.findall(r'/dev/shm/pdnn\\S+', open('/proc/self/maps').read()):\n"
    tell += "    print('maps', path, flush=True)\nworld.barrier()\n"
    die = "if world.rank == 1: os.kill(os.getpid(), 9)\nworld.barrier()"
    child = job("-n", "2", "-c", MEET + tell + die)
    check_files(end(child))
    assert child.returncode == 137


def test_a_rank_whose_output_ends_after_mpi_has_started_is_not_named(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    looked = tmp_path / "looked"
    look = Job._tell_of_early_ends

    def look_and_say(self: Job, *args: Any) -> None:
        look(self, *args)
        looked.touch()

    monkeypatch.setattr("pdnn.launch.job._LONE", 0.0)
    monkeypatch.setattr(Job, "_tell_of_early_ends", look_and_say)
    close = "import os\nif world.rank == 1: os.close(1); os.close(2)\nworld.barrier()\n"
    wait = f"while not os.path.exists({str(looked)!r}): time.sleep(0.01)\n"
    end = "world.barrier()\nif world.rank == 0: "
    end += "pdnn._core.remove_record(os.getpid()); os.close(1); time.sleep(0.3)"  # ends before its pipes
    assert launch(["-c", MEET + close + wait + end], 2, timeout=40) == 0
    output, errors = capfd.readouterr()
    assert output.count("met") == 2
    assert "ended before pdnn.world()" not in errors


def test_the_timeout_ends_ranks_that_do_not_listen(job: Callable[..., subprocess.Popen[str]]) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"
    child = job("-n", "2", "--timeout", "1", "-c", deaf)
    output = end(child)
    assert child.returncode == 124
    assert "still ran after 1 s" in output


def test_the_exit_code_is_the_jobs(job: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    script = tmp_path / "fail with 7.py"
    script.write_text("raise SystemExit(7)\n")
    child = job("-n", "2", str(script))
    end(child)
    assert child.returncode == 7


@pytest.mark.parametrize("shell", ["PYTHONIOENCODING=ascii exec $0 $@", 'exec "$0" "$@" >&-'])
def test_output_that_cannot_be_written_ends_no_job(tmp_path: Path, shell: str) -> None:
    script = tmp_path / "speak.py"
    script.write_text("import sys\nsys.stdout.buffer.write('\u00e9, and the rest\\n'.encode())\n", "utf-8")
    child = processes.start(["sh", "-c", shell, *LAUNCH, "-n", "2", script])
    try:
        output = end(child)
    finally:
        processes.stop(child)
    assert child.returncode == 0, output
    assert ("[1] ??, and the rest" in output) == ("ascii" in shell), output


def test_an_error_that_mpiexec_forgets_is_one(
    job: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text(f'#!/bin/sh\n"{find().path}" "$@"\nexit 0\n')
    mpiexec.chmod(0o700)
    for ends, want, code in (
        ("raise ValueError('enough')", ["rank 1 raised ValueError"], 1),
        ("raise SystemExit(143)", ["rank 1 ended with exit code 143"], 143),
        ("pass", [], 0),
    ):
        child = job("-n", "2", "--mpiexec", str(mpiexec), "-c", f"{MEET}if world.rank == 1: {ends}")
        output = end(child)
        assert re.findall("mpiexec ended with 0, but (.*)", output) == want, output
        assert child.returncode == code, output


def test_another_mpiexec_must_be_one(job: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    broken = tmp_path / "mpiexec"
    broken.write_text("#!/bin/sh\necho libprrte.so.3: cannot open shared object file >&2\nexit 127\n")
    broken.chmod(0o755)
    for mpiexec, said in (("true", ""), (str(broken), "it said: libprrte.so.3: cannot open")):
        child = job("-n", "2", "--mpiexec", mpiexec, "-c", "pass")
        output = end(child)
        assert child.returncode == 1
        assert "neither Open MPI's mpiexec nor MPICH's" in output
        assert said in output
