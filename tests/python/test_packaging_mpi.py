"""The same build beside other MPI libraries: it runs if it has a module for them, or says what to do."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pdnn
import processes
from pdnn.comm.mpi import built_for

PACKAGE = Path(pdnn.__file__).parent

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif("site-packages" not in PACKAGE.parts, reason="pdnn runs from the source tree here"),
]

TRAIN = """
from mpi4py import MPI
import numpy as np
import pdnn
from pdnn import nn, optim

comm = pdnn.world()
assert comm.size == 2, comm.size
ranks = np.full(5, comm.rank + 1.0)
comm.all_reduce(ranks)
assert (ranks == 3).all()
train, test = pdnn.datasets.mnist_mini()
model = nn.Sequential(nn.Linear(784, 16), nn.Sigmoid(), nn.Linear(16, 10), seed=7)
trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
                       strategy="ddp", seed=0)
trainer.fit(train[:2000], epochs=1, batch_size=128)
assert trainer.evaluate(test)["accuracy"] > 0.3
print(MPI.Get_library_version())
"""


def environment_with(folder: Path, *packages: str) -> Path:
    """The Python of a new environment that holds these packages and a copy of the pdnn under test."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True, stdin=subprocess.DEVNULL)
    python = folder / "bin" / "python"
    installed = processes.run([python, "-m", "pip", "install", "-q", *packages], timeout=100, check=False)
    if installed.returncode:
        pytest.skip(f"pip cannot install {packages} here: {installed.stdout[-300:]}")
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    shutil.copytree(PACKAGE, Path(processes.run([python, "-c", purelib]).stdout.strip()) / "pdnn")
    return python


def site_open_mpi() -> Path:
    """An mpiexec outside this environment, of Open MPI 4.1 or newer."""
    for folder in os.get_exec_path():
        mpiexec = Path(folder) / "mpiexec"
        if not mpiexec.exists() or mpiexec.resolve().is_relative_to(sys.prefix):
            continue
        greeting = processes.run([mpiexec, "--version"], check=False).stdout
        version = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)\.(\d+)", greeting)
        if version and (int(version[1]), int(version[2])) >= (4, 1):
            return mpiexec
    pytest.skip("no Open MPI of at least 4.1 beside the environment's own; apt install openmpi-bin")


def test_a_site_open_mpi_runs_the_same_build(tmp_path: Path) -> None:
    mpiexec = site_open_mpi()
    python = environment_with(tmp_path / "venv", "numpy", "mpi4py>=4.1")
    launch = [mpiexec, "--oversubscribe", "-n", "2", python, "-c", TRAIN]
    assert "Open MPI v" in processes.run(launch).stdout


@pytest.fixture(scope="module")
def mpich(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment_with(tmp_path_factory.mktemp("mpich") / "venv", "numpy", "mpi4py>=4.1", "mpich")


def test_mpich_runs_a_wheel_and_refuses_a_build_for_open_mpi(mpich: Path) -> None:
    alone = processes.run([mpich, "-c", "import pdnn; print(pdnn.world().size)"])
    assert alone.stdout.strip() == "1", "without ranks, the wrong MPI is nobody's business"
    launch = [mpich.parent / "mpiexec", "-n", "2", mpich, "-c"]
    if "MPICH" in built_for():
        assert "MPICH" in processes.run([*launch, TRAIN]).stdout
        return
    refused = processes.run([*launch, "import pdnn; pdnn.world()"], check=False)
    assert refused.returncode == 1, "refused, not crashed"
    assert "ImportError: pdnn is built for Open MPI, but mpi4py loads MPICH" in refused.stdout
    assert "pip install --no-deps --force-reinstall" in refused.stdout
    assert "MPI_CXX_COMPILER" in refused.stdout


@pytest.mark.full_length
@pytest.mark.timeout(600)
def test_the_line_that_rebuilds_does(mpich: Path, root: Path, tmp_path: Path) -> None:
    line = [mpich, "-m", "pip", "install", "-q", "--no-deps", "--force-reinstall", root]
    options = [f"-Cbuild-dir={tmp_path}", f"-Ccmake.define.MPI_CXX_COMPILER={mpich.parent / 'mpicxx'}"]
    processes.run([*line, *options], timeout=500)
    launch = [mpich.parent / "mpiexec", "-n", "2", mpich, "-c", TRAIN]
    assert "MPICH" in processes.run(launch).stdout
