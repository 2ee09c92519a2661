"""InverseHessian: the curvature that the last differences of parameters and gradients show."""

from __future__ import annotations

import numpy as np

from pdnn.core import core_for
from pdnn.store import Array

_DOTS = {np.dtype(name): core_for(name).dot for name in ("float32", "float64")}


def dot(a: Array, b: Array) -> float:
    """The sum of products in double, in an order that depends on the length alone.

    A BLAS's order depends on its threads, which would go on spinning beside pdnn's.
    """
    return _DOTS[a.dtype](a, b)


class InverseHessian:
    """H, as limited-memory BFGS estimates it, of a function of n parameters.

    Parameters
    ----------
    steps, changes : ndarray, shape (size, n)
        Room for the last differences of parameters and of gradients, which stay there.
    curvatures : ndarray of float64, shape (size,)
        The products of the two.
    pairs : ndarray of int64, shape (1,)
        How many differences there were, of which the last `size` are kept.
    """

    def __init__(self, steps: Array, changes: Array, curvatures: Array, pairs: Array) -> None:
        self._steps, self._changes, self._curvatures, self._pairs = steps, changes, curvatures, pairs
        self._core = core_for(steps.dtype.name)

    @classmethod
    def empty(cls, size: int, parameters: Array) -> InverseHessian:
        """The identity, for so many differences; parameters: shape (n,)."""
        steps, changes = (np.zeros((size, parameters.size), parameters.dtype) for _ in range(2))
        return cls(steps, changes, np.zeros(size), np.zeros(1, np.int64))

    def learn(self, step: Array, change: Array, curvature: float, slope: float) -> None:
        """Takes differences s of parameters and y of gradients, shape (n,), if they show curvature.

        The rule is that of L-BFGS-B (Zhu, Byrd, Lu and Nocedal, ACM TOMS 23, 1997), which knows no units:
        s·y > ε |g·s|, with ε the rounding of the dtype. Else H would not stay positive.

        Parameters
        ----------
        curvature, slope : float
            s·y, and g·s with the gradient g where the step began.
        """
        if not curvature > float(np.finfo(self._steps.dtype).eps) * abs(slope):
            return
        row = self._pairs[0] % len(self._steps)
        self._steps[row], self._changes[row], self._curvatures[row] = step, change, curvature
        self._pairs[0] += 1

    def forget(self) -> bool:
        """Becomes the identity; whether it was none before."""
        known = bool(self._pairs[0])
        self._pairs[0] = 0
        return known

    def direction(self, gradient: Array) -> Array:
        """-H g: where a quadratic function with this Hessian and gradient, shape (n,), has its minimum."""
        pairs, size = int(self._pairs[0]), len(self._steps)
        rows = np.arange(max(0, pairs - size), pairs) % size
        found = -gradient
        self._core.times_inverse_hessian(self._steps, self._changes, self._curvatures, rows, found)
        return found
