"""The losses, under torch's names and defaults."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pdnn.checks import flag, integer, kind_of, number
from pdnn.core import CoreLoss, Width, core_for, name_of
from pdnn.nn.eager import LossNode
from pdnn.nn.targets import prepare_rows, row_weights
from pdnn.recording import recording
from pdnn.store import Array
from pdnn.tensor import Tensor, Values

REDUCTIONS = ("mean", "sum", "batchmean")


class Loss:
    """Base of the losses.

    Parameters
    ----------
    reduction : "mean", "sum" or "batchmean"
        "mean" averages over rows (and, where each output has a target of its own, over outputs); "sum" adds
        up over rows and outputs; "batchmean" sums over outputs and averages over rows. An average over rows
        of different weights w is Σ w l / Σ w, a sum Σ w l.

    Raises
    ------
    TypeError, ValueError
        If the reduction is no string, or none of these.
    """

    #: The name of what computes it in the core; a subclass computes as its base does.
    core_name: ClassVar[str | None] = None
    #: Whether targets may be classes: integers (n,), or one-hot rows of integers.
    takes_classes: ClassVar[bool] = True
    #: Whether a row has exactly one class, so that rows of integers must be one-hot.
    one_class_a_row: ClassVar[bool] = False
    #: Whether targets that are no classes are probabilities, each by itself.
    takes_probabilities: ClassVar[bool] = False
    #: Whether a single target of a row is that of all its outputs.
    one_target_a_row: bool = False
    #: The class of rows that do not count.
    ignore_index: int | None = None
    #: Where a single output lies above this, its row is predicted to be of class 1.
    threshold: ClassVar[float] = 0.5
    #: Its arguments, which belong to what computes it in the core.
    fixed: ClassVar[tuple[str, ...]] = ("reduction",)

    def __init_subclass__(cls, **given: Any) -> None:
        """Refuses a `forward`, by a TypeError: a loss of one's own is a `__call__`, in a loop by hand."""
        super().__init_subclass__(**given)
        if "forward" in vars(cls):
            raise TypeError(
                f"{cls.__name__}: a loss has no forward; name it __call__(outputs, targets, weight=None), "
                "and write the loop by hand"
            )

    def __init__(self, reduction: str = "mean") -> None:
        if not isinstance(reduction, str):
            raise TypeError(
                f"{type(self).__name__}: reduction is of type {kind_of(reduction)}, expected one of "
                f"{', '.join(REDUCTIONS)}; other options are given by name, and weights of rows to the call"
            )
        if reduction not in REDUCTIONS:
            raise ValueError(
                f'{type(self).__name__}: reduction "{reduction}"; expected one of {", ".join(REDUCTIONS)}'
            )
        self.reduction = reduction
        self._options: dict[str, Any] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.fixed and "_options" in vars(self):
            raise AttributeError(f"{type(self).__name__}: {name} is fixed; make a new {type(self).__name__}")
        super().__setattr__(name, value)

    def __call__(
        self, outputs: Tensor | Array, targets: Tensor | Array, weight: npt.ArrayLike | None = None
    ) -> Tensor:
        """The loss of a batch, under the reduction: a Tensor of one number, to call `backward` on.

        Its `data` answers ``numpy()``.

        Parameters
        ----------
        outputs : Tensor, shape (n, k)
            Or of images or lines, whose k elements count as outputs.
        targets : ndarray or Tensor
            As each loss says, or of the outputs' shape. No gradient goes back through them.
        weight : array, shape (n,), optional
            Of the rows, numbers from 0; each is 1 unless given. If all are 0, so are the loss and its
            gradient.

        Raises
        ------
        TypeError
            If outputs are neither a Tensor nor floats, or targets or weights no numbers.
        ValueError
            If targets or weights do not fit the outputs, or parameters lie behind the targets.
        """
        where = type(self).__name__
        if not isinstance(outputs, Tensor):
            if not isinstance(outputs, np.ndarray):
                raise TypeError(f"{where}: outputs are of type {kind_of(outputs)}, expected a pdnn.Tensor")
            outputs = Tensor(outputs)
        if outputs.ndim < 2:
            raise ValueError(
                f"{where}: outputs have shape {outputs.shape}, expected one row a sample, (n, k)"
            )
        if recording() and isinstance(targets, Tensor) and targets.requires_grad:
            raise ValueError(
                f"{where}: parameters lie behind the targets, and a loss has no gradient for them; pass "
                "targets.detach(), or make them under no_grad()"
            )
        dtype = name_of(outputs.dtype)
        core, width = core_for(dtype), prod(outputs.shape[1:])
        if outputs.ndim > 2 and np.shape(targets) == outputs.shape:  # values of images or lines
            targets = np.reshape(targets, (len(outputs), width))
        rows, weights = prepare_rows(where, targets, weight, self, width, dtype)
        wanted = recording() and outputs.requires_grad
        y = np.ascontiguousarray(outputs.data)
        value, counted, dy = core.evaluate_loss(self.build(core), y, rows, weights, wanted)
        loss = Tensor(np.float64(value), None if dy is None else LossNode(outputs, dy, counted))
        loss.data = loss.data.view(Values)
        return loss

    def build(self, core: Width) -> CoreLoss:
        """This loss as an object of the C++ core; `core` is its submodule for one width.

        Raises
        ------
        TypeError
            If it is a subclass of none of pdnn's losses.
        """
        if self.core_name is None:
            raise TypeError(
                f"{type(self).__name__}: the core has no such loss; subclass one that it has, "
                "such as nn.MSELoss"
            )
        loss: CoreLoss = getattr(core, self.core_name)(self.reduction, **self._core_options())
        return loss

    def _core_options(self) -> dict[str, Any]:
        """The arguments of the core's loss beside the reduction."""
        return self._options

    def _set_number(self, valid: Callable[[float], bool], expected: str, **option: float) -> None:
        """Takes an option that is a number and `valid`; else raises TypeError or ValueError."""
        ((name, value),) = option.items()
        self._options[name] = float(number(self, name, value, expected, valid))

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self._options.items())
        return f"{type(self).__name__}(reduction={self.reduction!r}{options})"


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


def check_loss(where: str, name: str, loss: object) -> None:
    """Raises TypeError unless it is a loss that the core computes as a call of it does."""
    kind = type(loss)
    if not isinstance(loss, Loss):
        raise TypeError(f"{where}: {name} is of type {kind_of(loss)}, expected one of pdnn.nn's losses")
    if kind.__call__ is not Loss.__call__:
        raise TypeError(
            f"{where}: {kind.__name__} has a __call__ of its own, which the core does not call; write the "
            "loop by hand"
        )
