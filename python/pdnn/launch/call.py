"""``pdnn.run``: a function called on N ranks, its results or its error brought back to the caller."""

from __future__ import annotations

import pickle
import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from pdnn.comm.mpiexec import find
from pdnn.files.atomic import named
from pdnn.launch.job import Job, check_timeout, pass_on
from pdnn.launch.plan import plan

Result = TypeVar("Result")


class RemoteTraceback(Exception):
    """The traceback of an error on a rank, as text: its ``__cause__`` where `run` raises it again."""

    def __init__(self, rank: int, text: str) -> None:
        super().__init__(f"on rank {rank}:\n{text}")


def run(
    function: Callable[..., Result],
    *args: Any,
    ranks: int,
    backend: str = "mpi",
    timeout: float | None = None,
    **kwargs: Any,
) -> list[Result]:
    """Calls ``function(*args, **kwargs)`` on every one of `ranks` ranks; inside, `pdnn.world()` joins them.

    The output of the ranks appears here. The function may be defined anywhere, also in a notebook. The
    function, its arguments and its results are passed with cloudpickle, through files that only this user
    can read, on this machine, on which all ranks have to be. This process does not start MPI.

    Parameters
    ----------
    function : callable
        What each rank calls.
    *args, **kwargs
        Its arguments, the same on every rank.
    ranks : int
        How many. More than cores work, slowly: every collective then takes milliseconds.
    backend : {"mpi", "threads"}
        MPI ranks in child processes, started as ``pdnn launch`` does, or threads of this process.
    timeout : float, optional
        Seconds after which the ranks are ended; for ``"mpi"`` only.

    Returns
    -------
    list
        The results of rank 0, 1, ...

    Raises
    ------
    Exception
        The first error of a rank; of an MPI rank its ``__cause__`` shows the traceback there. The other ranks
        are ended.
    TimeoutError
        If the ranks had not ended after `timeout` seconds; it says which waited for which.
    CommunicationError
        If a rank was lost without a word of its own.
    ValueError
        If ranks is less than 1, the time-out is not above 0, or the backend has another name.
    TypeError
        If `function` cannot be called; or it, an argument or a result cannot be pickled for ``"mpi"``.
    RuntimeError
        If this process is itself one of several ranks, or there is no mpiexec.
    ImportError
        If cloudpickle or mpi4py is not installed.
    """
    if not callable(function):
        raise TypeError(f"run: got {function!r}, expected a function that each rank calls")
    if backend == "threads":
        if timeout is not None:
            raise ValueError('run: backend="threads" takes no timeout; threads cannot be ended')
        from pdnn.comm import run_threads

        return run_threads(lambda: function(*args, **kwargs), ranks)
    check_timeout("run", timeout)
    if backend != "mpi":
        raise ValueError(f'run: backend {backend!r}; it is "mpi" or "threads"')
    from pdnn.comm.mpi import launched_ranks

    launched = launched_ranks() or 1
    if launched > 1:
        raise RuntimeError(
            f"run: this process is already one of {launched} ranks, and each would start {ranks} more; "
            'call it from a process of its own, or use backend="threads"'
        )
    with tempfile.TemporaryDirectory(prefix="pdnn-run-") as folder:
        return _on_processes((function, args, kwargs), ranks, timeout, Path(folder))


def _on_processes(call: Any, ranks: int, timeout: float | None, folder: Path) -> list[Any]:
    for package in ("cloudpickle", "mpi4py"):
        if find_spec(package) is None:
            raise ImportError(f'run: ranks need {package}; pip install {package}, or use backend="threads"')
    import cloudpickle

    try:
        pickled = cloudpickle.dumps(call)
    except Exception as error:
        raise TypeError(
            f"run: the function or an argument cannot be pickled for the ranks ({error}); make such objects "
            'within the function, or use backend="threads"'
        ) from error
    with named(folder / "call"):
        (folder / "call").write_bytes(pickled)
    # The child finds every module where this process does, pdnn itself included.
    path = [each for each in sys.path if isinstance(each, str)]  # Python passes over all others
    start = f"import sys; sys.path[:] = {path!r}; from pdnn.launch.run_call import main"
    job = plan(["-c", f"{start}; main({str(folder)!r})"], ranks, find(), here=True)
    said: list[str] = []  # by mpiexec; when a rank has failed, it says little that the error does not

    def listen(stream: str, rank: int | None, line: str) -> None:
        if rank is None:
            said.append(line)
        else:
            pass_on(stream, line)

    with Job(job.command, job.environ(), ranks, listen, str(folder)) as running:
        try:
            code = running.wait(timeout)
            waits = running.waits() if code else ""
        except TimeoutError:
            late = f"run: {ranks} ranks had not ended after {timeout:g} s; they were ended"
            raise TimeoutError(f"{late}\n{running.waits()}".rstrip()) from None
    _raise_first_error(folder)
    results = [folder / f"result-{rank}" for rank in range(ranks)]
    lost = [rank for rank, path in enumerate(results) if not path.exists()]
    if code or lost:
        from pdnn._core import CommunicationError

        which = f" without a result of rank {', '.join(map(str, lost))}" if lost else ""
        raise CommunicationError(
            f"run: the job ended with code {code}{which}\n{''.join(said)}{waits}".rstrip()
        )
    pass_on("stderr", "".join(said))
    return [pickle.loads(path.read_bytes()) for path in results]


def _raise_first_error(folder: Path) -> None:
    """Raises what went wrong first on a rank; a collective that then failed on another is a consequence."""
    from pdnn._core import CommunicationError

    errors = []
    for path in sorted(folder.glob("error-*"), key=lambda path: path.stat().st_mtime_ns):
        rank, summary, text, pickled = pickle.loads(path.read_bytes())
        try:
            error = pickle.loads(pickled)
        except Exception:  # its class cannot be pickled, or wants other arguments, or is not known here
            error = RuntimeError(f"run: rank {rank} raised {summary}")
        error.__cause__ = RemoteTraceback(rank, text)
        errors.append(error)
    if errors:
        raise min(errors, key=lambda error: isinstance(error, CommunicationError))
