"""L-BFGS: SciPy's minimizer over the flat gradient of all rows."""

from __future__ import annotations

import warnings
from math import isfinite

import numpy as np
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from pdnn.core import array_dtype, core_for
from pdnn.nn.targets import prepare_rows
from pdnn.sklearn.fitted import NOT_FINITE
from pdnn.sklearn.rows import Blocks, dense
from pdnn.sklearn.stochastic import Stochastic, Table
from pdnn.sklearn.workers import one_blas_thread
from pdnn.store import Array


class QuasiNewton(Stochastic):
    """An estimator that may also be fitted by "lbfgs"."""

    def _minimize(self, table: Table, threads: int) -> None:
        """Minimizes the mean loss of the rows plus the penalty over them."""
        model, total = self.model_, table.count(np.arange(len(table)))
        criterion, flat = self._criterion("sum"), model.flat_parameters
        smoothed, dtype = self._smoothed(table.targets), array_dtype(model.dtype)
        targets, weights = prepare_rows("fit", smoothed, table.weight, criterion, self.n_outputs_, dtype)
        loss_of_rows = criterion.build(core_for(model.dtype))
        decay = np.zeros(flat.size)
        for name, values in model.split(decay).items():
            values[...] = self.alpha * name.endswith("weight")

        def part(block: slice) -> tuple[float, Array]:
            x = dense(table.x, block, model.dtype)
            weight = None if weights is None else weights[block]
            return model.core.gradient(x, targets[block], loss_of_rows, False, 0, None, weight)

        def objective(values: Array) -> tuple[float, Array]:
            flat[...] = values
            gradient = decay * values
            loss, penalty = 0.0, float(gradient.dot(values)) / 2
            gradient *= self._scale
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
        with one_blas_thread, Blocks(len(table), 512, threads) as blocks:
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
