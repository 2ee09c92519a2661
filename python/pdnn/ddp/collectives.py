"""Collectives under Horovod's names: on numbers of your own, and on the state of models and optimizers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np

from pdnn.checks import kind_of
from pdnn.comm import world
from pdnn.comm.settings import compare
from pdnn.nn.module import Module
from pdnn.optim import Optimizer
from pdnn.store import Array
from pdnn.tensor import Tensor

Op: TypeAlias = Literal["mean", "sum", "min", "max"]

Average: Final = "mean"
Sum: Final = "sum"
Min: Final = "min"
Max: Final = "max"


def allreduce(
    tensor: Tensor | Array | float | Sequence[float], name: str | None = None, *, op: Op = Average
) -> Any:
    """The mean of all ranks' values, or their sum, minimum or maximum, on every rank.

    A mean over ranks is the mean over rows only if all ranks have the same number of rows. For a metric,
    add up the ranks' sums and their counts.

    Parameters
    ----------
    tensor : ndarray, Tensor, number or list of numbers
        Of the same shape and type on every rank; stays as it is.
    name : str, optional
        Horovod matches calls by it; here the same calls in the same order do.
    op : Average, Sum, Min or Max

    Returns
    -------
    ndarray of that shape, or a number where one was given

    Raises
    ------
    ValueError, TypeError
        On every rank, if the ranks' arguments do not fit together, or integers are to be averaged.
    """
    _check_name("allreduce", name)
    values = np.array(_array(tensor), order="C", subok=True)
    world().all_reduce(values, op)
    return values if isinstance(tensor, (np.ndarray, Tensor)) or values.ndim else values.item()


def allgather(tensor: Tensor | Array, name: str | None = None) -> Array:
    """All ranks' arrays joined along the first axis, rank 0's first, on every rank.

    Parameters
    ----------
    tensor : ndarray or Tensor, shape (n, ...)
        The number of rows n may differ between ranks.
    name : str, optional
        As for `allreduce`.

    Raises
    ------
    ValueError, TypeError
        If it has no rows to join, or the other axes or the types differ.
    """
    _check_name("allgather", name)
    values = np.array(_array(tensor), order="C", ndmin=1, subok=True)
    parts = world().all_gather(values)
    for rank, part in enumerate(parts):
        if part.shape[1:] != parts[0].shape[1:]:
            raise ValueError(
                f"allgather: rank {rank} has rows of shape {part.shape[1:]}, rank 0 of {parts[0].shape[1:]}; "
                "only the number of rows may differ"
            )
    return np.concatenate(parts)


def broadcast(
    tensor: Tensor | Array | float | Sequence[float], root_rank: int, name: str | None = None
) -> Any:
    """The value of one rank, on every rank.

    Parameters
    ----------
    tensor : ndarray, Tensor, number or list of numbers
        Of the same shape and type on every rank; stays as it is.
    root_rank : int
    name : str, optional
        As for `allreduce`.

    Returns
    -------
    ndarray of that shape, or a number where one was given
    """
    _check_name("broadcast", name)
    values = np.array(_array(tensor), order="C", subok=True)
    world().broadcast(values, root_rank)
    return values if isinstance(tensor, (np.ndarray, Tensor)) or values.ndim else values.item()


def broadcast_parameters(params: Module | Mapping[str, Array], root_rank: int = 0) -> None:
    """Copies the parameters and buffers (BatchNorm's running statistics) of one rank to all.

    Parameters
    ----------
    params : Module, or what its `state_dict()` gave
    root_rank : int

    Raises
    ------
    TypeError
        If it is neither.
    ValueError
        On every rank, if names, shapes or types differ: names the rank, the array, and both sides.
    """
    arrays = params.state_dict() if isinstance(params, Module) else params
    if not isinstance(arrays, Mapping):
        raise TypeError(
            f"broadcast_parameters: got {type(params).__name__}, expected a model or its state_dict()"
        )
    comm = world()
    described = {name: f"{values.shape} {values.dtype}" for name, values in arrays.items()}
    compare(comm, "broadcast_parameters", described, "every rank must build the same model")
    for name in sorted(arrays):  # by name: another rank may have them in another order
        comm.broadcast(arrays[name], root_rank)


def broadcast_optimizer_state(optimizer: Optimizer, root_rank: int = 0) -> None:
    """Copies one rank's optimizer state to all: steps, the groups' numbers, and the state of the rule.

    Parameters
    ----------
    optimizer : Optimizer
        Before or after it is wrapped in a `DistributedOptimizer`.
    root_rank : int

    Raises
    ------
    TypeError
        If it is no optimizer.
    ValueError
        On every rank, if they have different rules, groups or models.
    """
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"broadcast_optimizer_state: got {kind_of(optimizer)}, expected one of pdnn.optim's")
    comm, state = world(), optimizer.state_dict()
    numbers = {
        f"{key} of group {index}": value
        for index, group in enumerate(state["param_groups"])
        for key, value in group.items()
    }
    described = {
        "optimizer": str(optimizer.config()),
        "numbers": str(sorted(numbers)),
        **{name: f"{values.shape} {values.dtype}" for name, values in state["state"].items()},
    }
    compare(comm, "broadcast_optimizer_state", described, "every rank must make the same optimizer")
    sent = np.array([state["steps"], *(numbers[name] for name in sorted(numbers))], np.float64)
    steps, *values = comm.broadcast(sent, root_rank).tolist()
    received = dict(zip(sorted(numbers), values, strict=True))
    for index, group in enumerate(state["param_groups"]):
        for key in group:
            group[key] = received[f"{key} of group {index}"]
    for memory in state["state"].values():
        comm.broadcast(memory, root_rank)
    optimizer.load_state_dict({**state, "steps": int(steps)})


def _check_name(call: str, name: object) -> None:
    """Raises TypeError for what was meant as another argument, as Horovod's `average`."""
    if name is not None and (not isinstance(name, str) or name in get_args(Op)):
        raise TypeError(
            f"{call}: name is {name!r}, expected a str that is no operation; pass that as in op=ddp.Sum"
        )


def _array(tensor: Tensor | Array | float | Sequence[float]) -> Array:
    """As an array; one with masked entries stays one, which every rank then refuses."""
    return tensor.data if isinstance(tensor, Tensor) else np.asanyarray(tensor)
