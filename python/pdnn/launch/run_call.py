"""The rank's side of ``pdnn.run``: takes the call from a folder and leaves there what came of it."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Any

import cloudpickle

from pdnn.files.atomic import named


def main(folder: str) -> None:
    """Makes the call in `folder`; leaves ``result-<rank>`` there, or ``error-<rank>`` and ends the job."""
    from pdnn.comm import world

    rank = world().rank
    try:
        function, args, kwargs = cloudpickle.loads(Path(folder, "call").read_bytes())
        _write(Path(folder, f"result-{rank}"), _pickled(rank, function(*args, **kwargs)))
    except BaseException as error:
        _write(Path(folder, f"error-{rank}"), cloudpickle.dumps(_described(rank, error)))
        sys.stdout.flush()
        sys.stderr.flush()
        from mpi4py import MPI

        MPI.COMM_WORLD.Abort(1)


def _pickled(rank: int, result: Any) -> bytes:
    try:
        return bytes(cloudpickle.dumps(result))
    except Exception as error:
        raise TypeError(
            f"run: rank {rank} returned an object of type {type(result).__name__}, which cannot be pickled "
            f"({error}); return what can, such as arrays, numbers and lists of them"
        ) from error


def _described(rank: int, error: BaseException) -> tuple[int, str, str, bytes]:
    """The rank, the error in a line, its traceback, and the error itself (empty if it cannot be pickled)."""
    summary = "".join(traceback.format_exception_only(type(error), error)).strip()
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        # SystemExit and KeyboardInterrupt would end the caller, who did not ask for it
        pickled = cloudpickle.dumps(error) if isinstance(error, Exception) else b""
    except Exception:
        pickled = b""
    return rank, summary, text, pickled


def _write(path: Path, data: bytes) -> None:
    """Writes a file that is either whole or absent, also when this process is killed."""
    unfinished = path.with_name(f"unfinished-{path.name}")
    try:
        with named(unfinished):
            unfinished.write_bytes(data)
    except OSError:  # room for the error, where the disk is full
        unfinished.unlink(missing_ok=True)
        raise
    os.replace(unfinished, path)
