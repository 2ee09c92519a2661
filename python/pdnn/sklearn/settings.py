"""Settings: the parameters that both estimators have, and what they allow."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from operator import is_
from types import NoneType
from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval, Options, StrOptions

from pdnn.sklearn.network import ACTIVATIONS
from pdnn.sklearn.workers import Workers, workers
from pdnn.strategies import Strategy

_SHORT_STEP = 2e5
"""Weights times rows of a step that takes some 30 µs: narrower numbers save a fifth at most below."""

_LONG_STEP = 2e6
"""Weights times rows of a step that takes some 100 µs: threads of ranks do not pay below."""

_LONG_FIT = 1e10
"""Weights times rows, over all steps, of some .5 s: before shorter ones ranks measure nothing."""


class Settings(BaseEstimator):
    """Parameters; `MLPClassifier` and `MLPRegressor` say what they mean."""

    _valid: tuple[Any, ...] = ()
    """The parameters that were found valid last."""

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
        "n_jobs": [
            Interval(Integral, 1, None, closed="left"),
            Interval(Integral, None, -1, closed="right"),
            None,
        ],
    }

    hidden_layer_sizes: int | Sequence[int]
    activation: str | Sequence[str]
    solver: str
    alpha: float
    batch_size: int | str
    learning_rate: str
    learning_rate_init: float
    power_t: float
    max_iter: int
    shuffle: bool
    random_state: Any
    tol: float
    verbose: bool | int
    warm_start: bool
    momentum: float
    nesterovs_momentum: bool
    early_stopping: bool
    validation_fraction: float
    beta_1: float
    beta_2: float
    epsilon: float
    n_iter_no_change: float
    max_fun: int
    dropout: float | Sequence[float]
    batch_norm: bool
    dtype: str
    strategy: str | Strategy
    n_jobs: int | None

    def _take(self, given: dict[str, Any]) -> None:
        """Keeps the arguments of a constructor, its `locals`, under their names."""
        for name, value in given.items():
            if name not in ("self", "__class__"):
                setattr(self, name, value)

    def _hidden(self) -> tuple[list[int], list[str], list[float]]:
        """Widths, activations and dropout of the hidden layers.

        Raises
        ------
        ValueError
            If a width, activation or probability is none, or there are more or fewer than hidden layers.
        """
        widths = np.atleast_1d(np.asarray(self.hidden_layer_sizes)).tolist()
        numbers = all(isinstance(width, (int, float)) and not isinstance(width, bool) for width in widths)
        if not numbers or not all(width > 0 and width % 1 == 0 for width in widths):
            raise ValueError(f"hidden_layer_sizes must be integers > 0, got {widths}")
        activations = _each("activation", self.activation, len(widths))
        unknown = {str(each) for each in activations if not isinstance(each, str) or each not in ACTIVATIONS}
        if unknown:
            words = ", ".join(map(repr, ACTIVATIONS))
            raise ValueError(f"activation has {sorted(unknown)}; expected some of {words}")
        dropout = _each("dropout", self.dropout, len(widths))
        if not all(isinstance(p, Real) and 0 <= float(p) < 1 for p in dropout):
            raise ValueError(f"dropout has {dropout}; expected probabilities in [0, 1)")
        return [int(width) for width in widths], activations, dropout

    def _check(self) -> None:
        """Raises ValueError or TypeError if a parameter is not allowed, or two do not fit each other."""
        values = tuple(getattr(self, name) for name in self._parameter_constraints)
        fixed = all(isinstance(value, (str, int, float, tuple, NoneType)) for value in values)
        if not (fixed and len(values) == len(self._valid) and all(map(is_, values, self._valid))):
            self._validate_params()  # a sixth of a small partial_fit
            self._valid = values
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

    def _arithmetic(self, given: np.dtype[Any], step: float) -> str:
        """The dtype of the model, for X of this dtype and steps of so many weights times rows."""
        if self.dtype != "auto":
            return self.dtype
        exact = given == np.float64 and step < _SHORT_STEP
        return "float64" if exact or self.solver == "lbfgs" else "float32"  # a line search needs digits

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
