"""Optimizers, under torch's names, and the hook that schedules their learning rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from pdnn.nn.module import Array, Parameter
from pdnn.nn.sequential import Sequential
from pdnn.nn.targets import core_for

Params: TypeAlias = Iterable[Parameter] | Iterable[Mapping[str, Any]]


class Optimizer:
    """Base of the optimizers: parameter groups, each with its learning rate and L2.

    Attributes
    ----------
    param_groups : list of dict
        ``params``, ``lr``, ``weight_decay``; change the numbers at any time between epochs.
    """

    def __init__(self, params: Params, lr: float, weight_decay: float) -> None:
        _check_number(self, "lr", lr)
        _check_number(self, "weight_decay", weight_decay)
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
            full = {"lr": lr, "weight_decay": weight_decay, **group, "params": list(group["params"])}
            if unknown := full.keys() - {"params", "lr", "weight_decay"}:
                raise ValueError(f"{type(self).__name__}: a parameter group has unknown {sorted(unknown)}")
            for key in ("lr", "weight_decay"):
                _check_number(self, key, full[key])
            self.param_groups.append(full)
        seen = [id(parameter) for group in self.param_groups for parameter in group["params"]]
        if len(seen) != len(set(seen)):
            raise ValueError(f"{type(self).__name__}: a parameter appears twice")
        self._core: Any = None
        self._model: Sequential | None = None

    def make(self, core: Any, count: int) -> Any:
        """This rule as an object of the C++ core, for `count` parameters."""
        raise NotImplementedError

    def bind(self, model: Sequential) -> Any:
        """The core's optimizer for this model, with the groups as they are now.

        Raises
        ------
        ValueError
            If a parameter is not the model's, or the optimizer served another model before.
        """
        handles = list(model.parameters())
        if self._core is None:
            self._core, self._model = self.make(core_for(model.dtype), model.flat_parameters.size), model
        elif self._model is not model:
            raise ValueError(f"{type(self).__name__}: it belongs to another model; make one for each")
        group_of = {id(parameter): group for group in self.param_groups for parameter in group["params"]}
        if stray := group_of.keys() - {id(handle) for handle in handles}:
            raise ValueError(f"{type(self).__name__}: {len(stray)} of its parameters are not this model's")
        segments, end = [], 0
        for handle in handles:
            end += handle.size
            group = group_of.get(id(handle))
            rates = (
                (0.0, 0.0, True)
                if group is None
                else (float(group["lr"]), float(group["weight_decay"]), False)
            )
            segments.append((end, *rates))
        self._core.set_segments(segments)
        return self._core

    def state_arrays(self, model: Sequential) -> dict[str, Array]:
        """What the rule remembers between steps, by name: arrays that share its memory."""
        return dict(zip(self.memory_names(), self.bind(model).memory, strict=True))

    def memory_names(self) -> list[str]:
        """Names of `state_arrays`."""
        return []

    def config(self) -> dict[str, Any]:
        """The rule's own settings, by which a checkpoint recognises it."""
        return {"type": type(self).__name__}


class SGD(Optimizer):
    """Stochastic gradient descent: d = g + λw; v = μv + d; w ← w - η v (with Nesterov: w - η (d + μv)).

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
        All parameters alike, or groups ``{"params": …, "lr": …, "weight_decay": …}``. Parameters in no group
        stay as they are.
    lr : float
        η, of the groups that give none.
    momentum : float
        μ, in [0, 1).
    weight_decay : float
        λ, added to the gradient (L2), of the groups that give none.
    nesterov : bool
        Nesterov's momentum, as torch writes it.

    Raises
    ------
    ValueError
        If a number is negative or not finite, a parameter appears twice, or Nesterov comes without momentum.
    """

    def __init__(
        self,
        params: Params,
        lr: float,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr, weight_decay)
        if not 0 <= momentum < 1:
            raise ValueError(f"SGD: momentum = {momentum}; expected a number in [0, 1)")
        if nesterov and momentum == 0:
            raise ValueError("SGD: nesterov needs a momentum above 0")
        self.momentum = momentum
        self.nesterov = nesterov

    def make(self, core: Any, count: int) -> Any:
        """The core's SGD."""
        return core.SGD(count, self.momentum, self.nesterov)

    def memory_names(self) -> list[str]:
        """The velocity, if there is momentum."""
        return ["velocity"] if self.momentum else []

    def config(self) -> dict[str, Any]:
        """Momentum and Nesterov."""
        return {"type": "SGD", "momentum": self.momentum, "nesterov": self.nesterov}


def _check_number(optimizer: Optimizer, name: str, value: float) -> None:
    if not 0 <= value < float("inf"):
        raise ValueError(f"{type(optimizer).__name__}: {name} = {value}; expected a number from 0")
