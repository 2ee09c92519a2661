"""Loops by hand that go on when a rank dies, in the style of Horovod's elastic training."""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from pdnn.comm import Communicator, become_world, world
from pdnn.comm.crew import Crew, Deaths, give
from pdnn.ddp.optimizer import DistributedOptimizer, distributed
from pdnn.ddp.ranks import init
from pdnn.nn.module import Module
from pdnn.optim import LRScheduler, Optimizer
from pdnn.optim.groups import GROUP_KEYS
from pdnn.store import Array

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_KEPT = 2  # copies: when a rank dies, another may have made one more than a third


class State:
    """What a loop by hand must not lose: its parts are attributes of this object.

    Parameters
    ----------
    **values
        Models (``nn.Module``), optimizers of `pdnn.optim`, schedules and arrays are copied in place. Of
        everything else, such as numbers and lists, `copy.deepcopy` makes a copy.

    Attributes
    ----------
    commits : int
        Copies made so far; the same on all ranks.
    seconds : float
        What they took.
    nbytes : int
        What this rank keeps of arrays, in both copies.
    failures : int
        How often `elastic` has gone on with fewer ranks.

    Examples
    --------
    >>> state = State(model=model, optimizer=optimizer, epoch=0)
    >>> state.epoch += 1
    >>> state.commit()
    """

    if TYPE_CHECKING:  # what it was given

        def __getattr__(self, name: str) -> Any: ...
        def __setattr__(self, name: str, value: Any) -> None: ...

    def __init__(self, **values: Any) -> None:
        taken = {"commits", "seconds", "nbytes", "failures", "commit", "restore"} & set(values)
        if taken:
            raise ValueError(f"State: {sorted(taken)} are its own; choose other names")
        for value in values.values():
            if isinstance(value, DistributedOptimizer):
                raise TypeError(
                    "State: got a DistributedOptimizer, which belongs to a group of ranks; pass the "
                    "optimizer inside, and make the DistributedOptimizer in the function that is elastic"
                )
        self.commits, self.seconds, self.failures = 0, 0.0, 0
        self._names = list(values)
        self._copies: dict[int, dict[str, Any]] = {}
        for name, value in values.items():
            setattr(self, name, value)

    def commit(self) -> None:
        """Copies everything, to go back to if a rank dies.

        Every rank makes as many, with a call of all ranks, such as a step, between two.
        """
        began = time.perf_counter()
        old = self._copies.pop(self.commits - _KEPT + 1, None)
        copied = self._copied(old or {})
        self.commits += 1
        self._copies[self.commits] = copied
        self.seconds += time.perf_counter() - began

    def _copied(self, old: dict[str, Any]) -> dict[str, Any]:
        """Everything as it is now, in the memory of an older copy."""
        return {name: _copied(getattr(self, name), old.get(name)) for name in self._names}

    def restore(self, commit: int | None = None) -> None:
        """Takes everything back to a commit; the last one unless its number is given.

        Raises
        ------
        ValueError
            If it is not one of the last two.
        """
        number = self.commits if commit is None else commit
        if number not in self._copies:
            raise ValueError(f"restore: commit {number} is not kept; expected one of {sorted(self._copies)}")
        self._take(self._copies[number])
        self.commits = number
        self._copies = {at: kept for at, kept in self._copies.items() if at <= number}

    @property
    def nbytes(self) -> int:
        """What this rank keeps of arrays."""
        return sum(
            array.nbytes for kept in self._copies.values() for part in kept.values() for array in part[0]
        )

    def _take(self, copied: dict[str, Any]) -> None:
        """Makes everything what it was when it was copied; schedules first, which set optimizers' rates."""
        for name in sorted(copied, key=lambda name: not isinstance(getattr(self, name), LRScheduler)):
            setattr(self, name, _restored(getattr(self, name), copied[name]))

    def _go_on(self, comm: Communicator, deaths: Deaths) -> None:
        """Goes back to the last commit that all of these ranks have made; the new ones get it."""
        for name in self._names:
            if isinstance(value := getattr(self, name), Module):
                _release(value)
        self.failures += 1
        fresh = comm.rank in deaths.new
        made = np.array([np.iinfo(np.int64).max if fresh else self.commits])
        number = int(comm.all_reduce(made, "min")[0])
        given = give(comm, deaths.new, lambda: (self.failures, self._copies[number]))
        if given is not None:
            self.failures, self._copies = given[0], {number: given[1]}
        self.restore(number)

    def _hand_on(self, comm: Communicator, waiting: Collection[int]) -> None:
        """Gives the ranks that have waited what the others have made of everything."""
        given = give(comm, waiting, lambda: (self.commits, self.failures, self._copied({})))
        if given is not None:
            self.commits, self.failures, copied = given
            self._take(copied)
            self._copies = {self.commits: copied}


