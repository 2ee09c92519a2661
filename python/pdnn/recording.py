"""Whether operations are recorded for a backward pass, and how not to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from contextvars import ContextVar
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, TypeVar

_paused: ContextVar[tuple[no_grad, ...]] = ContextVar("pdnn_paused", default=())  # those that are entered

F = TypeVar("F", bound=Callable[..., Any])


class no_grad(ContextDecorator):
    """Within it, or in a function decorated with it, no graph is recorded: for evaluation.

    Raises
    ------
    TypeError
        If it decorates a generator or coroutine function, whose body runs later; or without brackets.

    Examples
    --------
    >>> with pdnn.no_grad():
    ...     outputs = net(x)
    """

    def __init__(self, func: None = None) -> None:
        if func is not None:
            raise TypeError("no_grad: write @no_grad(), with brackets, to decorate a function")

    def __enter__(self) -> no_grad:
        try:
            _paused.set((*_paused.get(), self))
        except BaseException:  # Ctrl-C: what is within is not begun, so there is no end of it
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        entered = list(_paused.get())
        if self in entered:  # not what a generator entered in another thread, and leaves in this one
            entered.remove(self)
            _paused.set(tuple(entered))

    def __call__(self, func: F) -> F:
        """The function, decorated."""
        if any(kind(func) for kind in (isgeneratorfunction, iscoroutinefunction, isasyncgenfunction)):
            raise TypeError(
                f"no_grad: {func} is a generator or coroutine function, whose body runs after the call; "
                'write "with no_grad():" around calls of the model in it'
            )
        return super().__call__(func)

    def _recreate_cm(self) -> no_grad:
        return no_grad()  # a decorated function may be called by several threads


def recording() -> bool:
    """Whether operations are recorded, which `no_grad` turns off."""
    return not _paused.get()
