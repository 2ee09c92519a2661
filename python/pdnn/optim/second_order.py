"""Optimizers that solve for their step with a matrix of second derivatives: for small and medium networks."""

from __future__ import annotations

from math import inf, isfinite
from typing import Any, ClassVar, NoReturn, get_args

import numpy as np
import numpy.typing as npt

from pdnn import _core
from pdnn.checks import positive, positive_attribute
from pdnn.core import core_for
from pdnn.nn.loss import Loss, check_loss
from pdnn.nn.sequential import Sequential
from pdnn.optim.batch_loss import BatchLoss, Solver
from pdnn.optim.closure_optimizer import ClosureOptimizer
from pdnn.optim.groups import Params
from pdnn.optim.inverse_hessian import dot
from pdnn.optim.stepper import converted, hooks_of, mode_of, refuse_hooks
from pdnn.store import Array

LONGEST = 20
"""Halvings of a step at most, and dampings that are tried for one."""

DECREASE = 1e-4
"""The part of the decrease along the tangent that a step must reach: Armijo's rule."""


class SecondOrder(ClosureOptimizer):
    """Base of the optimizers whose step needs the rows of a batch, not their gradient alone.

    By hand a step is ``model.step(x, y, criterion, optimizer)``. Models are Sequentials of Linear layers,
    activations and Flatten; everything is computed in float64.
    """

    needs_rows = True

    fisher: ClassVar[bool] = False
    """Whether its matrix is the empirical Fisher information, and not that of Gauss and Newton."""

    def __init__(self, params: Params, lr: float, weight_decay: float, solver: Solver) -> None:
        super().__init__(params, lr, weight_decay)
        if solver not in get_args(Solver):
            words = ", ".join(map(repr, get_args(Solver)))
            raise ValueError(f"{type(self).__name__}: solver={solver!r}; expected one of {words}")
        self.solver = solver
        self._check_solver()

    def _check_solver(self) -> None:
        """Raises ValueError if it cannot solve with the weight decay of the groups."""
        if self.solver == "kernel" and any(group["weight_decay"] for group in self.param_groups):
            raise ValueError(f'{type(self).__name__}: solver="kernel" takes no weight_decay; leave one out')

    # ---- steps

    def step(self, closure: object = None) -> NoReturn:
        """Refuses: a gradient, or what makes one again, is not enough.

        Raises
        ------
        TypeError
            Always.
        """
        raise TypeError(
            f"{type(self).__name__}: a step needs the rows of a batch, not their gradient alone; call "
            "model.step(x, y, criterion, optimizer), or use a Trainer"
        )

    def minimize(self, batch: BatchLoss) -> float:
        """Makes one step from the rows of a batch, unless all weights are 0; returns the loss before it.

        After an error, or Ctrl-C, the parameters are as they were.

        Raises
        ------
        FloatingPointError
            If the loss or the gradient is not finite.
        ValueError
            If the solver does not fit the weight decay of the groups.
        """
        self._check_solver()
        self.sync_groups()
        batch.decay = self._decay()
        loss = batch.loss()
        if batch.first_sums[2] == 0:  # the rows do not count
            return 0.0
        gradient = batch.linearize() if isfinite(loss) else np.array([np.nan])
        if not np.isfinite(gradient).all():
            raise FloatingPointError(
                f"{type(self).__name__}: the loss is {loss:g}, and it or its gradient is not finite; look "
                "for such values in the data"
            )
        parameters = self.store().flat_parameters
        kept = parameters.copy()
        try:
            if gradient.any():
                self._move(batch, loss, gradient, kept)
        except BaseException:
            parameters[...] = kept
            raise
        self.core.steps += 1
        return loss

    def _move(self, batch: BatchLoss, loss: float, gradient: Array, kept: Array) -> None:
        """Moves the parameters; `batch` is linearized where they are, and `kept` is their copy."""
        raise NotImplementedError

    def _direction(self, batch: BatchLoss, damping: float, gradient: Array) -> Array:
        """-(B + damping)⁻¹ g, where the damping is fixed."""
        direction = batch.solve(damping, gradient, self.solver)
        if direction is None:
            raise FloatingPointError(
                f"{type(self).__name__}: the system has no finite solution; raise damping, now {damping:g}"
            )
        return direction

    def _decay(self) -> Array:
        """λ of each parameter of the model, as the groups have it now."""
        decay = np.zeros(self.store().flat_parameters.size)
        for group in self.param_groups:
            for own in group["params"]:
                decay[own.offset : own.offset + own.size] = group["weight_decay"]
        return decay

    def batch_loss(
        self,
        model: Sequential,
        criterion: Loss,
        sample: tuple[int, ...],
        threads: int = 1,
        ranks: _core.Communicator | None = None,
    ) -> BatchLoss:
        """What `minimize` takes, for batches of such samples.

        Raises
        ------
        ValueError
            If the model or the criterion does not fit this optimizer.
        """
        try:
            return BatchLoss(
                model,
                criterion,
                sample,
                self.parameters(),
                self._decay(),
                fisher=self.fisher,
                threads=threads,
                ranks=ranks,
            )
        except ValueError as error:
            raise ValueError(f"{type(self).__name__}: {error}") from None

    def stepper(self, model: Sequential, criterion: Loss) -> RowStepper:  # type: ignore[override]
        """What `Sequential.step` calls for this model and criterion.

        Raises
        ------
        TypeError, ValueError
            As `Sequential.step`.
        """
        self.check_own_step("step")
        return RowStepper(model, criterion, self)

    # ---- the core's side

    def rule(self) -> _core.SGD:
        """Gradient descent, of which no step is made."""
        return _core.SGD(momentum=0.0, nesterov=False)

    def config(self) -> dict[str, Any]:
        """All numbers but those of groups."""
        return {"type": type(self).__name__, "solver": self.solver}


