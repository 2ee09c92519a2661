"""The guard of a job, as Linux and other systems let it work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pdnn.launch import guard
from pdnn.launch.job import Job

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


def test_a_guard_that_a_signal_ends_has_the_code_of_a_shell() -> None:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with Job(command, dict(os.environ), 1) as job:
        os.kill(job._process.pid, signal.SIGKILL)
        assert job.wait(10) == 128 + signal.SIGKILL
