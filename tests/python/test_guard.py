"""The guard of a job, as Linux and other systems let it work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from select import select

import pytest

from pdnn.launch import guard
from pdnn.launch.job import Job
from processes import standard_input

GUARDED = """
import sys
sys.platform = sys.argv[1]
from pdnn.launch import guard
sys.exit(guard.main(int(sys.argv[2]), sys.argv[3], sys.argv[4:]))
"""
PARENT = """
import os, subprocess, sys
guard = [sys.executable, "-c", sys.argv[1], sys.argv[2], str(os.getpid()), sys.argv[3]]
program = [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"]
subprocess.run([*guard, *program], start_new_session=True)
"""


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_job_and_its_folder_end_when_its_parent_is_killed(platform: str, tmp_path: Path) -> None:
    if platform == "linux" != sys.platform:
        pytest.skip("Linux tells a process that its parent has died")
    folder = tmp_path / "job"
    os.mkdir(folder)
    os.mkfifo(folder / "0.stdout")
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, GUARDED, platform, str(folder)], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        program = int(parent.stdout.readline())
        parent.kill()
        assert parent.stdout.read() == b""  # all who could write have ended
    with pytest.raises(ProcessLookupError):
        os.kill(program, 0)
    assert not folder.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells a process that its parent has died")
def test_mpiexec_ends_with_its_guard(tmp_path: Path) -> None:
    code = "import os, time; print(os.getppid(), flush=True); time.sleep(60)"
    words = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), str(tmp_path), sys.executable]
    with subprocess.Popen([*words, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        assert int(child.stdout.readline()) == child.pid
        child.kill()
        assert select([child.stdout], [], [], 30)[0], "one who could write is still there"
        assert child.stdout.read() == b""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_to_the_guard_end_the_job_without_a_traceback(number: int, tmp_path: Path) -> None:
    code = "import time; print(flush=True); time.sleep(60)"
    words = [sys.executable, "-I", "-S", guard.__file__, str(os.getpid()), str(tmp_path), sys.executable]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([*words, "-c", code], start_new_session=True, **pipes) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.readline()
        child.send_signal(number)
        assert child.stderr.read() == b""
        assert child.wait(30) == 128 + number


def test_no_job_is_started_for_a_parent_that_has_died_already(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    words = [sys.executable, "-I", "-S", guard.__file__, "1", str(folder), "touch", str(tmp_path / "begun")]
    child = subprocess.run(words, start_new_session=True, timeout=30)
    assert child.returncode == 1
    assert not folder.exists() and not (tmp_path / "begun").exists()


def test_names_of_programs_need_not_be_text() -> None:
    """Linux keeps 15 bytes of a name, which may end within a letter."""
    name = Path("/proc/self/comm")
    if not name.exists():
        pytest.skip("no process has a name in /proc here")
    code = f"open({str(name)!r}, 'wb').write(('n' * 14 + 'ä').encode()[:15]); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as program:
        assert program.stdout is not None
        program.stdout.readline()
        with pytest.raises(UnicodeDecodeError):
            Path(f"/proc/{program.pid}/stat").read_text(encoding="utf-8")
        guard.end_session(program.pid)
        assert program.wait(30) == -signal.SIGTERM


@pytest.mark.parametrize("processes", ["/proc", "/nowhere"])
def test_nobody_of_a_session_is_left(processes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where only `ps` knows the processes, and if they do not end by themselves."""
    monkeypatch.setattr(guard, "_PROCESSES", Path(processes))
    stubborn = "trap '' TERM; sleep 60 & echo; wait; wait; sleep 60"
    with subprocess.Popen(
        ["bash", "-c", stubborn], stdout=subprocess.PIPE, start_new_session=True
    ) as session:
        assert session.stdout is not None
        session.stdout.readline()
        begin = time.monotonic()
        guard.end_session(session.pid)
        assert session.stdout.read() == b""
        assert session.wait(30) == -signal.SIGKILL
        assert time.monotonic() - begin < 30


POLITE = """
import signal, sys

def end(*args):
    sys.stdin.readline()
    print("ended", flush=True)
    sys.exit(7)

signal.signal(signal.SIGTERM, end)
print(flush=True)
signal.pause()
"""


def test_ranks_have_time_to_end_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "_RANKS_GRACE", 30.0)
    with subprocess.Popen(
        [sys.executable, "-c", POLITE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as session:
        assert session.stdin is not None and session.stdout is not None
        stdin = session.stdin.fileno()
        session.stdout.readline()
        waited: list[float] = []

        def wait(seconds: float) -> None:
            if not waited:
                os.write(stdin, b"end now\n")
            waited.append(seconds)

        monkeypatch.setattr("time.sleep", wait)
        guard.end_session(session.pid)
        assert session.stdout.read() == b"ended\n"
        assert session.wait(30) == 7


SPLIT = """
import signal, sys

def end(*args):
    print("gun", flush=True)
    sys.exit()

signal.signal(signal.SIGTERM, end)
sys.stdout.write("ready\\nbe")
sys.stdout.flush()
while True:
    signal.pause()
"""


def test_a_line_that_is_begun_when_the_time_is_up_stays_whole() -> None:
    lines: list[str] = []
    with Job([sys.executable, "-c", SPLIT], dict(os.environ), 0, lambda *said: lines.append(said[2])) as job:
        while not lines:
            with pytest.raises(TimeoutError):
                job.wait(0.1)
        with pytest.raises(TimeoutError):
            job.wait(0.1)
    assert lines == ["ready\n", "begun\n"]


def test_a_job_reads_no_standard_input() -> None:
    lines: list[str] = []
    command = [sys.executable, "-c", "import sys; print(repr(sys.stdin.read()))"]
    with (
        standard_input(b"a word"),
        Job(command, dict(os.environ), 0, lambda *said: lines.append(said[2])) as job,
    ):
        assert job.wait(60) == 0
    assert lines == ["''\n"]


HURRIED = """
import sys
from pdnn.launch import guard
guard.GRACE = 60.0
sys.exit(guard.main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
"""


def test_mpiexec_is_asked_to_end_its_ranks(tmp_path: Path) -> None:
    """Not only killed when its time is up."""
    program = [sys.executable, "-c", "print(flush=True); import time; time.sleep(60)"]
    words = [sys.executable, "-c", HURRIED, str(os.getpid()), str(tmp_path / "job"), *program]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.terminate()
        try:
            assert child.wait(30) == 128 + signal.SIGTERM
        finally:
            child.kill()


def test_a_guard_that_a_signal_ends_has_the_code_of_a_shell() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with Job(command, dict(os.environ), 1) as job:
        os.kill(job._process.pid, signal.SIGKILL)
        assert job.wait(10) == 128 + signal.SIGKILL


def test_nothing_is_left_of_a_job_whose_guard_is_killed(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with Job(["sh", "-c", 'exec > "$0"; echo; exec sleep 60', str(pipe)], dict(os.environ), 1) as job:
            assert select([reader], [], [], 30)[0] and os.read(reader, 9) == b"\n"
            os.kill(job._process.pid, signal.SIGKILL)
        assert select([reader], [], [], 30)[0] and os.read(reader, 9) == b"", (
            "the one who could write is gone"
        )
    finally:
        os.close(reader)
