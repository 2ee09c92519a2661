"""Settings: the parameters that both estimators have, and what they allow."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, Options, StrOptions

from pdnn.sklearn.network import ACTIVATIONS
from pdnn.sklearn.workers import Workers, workers
from pdnn.strategies import Strategy

_LONG_STEP = 2e6
"""Weights times rows of a step that takes some 100 µs: threads do not pay below."""

_LONG_FIT = 5e10
"""Weights times rows, over all steps, of some seconds: measuring what pays is not worth its time below."""


class Settings(BaseEstimator):
    """Parameters; `MLPClassifier` and `MLPRegressor` say what they mean."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "hidden_layer_sizes": ["array-like", Interval(Integral, 1, None, closed="left")],
        "activation": [StrOptions(set(ACTIVATIONS)), "array-like"],
        "solver": [StrOptions({"lbfgs", "sgd", "adam"})],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "batch_size": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
        "learning_rate": [StrOptions({"constant", "invscaling", "adaptive"})],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither")],
        "power_t": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "shuffle": ["boolean"],
        "random_state": ["random_state"],
        "tol": [Interval(Real, 0, None, closed="left")],
        "verbose": ["verbose"],
        "warm_start": ["boolean"],
        "momentum": [Interval(Real, 0, 1, closed="left")],
        "nesterovs_momentum": ["boolean"],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="left")],
        "beta_1": [Interval(Real, 0, 1, closed="left")],
        "beta_2": [Interval(Real, 0, 1, closed="left")],
        "epsilon": [Interval(Real, 0, None, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left"), Options(Real, {np.inf})],
        "max_fun": [Interval(Integral, 1, None, closed="left")],
        "dropout": [Interval(Real, 0, 1, closed="left"), "array-like"],
        "batch_norm": ["boolean"],
        "dtype": [StrOptions({"auto", "float32", "float64", "bfloat16"})],
        "strategy": [str, Strategy],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
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
    ) -> None:
        self.hidden_layer_sizes = hidden_layer_sizes
        self.activation = activation
        self.solver = solver
        self.alpha = alpha
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.learning_rate_init = learning_rate_init
        self.power_t = power_t
        self.max_iter = max_iter
        self.shuffle = shuffle
        self.random_state = random_state
        self.tol = tol
        self.verbose = verbose
        self.warm_start = warm_start
        self.momentum = momentum
        self.nesterovs_momentum = nesterovs_momentum
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.n_iter_no_change = n_iter_no_change
        self.max_fun = max_fun
        self.dropout = dropout
        self.batch_norm = batch_norm
        self.dtype = dtype
        self.strategy = strategy
        self.n_jobs = n_jobs

    def _hidden(self) -> tuple[list[int], list[str], list[float]]:
        """Widths, activations and dropout of the hidden layers.

        Raises
        ------
        ValueError
            If a width, activation or probability is none, or there are more or fewer than hidden layers.
        """
        widths = np.atleast_1d(self.hidden_layer_sizes).tolist()
        if any(width <= 0 or width != int(width) for width in widths):
            raise ValueError(f"hidden_layer_sizes must be integers > 0, got {widths}")
        activations = _each("activation", self.activation, len(widths))
        if unknown := set(activations) - set(ACTIVATIONS):
            words = ", ".join(map(repr, ACTIVATIONS))
            raise ValueError(f"activation has {sorted(map(str, unknown))}; expected some of {words}")
        dropout = _each("dropout", self.dropout, len(widths))
        if not all(0 <= p < 1 for p in dropout):
            raise ValueError(f"dropout has {dropout}; expected probabilities in [0, 1)")
        return [int(width) for width in widths], activations, dropout

    def _check(self) -> None:
        """Raises ValueError or TypeError if a parameter is not allowed, or two do not fit each other."""
        self._validate_params()
        dropout = self._hidden()[2]
        if self.solver == "lbfgs" and (self.batch_norm or any(dropout)):
            raise ValueError(
                'solver="lbfgs" minimizes a function of the parameters alone, which batch_norm and dropout '
                'change from call to call; use solver="adam" or "sgd" with them'
            )
        if self.solver == "lbfgs" and self.strategy != "auto":
            raise ValueError(f'solver="lbfgs" has threads (n_jobs), but no strategy, got {self.strategy!r}')

    def _check_partial(self) -> bool:
        """Whether there is a `partial_fit`; raises AttributeError if not."""
        if self.solver == "lbfgs":
            raise AttributeError('partial_fit is for solver="sgd" and "adam"; "lbfgs" needs all rows at once')
        return True

    def _arithmetic(self) -> str:
        """The dtype of the model; a line search compares losses that differ little."""
        if self.dtype == "auto":
            return "float64" if self.solver == "lbfgs" else "float32"
        return self.dtype

    def _workers(self, step: float = 0.0, steps: float = 0.0) -> Workers:
        """Who computes so many steps, each of so many weights times rows."""
        return workers(self.strategy, self.n_jobs, step >= _LONG_STEP and step * steps >= _LONG_FIT)


def _each(name: str, given: Any, layers: int) -> list[Any]:
    """One value for each hidden layer."""
    if isinstance(given, (str, Real)):
        return [given] * layers
    values = list(given)
    if len(values) != layers:
        raise ValueError(
            f"{name} has {len(values)} values for {layers} hidden layers; give one for each, or one for all"
        )
    return values
