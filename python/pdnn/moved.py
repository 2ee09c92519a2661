"""Former names of what users met, kept for one release."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")


def former(name: str, now: str) -> Any:
    """A property under a former name, with a DeprecationWarning."""

    def find(self: Any) -> Any:
        kind = type(self).__name__
        warnings.warn(f"{kind}.{name} is {kind}.{now} now", DeprecationWarning, stacklevel=2)
        return getattr(self, now)

    return property(find, doc=f"Former name of `{now}`.")


def former_argument(name: str, now: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A decorator: the function takes an argument under a former name too, with a DeprecationWarning."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            if name in kwargs:
                warnings.warn(f"{name}= is {now}= now", DeprecationWarning, stacklevel=2)
                kwargs[now] = kwargs.pop(name)
            return function(*args, **kwargs)

        return call

    return decorate


def moved(module: str, **names: str) -> Callable[[str], Any]:
    """A module's `__getattr__` that finds what has moved, with a DeprecationWarning.

    Parameters
    ----------
    module : str
        The module's own name.
    **names : str
        Where each former name is found now: ``legacy_batches="pdnn.exercises.legacy_batches"``.
    """

    def find(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, _, now = names[name].rpartition(".")
        warnings.warn(f"{module}.{name} is {names[name]} now", DeprecationWarning, stacklevel=3)
        return getattr(import_module(place), now)

    return find
