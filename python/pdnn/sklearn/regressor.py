"""MLPRegressor: one number or several for each row."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from numbers import Real
from typing import Any, ClassVar, TypeVar

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import column_or_1d

from pdnn import nn
from pdnn.sklearn.perceptron import Perceptron
from pdnn.store import Array
from pdnn.strategies import Strategy

Self = TypeVar("Self", bound="MLPRegressor")


class MLPRegressor(RegressorMixin, Perceptron):
    """A multilayer perceptron that predicts numbers, in the place of ``sklearn.neural_network.MLPRegressor``.

    It minimizes a loss summed over outputs. `loss_` and `loss_curve_` have its mean over outputs (of
    "poisson" the sum), as scikit-learn's. Parameters that are not listed, and attributes, are those of
    `MLPClassifier`.

    Parameters
    ----------
    loss : "squared_error", "absolute_error", "huber", "quantile" or "poisson"
        Half the squared error (y - t)²; ``|y - t|``; `nn.HuberLoss`, which is squared up to `delta`; the loss
        of the `quantile`; e^y - t y of counts t, where predictions are e^y.
    delta : float
        Of "huber": where it goes on straight.
    quantile : float in (0, 1)
        Of "quantile": what share of the targets lies below the predictions.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = Perceptron._parameter_constraints | {
        "loss": [StrOptions({"squared_error", "absolute_error", "huber", "quantile", "poisson"})],
        "delta": [Interval(Real, 0, None, closed="neither")],
        "quantile": [Interval(Real, 0, 1, closed="neither")],
    }

    def __init__(
        self,
        loss: str = "squared_error",
        hidden_layer_sizes: int | Sequence[int] = (100,),
        activation: str | Sequence[str] = "relu",
        *,
        solver: str = "adam",
        alpha: float = 0.0001,
        batch_size: int | str = "auto",
        learning_rate: str = "constant",
        learning_rate_init: float = 0.001,
        power_t: float = 0.5,
        max_iter: int = 200,
        shuffle: bool = True,
        random_state: Any = None,
        tol: float = 1e-4,
        verbose: bool | int = False,
        warm_start: bool = False,
        momentum: float = 0.9,
        nesterovs_momentum: bool = True,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-8,
        n_iter_no_change: float = 10,
        max_fun: int = 15000,
        dropout: float | Sequence[float] = 0.0,
        batch_norm: bool = False,
        dtype: str = "auto",
        strategy: str | Strategy = "auto",
        n_jobs: int | None = None,
        delta: float = 1.0,
        quantile: float = 0.5,
    ) -> None:
        self._take(locals())

    @available_if(lambda estimator: estimator._check_partial())
    def partial_fit(
        self: Self, X: Any, y: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None
    ) -> Self:
        """One pass over these rows.

        With ``early_stopping=True`` each pass is scored, on X_val or else on a part of these rows, on which
        it does not train. After more than `n_iter_no_change` passes without improvement the parameters of
        the best one are put back, `stopped_` is True, and later calls change nothing.

        Parameters
        ----------
        X, y, sample_weight, X_val, y_val
            As for `fit`.

        Returns
        -------
        self
        """
        with self._undone_by_errors():
            return self._fit(X, y, sample_weight, X_val, y_val, incremental=True)

    def predict(self, X: Any) -> Array:
        """Predictions, shape (n,) or (n, outputs), float64."""
        outputs = self._linked(self._outputs(X))
        return outputs[:, 0] if self.n_outputs_ == 1 else outputs

    def _score_of(self, outputs: Array, targets: Array, weight: Array | None) -> float:
        predictions = self._linked(outputs)
        if not np.isfinite(predictions).all():
            return nan  # as scikit-learn; r2_score would take it for a fault of the data
        return float(r2_score(targets, predictions, sample_weight=weight))

    def _encoded(self, y: Array, new: bool) -> Array:
        if y.dtype.kind not in "biuf":
            raise ValueError(f"y has dtype {y.dtype}, expected numbers; for classes there is MLPClassifier")
        if y.dtype.itemsize > 8:  # longdouble
            y = y.astype(np.float64)
        if np.isnan(y).any():  # None becomes NaN behind scikit-learn's check
            raise ValueError("y has missing numbers (None); leave their rows out")
        if self.loss == "poisson" and (y < 0).any():
            raise ValueError('loss="poisson" is of counts, y has negative numbers')
        return column_or_1d(y, warn=True) if y.ndim == 2 and y.shape[1] == 1 else y

    def _width(self, targets: Array) -> int:
        return 1 if targets.ndim == 1 else targets.shape[1]

    def _link(self) -> str:
        return "exp" if self.loss == "poisson" else "identity"

    def _linked(self, outputs: Array) -> Array:
        """Predictions from raw outputs."""
        return np.exp(outputs) if self.out_activation_ == "exp" else outputs

    def _criterion(self, reduction: str) -> Any:
        if self.loss == "huber":
            return nn.HuberLoss(reduction, self.delta)
        if self.loss == "quantile":
            return nn.QuantileLoss(self.quantile, reduction)
        kinds = {"squared_error": nn.MSELoss, "absolute_error": nn.L1Loss, "poisson": nn.PoissonNLLLoss}
        return kinds[self.loss](reduction=reduction)

    @property
    def _scale(self) -> float:
        return 2.0 if self.loss == "squared_error" else 1.0  # scikit-learn halves the squared error

    def _reported(self, loss: float) -> float:
        mean = super()._reported(loss)
        return mean if self.loss == "poisson" else mean / self.n_outputs_
