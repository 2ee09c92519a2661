"""Metrics: what is measured of predictions beside the loss, over all rows of a data set at once."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from typing import Any, SupportsFloat, TypeAlias

import numpy as np

from pdnn.store import Array

Metric: TypeAlias = Callable[[Array, Array], SupportsFloat]
Metrics: TypeAlias = Iterable[str | Metric | Mapping[str, Metric]] | Mapping[str, Metric]

NAMES = "accuracy, mae, mse, r2, rmse, top5 (or another number)"
"""The names that stand for metrics, in words."""

_TAKEN = ("loss", "seconds")  # by what a history has of its own


def named(metrics: Metrics) -> dict[str, Metric]:
    """Metrics by their names in a history.

    Parameters
    ----------
    metrics : iterable of str, callable or mapping of str to callable, or such a mapping
        Names of metrics (`NAMES`), and functions of (y, prediction) that return a number; a function is
        called by its own name, or in a mapping by its key.

    Raises
    ------
    TypeError
        If one is neither.
    ValueError
        If a name stands for no metric, a function has no name, or two functions have the same.
    """
    if isinstance(metrics, str):
        raise TypeError(f"metrics={metrics!r}: expected a list of metrics; pass [{metrics!r}]")
    if not isinstance(metrics, Iterable):
        name = getattr(metrics, "__name__", "function")
        raise TypeError(f"metrics is of type {type(metrics).__name__}, expected a list; pass [{name}]")
    found: dict[str, Metric] = {}
    for metric in [metrics] if isinstance(metrics, Mapping) else metrics:
        own = dict(metric if isinstance(metric, Mapping) else [_named(metric)])
        for name, function in own.items():
            if found.setdefault(name, function) is not function:
                raise ValueError(f'metrics: two are named "{name}"; pass {{"another name": function}}')
    for name, function in found.items():
        if not isinstance(name, str):
            raise TypeError(f"metrics: the name {name!r} is of type {type(name).__name__}, expected a str")
        if not callable(function):
            raise TypeError(f"metrics: {name!r} is of type {type(function).__name__}, expected a function")
        if name in _TAKEN:
            raise ValueError(f'metrics: "{name}" is a name that every history has; take another one')
    return found


def _named(metric: str | Metric) -> tuple[str, Metric]:
    if isinstance(metric, str):
        if metric in _BY_NAME:
            return metric, _BY_NAME[metric]
        if re.fullmatch("top[1-9][0-9]*", metric):
            return metric, _top(int(metric.removeprefix("top")))
        raise ValueError(f"metrics: {metric!r} names no metric; expected {NAMES}, or a function")
    if not callable(metric):
        raise TypeError(f"metrics: got {metric!r}; expected {NAMES}, or a function")
    name = getattr(metric, "__name__", "<lambda>")
    if name == "<lambda>":
        raise ValueError('metrics: a function has no name; pass {"name": function}')
    return name, metric


def rises(name: str) -> bool:
    """Whether larger values of this name in a history are better; unknown ones should fall."""
    own = name.removeprefix("val_")
    return "accuracy" in own or own == "r2" or re.fullmatch("top[1-9][0-9]*", own) is not None


def measure(
    metrics: Mapping[str, Metric],
    y: Array,
    prediction: Array,
    weight: Array | None = None,
    *,
    expected: Callable[[Array], Array] | None = None,
) -> dict[str, float]:
    """The value of each metric.

    Parameters
    ----------
    metrics : mapping of str to callable
    y : ndarray
        Class numbers, shape (n,), or targets, shape (n, outputs).
    prediction : ndarray, shape (n, outputs)
        The model's raw outputs.
    weight : ndarray, shape (n,), optional
        What each row counts in the metrics that have names here; other functions do not get it.
    expected : function, optional
        Makes of outputs what mae, mse, r2 and rmse compare with the targets (`Loss.expected`).

    Raises
    ------
    TypeError
        If one returns no number.
    """
    values: dict[str, float] = {}
    rows: Any = slice(None)
    if weight is not None and weight.any() and not weight.all():
        rows = np.flatnonzero(weight)  # the labels of others may be none
    weights = {} if weight is None else {"weight": weight[rows]}
    for name, metric in metrics.items():
        if expected is not None and metric in _OF_NUMBERS:
            with np.errstate(over="ignore", invalid="ignore"):  # of outputs that are far too large
                compared = expected(prediction[rows])
            value: Any = metric(y[rows], compared, **weights)
        elif getattr(metric, "func", metric) in (*_BY_NAME.values(), top_k):
            value = metric(y[rows], prediction[rows], **weights)
        else:
            value = metric(y.copy(), prediction.copy())  # which it may change
        if np.ndim(value) != 0:
            raise TypeError(
                f'metrics: "{name}" returned an array of shape {np.shape(value)}, expected a number'
            )
        try:
            values[name] = float(value)
        except (TypeError, ValueError):
            raise TypeError(f'metrics: "{name}" returned {value!r}, expected a number') from None
    return values


def accuracy(y: Array, prediction: Array, weight: Array | None = None, threshold: float = 0.5) -> float:
    """Share of the rows whose predicted class is y's: the largest output, or one above the threshold.

    A row with NaN is never right.
    """
    known = ~np.isnan(prediction).any(axis=1)
    if prediction.shape[1] == 1:
        classes = y.reshape(len(y))
        if not ((classes == 0) | (classes == 1)).all():
            raise ValueError("metrics: accuracy compares classes, and here are numbers beside 0 and 1")
        right = (prediction[:, 0] > threshold) == classes
    else:
        right = prediction.argmax(axis=1) == _classes("accuracy", y)
    return float(_mean(right & known, weight))


def top_k(y: Array, prediction: Array, weight: Array | None = None, k: int = 5) -> float:
    """Share of the rows of whose outputs fewer than k are larger than that of the row's class."""
    if prediction.shape[1] == 1:
        raise ValueError(f"metrics: top{k} compares the outputs of classes, and the model has one output")
    if prediction.shape[1] < k:
        raise ValueError(f"metrics: top{k} of a model with {prediction.shape[1]} outputs")
    own = np.take_along_axis(prediction, _classes(f"top{k}", y)[:, np.newaxis], axis=1)
    larger = ~(prediction <= own)  # so that NaN is never right
    return float(_mean(larger.sum(axis=1) < k, weight))


