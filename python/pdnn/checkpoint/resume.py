"""Resume: a training goes on from a checkpoint, under the strategy that wrote it or any other one."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pdnn._core import EpochSums
from pdnn.checkpoint.collect import MEMORY, own_arrays, what_is_trained
from pdnn.checkpoint.content import CHECKSUM, Content, deal_sums, models_apart, sealed, take
from pdnn.checkpoint.folder import newest
from pdnn.checks import same_settings
from pdnn.comm import Communicator
from pdnn.comm.settings import compare
from pdnn.core import CoreSession
from pdnn.store import Array
from pdnn.training import Position, Training


class Resumed(NamedTuple):
    """What a session must know of the checkpoint from which its training goes on.

    Attributes
    ----------
    path : Path
    rows_apart : (float, float)
        What the rows count that were trained on since all ranks last held the same model: by this rank, and
        by all.
    memory : ndarray or None
        What the strategy remembered on this rank, if it is the one that wrote the checkpoint.
    same : bool
        Whether it is, on as many ranks.
    told : str
        Which it is, for ranks that compare theirs.
    """

    path: Path
    rows_apart: tuple[float, float]
    memory: Array | None
    same: bool
    told: str


def meet_to_resume(directory: object, everyone: Communicator) -> None:
    """Waits for all ranks if there is a directory: of a fit that ended by an error rank 0 may still write.

    Raises
    ------
    ValueError
        If some ranks do not resume.
    """
    if directory is not None and everyone.size > 1:
        compare(everyone, "fit", {"resume": True}, "every rank must start the same job, on the same data")


def resume(
    training: Training,
    directory: str | os.PathLike[str],
    batch_size: int,
    check: Callable[[Position | None], None],
) -> Resumed | None:
    """Reads the newest checkpoint of a directory, on every rank; None if there is none.

    With the strategy that wrote it, on as many ranks, each rank gets its own back. Otherwise all begin with
    the model that the ranks would have agreed on; of optimizers' states of their own they get the mean,
    weighted by the rows of which the ranks' models were made; and what codecs had not sent is dropped. Rank 0
    warns of that, and if layers without parameters, the loss, the type or the kernels are others than before.

    Raises
    ------
    ValueError
        If it belongs to another model or optimizer, or to updates of another number of rows, or if
        `check` raises it of the place where the training would go on.
    """
    comm = training.comm
    found = newest(directory, warn=comm.rank == 0)
    if found is None:
        return None
    path, content = found
    checksum = sealed(content.arrays, content.metadata)[CHECKSUM]
    layout = content.state["layout"]
    if layout.get("batch size") != batch_size:
        raise ValueError(
            f"{path}: was written with batch size {layout.get('batch size')}, this run has {batch_size}"
        )
    same = (layout.get("strategy"), layout.get("ranks")) == (str(training.strategy), comm.size)
    mine = content.of_rank(comm.rank) if same else {}
    memory = mine.pop(MEMORY, None)
    counts = np.zeros(3, np.float64)
    if "counts" in mine:
        mine["counts"] = mine["counts"].astype(np.float64)  # earlier files have integers
    own: dict[str, Array] = {}
    if same and models_apart(training):
        own = own_arrays(training, counts)
    elif same and mine:
        own = {"state": training.model.flat_buffers}
    sums = None
    try:
        if not same:
            _merge(content, comm.rank == 0, f"{path}: was written by {layout.get('strategy')}")
        elif content.state.get("position") is not None:
            sums = EpochSums(content.state["position"]["ranks"][comm.rank])
    except (IndexError, KeyError, TypeError, ZeroDivisionError) as error:
        raise ValueError(f"{path}: lacks a part of what each rank had") from error
    take(training, content, path, own, mine, check)
    if comm.rank == 0:
        _warn_of_changes(training, path, layout)
    if "counts" in own:
        training.optimizer.core.steps = int(counts[2])
    if training.position is not None and sums is not None:
        training.position.sums = sums
    else:
        deal_sums(training)
    training.checkpoints = path.parent.resolve()
    training.trains = True  # the names of classes are those of the checkpoint now
    told = f"of epoch {training.epoch}, step {training.step}, with the checksum {checksum}"
    return Resumed(path, (float(counts[0]), float(counts[1])), memory, same, told)


def check_position(at: Position | None, rows: int, shuffle: bool | str) -> None:
    """Raises ValueError if data are not those of the epoch that is to be finished."""
    if at is not None and (at.rows, at.shuffle) != (rows, shuffle):
        raise ValueError(
            f"fit: the training goes on at row {at.row} of an epoch of {at.rows} rows, shuffle={at.shuffle}, "
            f"but got {rows} rows, shuffle={shuffle}; pass the data and the order that it had"
        )


def _warn_of_changes(training: Training, path: Path, layout: dict[str, Any]) -> None:
    """Warns of what is trained now and was not before, though names and shapes are the same."""
    for name, now in what_is_trained(training).items():
        had = layout.get(name, now)  # earlier files have none
        for number, (one, other) in enumerate(zip_longest(had, now)):
            if not same_settings(one, other):
                which = f"{name} {number}" if len(had) > 1 else name
                words = f"{path}: was trained with {which} {one}, this trainer goes on with {other}"
                warnings.warn(words, stacklevel=2)
                break


def _merge(content: Content, warn: bool, written: str) -> None:
    """Makes the state of the optimizer of those that the ranks had; says what is lost."""
    ranks = [content.of_rank(rank) for rank in range(content.state["layout"].get("ranks", 1))]
    said = []
    if all("counts" in rank for rank in ranks):
        rows = np.array([float(rank["counts"][0]) for rank in ranks])
        weights = rows / rows.sum() if rows.any() else np.full(len(ranks), 1 / len(ranks))
        content.state["optimizer"]["steps"] = max(int(rank["counts"][2]) for rank in ranks)
        for name, values in content.arrays.items():
            key = name.removeprefix("optimizer.")
            if key != name:
                values[...] = sum(w * rank[key] for w, rank in zip(weights, ranks, strict=True))
        said.append(f"the models and the states of the optimizers of its {len(ranks)} ranks are merged")
    if any(MEMORY in rank for rank in ranks):
        said.append("what its ranks remembered of their sums is dropped")
    if said and warn:
        warnings.warn(f"{written}; {', and '.join(said)}", stacklevel=2)


def resume_session(training: Training, session: CoreSession, resumed: Resumed) -> None:
    """Tells a session what its strategy remembered.

    Raises
    ------
    ValueError
        If it was written with other codecs, buckets or feedback.
    """
    session.rows_apart = resumed.rows_apart
    remembered = session.memory
    count, kept = sum(part.size for part in remembered), resumed.memory
    if not resumed.same or not remembered:
        return
    if kept is None or kept.size != count:
        raise ValueError(
            f"{resumed.path}: holds {0 if kept is None else kept.size} values that a codec remembers on rank "
            f"{training.comm.rank}, this run needs {count}; use the codec, error_feedback= and bucket_bytes= "
            "that it was written with"
        )
    begin = 0
    for part in remembered:
        part[...] = kept[begin : begin + part.size]
        begin += part.size
