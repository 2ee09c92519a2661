"""Machines with less: shared memory, cores, network, home. All works, or it is said what to do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import processes
from processes import Completed

pytestmark = pytest.mark.mpi

SMALL = 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"'  # as in containers of Docker
NO_PLACE = 'mount -t tmpfs -o ro tmpfs /dev/shm && TMPDIR=/nonexistent exec "$@"'
LOOPBACK = """
import fcntl, os, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh22x", b"lo", 1))  # SIOCSIFFLAGS: up
os.execvp(sys.argv[1], sys.argv[1:])
"""
BARE = {
    "64 MB of /dev/shm": ["unshare", "-m", "sh", "-c", SMALL, "sh"],
    "no /dev/shm and no TMPDIR": ["unshare", "-m", "sh", "-c", NO_PLACE, "sh"],
    "one core": ["taskset", "-c", "0"],
    "no network": ["unshare", "-n", sys.executable, "-c", LOOPBACK],
    "no loopback": ["unshare", "-n"],
    "no home": ["env", "-u", "HOME"],
}

In = Callable[..., Completed]


@pytest.fixture
def run_in(root: Path) -> In:
    """Runs this Python in such a place."""
    pytest.importorskip("mpi4py")

    def run(place: str, arguments: list[str | Path], timeout: float = 60, check: bool = True) -> Completed:
        within = BARE[place]
        if shutil.which(within[0]) is None:
            pytest.skip(f"this machine has no {within[0]}")
        tried = subprocess.run([*within, "true"], capture_output=True, text=True, timeout=20)
        if tried.returncode:
            pytest.skip(f"{' '.join(within[:2])}: {tried.stderr.strip()}")
        return processes.run([*within, sys.executable, *arguments], timeout=timeout, check=check, cwd=root)

    return run


@pytest.mark.parametrize("place", BARE)
def test_the_doctor_finds_all_well_or_says_what_to_do(run_in: In, place: str) -> None:
    child = run_in(place, ["-m", "pdnn", "doctor"], check=False)
    if place == "no loopback":
        assert child.returncode == 1
        assert "problem: no network interface is up" in child.stdout
        assert "ip link set lo up" in child.stdout
    else:
        processes.checked(child)
        assert "all is well" in child.stdout


LARGE = """
import numpy as np
import pdnn
from pdnn import nn, optim

model = nn.Sequential(nn.Linear(784, {width}), nn.ReLU(), nn.Linear({width}, 10), seed=1)
sgd = optim.SGD(model.parameters(), lr=0.01)
x = np.random.default_rng(0).random((16, 784), np.float32)
trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="ddp")
trainer.fit(x, np.arange(16) % 10, 1, 8, verbose=False)
print(f"ends with {{model.flat_parameters.nbytes / 1e6:.0f}} MB")
"""


@pytest.mark.parametrize(("width", "size"), [(4000, 13), pytest.param(25000, 80, marks=pytest.mark.long)])
def test_ranks_train_a_network_beside_little_shared_memory(run_in: In, width: int, size: int) -> None:
    """Even one that is larger: what pdnn shares has no name there."""
    words = ["-m", "pdnn", "launch", "-n", "2", "-c", LARGE.format(width=width)]
    assert run_in("64 MB of /dev/shm", words, timeout=110).stdout.count(f"ends with {size} MB") == 2


def test_threads_train_without_a_network(run_in: In) -> None:
    train = ["-m", "pdnn", "train", "--data", "mnist-mini", "--epochs", "1", "--strategy", "team:2"]
    assert "accuracy" in run_in("no loopback", train).stdout