class RowStepper:
    """What makes a step by hand; arguments, result and errors are those of `Sequential.step`."""

    def __init__(self, model: Sequential, criterion: Loss, optimizer: SecondOrder) -> None:
        check_loss("step", "criterion", criterion)
        optimizer.attach(model)
        self._model, self._criterion, self._optimizer = model, criterion, optimizer

    def __call__(self, x: Array, y: Array, weight: npt.ArrayLike | None = None) -> float:
        """One step."""
        refuse_hooks(hooks_of(self._model))
        mode_of(tuple(self._model.modules()))
        x, targets, weights = converted(self._model, self._criterion, x, y, weight, "float64")
        source = core_for("float64").Source(x, targets, 1.0, 0.0, weights)
        store = self._model.place().store
        store.fits.check("step")
        with store.turn():
            batch = self._optimizer.batch_loss(self._model, self._criterion, x.shape[1:])
            batch.take(source, np.arange(len(x)))
            return self._optimizer.minimize(batch)


class LevenbergMarquardt(SecondOrder):
    """Least squares by steps d = -(JᵀJ + μ)⁻¹ g, with μ by the gain of the last step.

    J is the Jacobian of the residuals, so JᵀJ + μ is near the Hessian of `nn.MSELoss` where the residuals are
    small. A step tries μ, and larger ones until the loss of the batch falls; if it does not fall for any, the
    parameters stay. After a step with the gain ratio ρ, the decrease of the loss over the one that the model
    of it promised, μ is multiplied by max(1/3, 1 - (2ρ - 1)³), and after a failed try by 2, 4, 8, …: Nielsen,
    Damping parameter in Marquardt's method (IMM-REP-1999-05); Madsen, Nielsen and Tingleff, Methods for
    non-linear least squares problems (2004), algorithm 3.16. With `nn.CrossEntropyLoss` the matrix is the
    generalized one of Gauss and Newton: Schraudolph, Fast curvature matrix-vector products (2002).

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
        All parameters alike, or groups ``{"params": …, "weight_decay": …}``. Those in no group stay.
    tau : float
        The first μ, as a part of the largest diagonal element of JᵀJ + λ.
    weight_decay : float
        λ, of the groups that give none: λ/2 Σw² is added to the loss.
    solver : "auto", "normal", "kernel" or "cg"
        Decomposes JᵀJ + μ, (parameters)²; decomposes J Jᵀ + μ, (rows · outputs)², without weight decay; or
        multiplies by J and Jᵀ in conjugate gradients. "auto" takes the smaller matrix, and conjugate
        gradients beyond 4,096 unknowns.

    Raises
    ------
    TypeError
        If a number is none.
    ValueError
        If a number is out of range, or a parameter appears twice.
    """

    fixed = ("tau", "solver")

    def __init__(
        self, params: Params, tau: float = 1e-3, weight_decay: float = 0.0, solver: Solver = "auto"
    ) -> None:
        super().__init__(params, 1.0, weight_decay, solver)
        self.tau = float(positive(self, "tau", tau))
        self.rate()

    def rate(self) -> float:
        """The length of a step, which is 1."""
        if super().rate() != 1:
            raise ValueError("LevenbergMarquardt: its damping sets the length of a step; leave lr at 1")
        return 1.0

    def _move(self, batch: BatchLoss, loss: float, gradient: Array, kept: Array) -> None:
        self.rate()
        parameters = self.store().flat_parameters
        damping, growth = self._state["damping"].tolist()
        largest = batch.largest()
        if damping == 0:  # the first step
            damping, growth = self.tau * largest, 2.0
        damping = max(damping, np.finfo(float).eps ** 2 * largest)  # LONGEST tries lead from there to any
        for _ in range(LONGEST):
            direction = batch.solve(damping, gradient, self.solver)
            if (
                direction is not None and (promised := dot(direction, damping * direction - gradient) / 2) > 0
            ):  # else it is too small for a float
                ratio = (loss - _loss_at(batch, parameters, kept + direction)) / promised
                if ratio > 0:
                    damping *= max(1 / 3, 1 - (2 * ratio - 1) ** 3)
                    self._state["damping"][...] = max(damping, np.finfo(float).tiny), 2
                    return
                parameters[...] = kept
            damping, growth = damping * growth, 2 * growth

    def _new_state(self, parameters: Array) -> dict[str, Array]:
        return {"damping": np.zeros(2)}  # μ, 0 before the first step, and its next factor

    def config(self) -> dict[str, Any]:
        """All numbers but those of groups."""
        return super().config() | {"tau": self.tau}


