"""ModuleList: modules in a list."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pdnn.checks import kind_of, several
from pdnn.nn.module import Module


class ModuleList(Module):
    """Modules in a list; their parameters belong to the module that has the list. It has no forward.

    Parameters
    ----------
    modules : iterable of Module

    Raises
    ------
    TypeError
        If one is not a Module, or it gets no list of them.
    """

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        super().__init__()
        self._list: list[Module] = []
        for module in several(self, "modules", modules, "a list of Modules"):
            self.append(module)

    def append(self, module: Module) -> ModuleList:
        """Adds one at the end; returns self."""
        if not isinstance(module, Module):
            raise TypeError(f"ModuleList: got {kind_of(module)}, expected an nn.Module")
        if self._place is not None:
            raise ValueError("ModuleList: the model's parameters are gathered already; append before")
        self._list.append(module)
        return self

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """Pairs ("0", module), ("1", module), and so on."""
        return ((str(index), module) for index, module in enumerate(self._list))

    def __len__(self) -> int:
        return len(self._list)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._list)

    def __getitem__(self, index: int) -> Any:  # the program knows which
        return self._list[index]