def mse(y: Array, prediction: Array, weight: Array | None = None) -> float:
    """Mean of (prediction - y)², over rows and outputs."""
    return float(np.mean(_mean(_errors("mse", y, prediction) ** 2, weight)))


def rmse(y: Array, prediction: Array, weight: Array | None = None) -> float:
    """Square root of the mean of (prediction - y)²."""
    return float(np.sqrt(np.mean(_mean(_errors("rmse", y, prediction) ** 2, weight))))


def mae(y: Array, prediction: Array, weight: Array | None = None) -> float:
    """Mean of |prediction - y|, over rows and outputs."""
    return float(np.mean(_mean(np.abs(_errors("mae", y, prediction)), weight)))


def r2(y: Array, prediction: Array, weight: Array | None = None) -> float:
    """Coefficient of determination 1 - Σ (y - prediction)² / Σ (y - mean of y)², the mean over outputs.

    As ``sklearn.metrics.r2_score``: for an output whose y are all equal it is 1 if they are predicted
    exactly, else 0. If all weights are 0, it is 0.
    """
    if weight is not None and not weight.any():
        return 0.0
    errors = _mean(_errors("r2", y, prediction) ** 2, weight)
    y = y.astype(np.float64)
    spread = _mean((y - _mean(y, weight)) ** 2, weight)
    counted = y if weight is None else y[weight > 0]
    constant = (spread == 0) | (counted == counted[:1]).all(axis=0)  # a mean of equal numbers is rounded
    scores = 1 - errors / np.where(constant, 1, spread)
    return float(np.mean(np.where(constant, errors == 0, scores)))


@cache
def _top(k: int) -> Metric:
    return partial(top_k, k=k)


_OF_NUMBERS: tuple[Metric, ...] = (mae, mse, r2, rmse)
_BY_NAME: dict[str, Metric] = {"accuracy": accuracy, "mae": mae, "mse": mse, "r2": r2, "rmse": rmse}


def _mean(rows: Array, weight: Array | None) -> Array:
    """Over the rows, of which each counts its weight; 0 if all count nothing."""
    if weight is None:
        return np.asarray(rows.mean(axis=0))
    return np.asarray(weight @ rows / (weight.sum() or 1))


def _errors(name: str, y: Array, prediction: Array) -> Array:
    if y.shape != prediction.shape:
        raise ValueError(
            f"metrics: {name} compares numbers, and here are labels of shape {y.shape} beside outputs "
            f"of shape {prediction.shape}"
        )
    errors: Array = prediction.astype(np.float64) - y
    return errors


def _classes(name: str, y: Array) -> Array:
    """Class numbers, also of rows that are one-hot, in whichever two numbers, or probabilities."""
    if y.ndim == 2 and y.shape[1] == 1:
        raise ValueError(f"metrics: {name} compares classes, and here is one number a row")
    if y.ndim == 1:
        return y
    probabilities = (y >= 0).all(axis=1) & (np.abs(y.sum(axis=1) - 1) < 1e-3)
    high = y == y.max()
    one_of_all = (high | (y == y.min())).all(axis=1) & (high.sum(axis=1) == 1)  # such as 1 and -1
    if wrong := np.flatnonzero(~(probabilities | one_of_all)).tolist():
        raise ValueError(
            f"metrics: {name} compares classes, and row {wrong[0]} of y, {y[wrong[0]].tolist()[:8]}, has "
            "neither one label nor probabilities, which add up to 1; pass a function of (y, prediction)"
        )
    classes: Array = y.argmax(axis=1)
    return classes