def elastic(
    function: Callable[Concatenate[State, Arguments], Result],
) -> Callable[Concatenate[State, Arguments], Result | None]:
    """A function that the ranks call together, and again with those that are left when a rank dies.

    After a death `pdnn.world` is the group of the ranks that are left, the state is that of the last
    `State.commit` that all of them have made, and the function is called again. So it makes anew what
    depends on the ranks, such as `partition_dataset` and `DistributedOptimizer`, and begins where the state
    says. It is called again, too, on a rank that had ended when another one died before it.

    The last ``pdnn.world().spares`` ranks wait meanwhile; inside, `pdnn.world` is the group of the others.
    One that waited takes the place of one that dies, gets the last commit and calls the function, too. At
    the end those that still wait get the state.

    Parameters
    ----------
    function : callable
        Its first argument is a `State`. Its communication is that of `pdnn.world`, in Python or by
        `pdnn.ddp`.

    Returns
    -------
    callable
        Returns what the function returns; None on a rank that has waited to the end. Raises, beside what the
        function raises, CommunicationError if the job does not survive the death of a rank: it needs Open
        MPI 5 and ``--with-ft ulfm``, as ``pdnn launch --elastic`` starts it. On one rank alone it calls the
        function.

    Examples
    --------
    >>> @ddp.elastic
    ... def train(state, dataset):
    ...     batches, _ = ddp.partition_dataset(dataset, 128)
    ...     optimizer = ddp.DistributedOptimizer(state.optimizer)
    ...     while state.epoch < 10:
    ...         batches.set_epoch(state.epoch)
    ...         for x, y in batches:
    ...             ...
    ...         state.epoch += 1
    ...         state.commit()
    """

    @functools.wraps(function)
    def call(state: State, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result | None:
        if not isinstance(state, State):
            raise TypeError(f"elastic: got {type(state).__name__}, expected a ddp.State as first argument")
        state.commit()
        if world().size == 1:
            init()
            return function(state, *args, **kwargs)

        def work(comm: Communicator) -> Result:
            become_world(comm)
            init()
            return function(state, *args, **kwargs)

        crew = Crew[Result](world(), world().spares)
        try:
            return crew.work(work, state._go_on, state._hand_on)
        finally:
            become_world(crew.comm)

    return call


def _release(model: Module) -> None:
    """Takes off the hooks of the optimizers that sum over a group that is no more."""
    for parameter in model.parameters():
        for optimizer in distributed(parameter.post_hooks):
            optimizer.remove()


def _parts(value: Any) -> tuple[list[Array], Any]:
    """A value as arrays that are its memory, and the rest."""
    if isinstance(value, Module):
        return list(value.state_dict().values()), None
    if isinstance(value, Optimizer):
        groups = [{key: group[key] for key in GROUP_KEYS} for group in value.param_groups]
        return list(value.state_arrays().values()), (value.core.steps, groups)
    if isinstance(value, LRScheduler):
        return [], value.last_epoch
    return ([value], None) if isinstance(value, np.ndarray) else ([], value)


def _kinds(arrays: list[Array]) -> list[tuple[Any, ...]]:
    """What arrays have in common if one can take the other's values."""
    return [(each.shape, each.dtype) for each in arrays]


def _copied(value: Any, old: tuple[list[Array], Any] | None) -> tuple[list[Array], Any]:
    """A copy, in the memory of an older one."""
    arrays, rest = _parts(value)
    fits = old is not None and _kinds(old[0]) == _kinds(arrays)
    copies = old[0] if old is not None and fits else [np.empty_like(array) for array in arrays]
    for copied, array in zip(copies, arrays, strict=True):
        np.copyto(copied, array)
    return copies, copy.deepcopy(rest)


def _restored(value: Any, kept: tuple[list[Array], Any]) -> Any:
    """The value as it was: in place where it has the arrays that it had, or is a schedule."""
    arrays, rest = kept[0], copy.deepcopy(kept[1])
    if not isinstance(value, (Module, Optimizer, LRScheduler)) and _kinds(_parts(value)[0]) != _kinds(arrays):
        return arrays[0].copy() if arrays else rest
    for array, copied in zip(_parts(value)[0], arrays, strict=False):
        np.copyto(array, copied)
    if isinstance(value, Optimizer):
        value.core.steps, groups = rest
        if len(groups) != len(value.param_groups):
            raise ValueError(
                f"restore: the optimizer has {len(value.param_groups)} parameter groups, and had "
                f"{len(groups)} at the commit; add groups before it"
            )
        for group, numbers in zip(value.param_groups, groups, strict=True):
            group.update(numbers)
    elif isinstance(value, LRScheduler):
        value.step_to(rest)
    elif not isinstance(value, (Module, np.ndarray)):
        return rest
    return value
