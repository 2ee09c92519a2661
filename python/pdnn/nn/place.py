"""Place: where the values of a module are in the memory of a model."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import RLock
from typing import Any

import numpy as np

from pdnn.nn.eager import Runner
from pdnn.nn.static import has_build
from pdnn.store import Array, Handle, Parameter, Store

_CONTAINERS = (list, tuple, dict, set, frozenset)

GATHERING = RLock()
"""Held while a model gathers its parameters: of threads that first use it at once, one does it."""
os.register_at_fork(  # a forked process has no model that is half gathered
    before=GATHERING.acquire, after_in_parent=GATHERING.release, after_in_child=GATHERING.release
)


@dataclass
class Place:
    """The memory of a module's parameters and buffers, once they are gathered.

    Attributes
    ----------
    store : Store
        The memory of the outermost module.
    span, buffers : slice or None
        The module's part of the parameters and of the buffers; None if another module's lie between its own.
    fused : bool
        Whether the core can run the module, with all inside it, as one layer.
    owner : str
        What the module is: the name of its class.
    inside : list of Module
        All inside it.
    runners : dict
        The module as eager calls run it, for each width met.
    """

    store: Store
    span: slice | None
    buffers: slice | None
    fused: bool
    owner: str
    inside: list[Any]
    runners: dict[str, Runner] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether the module's values are contiguous."""
        return self.span is not None and self.buffers is not None

    def flat(self, which: str) -> Array:
        """The module's part of one of the store's arrays, by its name there.

        Raises
        ------
        ValueError
            If another module's values lie between its own.
        """
        part: Array = getattr(self.store, which)[self._together(which == "flat_buffers")]
        return part

    def split(self, flat: Array, named: Mapping[str, Parameter]) -> dict[str, Array]:
        """The parameters' parts of an array that is as long as the module's part of the store.

        Raises
        ------
        TypeError
            If it is no array.
        ValueError
            If it has another shape, or another module's values lie between the module's own.
        """
        span = self._together(buffers=False)
        if not isinstance(flat, np.ndarray):
            raise TypeError(f"split: got {type(flat).__name__}, expected a NumPy array")
        if flat.shape != (span.stop - span.start,):
            raise ValueError(
                f"split: got shape {flat.shape}, expected {(span.stop - span.start,)}, an element for each "
                f"parameter of this {self.owner}"
            )
        return {
            name: flat[own.offset - span.start :][: own.size].reshape(own.shape)
            for name, own in named.items()
        }

    def _together(self, buffers: bool) -> slice:
        span = self.buffers if buffers else self.span
        if span is None:
            raise ValueError(
                f"{self.owner}: its parameters do not lie together, another module uses some of them"
            )
        return span


_DELETED = object()


def check_change(module: Any, name: str, value: Any = _DELETED) -> None:
    """Raises TypeError or ValueError if an attribute may not be assigned this value, or not be deleted."""
    where, before = f"{type(module).__name__}.{name}", vars(module).get(name)
    if name in ("build", "config") and has_build(module):
        raise TypeError(f"{where}: every layer has a method of this name; choose another one")
    if isinstance(before, Handle) and not isinstance(value, Handle) and value is not _DELETED:
        raise TypeError(
            f"{where}: got {type(value).__name__}, expected a Parameter or Buffer; "
            f"to change its values, call parameters() of the whole model, and write {name}.data = …"
        )
    if module._place is None:
        return
    for part in (value, before):
        if isinstance(part, Handle) or (hasattr(part, "_named") and part._named(Handle)):
            raise ValueError(
                f"{where}: the model's parameters are gathered already, at its first call or use of its "
                "parameters; assign all parts before"
            )
    if name != "training" and name[0] != "_" and name in type(module).config(module):
        raise ValueError(
            f"{where}: it is fixed since the model's first call or use of its parameters; "
            "change it in a copy.deepcopy of the whole model, or sizes in a new layer"
        )


def _held(value: Any, depth: int = 8) -> Iterator[Any]:
    """What is in a list, tuple, dict or set, and in those inside it."""
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, _CONTAINERS) and depth > 0:
            yield from _held(part, depth - 1)
        else:
            yield part


def check_containers(modules: Sequence[object], kind: type) -> None:
    """Raises TypeError if one has others in a list, tuple, dict or set, where they are no parts of it."""
    inside = {id(module) for module in modules}

    def is_stray(part: Any) -> bool:  # it, or one inside it, that learns or drops, as a user's own may
        return any(
            id(each) not in inside
            and (
                not type(each).__module__.startswith("pdnn.")
                or hasattr(each, "p")
                or any(isinstance(own, Handle) for own in vars(each).values())
            )
            for each in part.modules()
        )

    for module in modules:
        for name, value in tuple(vars(module).items()):
            if isinstance(value, _CONTAINERS) and any(
                isinstance(part, kind) and is_stray(part) for part in _held(value)
            ):
                raise TypeError(
                    f"{type(module).__name__}.{name}: modules in a {type(value).__name__} are no parts of a "
                    "model; put them into an nn.ModuleList, or make each an attribute"
                )
