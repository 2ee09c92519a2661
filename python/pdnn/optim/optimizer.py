"""Optimizer: parameter groups, the core's object that applies a rule to them, and steps by hand."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np

from pdnn.core import CoreOptimizer, Width, core_for
from pdnn.nn.sequential import Sequential
from pdnn.store import Array, Parameter, Store

Params: TypeAlias = Iterable[Parameter] | Iterable[Mapping[str, Any]]

#: What a group may give beside its parameters; the rule's other numbers are the whole optimizer's.
GROUP_KEYS = ("lr", "weight_decay")


class Optimizer:
    """Base of the optimizers: parameter groups, each with its learning rate and weight decay.

    Attributes
    ----------
    param_groups : list of dict
        ``params``, ``lr``, ``weight_decay``; change the numbers at any time between epochs, or steps by hand.
    """

    def __init__(self, params: Params, lr: float, weight_decay: float) -> None:
        self.check_number("lr", lr)
        self.check_number("weight_decay", weight_decay)
        groups = list(params)
        if not groups:
            raise ValueError(f"{type(self).__name__}: there are no parameters")
        if isinstance(groups[0], Parameter):
            groups = [{"params": groups}]
        self.param_groups: list[dict[str, Any]] = []
        for group in groups:
            if not isinstance(group, Mapping):
                raise TypeError(
                    f"{type(self).__name__}: got a {type(group).__name__}, expected Parameters or dicts"
                )
            own = group["params"]
            full = {"lr": lr, "weight_decay": weight_decay, **group}
            full["params"] = [own] if isinstance(own, Parameter) else list(own)
            if unknown := full.keys() - {"params", *GROUP_KEYS}:
                raise ValueError(
                    f"{type(self).__name__}: a parameter group has unknown {sorted(unknown)}; "
                    f"a group may give {' and '.join(GROUP_KEYS)}, other numbers are the whole optimizer's"
                )
            for key in GROUP_KEYS:
                self.check_number(key, full[key])
            self.param_groups.append(full)
        seen = [id(parameter) for parameter in self.parameters()]
        if len(seen) != len(set(seen)):
            raise ValueError(f"{type(self).__name__}: a parameter appears twice")
        self._core: CoreOptimizer | None = None
        self._store: Store | None = None

    def parameters(self) -> Iterator[Parameter]:
        """Those of all groups."""
        for group in self.param_groups:
            yield from group["params"]

    # ---- by hand

    def zero_grad(self) -> None:
        """Sets the gradient of every parameter to zero."""
        for parameter in self.parameters():
            if parameter.store is not None:  # one that belongs to no model yet has none
                parameter.grad[...] = 0

    def step(self) -> None:
        """One update of the parameters from their gradients, `Parameter.grad`.

        Raises
        ------
        ValueError
            If the parameters belong to no model, or to several.
        """
        store = self.store()
        self.bind(store).apply(store.flat_parameters, store.flat_gradients)

    def store(self) -> Store:
        """The memory of the model whose parameters these are.

        Raises
        ------
        ValueError
            If the parameters belong to no model, or to several.
        """
        stores = {id(parameter.store): parameter.store for parameter in self.parameters()}
        store = stores.popitem()[1]
        if stores or store is None:
            raise ValueError(
                f"{type(self).__name__}: its parameters belong to "
                f"{'several models; make an optimizer for each' if stores else 'no model'}"
            )
        return store

    # ---- what it knows, to be kept or sent

    def state_dict(self) -> dict[str, Any]:
        """All that goes on from step to step, as copies.

        Returns
        -------
        dict
            ``"steps"``, the number of steps made; ``"param_groups"``, the groups' numbers; ``"state"``, names
            to flat arrays in the order of the model's parameters: what the rule remembers.
        """
        store = self.store()
        return {
            "steps": self.bind(store).steps,
            "param_groups": [_numbers(group) for group in self.param_groups],
            "state": {name: values.copy() for name, values in self.state_arrays(store).items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state_dict` gave; nothing changes unless all of it fits.

        Raises
        ------
        ValueError
            If it is another rule's, or of a model of another size.
        """
        store, groups = self.store(), state["param_groups"]
        own = self.state_arrays(store)
        expected = {name: values.shape for name, values in own.items()}
        given = {name: np.shape(values) for name, values in state["state"].items()}
        if given != expected or len(groups) != len(self.param_groups):
            raise ValueError(
                f"{type(self).__name__}.load_state_dict: got {given} and {len(groups)} parameter groups, "
                f"expected {expected} and {len(self.param_groups)}"
            )
        for group, numbers in zip(self.param_groups, groups, strict=True):
            group.update(numbers)
        for name, values in own.items():
            values[...] = state["state"][name]
        self.bind(store).steps = state["steps"]

    # ---- the core's side

    def make(self, core: Width, count: int) -> CoreOptimizer:
        """This rule as an object of the C++ core, for `count` parameters."""
        raise NotImplementedError

    def bind(self, model: Sequential | Store) -> CoreOptimizer:
        """The core's optimizer for this model, with the groups as they are now.

        Parameters
        ----------
        model : nn.Sequential, or the Store of any model's parameters

        Raises
        ------
        ValueError
            If a parameter is not the model's, or the optimizer served another model before.
        """
        handles = list(model.parameters())
        store = handles[0].store if handles else None
        if self._core is None:
            self._core, self._store = self.make(core_for(model.dtype), model.flat_parameters.size), store
        elif self._store is not store:
            raise ValueError(f"{type(self).__name__}: it belongs to another model; make one for each")
        number_of = {
            id(parameter): number
            for number, group in enumerate(self.param_groups)
            for parameter in group["params"]
        }
        if stray := number_of.keys() - {id(handle) for handle in handles}:
            raise ValueError(f"{type(self).__name__}: {len(stray)} of its parameters are not this model's")
        segments, end = [], 0
        for handle in handles:
            end += handle.size
            number = number_of.get(id(handle))
            if number is None:
                segments.append((end, 0.0, 0.0, True, 0))
            else:
                group = self.param_groups[number]
                segments.append((end, float(group["lr"]), float(group["weight_decay"]), False, number))
        self._core.set_segments(segments)
        return self._core

    def twin(self, params: Iterable[Parameter]) -> Optimizer:
        """The same rule, with the numbers of the first group, for all parameters of another model."""
        other = copy.copy(self)
        other._core = other._store = None
        other.param_groups = [{**self.param_groups[0], "params": list(params)}]
        return other

    def state_arrays(self, model: Sequential | Store) -> dict[str, Array]:
        """What the rule remembers between steps, by name: arrays that share its memory."""
        return dict(zip(self.memory_names(), self.bind(model).memory, strict=True))

    def memory_names(self) -> list[str]:
        """Names of `state_arrays`."""
        return []

    def config(self) -> dict[str, Any]:
        """The rule's own settings, by which a checkpoint recognises it."""
        return {"type": type(self).__name__}

    def check_number(self, name: str, value: float) -> None:
        """Raises ValueError unless the value is finite and at least 0."""
        if not 0 <= value < float("inf"):
            raise ValueError(f"{type(self).__name__}: {name} = {value}; expected a number from 0")

    def check_share(self, name: str, value: float) -> None:
        """Raises ValueError unless the value lies in [0, 1)."""
        if not 0 <= value < 1:
            raise ValueError(f"{type(self).__name__}: {name} = {value}; expected a number in [0, 1)")


def _numbers(group: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter group without its parameters."""
    return {key: value for key, value in group.items() if key != "params"}
