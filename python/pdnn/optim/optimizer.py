"""Optimizer: parameter groups, the core's object that applies a rule to them, and steps by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from pdnn.advice import OPTIMIZER, Advising
from pdnn.checks import integer
from pdnn.core import CoreOptimizer, core_for
from pdnn.nn.loss import Loss
from pdnn.nn.sequential import Sequential
from pdnn.nn.state_dict import cast, check_mapping
from pdnn.optim.groups import GROUP_KEYS, ParameterGroups, Params
from pdnn.optim.stepper import Stepper
from pdnn.store import Array, Parameter, Store


class Optimizer(Advising, ParameterGroups):
    """Base of the optimizers: parameter groups, each with its learning rate and weight decay.

    Copy or pickle it together with its model, as in ``copy.deepcopy((model, optimizer))``: the copy is of the
    copied model, and goes on with its state once that has gathered its parameters.

    Attributes
    ----------
    param_groups : list of dict
        ``params``, ``lr``, ``weight_decay``; change the numbers at any time between epochs, or steps by hand.
    """

    advice = OPTIMIZER
    needs_closure: ClassVar[bool] = False
    """Whether a step evaluates its batch several times, by a function that it is given."""

    needs_rows: ClassVar[bool] = False
    """Whether a step needs the rows of its batch: it is a `SecondOrder`."""

    fixed: ClassVar[tuple[str, ...]] = ()
    """Its attributes that belong to the rule, which the core gets once."""

    _stepper: Stepper | None = None

    def __init__(self, params: Params, lr: float, weight_decay: float = 0.0) -> None:
        super().__init__(params, lr, weight_decay)
        self._core: CoreOptimizer | None = None  # the core's optimizer, of all parameters in _store
        self._store: Store | None = None
        self._synced: list[list[Any]] = []  # the groups that it knows
        self._carried: dict[str, Any] | None = None  # a copy's `state_dict` until its model has memory

    def __repr__(self) -> str:
        own = [f"{name}={getattr(self, name)!r}" for name in self.config() if name != "type"]
        groups = []
        for group in self.param_groups:
            params = group.get("params")
            count = f"{len(params)} " if isinstance(params, (list, tuple)) else ""
            numbers = f"lr={group.get('lr')!r}, weight_decay={group.get('weight_decay')!r}"
            groups.append(f"{numbers} of {count}parameters")
        return f"{type(self).__name__}({', '.join([*own, '; '.join(groups)])})"

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.fixed and name in vars(self):
            kind = type(self).__name__
            raise AttributeError(f"{kind}: {name} is fixed; make a new {kind}, which can load_state_dict")
        if name in GROUP_KEYS:
            raise AttributeError(
                f'{type(self).__name__}: {name} is its groups\'; set param_groups[0]["{name}"], and so on'
            )
        super().__setattr__(name, value)

    # ---- by hand

    def zero_grad(self) -> None:
        """Sets the gradient of every parameter to zero."""
        parameters = sorted(self.parameters(), key=_place)
        store = parameters[0].store if parameters else None
        if store is not None and (together := store.find(parameters)) is not None:  # one array
            store.flat_gradients[together] = 0
            return
        for parameter in parameters:
            if parameter.store is not None:  # one that belongs to no model yet has none
                parameter.grad[...] = 0

    def step(self) -> None:
        """One update of the parameters from their gradients, `Parameter.grad`.

        Raises
        ------
        ValueError
            If the parameters belong to no model, or to several.
        """
        self.sync_groups()
        assert self._core is not None
        assert self._store is not None
        if self._store.fits.thread:
            self._store.fits.check("step")
        self._core.apply(self._store.flat_parameters, self._store.flat_gradients)

    def stepper(self, model: Sequential, criterion: Loss) -> Stepper:
        """What `Sequential.step` calls for this model and criterion; the last one is kept.

        Raises
        ------
        TypeError, ValueError
            As `Sequential.step`.
        """
        kept = self._stepper
        if kept is None or kept.model is not model or kept.criterion is not criterion:
            self.check_own_step("step")
            with model.place().store.turn():
                kept = self._stepper = Stepper(model, criterion, self)
        return kept

    def check_own_step(self, where: str) -> None:
        """Raises TypeError if a subclass outside pdnn has its own `step`, which the core does not call."""
        if not type(self).step.__module__.startswith("pdnn."):
            raise TypeError(
                f"{where}: {type(self).__name__} has a step of its own, which the core does not call; write "
                "the loop by hand"
            )

    def store(self) -> Store:
        """The memory of the model whose parameters these are.

        Raises
        ------
        ValueError
            If there are none, or they belong to no model, or to several.
        """
        stores = {id(parameter.store): parameter.store for parameter in self.parameters()}
        if not stores:
            raise ValueError(f"{type(self).__name__}: there are no parameters in its groups")
        store = stores.popitem()[1]
        if stores:
            raise ValueError(
                f"{type(self).__name__}: its parameters belong to several models; make an optimizer for each"
            )
        if store is None:
            raise ValueError(
                f"{type(self).__name__}: its parameters belong to no model yet; a model gathers them when it "
                "is first called or asked for its parameters()"
            )
        return store

    # ---- what it knows, to be kept or sent

    def state_dict(self) -> dict[str, Any]:
        """Copies of everything that a step needs from earlier steps.

        Returns
        -------
        dict
            ``"steps"``, the number of steps made; ``"param_groups"``, the groups' numbers; ``"state"``, names
            to flat arrays in the order of the model's parameters: the state of the rule.
        """
        return {
            "steps": self.core.steps,
            "param_groups": [_numbers(group) for group in self.param_groups],
            "state": {name: values.copy() for name, values in self.state_arrays().items()},
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what `state_dict` returned; if a part does not fit, nothing changes.

        Raises
        ------
        TypeError, ValueError
            If it is no mapping, a name is missing, a number is none, or its arrays have other names or
            shapes, as those of most other rules and of models of another size.
        """
        where = f"{type(self).__name__}.load_state_dict"
        check_mapping(where, state)
        self.store().fits.check(where)
        if missing := {"steps", "param_groups", "state"} - state.keys():
            raise ValueError(f"{where}: missing {sorted(missing)}")
        check_mapping(f"{where}: state", state["state"])
        own, groups = self.state_arrays(), state["param_groups"]
        if not isinstance(groups, Sequence):
            raise TypeError(f"{where}: param_groups is {groups!r}, expected a list of dicts")
        expected = {name: values.shape for name, values in own.items()}
        given = {name: np.shape(values) for name, values in state["state"].items()}
        if given != expected or len(groups) != len(self.param_groups):
            raise ValueError(
                f"{where}: got {given} and {len(groups)} parameter groups, "
                f"expected {expected} and {len(self.param_groups)}"
            )
        self._check_groups(where, groups)
        steps = integer(where, "steps", state["steps"], 0)
        arrays = cast(where, state["state"], own)
        for group, numbers in zip(self.param_groups, groups, strict=True):
            group.update(_numbers(numbers))
        for name, values in own.items():
            values[...] = arrays[name]
        self.core.steps = steps

    def _check_groups(self, where: str, groups: Sequence[Mapping[str, Any]]) -> None:
        """Raises TypeError or ValueError unless they have the names of these groups, and numbers from 0."""
        for index, (group, numbers) in enumerate(zip(self.param_groups, groups, strict=True)):
            names, known = (set(each) - {"params", "initial_lr"} for each in (numbers, group))
            if names != known:
                raise ValueError(
                    f"{where}: parameter group {index} has {sorted(names)}, expected {sorted(known)}"
                )
            self._check_group(numbers)

    # ---- the core's side

    def rule(self) -> Any:
        """The rule with its numbers, as the core has it.

        Raises
        ------
        TypeError
            If it is a subclass of none of pdnn's rules.
        """
        raise TypeError(
            f"{type(self).__name__}: the core has no such rule; subclass one that it has, such as optim.SGD"
        )

    def core_numbers(self, group: dict[str, Any]) -> tuple[float, float]:
        """Learning rate and weight decay of a group, as the core is to know them."""
        return float(group["lr"]), float(group["weight_decay"])

    @property
    def core(self) -> CoreOptimizer:
        """The core's optimizer, made once: for the model of `attach`, else for all of `store`'s parameters.

        Raises
        ------
        ValueError
            If the parameters belong to no model, or to several.
        """
        if self._core is None:
            self.attach(self.store())
        assert self._core is not None
        return self._core

    def attach(self, model: Sequential | Store) -> None:
        """Makes the core's optimizer for this model, or checks that it was made for it.

        Parameters
        ----------
        model : nn.Sequential, or the Store of any model's parameters

        Raises
        ------
        ValueError
            If a parameter is not the model's, or the optimizer served another model before.
        """
        handles = list(model.parameters())
        if stray := {id(own) for own in self.parameters()} - {id(handle) for handle in handles}:
            raise ValueError(
                f"{type(self).__name__}: {len(stray)} of its parameters are not this model's; "
                "make the optimizer anew, of this model.parameters()"
            )
        store = handles[0].store
        assert store is not None
        with store.turn():  # as other threads may make their first step
            if self._core is None:
                core = core_for(model.dtype).Optimizer(model.flat_parameters.size, self.rule())
                self._store, self._core = store, core  # other threads look at the latter
                try:
                    self._make_state(model.flat_parameters)
                    if self._carried is not None:
                        numbers = [_numbers(group) for group in self.param_groups]
                        self.load_state_dict(self._carried | {"param_groups": numbers})
                except BaseException:  # it is the copy of another model, or Ctrl-C: the next step begins anew
                    self._core = None
                    raise
                self._carried = None
            elif self._store is not store:
                raise self._elsewhere()
            self.sync_groups()

    def sync_groups(self) -> None:
        """Tells the core of parameter groups that changed; steps and a Trainer's epochs begin with it.

        Raises
        ------
        TypeError, ValueError
            If the parameters belong to no model, to several, or to another one than before, or a group's
            number is none from 0, or none that a group has.
        """
        self.list_parameters()
        core, store = self.core, self._store
        groups = [
            [group.get("lr"), group.get("weight_decay"), len(group), *group["params"]]
            for group in self.param_groups
        ]
        if store is not None and store.moved:
            raise self._elsewhere()
        if groups == self._synced:
            return
        if not self._synced:
            with self.store().turn():  # until the first step of another thread has made the state
                pass
        if self.store() is not store:
            raise self._elsewhere()
        for group in self.param_groups:
            self._check_group(group)
        numbers = self._groups_by_parameter()
        segments, end = [], 0
        for own in sorted(numbers, key=_place):
            if own.offset > end:  # parameters of no group
                segments.append((own.offset, 0.0, 0.0, True, 0))
            end, number = own.offset + own.size, numbers[own]
            segments.append((end, *self.core_numbers(self.param_groups[number]), False, number))
        if end < store.flat_parameters.size:
            segments.append((store.flat_parameters.size, 0.0, 0.0, True, 0))
        core.set_segments(segments)
        self._synced = groups

    def _elsewhere(self) -> ValueError:
        return ValueError(f"{type(self).__name__}: it belongs to another model; make one for each")

    def _make_state(self, parameters: Array) -> None:
        """Makes what steps leave for later ones, unless the core keeps it; parameters: the model's, flat."""

    def _without_memory(self) -> dict[str, Any]:
        """Its attributes, without those that belong to the memory of its model."""
        gone: dict[str, Any] = {
            "_core": None,
            "_store": None,
            "_synced": [],
            "_stepper": None,
        }
        return vars(self) | gone

    def __getstate__(self) -> dict[str, Any]:
        state = self._without_memory()
        return state if self._core is None else state | {"_carried": self.state_dict()}

    def twin(self, params: Iterable[Parameter]) -> Optimizer:
        """The same rule, with the numbers of the first group, for all parameters of another model."""
        other = type(self).__new__(type(self))
        vars(other).update(self._without_memory(), _carried=None)
        other.param_groups = [{**self.param_groups[0], "params": list(params)}]
        return other

    def state_arrays(self) -> dict[str, Array]:
        """The state of the rule, by name: arrays that share its memory."""
        return dict(zip(self.state_names(), self.core.state, strict=True))

    def state_names(self) -> list[str]:
        """Names of `state_arrays`."""
        return []

    def config(self) -> dict[str, Any]:
        """The rule's own settings, which a checkpoint compares."""
        return {"type": type(self).__name__}


def _place(parameter: Parameter) -> tuple[int, int]:
    """By which parameters are in the order of their model's memory."""
    return parameter.offset, parameter.size


def _numbers(group: Mapping[str, Any]) -> dict[str, Any]:
    """A parameter group without its parameters."""
    return {key: value for key, value in group.items() if key != "params"}
