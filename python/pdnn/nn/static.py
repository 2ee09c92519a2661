"""What has a static form: whether the core builds and runs a module, or Python does."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

M = TypeVar("M", bound=Any)  # a Module


def builds(module: Any) -> bool:
    """Whether the core can build the module, and all inside it."""
    return has_build(module) and all(map(builds, module.children()))


def runs_in_python(module: M) -> M | None:
    """The first module, this one or inside it, whose `forward` or call is Python's and not the core's."""
    own_call = min(_bases(name, module)[0] for name in ("forward", "__call__"))
    if own_call < _bases("build", module)[0] or not has_build(module):
        return module
    return next(filter(None, map(runs_in_python, module.children())), None)


def can_be_named(module: Any) -> bool:
    """Whether the classes' names, of this module and all inside it, tell a file's reader what to build."""
    kind, layers = type(module), sys.modules[__package__]
    own = getattr(layers, kind.__name__, None) is kind or isinstance(module, layers.CustomLayer)
    return own and all(map(can_be_named, module.children()))


def why_other_parameters(module: Any) -> str:
    """Why the core has other parameters than the layers, and what to do."""
    if _repeats(module, set()):
        return (
            "a layer with parameters is inside it twice, and the core would take it for two; "
            "build one for each place, or call the one twice in a forward of your own"
        )
    return "a layer's sizes were changed after it was made; make a new layer instead"


def _repeats(module: Any, seen: set[int]) -> bool:
    """Whether a module is inside this one in two places, or was seen before."""
    if id(module) in seen:
        return True
    seen.add(id(module))
    return any(_repeats(child, seen) for child in module.children())


def has_build(module: Any) -> bool:
    """Whether its class says what the core has for it."""
    return len(_bases("build", module)) > 1  # Module has one for those that have none


def _bases(method: str, module: Any) -> list[int]:
    """Which of the module's classes, from its own on, define a method."""
    return [index for index, base in enumerate(type(module).__mro__) if method in vars(base)]
