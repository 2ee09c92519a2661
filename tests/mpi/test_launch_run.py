"""``pdnn.run``: results in order, errors with the rank's traceback, on MPI ranks and on threads."""

from __future__ import annotations

import dataclasses
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import pdnn
from pdnn.comm.mpiexec import find
from pdnn.launch import call
from processes import Completed

pytestmark = pytest.mark.mpi
pytest.importorskip("mpi4py")
pytest.importorskip("cloudpickle")

FUNCTIONS = """
import os, sys, time
import numpy as np
import pdnn

class Picky(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")

def add(x, *, y):
    world = pdnn.world()
    total = np.full(3, float(world.rank))
    world.all_reduce(total)
    print(f"rank {world.rank} was here\\n", end="")  # one write: lines of threads do not mix
    return world.rank, x + y, total

def fail(how):
    world = pdnn.world()
    if world.rank == 1:
        if how == "exit":
            sys.exit(3)
        if how == "left":
            return "too early"
        if how == "late":
            time.sleep(60)
        if how == "result":
            return (number for number in range(3))
        if how == "picky":
            raise Picky("this", "that")
        if how == "killed":
            os.kill(os.getpid(), 9)
        raise KeyError("rank 1 has had enough")
    world.barrier()

def error_of(*arguments, **options):
    try:
        pdnn.run(*arguments, **options)
    except Exception as error:
        return error
"""
BOTH = """
results = pdnn.run(add, 1, y=5, ranks=2, backend=backend)
assert [(rank, total) for rank, total, _ in results] == [(0, 6), (1, 6)], results
assert all((array == 1).all() for _, _, array in results)
error = error_of(fail, "left", ranks=2, backend=backend)
assert type(error) is pdnn.CommunicationError, error
assert "rank 0 waits in vain for rank 1 in #1 barrier at" in str(error), error
error = error_of(fail, "error", ranks=2, backend=backend)
assert type(error) is KeyError and "had enough" in str(error), error
"""
PROCESSES = """
assert "on rank 1" in str(error.__cause__) and "in fail" in str(error.__cause__)
assert pdnn.run(os.getpid, ranks=1) != [os.getpid()]
error = error_of(fail, "result", ranks=2)
assert type(error) is TypeError and "rank 1 returned an object of type generator" in str(error), error
assert str(error_of(fail, "exit", ranks=2)) == "run: rank 1 raised SystemExit: 3"
assert str(error_of(fail, "picky", ranks=2)) == "run: rank 1 raised Picky: this and that"

error = error_of(fail, "killed", ranks=2)
assert isinstance(error, pdnn.CommunicationError) and "137" in str(error), error
error = error_of(print, (number for number in range(3)), ranks=2)
assert type(error) is TypeError and "an argument cannot be pickled for the ranks" in str(error), error

began = time.monotonic()
error = error_of(time.sleep, 60, ranks=2, timeout=1)
assert type(error) is TimeoutError and "2 ranks had not ended after 1 s" in str(error), error
assert time.monotonic() - began < 30
for timeout in (4, 30):  # on a busy machine the ranks may not have met after the first
    error = error_of(fail, "late", ranks=2, timeout=timeout)
    assert type(error) is TimeoutError, error
    if "rank 1 never entered" in str(error):
        break
assert "rank 1 never entered #1 barrier" in str(error), error
assert "mpi4py" not in sys.modules
"""
MISTAKES = """
threads = {"backend": "threads"}
for wrong in [{"ranks": 0}, {"ranks": 0} | threads, {"backend": "sockets"}, {"timeout": 1} | threads]:
    assert type(error_of(add, 1, y=2, **{"ranks": 2} | wrong)) is ValueError, wrong
os.environ["OMPI_COMM_WORLD_SIZE"] = "3"
assert "already one of 3 ranks" in str(error_of(add, 1, y=2, ranks=2))
"""
LAZY = """
import sys
import pdnn.launch
assert not {"mpi4py", "cloudpickle"} & set(sys.modules)
"""


def test_a_function_on_mpi_ranks(run_python: Callable[..., Completed], tmp_path: Path) -> None:
    script = tmp_path / "calls.py"
    script.write_text(FUNCTIONS + "backend = 'mpi'\n" + BOTH + PROCESSES)
    output = run_python([script], timeout=110).stdout.splitlines()
    assert sorted(output) == ["rank 0 was here", "rank 1 was here"]  # mpiexec's own words do not appear


def test_python_passes_over_what_is_no_string_in_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.path", [*sys.path, tmp_path])
    assert pdnn.run(abs, -1, ranks=1, timeout=60) == [1]


def test_ranks_find_modules_where_this_process_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "found_only_here.py").write_text("def two(): return 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    two = importlib.import_module("found_only_here").two
    assert pdnn.run(two, ranks=1, timeout=60) == [2]


def test_ranks_use_mpi_whatever_this_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PDNN_MPI", "0")
    assert pdnn.run(lambda: pdnn.world().size, ranks=2, timeout=60) == [2, 2]


def test_a_rank_that_leaves_no_result_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Also where mpiexec ends with 0."""
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text(f'#!/bin/sh\n"{find().path}" "$@"\necho beware >&2\nexit 0\n')
    mpiexec.chmod(0o700)
    monkeypatch.setattr(call, "find", lambda: dataclasses.replace(find(), path=str(mpiexec)))
    with pytest.raises(pdnn.CommunicationError, match=r"code 0 without a result of rank 0[\s\S]*beware"):
        pdnn.run(os._exit, 0, ranks=1, timeout=60)


def test_what_mpiexec_says_of_a_job_that_ends_well_is_shown(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text(f"#!/bin/sh\nprintf 'be\\000ware\\n\\000\\n' >&2\nexec '{find().path}' \"$@\"\n")
    mpiexec.chmod(0o700)
    monkeypatch.setattr(call, "find", lambda: dataclasses.replace(find(), path=str(mpiexec)))
    assert pdnn.run(abs, -1, ranks=1, timeout=60) == [1]
    said = capsys.readouterr().err
    assert "beware\n" in said and "\0" not in said


def test_a_function_on_threads(run_python: Callable[..., Completed]) -> None:
    output = run_python(["-c", FUNCTIONS + "backend = 'threads'\n" + BOTH + MISTAKES], timeout=60).stdout
    assert sorted(output.splitlines()) == ["rank 0 was here", "rank 1 was here"]


def test_importing_it_loads_nothing_optional(run_python: Callable[..., Completed]) -> None:
    run_python(["-c", LAZY])
