"""Collective operations that a program brings along, in place of the communicators' own."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import Any

from pdnn import _core
from pdnn.comm.agree import Array
from pdnn.comm.communicator import Communicator

AllReduce = Callable[[Communicator, Array], Any]

OPERATIONS = ("all_reduce",)

INHERITED: ContextVar[Registration | None] = ContextVar("pdnn_all_reduce", default=None)
"""What ranks that start as threads from here use from their beginning."""


class Registration:
    """A function in use, from `register` to `remove`, or to the end of a ``with`` block.

    Parameters
    ----------
    function : callable
    name : str
    """

    def __init__(self, function: AllReduce, name: str) -> None:
        self.function, self.name = function, name
        self._groups: list[_core.Communicator] = []
        self._removed = False

    def use(self, comm: Communicator) -> None:
        """A communicator, and those split off it later, use the function from now on."""
        comm.core.use_all_reduce(self.name, self)
        self._groups.append(comm.core)

    def __call__(self, core: _core.Communicator, array: Array) -> None:
        """Adds up an array over the ranks, in place."""
        if self._removed:  # of a group that was split off meanwhile
            core.start_all_reduce(array, array, _core.Op.sum).wait()
            return
        result = self.function(Communicator(core), array)
        if result is not None and result is not array:
            raise TypeError(
                f'all_reduce "{self.name}" returned {type(result).__name__}; it must fill the array that '
                "it was given, as in array[:] = total, and return None or that array"
            )

    def remove(self) -> None:
        """The communicators use their own operation again; a second time does nothing."""
        self._removed = True
        for core in self._groups:
            core.use_own_all_reduce()
        self._groups.clear()
        if INHERITED.get() is self:
            INHERITED.set(None)

    def __enter__(self) -> Registration:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.remove()


def registered(comm: Communicator, operation: str, function: AllReduce, name: str | None) -> Registration:
    """`pdnn.comm.register` for one communicator."""
    if operation not in OPERATIONS:
        raise ValueError(f'register: operation "{operation}"; expected {", ".join(OPERATIONS)}')
    if not callable(function):
        raise TypeError(
            f"register: got {type(function).__name__}, expected a function of (communicator, array)"
        )
    if comm.core.all_reduce_name is not None:
        raise ValueError(
            f'register: all_reduce is "{comm.core.all_reduce_name}" already; remove() that registration first'
        )
    own_name: str = getattr(function, "__name__", type(function).__name__)
    registration = Registration(function, name or own_name)
    registration.use(comm)
    return registration
