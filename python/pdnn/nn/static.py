"""What has a static form: whether the core builds and runs a module, or Python does."""

from __future__ import annotations

from typing import Any, TypeVar

M = TypeVar("M", bound=Any)  # a Module


def builds(module: Any) -> bool:
    """Whether the core can build the module, and all inside it."""
    return _has_build(module) and all(map(builds, module.children()))


def runs_in_python(module: M) -> M | None:
    """The first module, this one or inside it, whose `forward` or call is Python's and not the core's."""
    own_call = min(_bases(name, module)[0] for name in ("forward", "__call__"))
    if own_call < _bases("build", module)[0] or not _has_build(module):
        return module
    return next(filter(None, map(runs_in_python, module.children())), None)


def _has_build(module: Any) -> bool:
    return len(_bases("build", module)) > 1  # Module has one for those that have none


def _bases(method: str, module: Any) -> list[int]:
    """Which of the module's classes, from its own on, define a method."""
    return [index for index, base in enumerate(type(module).__mro__) if method in vars(base)]
