"""Schedules of learning rates under torch's names, each a function of the number of steps made so far.

A schedule belongs to an optimizer and sets ``lr`` of its groups. A Trainer with ``schedule=`` advances it
after every epoch, or with ``schedule_per="step"`` after every update. By hand, call `step` after the
optimizer's.

Warm-up is a sequence::

    SequentialLR(opt, [LinearLR(opt, 0.1, total_iters=5), CosineAnnealingLR(opt, 95)], milestones=[5])
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from math import cos, inf, pi
from typing import Any, ClassVar

import numpy as np

from pdnn.advice import SCHEDULE, Advising
from pdnn.checks import integer, kind_of, number, plain, several
from pdnn.optim.optimizer import Optimizer
from pdnn.store import Array


class LRScheduler(Advising):
    """Base of the schedules: the learning rate as a function `rate` of the first one and of time t.

    Parameters
    ----------
    optimizer : Optimizer
        Its groups' ``lr`` at this moment are kept as ``initial_lr``, unless a schedule did so before.
    last_epoch : int
        One less than the time to start at.

    Attributes
    ----------
    last_epoch : int
        The time t: how often `step` has been called.
    """

    advice = SCHEDULE
    settings: ClassVar[tuple[str, ...]] = ()
    """The attributes that `config` lists, beside those of a base class."""

    last_epoch: int

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self._check_optimizer(optimizer)
        begin = integer(self, "last_epoch", last_epoch, -1) + 1
        self.optimizer = optimizer
        for group in optimizer.param_groups:
            group.setdefault("initial_lr", group["lr"])
        self.base_lrs = [float(group["initial_lr"]) for group in optimizer.param_groups]
        self.step_to(begin)

    def __init_subclass__(cls, **given: Any) -> None:
        """Refuses torch's `get_lr`, by a TypeError: a rate is a function of time here, not of the last."""
        super().__init_subclass__(**given)
        if isinstance(cls.settings, str):
            raise TypeError(f"{cls.__name__}: settings is {cls.settings!r}, expected a tuple of names")
        if "get_lr" in vars(cls):
            raise TypeError(
                f"{cls.__name__}: nothing calls get_lr; define rate(base, t), the learning rate after t "
                "steps of a group that began with base"
            )

    def rate(self, base: float, t: int) -> float:
        """The learning rate at time t ≥ 0 of a group that began with `base`; your own schedule defines it.

        It must depend on nothing else: an epoch's rates may be computed before it begins, those of a training
        that resumes again, and those of several ranks on each of them.
        """
        raise NotImplementedError(f"{type(self).__name__}: define rate(self, base, t)")

    def rates(self, t: int) -> list[float]:
        """The learning rate of each group at time t."""
        return [self.rate(base, t) for base in self.base_lrs]

    def table(self, times: range) -> Array:
        """The learning rates at these times, (times, groups), up to the first that no group may have."""
        rates = np.array([self._rates(t) for t in times], np.float64)
        wrong = ~((rates >= 0) & (rates < np.inf)).all(axis=1)
        return rates[: wrong.argmax()] if wrong.any() else rates

    def check(self, t: int) -> None:
        """Raises ValueError if a learning rate at time t is none that a group may have."""
        for rate in self.rates(t):
            self.optimizer.checked_number(f"lr that {type(self).__name__} gives for t = {t}", rate)

    def step(self) -> None:
        """Advances by one step, or epoch: sets the groups' learning rates for the next."""
        self.step_to(self.last_epoch + 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(last_epoch={self.last_epoch}, lr={self.get_last_lr()})"

    def step_to(self, t: int) -> None:
        """Goes to time t.

        Raises
        ------
        TypeError, ValueError
            If t is no integer from 0.
        """
        rates, groups = self._rates(integer(self, "t", t, 0)), len(self.optimizer.param_groups)
        if len(rates) != groups:
            raise ValueError(
                f"{type(self).__name__}: the optimizer has {groups} parameter groups, {len(rates)} when this "
                f"schedule was made; make a new one, with last_epoch={self.last_epoch - 1}"
            )
        self.last_epoch = int(t)
        for group, rate in zip(self.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate

    def get_last_lr(self) -> list[float]:
        """The learning rate of each group now."""
        return self.rates(self.last_epoch)

    def config(self) -> dict[str, Any]:
        """The schedule's own settings, which ranks and a checkpoint compare; as JSON can hold them."""
        kinds = reversed(type(self).__mro__)
        names = (name for kind in kinds for name in vars(kind).get("settings", ()))
        own: dict[str, Any] = plain(self, {name: getattr(self, name) for name in names})
        return {"type": type(self).__name__} | own

    def _rates(self, t: int) -> list[float]:
        """`rates`, a number for each group."""
        rates, groups = list(self.rates(t)), len(self.base_lrs)
        if len(rates) != groups:
            raise ValueError(
                f"{type(self).__name__}: rates({t}) gives {len(rates)} for {groups} parameter groups; "
                "expected one for each"
            )
        for rate in rates:
            number(self, f"the rate at t = {t}", rate, valid=lambda _: True)
        return rates

    def _check_optimizer(self, optimizer: object) -> None:
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{type(self).__name__}: got {kind_of(optimizer)}, expected one of pdnn.optim's")

    def _checked(self, name: str, value: float, least: float) -> float:
        return number(self, name, value, f"a number from {least}", lambda found: least <= found < inf)


class LambdaLR(LRScheduler):
    """The first learning rate times a function of t.

    Parameters
    ----------
    optimizer : Optimizer
    lr_lambda : function of int, or a list of them
        Gives the factor; a list has one for each group.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        self._check_optimizer(optimizer)
        groups = len(optimizer.param_groups)
        self.lr_lambdas = list(lr_lambda) if isinstance(lr_lambda, Sequence) else [lr_lambda] * groups
        if not all(map(callable, self.lr_lambdas)):
            raise TypeError(f"LambdaLR: lr_lambda is {lr_lambda!r}, expected a function or a list of them")
        if len(self.lr_lambdas) != groups:
            raise ValueError(f"LambdaLR: got {len(self.lr_lambdas)} functions for {groups} parameter groups")
        super().__init__(optimizer, last_epoch)

    def rates(self, t: int) -> list[float]:
        """Each group's first learning rate times its function of t."""
        pairs = zip(self.base_lrs, self.lr_lambdas, strict=True)
        return [base * self._factor(function(t), t) for base, function in pairs]

    def _factor(self, given: Any, t: int) -> float:
        try:
            return float(given)
        except (TypeError, ValueError):
            raise TypeError(f"LambdaLR: lr_lambda({t}) is {given!r}, expected a number") from None


class LinearLR(LRScheduler):
    """From start_factor times the first learning rate to end_factor times it, in equal steps; then constant.

    Parameters
    ----------
    optimizer : Optimizer
    start_factor, end_factor : float
    total_iters : int
        Steps from the one to the other.
    """

    settings = ("start_factor", "end_factor", "total_iters")

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        self.start_factor = self._checked("start_factor", start_factor, 0)
        self.end_factor = self._checked("end_factor", end_factor, 0)
        self.total_iters = self._checked("total_iters", total_iters, 1)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        """Between the factors, by how many of total_iters are done."""
        done = min(t, self.total_iters) / self.total_iters
        return base * (self.start_factor + (self.end_factor - self.start_factor) * done)


class ConstantLR(LRScheduler):
    """A factor times the first learning rate for total_iters steps; then the first learning rate itself."""

    settings = ("factor", "total_iters")

    def __init__(
        self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        self.factor = self._checked("factor", factor, 0)
        self.total_iters = self._checked("total_iters", total_iters, 0)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        """Reduced before total_iters."""
        return base * self.factor if t < self.total_iters else base


class StepLR(LRScheduler):
    """Multiplied by gamma every step_size steps."""

    settings = ("step_size", "gamma")

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = self._checked("step_size", step_size, 1)
        self.gamma = self._checked("gamma", gamma, 0)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        """The first learning rate times gamma to the power of the whole step_sizes in t."""
        return float(base * _power(self.gamma, t // self.step_size))


class MultiStepLR(LRScheduler):
    """Multiplied by gamma at each milestone, a time t; one that is listed twice counts twice."""

    settings = ("milestones", "gamma")

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        times = several(self, "milestones", milestones, "a list of integers")
        self.milestones = sorted(integer(self, "a milestone", time, 0) for time in times)
        self.gamma = self._checked("gamma", gamma, 0)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        """The first learning rate times gamma to the power of the number of milestones up to t."""
        return float(base * _power(self.gamma, bisect_right(self.milestones, t)))


class ExponentialLR(LRScheduler):
    """Multiplied by gamma at each step."""

    settings = ("gamma",)

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = self._checked("gamma", gamma, 0)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        """The first learning rate times gamma to the power of t."""
        return float(base * _power(self.gamma, t))


class CosineAnnealingLR(LRScheduler):
    """A cosine wave from the first learning rate down to eta_min at T_max, and on along the wave.

    η(t) = η_min + ½ (η₀ - η_min) (1 + cos(π t / T_max)); Loshchilov and Hutter, ICLR 2017, eq. 5.

    Parameters
    ----------
    optimizer : Optimizer
    T_max : int
        Steps from the first learning rate to the least.
    eta_min : float
        The least learning rate.
    """

    settings = ("T_max", "eta_min")

    def __init__(
        self,
        optimizer: Optimizer,
        T_max: int,
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.T_max = self._checked("T_max", T_max, 1)
        self.eta_min = self._checked("eta_min", eta_min, 0)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        """The cosine's value at t."""
        return self.eta_min + (base - self.eta_min) * (1 + cos(pi * t / self.T_max)) / 2


class SequentialLR(LRScheduler):
    """Schedules one after another, each beginning at its time 0.

    Parameters
    ----------
    optimizer : Optimizer
    schedulers : sequence of LRScheduler
        Of the same optimizer.
    milestones : sequence of int
        The times at which the second, third, … takes over.

    Raises
    ------
    TypeError
        If a milestone is no integer, or a schedule none.
    ValueError
        If the milestones are not one less than the schedules or do not rise, or a schedule is of another
        optimizer.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: Sequence[LRScheduler],
        milestones: Sequence[int],
        last_epoch: int = -1,
    ) -> None:
        self.schedulers: list[LRScheduler] = several(self, "schedulers", schedulers, "a list of schedules")
        times = several(self, "milestones", milestones, "a list of integers")
        self.milestones = [integer(self, "a milestone", time) for time in times]
        for scheduler in self.schedulers:
            if not isinstance(scheduler, LRScheduler):
                raise TypeError(f"SequentialLR: got {kind_of(scheduler)}, expected a schedule")
        if any(scheduler.optimizer is not optimizer for scheduler in self.schedulers):
            raise ValueError("SequentialLR: its schedules must be of the same optimizer")
        if len(self.milestones) != len(self.schedulers) - 1:
            raise ValueError(
                f"SequentialLR: {len(self.schedulers)} schedules with {len(self.milestones)} milestones; "
                "expected one milestone less than schedules"
            )
        if sorted({0, *self.milestones}) != [0, *self.milestones]:
            raise ValueError(
                f"SequentialLR: milestones {self.milestones}; expected them to rise from above 0"
            )
        super().__init__(optimizer, last_epoch)

    def rates(self, t: int) -> list[float]:
        """Those of the schedule whose turn it is."""
        turn = bisect_right(self.milestones, t)
        return self.schedulers[turn].rates(t - [0, *self.milestones][turn])

    def config(self) -> dict[str, Any]:
        """The schedules and their milestones."""
        return super().config() | {
            "schedulers": [scheduler.config() for scheduler in self.schedulers],
            "milestones": self.milestones,
        }


def check_schedule(schedule: object, optimizer: Optimizer) -> None:
    """Raises TypeError or ValueError unless it is a schedule of this optimizer that a Trainer can advance."""
    name = type(schedule).__name__
    if not isinstance(schedule, LRScheduler):
        raise TypeError(
            f"Trainer: schedule is of type {name}, "
            "expected one of pdnn.optim.lr_scheduler; a function goes into LambdaLR"
        )
    if type(schedule).step is not LRScheduler.step:
        raise TypeError(
            f"Trainer: {name} has a step of its own, which only loops by hand call; "
            "define rate(base, t), of the number of steps t"
        )
    if schedule.optimizer is not optimizer:
        raise ValueError("Trainer: the schedule is of another optimizer")
    schedule.config()  # or raises an error


def _power(gamma: float, times: float) -> float:
    """γ to the power; infinity, which no rate may be, where it is too large."""
    try:
        return float(gamma**times)
    except OverflowError:
        return inf
