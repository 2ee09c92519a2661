"""Stepper: single training steps of a model in the core, for loops by hand that cannot wait."""

from __future__ import annotations

from math import prod
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pdnn.comm import world
from pdnn.core import CoreOptimizer, CoreStepper, array_dtype, core_for
from pdnn.nn.losses import Loss, check_loss
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
    """What `Sequential.step` keeps from call to call for a model, a criterion and an optimizer.

    Raises
    ------
    TypeError
        If the criterion is none of pdnn.nn's losses, or the model has no static form.
    ValueError
        If the optimizer's parameters are not the model's.
    """

    def __init__(self, model: Sequential, criterion: Loss, optimizer: Updates) -> None:
        check_loss("step", "criterion", criterion)
        self.model, self.criterion, self.optimizer = model, criterion, optimizer
        self._model, self._store = model.core, model.place().store
        self._modules = tuple(model.modules())
        hooks = [(handle.hooks, handle.post_hooks) for handle in self._store.handles]
        self._hooks = [self._store.pass_hooks, *(each for pair in hooks for each in pair)]
        self._refuse_hooks()
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
        self._refuse_hooks()
        training, store = self.model.training, self._store
        for module in self._modules:
            if module.training is not training:
                raise ValueError(
                    "step: some layers are in training mode and some in evaluation mode; call train() or "
                    "eval() of the model, or write the step by hand"
                )
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

    def _refuse_hooks(self) -> None:
        if any(self._hooks):
            raise ValueError(
                "step: the model has hooks, which only backward passes by hand run; remove them, or write "
                "the step by hand"
            )

    def _converted(
        self, x: Array, y: Array, weights: Array | None
    ) -> tuple[CoreStepper, Array, Array, Array | None]:
        """The core's object for such samples, and the arrays as it takes them."""
        model, dtype = self.model, array_dtype(self.model.dtype)
        x = batch_of("step", x, model)
        if x.dtype.kind != "f":
            raise TypeError(f"step: x is {x.dtype}, expected floats")
        sample = x.shape[1:]
        outputs = prod(model.output_shape(sample))
        targets, weights = prepare_rows("step", y, weights, self.criterion, outputs, dtype)
        if len(targets) != len(x):
            raise ValueError(f"step: y has {len(targets)} labels, x has {len(x)} rows")
        if self._core is None or sample != self._sample:
            takes_classes = self.criterion.takes_classes
            self._core = self._width.Stepper(
                self._model, self._loss, self.optimizer.core, list(sample), takes_classes
            )
            self._sample = sample
        return self._core, np.ascontiguousarray(x, dtype), targets, weights
