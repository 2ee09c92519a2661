"""Place: where the values of a module are in the memory of a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pdnn.nn.eager import Runner
from pdnn.store import Store


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
    inside : tuple of Module
        The module and all inside it.
    runners : dict
        The module as eager calls run it, for each width met.
    """

    store: Store
    span: slice | None
    buffers: slice | None
    fused: bool
    inside: tuple[Any, ...]
    runners: dict[str, Runner] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether the module's values are contiguous."""
        return self.span is not None and self.buffers is not None
