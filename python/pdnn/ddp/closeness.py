"""Whether ranks that train together still have the same parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pdnn.comm import Communicator, world
from pdnn.comm.communicator import check_communicator

if TYPE_CHECKING:
    from pdnn.nn.module import Module


@dataclass(frozen=True)
class Closeness:
    """A verdict, true if all ranks are close to rank 0.

    Attributes
    ----------
    close : bool
    name : str or None
        The parameter that is furthest beyond what is allowed; None if all are close.
    rank : int
        Where it is.
    difference : float
        The largest absolute difference between its elements there and rank 0's; nan where one is no number.
    """

    close: bool
    name: str | None = None
    rank: int = 0
    difference: float = 0.0

    def __bool__(self) -> bool:
        return self.close

    def __str__(self) -> str:
        if self.close:
            return "all ranks are close to rank 0"
        return f"{self.name} of rank {self.rank} differs from rank 0's by {self.difference:.3g}"


def check_parameter_closeness(
    model: Module, comm: Communicator | None = None, *, rtol: float = 1e-5, atol: float = 1e-6
) -> Closeness:
    """Compares every rank's parameters with rank 0's; all ranks call it and get the same verdict.

    Parameters
    ----------
    model : Module
        The same on every rank.
    comm : Communicator, optional
        `pdnn.world()` unless given.
    rtol, atol : float
        An element w is close to rank 0's v if abs(w - v) ≤ atol + rtol abs(v).

    Returns
    -------
    Closeness
        Sends the parameters once, and one number a parameter from each rank.

    Raises
    ------
    TypeError
        If `comm` is no Communicator.
    ValueError
        If the ranks' models have different numbers of parameters or dtypes.
    """
    comm = world() if comm is None else comm
    check_communicator("check_parameter_closeness", comm)
    parameters = list(model.named_parameters())
    first = model.flat_parameters.copy()
    comm.broadcast(first, root=0)
    beyond, differences, end = np.zeros(len(parameters)), np.zeros(len(parameters)), 0
    for index, (_, parameter) in enumerate(parameters):
        begin, end = end, end + parameter.size
        want = first[begin:end].reshape(parameter.shape)
        apart = np.zeros_like(want)
        np.subtract(parameter.data, want, out=apart, where=parameter.data != want)  # of equal infinities: 0
        np.abs(apart, out=apart)
        differences[index] = apart.max(initial=0)
        beyond[index] = (apart - (atol + rtol * np.abs(want))).max(initial=0)
    judged = np.stack(comm.all_gather(np.stack([beyond, differences])))  # (ranks, 2, parameters)
    worst = np.where(np.isnan(judged[:, 0]), np.inf, judged[:, 0])
    if not (worst > 0).any():
        return Closeness(True)
    rank, number = divmod(int(np.argmax(worst)), len(parameters))
    return Closeness(False, parameters[number][0], rank, float(judged[rank, 1, number]))
