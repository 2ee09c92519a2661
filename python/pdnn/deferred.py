"""Names of a package whose modules are imported when they are first asked for."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


def deferred(
    package: str, names: Mapping[str, Sequence[str]], otherwise: Callable[[str], Any] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """A package's `__getattr__` and `__dir__`; the latter offers these names and `__all__` to completion.

    A package defines them ``if not TYPE_CHECKING``: for a type checker `__getattr__` would have every name.

    Parameters
    ----------
    package : str
        The package's own name.
    names : mapping
        Of each module in it, the names that are found there; none where the module itself is the name:
        ``{"lbfgs": ["LBFGS"], "codec": []}``.
    otherwise : callable, optional
        A `__getattr__` for all other names, as `moved` makes.
    """
    modules = {name: module for module, found in names.items() for name in found or [module]}

    def find(name: str) -> Any:
        if name in modules:
            module = import_module(f"{package}.{modules[name]}")
            return getattr(module, name) if names[modules[name]] else module
        if otherwise is not None:
            return otherwise(name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    def names_of_it() -> list[str]:
        own = vars(sys.modules[package])
        return sorted({*own, *own["__all__"]})

    return find, names_of_it
