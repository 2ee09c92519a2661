"""Crew: work that ranks do together, again and again until those that live have done it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pdnn._core import RankFailed
from pdnn.comm.communicator import Communicator

Result = TypeVar("Result")


def work_together(
    comm: Communicator,
    work: Callable[[Communicator], Result],
    go_on: Callable[[Communicator, RankFailed | None], None],
) -> Result:
    """Calls ``work(comm)`` on every rank, until it ends on all that live; collective.

    Parameters
    ----------
    comm : Communicator
        One that survives the death of a rank.
    work : callable
        Raises RankFailed where a rank of the group has died.
    go_on : callable
        Called as ``go_on(left, error)`` on the ranks that are left, before they work again: takes them back
        to where all of them were. The error is this rank's; None if it had done its work.

    Returns
    -------
    The result of this rank's last `work`.

    Raises
    ------
    CommunicationError
        If the group does not survive the death of a rank.
    """
    error: RankFailed | None = None
    again = False
    while True:
        done: list[Result] = []
        try:
            if again:
                go_on(comm, error)
            done.append(work(comm))
            comm.barrier()  # a rank that was lost at the end is found here, as long as the others can help
            error = None
        except RankFailed as failed:
            error = failed
        if comm.agree(error is None):
            return done[0]
        comm, again = comm.shrink(), True
