"""What is started for N ranks of a Python program: the command, the environment, and words of warning."""

from __future__ import annotations

import math
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pdnn.checks import integer
from pdnn.comm.cores import threads_wanted
from pdnn.comm.mpiexec import Mpiexec

_START_RANK = Path(__file__).with_name("start_rank.py")
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_HOSTS = ("PBS_NODEFILE", "PE_HOSTFILE", "LSB_DJOB_HOSTFILE")  # set by PBS, Grid Engine, LSF
_BATCH = ("SLURM_", "PBS_", "PE_", "LSB_")
"""How the variables begin by which mpiexec learns of a batch system's machines."""
_NAMED = ("HYDRA_HOST_FILE", "HYDRA_BOOTSTRAP", "I_MPI_HYDRA_HOST_FILE")
"""By which MPICH and Intel MPI learn of machines, and of what starts ranks there."""


@dataclass(frozen=True)
class Plan:
    """What to run.

    Attributes
    ----------
    command : list of str
        Program and arguments; no shell reads them.
    environment : dict
        What is added to this process's environment.
    warnings : list of str
        What the user should know.
    here : bool
        Whether all ranks are on this machine, though a batch system may have given the job several.
    """

    command: list[str]
    environment: dict[str, str]
    warnings: list[str] = field(default_factory=list)
    here: bool = False

    def environ(self) -> dict[str, str]:
        """This process's environment with what is added to it, and without what names other machines."""
        leave = (*_NAMED, *(() if one_machine() else _BATCH)) if self.here else ()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(leave)}
        return kept | self.environment


def plan(
    program: Sequence[str],
    ranks: int,
    mpiexec: Mpiexec,
    *,
    threads: int | None = None,
    bind: bool = True,
    elastic: bool = False,
    spares: int = 0,
    here: bool = False,
) -> Plan:
    """The command and the environment that start `ranks` ranks of a Python program.

    Parameters
    ----------
    program : sequence of str
        Arguments of the Python interpreter: a script or ``-m module`` or ``-c code``, and the program's own.
    ranks : int
        How many processes; more than cores is allowed, and warned of.
    mpiexec : Mpiexec
        What starts them.
    threads : int, optional
        Threads of each rank; by default what ``PDNN_THREADS`` says, else the cores shared evenly if all ranks
        are on this machine. On several machines each rank takes its share there, as after plain mpiexec.
    bind : bool
        Whether each rank is bound to cores of its own, where there are enough of them.
    elastic : bool
        Whether the other ranks may go on when one dies.
    spares : int
        Ranks beside these that wait to take the place of one that dies.
    here : bool
        Whether they are to be one world of ranks on this machine, whatever the environment says.

    Raises
    ------
    ValueError
        If ranks or threads is less than 1, spares less than 0, or spares are asked for without `elastic`.
    RuntimeError
        If `mpiexec` ends the job when a rank dies, and `elastic` asks for another one.
    """
    integer("launch", "ranks", ranks, 1, bits=32)
    if integer("launch", "spares", spares, 0) and not elastic:
        raise ValueError(f"launch: {spares} spares; they need elastic=True (--elastic)")
    threads = threads_wanted() if threads is None else integer("launch", "threads", threads, 1, bits=32)
    cores, reserved = _cores()
    alone = here or one_machine()
    each = threads or (max(1, cores // ranks) if alone else None)
    warnings = []
    if alone and each and ranks * each > cores:
        warnings.append(
            f"{ranks} ranks of {each} thread{'s'[: each > 1]} share {cores} core{'s'[: cores > 1]}: "
            "every collective will be slow; for tests only"
        )
    if not here and os.environ.get("PDNN_MPI") == "0":
        warnings.append("PDNN_MPI=0 is set: the ranks do not join, and each works by itself")
    bound = each if bind and reserved and each and not (alone and (ranks + spares) * each > cores) else 0
    rank = [sys.executable, "-I", "-S", str(_START_RANK), str(bound), sys.executable, *program]
    environment = {name: value for name, value in _settings(each, alone).items() if name not in os.environ}
    if each:
        environment["PDNN_THREADS"] = str(each)
    if spares:
        environment["PDNN_SPARES"] = str(spares)
    if here:
        environment |= {"PDNN_MPI": "1", "HYDRA_LAUNCHER": "fork", "I_MPI_HYDRA_BOOTSTRAP": "fork"}
    return Plan([*mpiexec.command(ranks + spares, elastic=elastic), *rank], environment, warnings, here)


def _cores() -> tuple[int, bool]:
    """The cores this process may use, and whether they are certain ones (a quota is of any cores)."""
    from pdnn import _core

    _, affinity, quota = _core.read_cores()
    if 0 < quota < affinity:
        return math.ceil(quota), False
    return affinity, hasattr(os, "sched_setaffinity")


def _settings(threads: int | None, alone: bool) -> dict[str, str]:
    """The environment of a job, in so far as the user has not set it; `alone`: on this machine."""
    settings = {} if threads is None else dict.fromkeys(_THREADS, str(threads))
    settings["PYTHONUNBUFFERED"] = "1"  # a rank's lines appear when they are written
    settings["I_MPI_PIN"] = "0"  # Intel MPI binds ranks whatever -bind-to says
    # Without one Open MPI does not start; it looks for settings there.
    settings["HOME"] = tempfile.gettempdir()
    if os.geteuid() == 0:
        settings |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if alone:  # the libfabric probe is a second of a job's start, and of use between machines only
        settings |= {"OMPI_MCA_btl": "^ofi", "OMPI_MCA_mtl": "^ofi"}
    return settings


def one_machine() -> bool:
    """Whether mpiexec will start all ranks here: no batch system has given this job several machines."""
    return os.environ.get("SLURM_JOB_NUM_NODES", "1") == "1" and all(
        _hosts(os.environ[name]) < 2 for name in _HOSTS if name in os.environ
    )


def _hosts(path: str) -> int:
    """How many a batch system's file names, each first in its lines; 2 where it cannot be read."""
    try:
        with open(path, errors="replace") as file:
            return len({line.split()[0] for line in file if line.strip()})
    except OSError:
        return 2
