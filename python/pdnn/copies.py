"""Copies: what a rank keeps in memory of a training, so that the ranks can go back when one of them dies."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from pdnn._core import CommunicationError
from pdnn.comm import Communicator, ranks_may_die
from pdnn.core import CoreSession
from pdnn.store import Array
from pdnn.training import Position, Training

EVERY = 100
"""Steps from one copy to the next, unless `fit` is told."""

_KEPT = 2  # when a rank dies, another may have made one copy more than a third
_LISTS = ("phases", "updates", "compression", "ranks")


@dataclass
class _Copy:
    """A training after one of its steps; `counts`: the session's `rows_apart`, the optimizer's steps."""

    step: int
    epoch: int
    position: Position | None
    time: int  # of the schedule
    counts: tuple[int, int, int]
    arrays: list[Array]
    history: dict[str, int]  # lengths of its lists
    stop: bool  # a callback's wish


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
        If the strategy needs all of its ranks.
    CommunicationError
        If copies are wanted, and the death of a rank would end the job nevertheless.
    """
    comm, strategy = training.comm, training.strategy
    if wanted == 0 or comm.size == 1 or (wanted is None and not ranks_may_die(comm)):
        return 0
    if not strategy.survives:
        raise ValueError(
            f'fit: strategy "{strategy}" needs all of its ranks, so it cannot go on when one dies; use '
            '"ddp" or "average:T", or pass elastic=0'
        )
    comm.agree(True)  # or says what is needed
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
        took = f"{self.count} copies took {self.seconds:.3f} s in all"
        times = f"{self.failures} time{'s'[: self.failures != 1]}"
        return f"{took}, the last two need {self.nbytes / 1e6:.1f} MB; went back {times}"

    @property
    def nbytes(self) -> int:
        """What those that are kept need."""
        return sum(array.nbytes for each in self._copies for array in each.arrays)

    def take(self, session: CoreSession) -> None:
        """Copies the training, between two of its steps, which are the same on all ranks."""
        began = time.perf_counter()
        training = self._training
        own, everyones = session.rows_apart
        live = self._arrays(session)
        room = self._copies.pop(0).arrays if len(self._copies) == _KEPT else []
        if [array.size for array in room] != [array.size for array in live]:
            room = [np.empty_like(array) for array in live]
        for kept, array in zip(room, live, strict=True):
            np.copyto(kept, array)
        lists = {name: getattr(training.history, name) for name in _LISTS} | training.history.history
        copied = _Copy(
            training.step,
            training.epoch,
            training.position,
            0 if training.schedule is None else training.schedule.last_epoch,
            (own, everyones, training.optimizer.core.steps),
            room,
            {name: len(values) for name, values in lists.items()},
            training.stop_training,
        )
        self._copies.append(copied)
        self.count += 1
        self.seconds += time.perf_counter() - began

    def go_back(self, comm: Communicator) -> None:
        """Takes the training back to the last step of which all ranks have a copy; collective.

        Raises
        ------
        CommunicationError
            If there is none.
        """
        wanted = int(comm.all_reduce(np.array([self._copies[-1].step]), "min")[0])
        copied = next((each for each in self._copies if each.step == wanted), None)
        if not comm.agree(copied is not None) or copied is None:
            raise CommunicationError("fit: the ranks that are left have no copy of the same step")
        self._copies = [each for each in self._copies if each.step <= wanted]
        self.failures += 1
        training, history = self._training, self._training.history
        training.step, training.epoch, training.position = copied.step, copied.epoch, copied.position
        for kept, array in zip(copied.arrays, self._arrays(None), strict=False):
            np.copyto(array, kept)
        training.optimizer.core.steps = copied.counts[2]
        training.stop_training = copied.stop
        if training.schedule is not None:
            training.schedule.step_to(copied.time)
        lists = {name: getattr(history, name) for name in _LISTS} | history.history
        for name, values in lists.items():
            del values[copied.history.get(name, 0) :]

    def tell(self, session: CoreSession, comm: Communicator) -> None:
        """Tells a new session what the copy says that the training went back to; collective.

        What codecs remembered is kept where it fits the smaller group; else it begins at zero.
        """
        copied = self._copies[-1]
        own = copied.counts[0]
        session.rows_apart = own, int(comm.all_reduce(np.array([own]))[0])
        remembered = list(session.memory)
        kept = copied.arrays[len(self._arrays(None)) :]
        if comm.agree([array.size for array in kept] == [array.size for array in remembered]):
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
