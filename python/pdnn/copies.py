"""Copies: what a rank keeps in memory of a training, so that the ranks can go back when one of them dies."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from pdnn._core import CommunicationError
from pdnn.comm import Communicator, ranks_may_die
from pdnn.comm.crew import give
from pdnn.core import CoreSession
from pdnn.store import Array
from pdnn.training import APART, State, Training

EVERY = 100
"""Steps from one copy to the next, unless `fit` is told."""

_KEPT = 2  # when a rank dies, another may have made one copy more than a third
_LISTS = ("phases", "updates", "compression", "ranks")


@dataclass
class _Copy:
    """A training after one of its steps."""

    state: State
    rows_apart: float  # of the session: this rank's
    arrays: list[Array]
    history: dict[str, int]  # lengths of its lists
    stop: bool  # a callback's wish
    lists: dict[str, list[Any]] = field(default_factory=dict)  # those of the history, for a rank without


def steps_between(training: Training, wanted: int | None) -> int:
    """Steps from one copy to the next; 0 where none is of use.

    Parameters
    ----------
    training : Training
    wanted : int or None
        As `fit` was told; None: `EVERY`, on ranks of an MPI that lets the others go on when one dies.

    Raises
    ------
    ValueError
        If the strategy needs all of its ranks and none waits to take a place, or ranks wait for nothing.
    """
    comm, strategy = training.comm, training.strategy
    if comm.size == 1:
        return 0
    if not comm.spares and (wanted == 0 or (wanted is None and not ranks_may_die(comm))):
        return 0
    if wanted == 0:
        raise ValueError(
            f"fit: elastic=0 makes no copies, but {comm.spares} of {comm.size} ranks wait to take the place "
            "of one that dies; leave elastic= out, or start no spares"
        )
    if not (strategy.survives or (strategy.takes_spares and comm.spares)):
        spare = "keep a rank in waiting (pdnn launch --spares 1), " if strategy.takes_spares else ""
        raise ValueError(
            f'fit: strategy "{strategy}" needs all of its ranks, so it cannot go on when one dies; use '
            f'"ddp" or "average:T", {spare}or pass elastic=0'
        )
    return EVERY if wanted is None else wanted


class Copies:
    """The last two copies of a training on this rank.

    Parameters
    ----------
    training : Training

    Attributes
    ----------
    count : int
        Copies made.
    seconds : float
        What they took.
    nbytes : int
        What those that are kept need.
    failures : int
        How often the ranks went back.
    """

    def __init__(self, training: Training) -> None:
        self._training = training
        self._copies: list[_Copy] = []
        self.count, self.seconds, self.failures = 0, 0.0, 0

    def __str__(self) -> str:
        took = f"{self.count} cop{'y' if self.count == 1 else 'ies'} took {self.seconds:.3f} s in all"
        times = f"{self.failures} time{'s'[: self.failures != 1]}"
        return f"{took}, the last two need {self.nbytes / 1e6:.1f} MB; went back {times}"

    @property
    def nbytes(self) -> int:
        """What those that are kept need."""
        return sum(array.nbytes for each in self._copies for array in each.arrays)

    def take(self, session: CoreSession) -> None:
        """Copies the training, between two of its steps, which are the same on all ranks."""
        began = time.perf_counter()
        room = self._copies.pop(0).arrays if len(self._copies) == _KEPT else []
        self._copies.append(self._copied(session, room))
        self.count += 1
        self.seconds += time.perf_counter() - began

    def _copied(self, session: CoreSession, room: list[Array]) -> _Copy:
        """The training as it is now, in the memory of an older copy."""
        training, live = self._training, self._arrays(session)
        if [array.size for array in room] != [array.size for array in live]:
            room = [np.empty_like(array) for array in live]
        for kept, array in zip(room, live, strict=True):
            np.copyto(kept, array)
        return _Copy(
            training.state(),
            session.rows_apart[0],
            room,
            {name: len(values) for name, values in self._lists().items()},
            training.stop_training,
        )

    def _lists(self) -> dict[str, list[Any]]:
        """Those of the history, by name."""
        history = self._training.history
        return {name: getattr(history, name) for name in _LISTS} | history.history

    def go_back(self, comm: Communicator, new: Collection[int]) -> None:
        """Takes the training back to the last step of which all ranks have a copy; collective.

        Parameters
        ----------
        comm : Communicator
        new : collection of int
            Ranks that have no copies yet: they get that of the first of the others.

        Raises
        ------
        CommunicationError
            If there is none.
        """
        fresh = comm.rank in new
        newest = np.iinfo(np.int64).max if fresh or not self._copies else self._copies[-1].state.step
        wanted = int(comm.all_reduce(np.array([newest]), "min")[0])
        self._copies = [each for each in self._copies if each.state.step <= wanted and not fresh]
        has = bool(self._copies) and self._copies[-1].state.step == wanted
        if not comm.all_reduce(np.array([int(fresh or has)]), "min")[0]:
            raise CommunicationError("fit: the ranks that are left have no copy of the same step")
        given = give(comm, new, lambda: self._told(self._copies[-1]))
        if given is not None:
            self._take_over(given)
        self.failures += 1
        self._restore(self._copies[-1])

    def hand_on(self, session: CoreSession | None, comm: Communicator, waiting: Collection[int]) -> None:
        """Gives ranks that have waited what the training has become; collective."""

        def now() -> _Copy:
            assert session is not None, "a rank that did not wait"
            return self._told(self._copied(session, []))

        given = give(comm, waiting, now)
        if given is not None:
            self._restore(given)

    def _told(self, copied: _Copy) -> _Copy:
        """With the history, as far as it was there."""
        lists = {name: values[: copied.history.get(name, 0)] for name, values in self._lists().items()}
        return replace(copied, lists=lists)

    def _take_over(self, copied: _Copy) -> None:
        """Makes the copy of another rank this one's."""
        own = [array.size for array in self._arrays(None)]
        for array in copied.arrays[len(own) :]:
            array[...] = 0  # what codecs of that rank remembered
        if self._training.strategy.models_apart:
            copied.rows_apart = 0
            if copied.state.position is not None:
                copied.state.position["sums"].update(dict.fromkeys(APART, 0.0))
        self._copies = [copied]

    def _restore(self, copied: _Copy) -> None:
        """Makes the training what it was."""
        training, history = self._training, self._training.history
        training.go_to(copied.state)
        for kept, array in zip(copied.arrays, self._arrays(None), strict=False):
            np.copyto(array, kept)
        training.stop_training = copied.stop
        for name, values in copied.lists.items():
            if name in _LISTS:
                setattr(history, name, values)
            else:
                history.history[name] = values
        for name, values in self._lists().items():
            del values[copied.history.get(name, 0) :]

    def tell(self, session: CoreSession, comm: Communicator) -> None:
        """Tells a new session what the copy says that the training went back to; collective.

        What codecs remembered is kept where it fits the smaller group; else it begins at zero.
        """
        copied = self._copies[-1]
        own = copied.rows_apart
        session.rows_apart = own, float(comm.all_reduce(np.array([own], np.float64))[0])
        remembered = list(session.memory)
        kept = copied.arrays[len(self._arrays(None)) :]
        fits = [array.size for array in kept] == [array.size for array in remembered]
        if comm.all_reduce(np.array([int(fits)]), "min")[0]:
            for array, values in zip(remembered, kept, strict=True):
                np.copyto(array, values)

    def _arrays(self, session: CoreSession | None) -> list[Array]:
        """The memory of what is copied; that of the session at its end."""
        model, optimizer = self._training.model, self._training.optimizer
        arrays: list[Any] = [
            model.flat_parameters,
            model.flat_buffers,
            *optimizer.state_arrays().values(),
        ]
        return arrays if session is None else arrays + list(session.memory)
