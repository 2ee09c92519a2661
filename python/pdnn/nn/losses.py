"""The losses, under torch's names and defaults."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt

from pdnn.checks import flag, integer, number
from pdnn.nn.loss import Loss
from pdnn.nn.targets import row_weights
from pdnn.store import Array


class CrossEntropyLoss(Loss):
    """Softmax and negative log-likelihood in one, on logits of shape (n, classes).

    Targets: classes (n,), one-hot integer rows (n, classes), or probabilities (n, classes) as floats.
    A row's loss is -Σ_j w_j ((1 - s) t_j + s / classes) log softmax(y)_j.

    Parameters
    ----------
    reduction : "mean", "sum" or "batchmean"
        As in every `Loss`. In a mean a row of class c counts w_c times its own weight, a row of
        probabilities its own weight. A mean in which all rows count 0 is 0, where torch divides by 0.
    weight : array, shape (classes,), optional
        Of the classes: the numbers w, from 0. Each is 1 unless given.
    ignore_index : int
        Rows of this class do not count, as rows of weight 0. It may be none of the model's classes.
    label_smoothing : float in [0, 1]
        The number s: what is taken of each target and spread over all classes.

    Raises
    ------
    TypeError, ValueError
        If an argument is no such thing.
    """

    core_name = "CrossEntropyLoss"
    fixed = ("reduction", "weight", "ignore_index", "label_smoothing")
    one_class_a_row = True

    def __init__(
        self,
        reduction: str = "mean",
        *,
        weight: npt.ArrayLike | None = None,
        ignore_index: int = -100,
        label_smoothing: float = 0.0,
    ) -> None:
        self.ignore_index = integer(self, "ignore_index", ignore_index)
        super().__init__(reduction)
        if weight is not None:
            where = f"{type(self).__name__}, classes"
            self._options["weight"] = row_weights(where, weight, max(1, np.asarray(weight).size)).tolist()
        if ignore_index != -100:
            self._options["ignore_index"] = self.ignore_index
        smoothing = number(
            self, "label_smoothing", label_smoothing, "a number in [0, 1]", lambda at: 0 <= at <= 1
        )
        if smoothing > 0:
            self._options["label_smoothing"] = float(smoothing)

    def _core_options(self) -> dict[str, Any]:
        return {name: value for name, value in self._options.items() if name != "ignore_index"}

    def expected(self, outputs: Array) -> Array:
        """Probabilities, of their logits."""
        shares = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
        probabilities: Array = shares / shares.sum(axis=-1, keepdims=True)
        return probabilities


#: The name that the Horovod-style exercises use.
SoftmaxLoss = CrossEntropyLoss


class NLLLoss(Loss):
    """Negative log-likelihood -y[class] of log-probabilities (n, classes), as LogSoftmax makes them."""

    core_name = "NLLLoss"
    one_class_a_row = True


class BCELoss(Loss):
    """Binary cross-entropy -t log y - (1 - t) log(1 - y) of probabilities, one target an output.

    Targets: values (n, outputs), one-hot integer rows, or classes (n,) (for a single output: 0 and 1, also
    as a column (n, 1)).
    Logarithms are at least -100, as in torch. Outputs outside [0, 1], as without a Sigmoid, give NaN.
    """

    core_name = "BCELoss"
    takes_probabilities = True


class BCEWithLogitsLoss(Loss):
    """Binary cross-entropy of sigmoid(y), computed from the logits y without overflow."""

    core_name = "BCEWithLogitsLoss"
    takes_probabilities = True
    threshold = 0.0

    def expected(self, outputs: Array) -> Array:
        """Probabilities, of their logits."""
        probabilities: Array = np.exp(-np.logaddexp(0, -outputs))
        return probabilities


class MSELoss(Loss):
    """Squared error (y - t)², with targets of the outputs' shape, or (n,) for a single output."""

    core_name = "MSELoss"
    takes_classes = False


class L1Loss(Loss):
    """Absolute error ``|y - t|``, with targets as `MSELoss` takes them."""

    core_name = "L1Loss"
    takes_classes = False


