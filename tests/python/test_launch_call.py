"""`pdnn.run` without its ranks: what has to be installed, and which of several errors is raised."""

from __future__ import annotations

import errno
import importlib.util
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import pdnn
from pdnn.launch import call, run_call


@pytest.mark.parametrize("missing", ["cloudpickle", "mpi4py"])
def test_what_ranks_need_is_said_before_they_start(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(call, "find_spec", lambda name: None if name == missing else find_spec(name))
    monkeypatch.delenv("OMPI_COMM_WORLD_SIZE", raising=False)
    with pytest.raises(ImportError, match=f"run: ranks need {missing}; pip install {missing}"):
        pdnn.run(print, ranks=1)


LOST = pdnn.CommunicationError("rank 1 is gone")
LATER_LOST = pdnn.CommunicationError("rank 2 is gone")


@pytest.mark.parametrize(
    ("errors", "first"),
    [
        ({2: KeyError("cause"), 0: ValueError("later")}, 2),
        ({0: KeyError("cause"), 2: ValueError("later")}, 0),
        ({0: LOST, 1: KeyError("cause"), 2: ValueError("later")}, 1),
        ({2: LOST, 1: KeyError("cause")}, 1),
        ({1: KeyError("cause"), 0: LOST}, 1),
        ({1: LOST, 0: LATER_LOST}, 1),
    ],
)
def test_the_first_error_is_raised_that_is_no_consequence(
    tmp_path: Path, errors: dict[int, Exception], first: int
) -> None:
    for when, (rank, error) in enumerate(errors.items()):
        told: Any = (rank, repr(error), f"the traceback of rank {rank}", pickle.dumps(error))
        path = tmp_path / f"error-{rank}"
        path.write_bytes(pickle.dumps(told))
        os.utime(path, (1e9 + when, 1e9 + when))
    with pytest.raises(type(errors[first])) as raised:
        call._raise_first_error(tmp_path)
    assert str(raised.value) == str(errors[first])
    assert str(raised.value.__cause__) == f"on rank {first}:\nthe traceback of rank {first}"


def test_a_result_that_finds_no_room_leaves_room_for_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> int:
        with open(path, "wb") as file:
            file.write(data[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match=r"No space left on device.*result-0"):
        run_call._write(tmp_path / "result-0", b"result")
    assert list(tmp_path.iterdir()) == []
