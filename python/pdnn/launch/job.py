"""A running job: its output read line by line, its time limited, and nothing of it left when it ends."""

from __future__ import annotations

import math
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, TextIO

from pdnn.checks import number
from pdnn.launch import guard

Sink = Callable[[str, "int | None", str], None]
"""Takes a line of output: ``"stdout"`` or ``"stderr"``, the rank (None: mpiexec), the text with its end."""

_GUARD = Path(guard.__file__)
_GRACE = guard.GRACE + 2.0  # seconds for the guard to end the job
_LONE = 10.0  # seconds from a rank's end until it is told that the others may wait for it in MPI_Init


def check_timeout(owner: str, timeout: float | None) -> None:
    """Raises ValueError if it is neither None nor seconds above 0, TypeError if it is no number."""
    if timeout is not None:
        number(owner, "timeout", timeout, "seconds above 0, or None", lambda found: found > 0)


@dataclass
class _Stream:
    """One of the streams that a job writes, and the line it has begun."""

    name: str
    rank: int | None
    file: IO[bytes]
    line: bytes = b""


class Job:
    """mpiexec and its ranks, under a guard; leaving the ``with`` block ends whatever still runs.

    Each rank writes into pipes of its own (see start_rank.py): what mpiexec itself collects, it tags in the
    middle of lines (Open MPI 4, MPICH) or not at all.

    Parameters
    ----------
    command : list of str
        What to run; no shell reads it.
    environment : dict
        The whole environment of the job.
    ranks : int
        How many ranks the command starts.
    sink : callable, optional
        Takes each line of output. Without it the job writes where this process writes.
    folder : str, optional
        Where the job keeps its files, beside the caller's. The caller removes it; if this process is killed,
        the guard does. Without it the job makes one of its own.
    """

    def __init__(
        self,
        command: list[str],
        environment: dict[str, str],
        ranks: int,
        sink: Sink | None = None,
        folder: str | None = None,
    ) -> None:
        self._sink = sink
        self._streams: list[_Stream] = []
        self._lost: set[str] = set()  # processes that were lost before mpiexec ended the others
        self._met = False  # whether its record was seen, which ends with the ranks
        self._own = None
        if folder is None:
            self._own = tempfile.TemporaryDirectory(prefix="pdnn-job-")
            folder = self._own.name
        environment = environment | _session_folder(environment, folder)
        pipe = None
        if sink is not None:
            pipe = subprocess.PIPE
            environment = {**environment, "PDNN_RANK_OUTPUT": folder}
            for rank in range(ranks):
                for name in ("stdout", "stderr"):
                    file = _pipe(Path(folder, f"{rank}.{name}"))
                    self._streams.append(_Stream(name, rank, file))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_GUARD), str(os.getpid()), folder, *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=pipe,
            start_new_session=True,
        )
        for name, own in [("stdout", self._process.stdout), ("stderr", self._process.stderr)]:
            if own is not None:
                self._streams.append(_Stream(name, None, own))

    def __enter__(self) -> Job:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from pdnn import _core

        if isinstance(error, OSError):  # what the job writes cannot be handed on
            self._sink = None
        try:
            self.end()
        finally:
            _core.remove_record(self._process.pid)
            for stream in self._streams:
                stream.file.close()
            if self._own is not None:
                self._own.cleanup()

    def wait(self, timeout: float | None = None) -> int:
        """Hands on the output until the job ends.

        Returns
        -------
        int
            The job's exit code; 128 + n if signal n ended mpiexec.

        Raises
        ------
        TimeoutError
            If the job still runs after `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._sink is not None:
            self._relay(self._sink, deadline)
        try:
            code = self._process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"the job still runs after {timeout:g} s") from None
        return code if code >= 0 else 128 - code

    def _relay(self, sink: Sink, deadline: float | None) -> None:
        """Hands each line to `sink`, until the job has ended and all is read, or the time is up."""
        with selectors.DefaultSelector() as selector:
            for stream in self._streams:
                selector.register(stream.file, selectors.EVENT_READ, stream)
            lone_at = math.inf
            while deadline is None or time.monotonic() < deadline:
                if time.monotonic() > lone_at:
                    lone_at = math.inf
                    self._tell_of_early_ends(sink, selector)
                ended = self._process.poll() is not None  # asked first: what was written is then in the pipes
                ready = selector.select(0.0 if ended else 0.1)
                for key, _ in ready:
                    chunk = os.read(key.fd, 1 << 16)
                    *lines, key.data.line = (key.data.line + chunk).split(b"\n")
                    for line in lines:
                        _hand_on(sink, key.data, line + b"\n")
                        if key.data.rank is None:  # mpiexec says which process a signal has ended
                            self._lost.update(re.findall(r"\bPID (\d+)", line.decode(errors="replace")))
                    if not chunk:
                        selector.unregister(key.fileobj)
                        lone_at = time.monotonic() + _LONE
                if ended and not ready:
                    break
            else:
                return  # what is begun may yet become a line
        for stream in self._streams:
            if stream.line:
                _hand_on(sink, stream, stream.line)
                stream.line = b""

    def _tell_of_early_ends(self, sink: Sink, selector: selectors.BaseSelector) -> None:
        """Which ranks have ended, if the job has no record yet, which begins where MPI has started."""
        from pdnn import _core

        left = {key.data.rank for key in selector.get_map().values()} - {None}
        ended = sorted({stream.rank for stream in self._streams if stream.rank is not None} - left)
        self._met = self._met or _core.state_of_job(self._process.pid) is not None
        if left and ended and not self._met:
            ranks = f"rank{'s'[: len(ended) != 1]} {', '.join(map(str, ended))}"
            sink(
                "stderr",
                None,
                f"launch: {ranks} ended before pdnn.world() was called there; where another rank calls it, "
                "it waits for ever; let every rank call it, or none\n",
            )

    def waits(self) -> str:
        """Who waits for whom, or did when the job died; empty if nobody does, or a rank has said so."""
        from pdnn import _core

        state = _core.state_of_job(self._process.pid)
        if state is None or state[2]:
            return ""

        def died(found: re.Match[str]) -> str:
            return found[0] if found[1] in self._lost else "ended with the job"

        known = any(f"process {number} " in state[1] for number in self._lost)
        return re.sub(r"died \(process (\d+) is gone\)", died, state[1]) if known else state[1]

    def failures(self) -> str:
        """Which ranks raised an exception, or had an exit code; empty if none did, or the others went on."""
        from pdnn import _core

        ranks, *_ = _core.state_of_job(self._process.pid) or ("",)
        pattern = r"^(rank \d+) of .*?: ((?:raised|ended with exit code) [^,\n]+)"
        found = re.findall(pattern, ranks, re.MULTILINE)
        return "; ".join(f"{rank} {how}" for rank, how in found)

    def end(self) -> None:
        """Ends the job if it still runs, politely first."""
        try:
            if self._process.poll() is None:
                self._process.send_signal(signal.SIGTERM)
                self.wait(_GRACE)
        except TimeoutError:
            pass
        finally:
            self._process.kill()
            self._process.wait()
            guard.end_session(self._process.pid)  # nothing is left of it, unless the guard was killed


def _pipe(path: Path) -> IO[bytes]:
    """A new pipe of this name, to read from."""
    try:
        os.mkfifo(path, 0o600)
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb")
    except OSError as error:
        words = (
            f"no pipe for a rank's output can be made ({error.strerror}); each rank has two: ulimit -n says "
            "how many files may be open, TMPDIR where pipes are; pdnn launch --no-tag does without"
        )
        raise OSError(error.errno, words, str(path)) from error


def _session_folder(environment: dict[str, str], folder: str) -> dict[str, str]:
    """Keeps the files of Open MPI 5's mpiexec in a folder of this job, unless the user has named one.

    By default that is ``ompi.PID`` among the temporary files. One that is killed leaves it there, and a later
    mpiexec that is given the same PID then ends before it has started a rank: "The PMIx server's listener
    thread failed to start" (PMIx wants to be the one who creates the files in it).
    """
    named = any("tmpdir_base" in name for name in environment)
    return {} if named else {"PRTE_MCA_prte_local_tmpdir_base": folder}


def _hand_on(sink: Sink, stream: _Stream, line: bytes) -> None:
    if stream.rank is None and b"\0" in line:  # Open MPI 5 writes one when a job has failed
        line = line.replace(b"\0", b"")
        if not line.strip():
            return
    sink(stream.name, stream.rank, line.decode(_encoding(sys.__stdout__), errors="replace"))


def pass_on(stream: str, text: str) -> None:
    """Writes what a rank wrote to this process's own stream, if that is open, in its encoding."""
    file: TextIO | None = sys.stdout if stream == "stdout" else sys.stderr
    if file is not None:
        encoding = _encoding(file)
        file.write(text.encode(encoding, errors="replace").decode(encoding))
        file.flush()


def _encoding(file: TextIO | None) -> str:
    """That of a text stream: the ranks inherit what decides it. A notebook's may have none."""
    return getattr(file, "encoding", None) or "utf-8"
