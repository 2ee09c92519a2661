"""Stepper: single training steps of a model in the core, for loops by hand that cannot wait."""

from __future__ import annotations

from collections.abc import Iterable, Sized
from math import prod
from typing import Protocol
from weakref import ref

import numpy as np
import numpy.typing as npt

from pdnn.comm import world
from pdnn.core import CoreOptimizer, CoreStepper, array_dtype, core_for
from pdnn.nn.loss import Loss, check_loss
from pdnn.nn.module import Module
from pdnn.nn.sequential import Sequential, batch_of
from pdnn.nn.targets import prepare_rows, row_weights
from pdnn.store import Array


class Updates(Protocol):
    """The interface of an optimizer for this module."""

    @property
    def core(self) -> CoreOptimizer:
        """The core's."""

    def attach(self, model: Sequential) -> None:
        """Makes it for this model."""

    def sync_groups(self) -> None:
        """Tells it of parameter groups that changed."""


class Stepper:
    """What `Sequential.step` keeps from call to call for a model, a criterion and an optimizer, which has it.

    Raises
    ------
    TypeError
        If the criterion is none of pdnn.nn's losses, or the model has no static form.
    ValueError
        If the optimizer's parameters are not the model's.
    """

    def __init__(self, model: Sequential, criterion: Loss, optimizer: Updates) -> None:
        check_loss("step", "criterion", criterion)
        self.model, self.criterion, self._optimizer = model, criterion, ref(optimizer)
        self._model, self._store = model.core, model.place().store
        self._modules = tuple(model.modules())
        self._hooks = hooks_of(model)
        refuse_hooks(self._hooks)
        self._width = core_for(model.dtype)
        self._loss = criterion.build(self._width)
        optimizer.attach(model)
        ignored = criterion.ignore_index
        self._looks_at_y = ignored is not None and ignored >= 0  # a class as the core sees it
        self._sample: tuple[int, ...] | None = None
        self._core: CoreStepper | None = None

    def __call__(self, x: Array, y: Array, weight: npt.ArrayLike | None = None) -> float:
        """One step; arguments, result and errors are those of `Sequential.step`."""
        self.optimizer.sync_groups()
        refuse_hooks(self._hooks)
        training, store = mode_of(self._modules), self._store
        if store.fits.thread:
            store.fits.check("step")
        ranks = None
        if store.synchronized and training and world().size > 1:
            ranks = world().core
        weights = None if weight is None else row_weights("step", weight, len(x))
        number = store.next_call() if training else 0
        how = (training, store.seed, number, ranks)
        loss = None
        try:
            if self._core is not None and not self._looks_at_y:
                loss = self._core.step(x, y, *how, weights)
            if loss is None:
                core, x, y, weights = self._converted(x, y, weights)
                loss = core.step(x, y, *how, weights)
        except BaseException:
            if training:
                store.give_back_call(number)
            raise
        assert loss is not None, "converted arrays are as it takes them"
        return loss

    @property
    def optimizer(self) -> Updates:
        """The one that has this."""
        optimizer = self._optimizer()
        assert optimizer is not None
        return optimizer

    def _converted(
        self, x: Array, y: Array, weights: Array | None
    ) -> tuple[CoreStepper, Array, Array, Array | None]:
        """The core's object for such samples, and the arrays as it takes them."""
        dtype = array_dtype(self.model.dtype)
        x, targets, weights = converted(self.model, self.criterion, x, y, weights, dtype)
        if self._core is None or x.shape[1:] != self._sample:
            self._sample = x.shape[1:]
            takes_classes = self.criterion.takes_classes
            self._core = self._width.Stepper(
                self._model, self._loss, self.optimizer.core, list(self._sample), takes_classes
            )
        return self._core, x, targets, weights


def hooks_of(model: Sequential) -> list[Sized]:
    """What holds the hooks of a model, if it has some."""
    hooks = [(parameter.hooks, parameter.post_hooks) for parameter in model.parameters()]
    return [model.place().store.pass_hooks, *(each for pair in hooks for each in pair)]


def refuse_hooks(hooks: Iterable[Sized]) -> None:
    """Raises ValueError if there are some in what `hooks_of` gave."""
    if any(hooks):
        raise ValueError(
            "step: the model has hooks, which only backward passes by hand run; remove them, or write "
            "the step by hand"
        )


def mode_of(modules: tuple[Module, ...]) -> bool:
    """Whether these modules are in training mode; ValueError if some are and some are not."""
    training = modules[0].training
    for module in modules:
        if module.training is not training:
            raise ValueError(
                "step: some layers are in training mode and some in evaluation mode; call train() or "
                "eval() of the model, or write the step by hand"
            )
    return training


def converted(
    model: Sequential, criterion: Loss, x: Array, y: Array, weight: npt.ArrayLike | None, dtype: str
) -> tuple[Array, Array, Array | None]:
    """Samples, targets and weights of a step as the core takes them; raises as `Sequential.step`."""
    x = batch_of("step", x, model)
    if x.dtype.kind != "f":
        raise TypeError(f"step: x is {x.dtype}, expected floats")
    outputs = prod(model.output_shape(x.shape[1:]))
    targets, weights = prepare_rows("step", y, weight, criterion, outputs, dtype)
    if len(targets) != len(x):
        raise ValueError(f"step: y has {len(targets)} labels, x has {len(x)} rows")
    return np.ascontiguousarray(x, dtype), targets, weights
