"""Whether operations are recorded for a backward pass, and how not to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ContextDecorator
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, TypeVar

from pdnn import _core

F = TypeVar("F", bound=Callable[..., Any])

recording = _core.recording
"""Whether operations are recorded, which `no_grad` turns off."""


class no_grad(ContextDecorator, _core.Pause):
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
        _core.Pause.__init__(self)

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
