"""BatchLoss: the loss of a batch near the parameters of a model, to second order, in float64."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from pdnn._core import Communicator as CoreCommunicator
from pdnn._core import QuadraticModel
from pdnn.core import CoreSource, core_for
from pdnn.nn.loss import Loss
from pdnn.nn.sequential import Sequential
from pdnn.store import Array, Parameter

DIRECT = 4096
"""Unknowns of a system up to which it is decomposed; beyond, conjugate gradients solve it."""

TOLERANCE, PRODUCTS = 1e-6, 500
"""Of conjugate gradients: what is left of the right side as a residual, and their largest number."""

Solver = Literal["auto", "normal", "kernel", "cg"]


class BatchLoss:
    """L(θ + d) ≈ L + gᵀd + ½ dᵀ(B + diag λ)d at the parameters θ of a model, of the rows of a batch.

    λ/2 Σθ² is part of L. A float32 model's layers, rows and systems are made in float64; only its parameters
    are float32.

    Parameters
    ----------
    model : nn.Sequential
    criterion : Loss
    sample : tuple of int
    trained : iterable of Parameter
        All others stay as they are.
    decay : array, shape (number of parameters,)
        λ of each.
    fisher : bool
        B is the empirical Fisher information; else the generalized Gauss-Newton matrix.
    threads : int
    ranks : object of the core, optional
        Which put B together; each of them makes the same calls.

    Attributes
    ----------
    decay : array, shape (number of parameters,)
        As given; another one counts from the next call on.

    Raises
    ------
    ValueError
        If the model's layers or its dtype, or the criterion, have no such B here.
    """

    def __init__(
        self,
        model: Sequential,
        criterion: Loss,
        sample: tuple[int, ...],
        trained: Iterable[Parameter],
        decay: Array,
        *,
        fisher: bool,
        threads: int = 1,
        ranks: CoreCommunicator | None = None,
    ) -> None:
        if model.dtype == "bfloat16":
            raise ValueError(
                "products of a bfloat16 model are not those of its Jacobian; train a float32 model, or use "
                "optim.LBFGS"
            )
        core, theirs = core_for("float64"), set(trained)
        self._parameters, self.decay = model.flat_parameters, decay
        own = model.dtype == "float64"
        self._model = model.core if own else core.Model(model.build(core), None)
        self._copied = None if own else self._model.params
        self.loss_of_core = criterion.build(core)
        flags = [parameter in theirs for parameter in model.parameters()]
        self._quadratic = QuadraticModel(
            self._model, self.loss_of_core, list(sample), flags, fisher, threads, ranks
        )
        self.first_sums = (0.0, 0.0, 0.0)
        self._is_first = True

    def take(self, source: CoreSource, rows: Array) -> None:
        """From now on these rows of the source are the batch."""
        self._quadratic.take(source, rows)
        self._is_first = True

    def loss(self) -> float:
        """L at the parameters as they are.

        The first call for a batch leaves in `first_sums` the sums of the rows' losses, of right predictions
        and of weights.
        """
        self._copy()
        value, correct, weight = self._quadratic.loss()
        if self._is_first:
            self.first_sums, self._is_first = (value, correct, weight), False
        penalty = float((self.decay * np.square(self._parameters, dtype=np.float64)).sum()) / 2
        return self.loss_of_core.reduce(value, weight) + penalty

    def linearize(self) -> Array:
        """The gradient g at the parameters as they are, where `largest` and `solve` then are, too."""
        self._copy()
        gradient: Array = self._quadratic.linearize() + self.decay * self._parameters
        return gradient

    def largest(self) -> float:
        """The largest element of the diagonal of B + diag λ."""
        return float((self._quadratic.diagonal() + self.decay).max(initial=0.0))

    def solve(self, damping: float, gradient: Array, solver: Solver = "auto") -> Array | None:
        """D = -(B + diag λ + damping)⁻¹ g; None if that has no finite answer.

        Parameters
        ----------
        damping : float
            More than 0.
        gradient : array, shape (number of parameters,)
            As `linearize` returned it.
        solver : "auto", "normal", "kernel" or "cg"
            Decomposes B + …; decomposes J Jᵀ + …, where B = JᵀJ; multiplies by J and Jᵀ. "auto" takes the
            smaller matrix, up to `DIRECT` unknowns.
        """
        quadratic, diag = self._quadratic, self.decay + damping
        if solver == "auto":
            few_rows = quadratic.rows < gradient.size and not self.decay.any()
            solver = "kernel" if few_rows else "normal"
            if (quadratic.rows if few_rows else gradient.size) > DIRECT:
                solver = "cg"
        if solver == "cg":
            found: Array | None = quadratic.solve_cg(diag, gradient, TOLERANCE, PRODUCTS)
        elif solver == "kernel":
            found = quadratic.solve_kernel(damping)
        else:
            found = quadratic.solve_normal(diag, gradient)
        return None if found is None or not np.isfinite(found).all() else -found

    def _copy(self) -> None:
        if self._copied is not None:
            self._copied[...] = self._parameters