class GaussNewton(SecondOrder):
    """Steps d = -(B + damping)⁻¹ g with a fixed damping, B being the generalized Gauss-Newton matrix.

    B = Σ w Jᵀ H J over the rows, with J the Jacobian of a row's outputs and H the second derivatives of the
    loss for them: of `nn.MSELoss` and `nn.CrossEntropyLoss`. (Nocedal and Wright, Numerical Optimization,
    2006, section 10.3; Schraudolph, Fast curvature matrix-vector products, 2002.)

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
        As `LevenbergMarquardt` takes them; all groups have one learning rate.
    lr : float
        The length of a step along d, or the first one that a search tries.
    damping : float
        Added to the diagonal of B.
    line_search_fn : "armijo", optional
        Halves the length until the loss of the batch falls by 1e-4 of what its tangent promises; if it never
        does, the parameters stay. None: every length is `lr`.
    weight_decay, solver
        As `LevenbergMarquardt` has them.

    Raises
    ------
    TypeError
        If a number is none.
    ValueError
        If a number is out of range, or a parameter appears twice.
    """

    fixed = ("line_search_fn", "solver")
    damping = positive_attribute("damping", "What is added to the matrix; may be changed between steps.")

    def __init__(
        self,
        params: Params,
        lr: float = 1.0,
        damping: float = 1e-3,
        line_search_fn: str | None = "armijo",
        weight_decay: float = 0.0,
        solver: Solver = "auto",
    ) -> None:
        super().__init__(params, lr, weight_decay, solver)
        self.damping = damping
        if line_search_fn not in (None, "armijo"):
            raise ValueError(f'GaussNewton: line_search_fn={line_search_fn!r}; expected "armijo" or None')
        self.line_search_fn = line_search_fn
        self.rate()

    def _move(self, batch: BatchLoss, loss: float, gradient: Array, kept: Array) -> None:
        length, parameters = self.rate(), self.store().flat_parameters
        direction = self._direction(batch, self.damping, gradient)
        if self.line_search_fn is None:
            parameters += (length * direction).astype(parameters.dtype)
            return
        slope = dot(gradient, direction)
        for _ in range(LONGEST):
            if _loss_at(batch, parameters, kept + length * direction) <= loss + DECREASE * length * slope:
                return
            parameters[...] = kept
            length /= 2

    def config(self) -> dict[str, Any]:
        """All numbers but those of groups."""
        return super().config() | {"damping": self.damping, "line_search_fn": self.line_search_fn}


class NaturalGradient(SecondOrder):
    """Steps d = -lr (F + damping)⁻¹ g, F being the empirical Fisher information of the batch.

    F = Σ w g gᵀ over the rows, g being the gradient of a row's loss, and the weights w those of the mean: the
    outer products of the gradients that are there anyway, for every loss. It is not the Fisher information
    itself, whose labels are drawn from the model. (Amari, Natural gradient works efficiently in learning,
    1998; Kunstner, Balles and Hennig, Limitations of the empirical Fisher approximation, 2019.)

    Parameters
    ----------
    params : iterable of Parameter, or of dicts
        As `LevenbergMarquardt` takes them; all groups have one learning rate.
    lr : float
    damping : float
        Added to the diagonal of F. Where the gradients of rows are small F is, too, and steps are long; the
        damping limits them to lr ‖g‖ / damping.
    weight_decay, solver
        As `LevenbergMarquardt` has them; with one row of J for each row of the batch.

    Raises
    ------
    TypeError
        If a number is none.
    ValueError
        If a number is out of range, or a parameter appears twice.
    """

    fixed = ("solver",)
    damping = positive_attribute("damping", "What is added to the matrix; may be changed between steps.")
    fisher = True

    def __init__(
        self,
        params: Params,
        lr: float = 0.1,
        damping: float = 1e-2,
        weight_decay: float = 0.0,
        solver: Solver = "auto",
    ) -> None:
        super().__init__(params, lr, weight_decay, solver)
        self.damping = damping
        self.rate()

    def _move(self, batch: BatchLoss, loss: float, gradient: Array, kept: Array) -> None:
        parameters = self.store().flat_parameters
        direction = self._direction(batch, self.damping, gradient)
        parameters += (self.rate() * direction).astype(parameters.dtype)

    def config(self) -> dict[str, Any]:
        """All numbers but those of groups."""
        return super().config() | {"damping": self.damping}


def _loss_at(batch: BatchLoss, parameters: Array, place: Array) -> float:
    """The loss there, where the parameters then are; infinite where it is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        parameters[...] = place
    loss = batch.loss()
    return loss if isfinite(loss) else inf
