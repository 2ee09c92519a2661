"""L-BFGS: SciPy's minimizer over the flat gradient of all rows."""

from __future__ import annotations

import warnings
from math import isfinite

import numpy as np
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from pdnn.sklearn.fitted import NOT_FINITE
from pdnn.sklearn.rows import Blocks, dense
from pdnn.sklearn.stochastic import Stochastic, Table
from pdnn.store import Array


class QuasiNewton(Stochastic):
    """An estimator that may also be fitted by "lbfgs"."""

    def _minimize(self, table: Table, threads: int) -> None:
        """Minimizes the mean loss of the rows plus the penalty over them."""
        model, total = self.model_, table.count(np.arange(len(table)))
        targets = self._smoothed(table.targets)
        criterion, flat = self._criterion("sum"), self.model_.flat_parameters
        decay = np.zeros(flat.size)
        for name, values in model.split(decay).items():
            values[...] = self.alpha * name.endswith("weight")

        def part(block: slice) -> tuple[float, Array]:
            x = dense(table.x, block, model.dtype)
            weight = None if table.weight is None else table.weight[block]
            return model.gradient(x, targets[block], criterion, weight=weight)

        def objective(values: Array) -> tuple[float, Array]:
            flat[...] = values
            penalty = self._penalty()
            loss, gradient = 0.0, self._scale * decay * values
            for value, slope in blocks.results(part):
                loss += value
                gradient += slope
            self.loss_ = (self._reported(loss) + penalty) / total
            gradient /= self._scale * total
            return (loss / self._scale + penalty) / total, gradient

        def show(values: Array) -> None:
            self.n_iter_ += 1
            if self.verbose:
                print(f"Iteration {self.n_iter_}, loss = {self.loss_:.8f}", flush=True)

        self.n_iter_ = 0
        options = {"maxfun": self.max_fun, "maxiter": self.max_iter, "gtol": self.tol}
        begin = flat.astype(np.float64)
        # The minimizer's BLAS would keep a thread on each core, where the blocks' are.
        with threadpool_limits(1, "blas"), Blocks(len(table), 512, threads) as blocks:
            found = minimize(objective, begin, jac=True, method="L-BFGS-B", callback=show, options=options)
            objective(found.x)
        if not (isfinite(self.loss_) and np.isfinite(flat).all()):
            raise ValueError(NOT_FINITE)
        self.n_iter_ = int(found.nit)
        if not found.success:
            warnings.warn(
                f"lbfgs has not converged after {found.nit} iterations: {found.message}; raise max_iter or "
                "max_fun, or scale the data",
                ConvergenceWarning,
                stacklevel=4,
            )
