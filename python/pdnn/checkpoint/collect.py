"""Collect: a copy of all that the ranks of a training know, for a checkpoint."""

from __future__ import annotations

import numpy as np

from pdnn.checkpoint.content import RANK, Content, content_of, models_apart
from pdnn.comm import Communicator
from pdnn.core import CoreSession, kernels_of
from pdnn.store import Array
from pdnn.training import APART, Training

MEMORY = "codec"  # what a rank's strategy remembers, such as what a codec lost


def own_arrays(training: Training, counts: Array) -> dict[str, Array]:
    """What is a rank's own where each trains a model of its own."""
    model, memory = training.model, training.optimizer.state_arrays()
    return {"parameters": model.flat_parameters, "state": model.flat_buffers, **memory, "counts": counts}


def what_is_trained(training: Training) -> dict[str, list[str]]:
    """What arrays of the same names and shapes may belong to, in words: layers, loss, type and kernels."""
    dtype = training.model.dtype
    layers = training.model.config().get("layers", [])  # a model with a `forward` of its own tells none
    return {
        "layer": list(map(str, layers)),
        "loss": [repr(training.loss)],
        "dtype": [dtype],
        "kernels": [kernels_of(dtype)],
    }


def collect(training: Training, batch_size: int, session: CoreSession, comm: Communicator) -> Content | None:
    """A copy of a training as it is now, on rank 0; None on the others. Collective.

    As the model it has what the ranks would agree on. What is each rank's own is beside it, for resuming with
    the same strategy on as many ranks, bit for bit: models and states of optimizers where each trains for
    itself; in the middle of an epoch, running statistics; what codecs have not sent; sums of the epoch.
    """
    own: dict[str, Array] = {}
    remembered = session.memory
    if comm.all_reduce(np.array([len(remembered)]), "max")[0]:  # a stage without parameters has none
        own[MEMORY] = np.concatenate([training.model.flat_parameters[:0], *remembered])
    position, buffers = training.position, training.model.flat_buffers
    if models_apart(training):
        counts = np.array([*session.rows_apart, training.optimizer.core.steps], np.float64)
        own |= own_arrays(training, counts)
    elif position is not None and comm.size > 1 and buffers.size:
        own["state"] = buffers
    everyones = {name: comm.gather(values, root=0) for name, values in own.items()}
    sums: list[dict[str, float]] = []
    if position is not None:
        mine = position.sums.numbers
        gathered = comm.gather(np.array(list(mine.values())), root=0) or []
        sums = [dict(zip(mine, values.tolist(), strict=True)) for values in gathered]
    session.enter_evaluation()
    try:
        if comm.rank > 0:
            return None
        content = content_of(training)
        content.arrays = {name: values.copy() for name, values in content.arrays.items()}
    finally:
        session.leave_evaluation()
    for name, parts in everyones.items():
        content.arrays |= {f"{RANK}{rank}.{name}": part.copy() for rank, part in enumerate(parts or [])}
    if "state" in own and not models_apart(training):
        _average_buffers(training, content)
    if position is not None:
        if models_apart(training):
            for name in APART:
                content.state["position"]["sums"][name] = sum(each[name] for each in sums)
        content.state["position"]["ranks"] = sums
    content.state["layout"] = {
        "strategy": str(training.strategy), "ranks": comm.size, "batch size": batch_size,
        **what_is_trained(training),
    }  # fmt: skip
    return content


def _average_buffers(training: Training, content: Content) -> None:
    """The running statistics of the model become the mean of the ranks', as at the end of an epoch."""
    buffers = training.model.flat_buffers
    kept = buffers.copy()
    ranks = [values for name, values in content.arrays.items() if name.endswith(".state") and RANK in name]
    try:
        buffers[...] = np.mean(ranks, axis=0)
        for name, values in training.model.state_dict().items():
            content.arrays[f"model.{name}"][...] = values
    finally:
        buffers[...] = kept