class SmoothL1Loss(Loss):
    """Squares of small errors, beyond them the distance.

    They are ``(y - t)² / (2 beta)`` where ``|y - t| < beta``, elsewhere ``|y - t| - beta / 2``.
    Targets are as `MSELoss` takes them.

    Parameters
    ----------
    reduction : "mean", "sum" or "batchmean"
    beta : float
        0 or more; with 0 it is `L1Loss`.

    Raises
    ------
    ValueError
        If beta is negative.
    TypeError
        If it is no number.
    """

    core_name = "SmoothL1Loss"
    fixed = ("reduction", "beta")
    takes_classes = False

    def __init__(self, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction)
        self._set_number(lambda beta: 0 <= beta < inf, "a number, 0 or more", beta=beta)


class HuberLoss(Loss):
    """Squares of small errors, beyond them the distance.

    They are ``(y - t)² / 2`` where ``|y - t| ≤ delta``, elsewhere ``delta (|y - t| - delta / 2)``.
    Targets are as `MSELoss` takes them.

    Parameters
    ----------
    reduction : "mean", "sum" or "batchmean"
    delta : float
        More than 0.

    Raises
    ------
    ValueError
        If delta is not positive.
    TypeError
        If it is no number.
    """

    core_name = "HuberLoss"
    fixed = ("reduction", "delta")
    takes_classes = False

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        self._set_number(lambda delta: 0 < delta < inf, "a number above 0", delta=delta)


class PoissonNLLLoss(Loss):
    """Negative log-likelihood of counts t under Poisson distributions: e^y - t y, without log t!.

    Targets are as `MSELoss` takes them.

    Parameters
    ----------
    log_input : bool
        The outputs y are logarithms of rates; else rates, and the loss is y - t log(y + eps).
    full : bool
        Adds Stirling's t log t - t + log(2 π t) / 2 for log t!, where t > 1.
    eps : float
        More than 0.
    reduction : "mean", "sum" or "batchmean"

    Raises
    ------
    ValueError
        If eps is not positive.
    TypeError
        If it is no number, or log_input or full no bool.
    """

    core_name = "PoissonNLLLoss"
    fixed = ("reduction", "log_input", "full", "eps")
    takes_classes = False

    def __init__(
        self, log_input: bool = True, full: bool = False, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction)
        flags = {"log_input": log_input, "full": full}
        self._options = {name: flag(self, name, value) for name, value in flags.items()}
        self._set_number(lambda eps: 0 < eps < inf, "a number above 0", eps=eps)

    def expected(self, outputs: Array) -> Array:
        """Rates, with `log_input` of their logarithms."""
        return np.exp(outputs) if self._options["log_input"] else outputs


class QuantileLoss(Loss):
    """Pinball loss max(q (t - y), (q - 1) (t - y)), smallest where y is the q-quantile of t.

    Targets are as `MSELoss` takes them. For several quantiles a model has an output each, and a row one
    target, of shape (n,) or (n, 1). (Koenker, Bassett, "Regression quantiles", Econometrica 1978.)

    Parameters
    ----------
    quantile : float in (0, 1), or a sequence of them
    reduction : "mean", "sum" or "batchmean"

    Raises
    ------
    ValueError
        If a quantile lies outside (0, 1), or there is none.
    TypeError
        If it is no number.
    """

    core_name = "QuantileLoss"
    fixed = ("reduction", "quantile")
    takes_classes = False

    def __init__(self, quantile: float | Sequence[float] = 0.5, reduction: str = "mean") -> None:
        super().__init__(reduction)
        try:
            quantiles = np.atleast_1d(np.asarray(quantile, np.float64))
        except (TypeError, ValueError):
            raise TypeError(f"QuantileLoss: quantile is {quantile!r}, expected numbers in (0, 1)") from None
        valid = quantiles.ndim == 1 and quantiles.size > 0 and bool(((quantiles > 0) & (quantiles < 1)).all())
        if not valid:
            raise ValueError(f"QuantileLoss: quantile = {quantile}; expected numbers in (0, 1)")
        self._options["quantiles"] = quantiles.tolist()
        self.one_target_a_row = quantiles.size > 1
