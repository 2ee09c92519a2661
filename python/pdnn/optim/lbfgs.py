"""LBFGS: steps by the curvature that the last gradients show, for full batches and smooth losses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite, nan
from typing import Any

import numpy as np

from pdnn import _core
from pdnn.checks import integer
from pdnn.nn.loss import Loss
from pdnn.nn.sequential import Sequential
from pdnn.optim.closure_optimizer import ClosureOptimizer
from pdnn.optim.groups import Params
from pdnn.optim.inverse_hessian import InverseHessian, dot
from pdnn.optim.line_search import Point, strong_wolfe
from pdnn.optim.stepper import Stepper
from pdnn.store import Array
from pdnn.tensor import Tensor

Closure = Callable[[], "Tensor | float"]
"""Computes the loss at the parameters as they are, and leaves its gradient in `Parameter.grad`."""

CLOSURE = "a function that computes the loss, calls its backward and returns the loss"

LOOKS = 25
"""Evaluations of a line search at most."""

NOISE = 64
"""Relative differences of losses, in units of rounding, that say nothing: a loss is a sum over rows."""


class LBFGS(ClosureOptimizer):
    """Limited-memory BFGS, under torch's names: each step makes several iterations.

    An iteration goes along d = -H g, where H, an estimate of the inverse Hessian, is made of the last
    differences of parameters and gradients: Nocedal and Wright, Numerical Optimization (2006), algorithms 7.4
    and 7.5. A step ends after `max_iter` iterations or `max_eval` evaluations; if the largest element of the
    gradient is at most `tolerance_grad`; or if the slope g·d, the largest change of a parameter or the change
    of the loss is less than `tolerance_change`.

    It is for losses without noise: batches of all rows, no dropout. All its sums are made in a fixed order,
    so on the same losses and gradients every rank makes the same steps, bit for bit.

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
        All parameters alike, or groups ``{"params": …, "weight_decay": …}``, of one learning rate. Parameters
        in no group stay as they are. Where groups or their weight decay change, H is learned anew.
    lr : float
        The length of a step along d; with a line search the first one that it tries.
    max_iter : int
        Iterations of a step.
    max_eval : int, optional
        Evaluations of a step; 5/4 of max_iter unless given. A line search that has found nothing better than
        where it began goes on beyond them.
    tolerance_grad, tolerance_change : float
        See above.
    history_size : int
        Differences that are kept. They take 2 · history_size times the memory of the parameters.
    line_search_fn : "strong_wolfe", optional
        Searches a length that meets the strong Wolfe conditions, by algorithms 3.5 and 3.6 of the book.
        Without it every length is `lr`.
    weight_decay : float
        λ, of the groups that give none: λ/2 Σw² is added to the loss, and λw to the gradient. torch has none
        here.

    Raises
    ------
    TypeError
        If a number is none, or a count is no integer.
    ValueError
        If a number is out of range, a parameter appears twice, or groups have several learning rates.
    """

    fixed = ("max_iter", "max_eval", "tolerance_grad", "tolerance_change", "history_size", "line_search_fn")

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr, weight_decay)
        self.max_iter = integer("LBFGS", "max_iter", max_iter, 1)
        self.max_eval = (
            self.max_iter * 5 // 4 if max_eval is None else integer("LBFGS", "max_eval", max_eval, 1)
        )
        self.history_size = integer("LBFGS", "history_size", history_size, 1)
        self.tolerance_grad = self.checked_number("tolerance_grad", tolerance_grad)
        self.tolerance_change = self.checked_number("tolerance_change", tolerance_change)
        if line_search_fn not in (None, "strong_wolfe"):
            raise ValueError(f'LBFGS: line_search_fn={line_search_fn!r}; expected "strong_wolfe" or None')
        self.line_search_fn = line_search_fn
        self._groups: list[Any] | None = None  # of the last step
        self.rate()

    # ---- steps

    def step(self, closure: Closure) -> float:  # type: ignore[override]
        """One step: up to `max_iter` iterations. Steps of a model are for one thread at a time.

        Parameters
        ----------
        closure : callable
            Sets the gradients to zero, computes the loss, calls its `backward` and returns it; or writes
            `flat_gradients` by ``model.gradient(…, out=model.flat_gradients)`` and returns the loss.

        Returns
        -------
        float
            The loss before the step, as `closure` returned it.

        Raises
        ------
        FloatingPointError
            If the loss or the gradient is not finite where an iteration begins. The parameters are as they
            were before this iteration; also after an error in `closure`.
        TypeError
            If `closure` is no function, or does not return the loss.
        ValueError
            If the parameters belong to no model, or to several, or another thread is within a fit of it.
        """
        if not callable(closure):
            raise TypeError(f"LBFGS: closure is of type {type(closure).__name__}; pass {CLOSURE}")
        first: list[float] = []
        if any(own.store is None for own in self.parameters()):  # of a copy, until its model is called
            first.append(_number_of(closure()))
        self.sync_groups()
        core, store = self.core, self.store()
        store.fits.check("step")

        def evaluate() -> tuple[float, Array]:
            loss = first.pop() if first else _number_of(closure())
            core.steps += 1
            return loss, store.flat_gradients

        return self.minimize(evaluate)

    def minimize(self, evaluate: Callable[[], tuple[float, Array]]) -> float:
        """One step; `evaluate` gives the loss and the gradient, shape (count,), at the parameters."""
        lr, parameters = self.rate(), self.store().flat_parameters
        self._forget_another_loss()
        decay, fixed = self._per_element()
        losses, noise = [], NOISE * float(np.finfo(parameters.dtype).eps)

        def look() -> tuple[float, Array]:
            loss, shared = evaluate()
            losses.append(loss)
            gradient = shared.copy()
            gradient[fixed] = 0
            if decay is not None:
                loss += dot(decay * parameters, parameters) / 2
                gradient += decay * parameters
            return loss, gradient

        loss, gradient = look()
        self._check(loss, gradient)
        for iteration in range(1, self.max_iter + 1):
            if lr == 0 or np.abs(gradient).max(initial=0) <= self.tolerance_grad:
                break
            direction, slope = self._direction(gradient)
            if not slope < 0 or slope > -self.tolerance_change:
                break
            step = lr
            if self._state["counts"][0] == 1:
                step *= min(1.0, 1 / float(np.abs(gradient).sum(dtype=np.float64)))
            kept, before, largest = parameters.copy(), loss, float(np.abs(direction).max())

            def look_at(step: float, kept: Array = kept, direction: Array = direction) -> Point:
                with np.errstate(over="ignore", invalid="ignore"):
                    parameters[...] = kept + step * direction
                    loss, gradient = look()
                    slope = dot(gradient, direction)
                finite = isfinite(loss) and isfinite(slope)
                return Point(step, loss, slope, gradient) if finite else Point(step, np.inf, nan, gradient)

            try:
                if self.line_search_fn is not None:
                    found = strong_wolfe(
                        look_at,
                        Point(0.0, loss, slope, gradient),
                        step,
                        least=self.tolerance_change / largest,
                        looks=max(1, min(LOOKS, self.max_eval - len(losses))),
                        most=LOOKS,
                        noise=noise * abs(loss),
                    )
                    step, loss, gradient = found.step, found.loss, found.gradient
                with np.errstate(over="ignore", invalid="ignore"):
                    parameters[...] = kept + step * direction
                    if self.line_search_fn is None and iteration < self.max_iter:
                        loss, gradient = look()
                        self._check(loss, gradient)
            except BaseException:
                parameters[...] = kept
                raise
            self._state["last_step"][...] = step * direction
            if len(losses) >= self.max_eval or step * largest <= self.tolerance_change:
                break
            if abs(loss - before) < self.tolerance_change:
                break
        return losses[0]

    def _direction(self, gradient: Array) -> tuple[Array, float]:
        """-H g, and the slope of the loss along it; learns from the step before."""
        state = self._state
        last_step, last_gradient, counts = state["last_step"], state["last_gradient"], state["counts"]
        known = InverseHessian(state["steps"], state["gradient_changes"], state["curvatures"], counts[1:])
        if counts[0] > 0:
            change = gradient - last_gradient
            known.learn(last_step, change, dot(change, last_step), dot(last_gradient, last_step))
        counts[0] += 1
        last_step[...], last_gradient[...] = 0, gradient
        direction = known.direction(gradient)
        return direction, dot(gradient, direction)

    def _check(self, loss: float, gradient: Array) -> None:
        if not (isfinite(loss) and np.isfinite(gradient).all()):
            more = "" if self.line_search_fn else ', or pass line_search_fn="strong_wolfe"'
            raise FloatingPointError(
                f"LBFGS: the loss is {loss:g}, and it or its gradient is not finite; look for such values in "
                f"the data{',' if more else ' or'} lower lr{more}"
            )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """As every optimizer's; the curvature belongs to the groups that come with it."""
        super().load_state_dict(state)
        self._groups = None

    # ---- groups

    def _forget_another_loss(self) -> None:
        """Where other elements are fixed than at the last step, or λ is another, differences say nothing."""
        groups = [
            (group["weight_decay"], [(own.offset, own.size) for own in group["params"]])
            for group in self.param_groups
        ]
        if self._groups not in (None, groups):
            self._state["counts"][...] = 0
        self._groups = groups

    def _per_element(self) -> tuple[Array | None, Array]:
        """λ of each element, if there is one, and the numbers of the elements that are in no group."""
        flat = self.store().flat_parameters
        decay, fixed = np.zeros_like(flat), np.ones(flat.size, bool)
        for group in self.param_groups:
            for own in group["params"]:
                decay[own.offset : own.offset + own.size] = group["weight_decay"]
                fixed[own.offset : own.offset + own.size] = False
        return decay if decay.any() else None, np.flatnonzero(fixed)

    # ---- the core's side: plain descent that goes nowhere, and whose velocity is the gradient of a step

    def rule(self) -> _core.SGD:
        """Gradient descent with momentum: after a step from velocity 0, `gradient` is that of the step."""
        return _core.SGD(momentum=0.5, nesterov=False)

    @property
    def gradient(self) -> Array:
        """Where a step of the core leaves its gradient, if this was zero before; shape (count,)."""
        gradient: Array = self.core.state[0]
        return gradient

    def _new_state(self, parameters: Array) -> dict[str, Array]:
        size = self.history_size
        return {
            "steps": np.zeros((size, parameters.size), parameters.dtype),
            "gradient_changes": np.zeros((size, parameters.size), parameters.dtype),
            "curvatures": np.zeros(size),
            "last_step": np.zeros_like(parameters),
            "last_gradient": np.zeros_like(parameters),
            "counts": np.zeros(2, np.int64),  # iterations; pairs of differences, of which the last are kept
        }

    def config(self) -> dict[str, Any]:
        """All numbers but those of groups."""
        return {"type": "LBFGS"} | {name: getattr(self, name) for name in self.fixed}

    def stepper(self, model: Sequential, criterion: Loss) -> Stepper:
        """Refuses: `Sequential.step` is one evaluation, and a step of this takes several.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError(
            "step: an LBFGS evaluates a batch several times; call optimizer.step(closure), or use a Trainer"
        )


def _number_of(loss: object) -> float:
    """The loss that a closure returned; raises TypeError if it is no number."""
    try:
        return float(loss.item() if isinstance(loss, Tensor) else loss)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        kind = type(loss).__name__
        raise TypeError(
            f"LBFGS: closure returned an object of type {kind}, no loss; pass {CLOSURE}"
        ) from None
