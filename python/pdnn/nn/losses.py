"""The losses, under torch's names and defaults."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from pdnn.core import CoreLoss, Width, core_for
from pdnn.nn.targets import prepare_rows
from pdnn.store import Array
from pdnn.tensor import Final, Node, Tensor, Values, recording

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
    ValueError
        If the reduction is none of these.
    """

    #: The name of what computes it in the core; a subclass computes as its base does.
    core_name: ClassVar[str | None] = None
    #: Whether targets may be classes: integers (n,), or one-hot rows of integers.
    takes_classes: ClassVar[bool] = True
    #: Whether a row has exactly one class, so that rows of integers must be one-hot.
    one_class_a_row: ClassVar[bool] = False
    #: Where a single output lies above this, its row is predicted to be of class 1.
    threshold: ClassVar[float] = 0.5

    def __init__(self, reduction: str = "mean") -> None:
        if reduction not in REDUCTIONS:
            raise ValueError(
                f'{type(self).__name__}: reduction "{reduction}"; expected one of {", ".join(REDUCTIONS)}'
            )
        self.reduction = reduction

    def __call__(
        self, outputs: Tensor | Array, targets: Array, weight: npt.ArrayLike | None = None
    ) -> Tensor:
        """The loss of a batch, under the reduction: a Tensor of one number, to call `backward` on.

        Its `data` answers ``numpy()``.

        Parameters
        ----------
        outputs : Tensor, shape (n, k)
        targets : ndarray
            As each loss says.
        weight : array, shape (n,), optional
            Of the rows, numbers from 0; each is 1 unless given. If all are 0, so are the loss and its
            gradient.

        Raises
        ------
        TypeError
            If outputs are neither a Tensor nor floats, or targets or weights no numbers.
        ValueError
            If targets or weights do not fit the outputs.
        """
        where = type(self).__name__
        if not isinstance(outputs, Tensor):
            if not isinstance(outputs, np.ndarray):
                raise TypeError(f"{where}: outputs are a {type(outputs).__name__}, expected a Tensor")
            outputs = Tensor(outputs)
        if outputs.ndim < 2:
            raise ValueError(
                f"{where}: outputs have shape {outputs.shape}, expected one row a sample, (n, k)"
            )
        dtype = str(outputs.dtype)
        core = core_for(dtype)
        rows, weights = prepare_rows(where, targets, weight, self, prod(outputs.shape[1:]), dtype)
        wanted = recording() and outputs.requires_grad
        y = np.ascontiguousarray(outputs.data)
        value, counted, dy = core.evaluate_loss(self.build(core), y, rows, weights, wanted)
        loss = Tensor(np.float64(value), None if dy is None else _LossNode(outputs, dy, counted))
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
        loss: CoreLoss = getattr(core, self.core_name)(self.reduction)
        return loss

    def __repr__(self) -> str:
        return f"{type(self).__name__}(reduction={self.reduction!r})"


class CrossEntropyLoss(Loss):
    """Softmax and negative log-likelihood in one, on logits of shape (n, classes).

    Targets: classes (n,), one-hot integer rows (n, classes), or probabilities (n, classes) as floats.
    A row's loss is -Σ_j t_j log softmax(y)_j.
    """

    core_name = "CrossEntropyLoss"
    one_class_a_row = True


#: The name that the Horovod-style exercises use.
SoftmaxLoss = CrossEntropyLoss


class NLLLoss(Loss):
    """Negative log-likelihood -y[class] of log-probabilities (n, classes), as LogSoftmax makes them."""

    core_name = "NLLLoss"
    one_class_a_row = True


class BCELoss(Loss):
    """Binary cross-entropy -t log y - (1 - t) log(1 - y) of probabilities, one target an output.

    Targets: values (n, outputs), one-hot integer rows, or classes (n,) (for a single output: 0 and 1).
    Logarithms are at least -100, as in torch.
    """

    core_name = "BCELoss"


class BCEWithLogitsLoss(Loss):
    """Binary cross-entropy of sigmoid(y), computed from the logits y without overflow."""

    core_name = "BCEWithLogitsLoss"
    threshold = 0.0


class MSELoss(Loss):
    """Squared error (y - t)², with targets of the outputs' shape, or (n,) for a single output."""

    core_name = "MSELoss"
    takes_classes = False


class _LossNode(Node):
    __slots__ = ("_dy", "rows")

    def __init__(self, outputs: Tensor, dy: Array, counted: float) -> None:
        super().__init__([outputs])
        self._dy: Array | None = dy
        self.rows = counted

    def backward(self, dy: Array, pending: bool, final: Final | None) -> Sequence[Array | None]:
        assert self._dy is not None
        factor = float(dy)
        return [self._dy if factor == 1 else self._dy * factor]

    def free(self) -> None:
        self._dy = None

    @property
    def freed(self) -> bool:
        return self._dy is None
