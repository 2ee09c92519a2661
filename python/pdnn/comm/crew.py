"""Crew: ranks that work together, again and again until those that live have done it; some may wait."""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Collection
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from pdnn._core import CommunicationError, RankFailed
from pdnn.comm.communicator import Communicator

Result = TypeVar("Result")

_WAITS = -1  # the place of a rank that waits
_DONE, _NO_ERROR, _NO_END = 1, 2, 4  # bits that the ranks agree on


class Deaths(NamedTuple):
    """Who died, and who takes their places, when ranks go on.

    Attributes
    ----------
    dead : list of int
        As the group counted them in which they lived.
    new : dict of int to int
        Ranks of the group that goes on and that have waited so far, with their numbers in the group before.
    """

    dead: list[int]
    new: dict[int, int]

    def __str__(self) -> str:
        one = len(self.new) == 1
        took = f"; {_ranks(self.new.values())} {'takes its place' if one else 'take their places'}"
        return f"{_ranks(self.dead)} died{took if self.new else ''}"


def _ranks(numbers: Collection[int]) -> str:
    return f"rank{'s'[: len(numbers) != 1]} {', '.join(map(str, numbers))}"


class Crew(Generic[Result]):
    """Ranks of a group that work, of which the last may wait until they take the place of one that dies.

    Collective. A rank that waits looks for deaths every few milliseconds, and does nothing else.

    Parameters
    ----------
    comm : Communicator
        One that survives the death of a rank.
    spares : int
        How many of its ranks, the last ones, wait.

    Attributes
    ----------
    comm : Communicator
        All ranks that live.
    active : Communicator or None
        Those that work, each in its place; None on a rank that waits, and on all before `begin`.

    Raises
    ------
    CommunicationError
        If the group does not survive the death of a rank.
    """

    def __init__(self, comm: Communicator, spares: int = 0) -> None:
        comm.agree(True)  # or says what is needed
        self.comm = comm
        self._places = comm.size - spares
        self._place = comm.rank if comm.rank < self._places else _WAITS
        self.active = None if spares else comm
        self._begun = not spares

    def begin(self) -> None:
        """Forms the group of those that work, as `work` also does; collective."""
        if not self._begun:
            self.active = self._active(self._place)
            self._begun = True

    def work(
        self,
        work: Callable[[Communicator], Result],
        go_on: Callable[[Communicator, Deaths], None],
        hand_on: Callable[[Communicator, Collection[int]], None] | None = None,
        *,
        all_raise: bool = False,
    ) -> Result | None:
        """Calls ``work(active)`` on the ranks that work, until it ends on all of them that live.

        Parameters
        ----------
        work : callable
            Raises RankFailed where a rank of the group has died.
        go_on : callable
            Called as ``go_on(active, deaths)`` on the ranks that work next, before they do: takes them back
            to where all of them were, and gives the new ones what they need (`give`).
        hand_on : callable, optional
            Called at the end as ``hand_on(comm, waiting)``, on all ranks, if some have waited: gives these
            what the others have made.
        all_raise : bool
            Whether an error of `work` is raised on all ranks that work. Then it ends those that wait, too.

        Returns
        -------
        The result of this rank's last `work`; None on a rank that has waited.

        Raises
        ------
        CommunicationError
            If no rank is left that knows what was done, or the ranks that do not wait have raised an error.
        SystemExit
            On a rank that waits, if the others raised it.
        """
        again = alive = False
        done: list[Result] = []
        while True:
            done.clear()
            try:
                if again:
                    self._form(go_on)
                else:
                    self.begin()
                if self.active is not None:
                    done.append(work(self.active))
                    self.active.barrier()  # one that was lost at the end is found while the others can help
                alive = True
            except RankFailed:
                alive = False
            except (Exception, KeyboardInterrupt, SystemExit) as error:
                if all_raise and self._waiting():
                    self.comm.core.agree(_NO_ERROR if isinstance(error, SystemExit) else _NO_END, False)
                raise
            if self._all_done(alive) and (hand_on is None or self._handed_on(hand_on)):
                return done[0] if done else None
            again = True

    def _all_done(self, alive: bool) -> bool:
        agreed = self.comm.core.agree(_DONE * alive | _NO_ERROR | _NO_END, self.active is None)
        if not agreed & _NO_END:
            raise SystemExit(128 + signal.SIGTERM)
        if not agreed & _NO_ERROR:
            raise CommunicationError("communicator: an error ended the work of the ranks that did not wait")
        return bool(agreed & _DONE)

    def _waiting(self) -> range:
        """The last ranks: the first ones that waited took places first."""
        return range(min(self._places, self.comm.size), self.comm.size)

    def _handed_on(self, hand_on: Callable[[Communicator, Collection[int]], None]) -> bool:
        """False if a rank died meanwhile."""
        if not self._waiting():
            return True
        try:
            hand_on(self.comm, self._waiting())
        except RankFailed:
            return self.comm.agree(False)
        return self.comm.agree(True)

    def _active(self, place: int) -> Communicator | None:
        """The group of the ranks with a place, in their order."""
        group = self.comm.split(int(place == _WAITS), max(place, 0))
        return None if place == _WAITS else group

    def _form(self, go_on: Callable[[Communicator, Deaths], None]) -> None:
        """Those that live keep their places, and those that waited take the places of the dead."""
        before = self.comm
        self.comm = comm = before.shrink()
        own = np.array([self._place, before.rank])
        places, numbers = zip(*(each.tolist() for each in comm.all_gather(own)), strict=True)
        if max(places) == _WAITS:
            raise CommunicationError("communicator: no rank is left that knows what the dead ones did")
        free = (place for place in range(self._places) if place not in places)
        taken = [next(free, _WAITS) if place == _WAITS else place for place in places]
        order = sorted(place for place in taken if place != _WAITS)
        new = {order.index(taken[i]): numbers[i] for i in range(comm.size) if places[i] != taken[i]}
        mine = taken[comm.rank]
        self.active = comm if order == taken else self._active(mine)
        if self.active is not None:
            go_on(self.active, Deaths(sorted({*range(before.size)} - {*numbers}), new))
        self._place = mine


def give(comm: Communicator, new: Collection[int], made: Callable[[], Any]) -> Any:
    """Gives some ranks of a group what the first of the others has; collective.

    Parameters
    ----------
    comm : Communicator
    new : collection of int
        The ranks that get it.
    made : callable
        Makes it on the rank that gives it: anything that can be pickled.

    Returns
    -------
    object
        On the ranks that get it; None on the others.
    """
    giver = next(rank for rank in range(comm.size) if rank not in new)
    if comm.rank in new:
        return pickle.loads(comm.recv(giver).data)
    if comm.rank == giver and new:
        sent = np.frombuffer(pickle.dumps(made(), protocol=5), np.uint8)
        for rank in new:
            comm.send(sent, rank)
    return None
