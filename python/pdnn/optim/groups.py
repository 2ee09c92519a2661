"""ParameterGroups: the parameters of an optimizer, in groups with numbers of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any, TypeAlias

from pdnn.checks import kind_of, number
from pdnn.store import Parameter

Params: TypeAlias = Iterable[Parameter | Mapping[str, Any]]

#: What a group may give beside its parameters; the rule's other numbers are the whole optimizer's.
GROUP_KEYS = ("lr", "weight_decay")

PARAMS = "only Parameters, as model.parameters() has them, or only dicts"


class ParameterGroups:
    """Base of `Optimizer`: groups of parameters, each with its learning rate and weight decay."""

    def __init__(self, params: Params, lr: float, weight_decay: float) -> None:
        self.checked_number("lr", lr)
        self.checked_number("weight_decay", weight_decay)
        name = type(self).__name__
        if not isinstance(params, Iterable):
            raise TypeError(f"{name}: params is of type {kind_of(params)}, expected {PARAMS}")
        groups = list(params)
        if groups and isinstance(groups[0], Parameter):
            groups = [{"params": groups}]
        self.param_groups: list[dict[str, Any]] = []
        for group in groups:
            if not isinstance(group, Mapping):
                raise TypeError(f"{name}: got {kind_of(group)}, expected {PARAMS}")
            full = {"lr": lr, "weight_decay": weight_decay, **group, "params": self._parameters_of(group)}
            self._check_group(full)
            self.param_groups.append(full)
        if not self._groups_by_parameter():
            raise ValueError(f"{name}: there are no parameters")

    def _parameters_of(self, group: Mapping[str, Any]) -> list[Parameter]:
        """A group's parameters; raises ValueError if it has none, TypeError if one is none."""
        if "params" not in group:
            raise ValueError(f'{type(self).__name__}: a parameter group has {sorted(group)}, and no "params"')
        params = group["params"]
        found = list(params) if isinstance(params, Iterable) else [params]
        for each in found:
            if not isinstance(each, Parameter):
                kind = kind_of(each)
                raise TypeError(
                    f"{type(self).__name__}: got {kind} in a parameter group, expected Parameters"
                )
        return found

    def _check_group(self, group: Mapping[str, Any]) -> None:
        """Raises TypeError or ValueError unless a group has its numbers, and no others."""
        if unknown := group.keys() - {"params", "initial_lr", *GROUP_KEYS}:
            raise ValueError(
                f"{type(self).__name__}: a parameter group has unknown {sorted(unknown)}; "
                f"a group may give {' and '.join(GROUP_KEYS)}, other numbers are the whole optimizer's"
            )
        for key in GROUP_KEYS:
            by_schedule = key == "lr" and "initial_lr" in group
            self.checked_number("lr that a schedule has set" if by_schedule else key, group.get(key))

    def parameters(self) -> Iterator[Parameter]:
        """Those of all groups."""
        self.list_parameters()
        for group in self.param_groups:
            yield from group["params"]

    def list_parameters(self) -> None:
        """Makes lists of what appended groups have: an iterator would be empty the second time."""
        for group in self.param_groups:
            if type(group.get("params")) is not list:
                group["params"] = self._parameters_of(group)

    def names_of_groups(self) -> list[list[str]]:
        """The names of each group's parameters, in the order of the model."""
        self.list_parameters()
        ordered = (sorted(group["params"], key=lambda own: own.offset) for group in self.param_groups)
        return [[own.name for own in group] for group in ordered]

    def _groups_by_parameter(self) -> dict[Parameter, int]:
        """The number of each parameter's group; raises ValueError if one is in two."""
        pairs = [(own, number) for number, group in enumerate(self.param_groups) for own in group["params"]]
        if len(found := dict(pairs)) != len(pairs):
            raise ValueError(f"{type(self).__name__}: a parameter appears twice")
        return found

    def checked_number(self, name: str, value: Any) -> float:
        """The value; raises ValueError unless it is finite and at least 0, TypeError if it is no number."""
        return number(self, name, value, "a number from 0", lambda found: 0 <= found < inf)
