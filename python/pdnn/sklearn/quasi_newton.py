"""L-BFGS: minimizes the loss of all rows at once."""

from __future__ import annotations

import warnings
from math import inf

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from pdnn.core import array_dtype, core_for
from pdnn.data import Dataset
from pdnn.data.source import source_of
from pdnn.optim.inverse_hessian import dot
from pdnn.sklearn.fitted import NOT_FINITE
from pdnn.sklearn.minimizer import minimize
from pdnn.sklearn.rows import Blocks, Table, check_range, converted
from pdnn.sklearn.stochastic import Stochastic
from pdnn.store import Array


class QuasiNewton(Stochastic):
    """An estimator that may also be fitted by "lbfgs"."""

    def _minimize(self, table: Table, threads: int) -> None:
        """Minimizes the mean loss of the rows plus the penalty over them."""
        model, total = self.model_, table.count(np.arange(len(table)))
        criterion, flat = self._criterion("sum"), model.flat_parameters
        core, dtype = core_for(model.dtype), np.dtype(array_dtype(model.dtype))
        check_range(table.x, dtype)
        data = Dataset(converted(table.x, dtype), self._smoothed(table.targets), weight=table.weight)
        source = source_of("fit", data, model, criterion, None)
        loss_of_rows, evaluator = criterion.build(core), core.Evaluator(model.core, 1)
        spare: list[Array] = []  # memory for gradients
        decay = np.zeros(flat.size)
        for name, values in model.split(decay).items():
            values[...] = self._scale * self.alpha * name.endswith("weight")

        def part(block: slice) -> tuple[float, Array]:
            try:
                slope = spare.pop()
            except IndexError:
                slope = np.empty(flat.size, dtype)
            rows = source.rows[block]
            return evaluator.gradient(loss_of_rows, source.core, source.width, rows, slope), slope

        reached, reported = flat.astype(np.float64), dict[float, float]()  # losses since then, by values

        def objective(values: Array) -> tuple[float, Array]:
            flat[...] = values
            gradient = decay * values
            loss, penalty = 0.0, dot(gradient, values) / 2 / self._scale
            for own, slope in blocks.results(part):
                loss += own
                gradient += slope
                spare.append(slope)
            value = (loss / self._scale + penalty) / total
            reported[value] = self.loss_ = (self._reported(loss) + penalty) / total
            gradient /= self._scale * total
            return value, gradient

        def show(loss: float, values: Array) -> None:
            nonlocal reached, reported
            reached, reported = values, {loss: reported[loss]}
            self.n_iter_ += 1
            if self.verbose:
                print(f"Iteration {self.n_iter_}, loss = {loss:.8f}", flush=True)

        self.n_iter_ = 0
        limits = {"max_iter": self.max_iter, "max_fun": self.max_fun}
        try:
            with Blocks(len(table), 256, threads) as blocks, np.errstate(over="ignore", invalid="ignore"):
                found = minimize(objective, reached, **limits, tolerance=self.tol, after=show)
                objective(found.x)
        except FloatingPointError as error:
            raise ValueError(NOT_FINITE) from error
        except KeyboardInterrupt:
            flat[...] = reached  # not the point that was being tried
            self.loss_ = next(iter(reported.values()), inf)
            raise
        if not found.reached:
            warnings.warn(
                f"lbfgs has not converged after {self.n_iter_} iterations: {found.reason}; raise max_iter or "
                "max_fun, or scale the data",
                ConvergenceWarning,
                stacklevel=4,
            )
