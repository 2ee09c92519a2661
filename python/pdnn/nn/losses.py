"""The losses, under torch's names and defaults."""

from __future__ import annotations

from typing import Any, ClassVar

from pdnn.nn.eager import call_loss
from pdnn.nn.parameter import Array
from pdnn.tensor import Tensor

REDUCTIONS = ("mean", "sum", "batchmean")


class Loss:
    """Base of the losses.

    Parameters
    ----------
    reduction : "mean", "sum" or "batchmean"
        "mean" averages over rows (and, where each output has a target of its own, over outputs); "sum" adds
        everything up; "batchmean" sums over outputs and averages over rows.

    Raises
    ------
    ValueError
        If the reduction is none of these.
    """

    #: Whether integers of shape (n, k) that are one-hot rows may be read as classes.
    takes_one_hot: ClassVar[bool] = False

    def __init__(self, reduction: str = "mean") -> None:
        if reduction not in REDUCTIONS:
            raise ValueError(
                f'{type(self).__name__}: reduction "{reduction}"; expected one of {", ".join(REDUCTIONS)}'
            )
        self.reduction = reduction

    def __call__(self, outputs: Tensor | Array, targets: Array) -> Tensor:
        """The loss of a batch, under the reduction: a Tensor of one number, to call `backward` on.

        Parameters
        ----------
        outputs : Tensor, shape (n, k)
        targets : ndarray
            As each loss says.

        Raises
        ------
        TypeError, ValueError
            If targets do not fit the outputs.
        """
        return call_loss(self, outputs, targets)

    def build(self, core: Any) -> Any:
        """This loss as an object of the C++ core; `core` is its submodule for one width."""
        return getattr(core, type(self).__name__)(self.reduction)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(reduction={self.reduction!r})"


class CrossEntropyLoss(Loss):
    """Softmax and negative log-likelihood in one, on logits of shape (n, classes).

    Targets: classes (n,), one-hot integer rows (n, classes), or probabilities (n, classes) as floats.
    A row's loss is -Σ_j t_j log softmax(y)_j.
    """

    takes_one_hot = True


#: The name that the Horovod-style exercises use.
SoftmaxLoss = CrossEntropyLoss


class NLLLoss(Loss):
    """Negative log-likelihood -y[class] of log-probabilities (n, classes), as LogSoftmax makes them."""

    takes_one_hot = True


class BCELoss(Loss):
    """Binary cross-entropy -t log y - (1 - t) log(1 - y) of probabilities, one target an output.

    Targets: values (n, outputs), one-hot integer rows, or classes (n,) (for a single output: 0 and 1).
    Logarithms are at least -100, as in torch.
    """

    takes_one_hot = True


class BCEWithLogitsLoss(Loss):
    """Binary cross-entropy of sigmoid(y), computed from the logits y without overflow."""

    takes_one_hot = True


class MSELoss(Loss):
    """Squared error (y - t)², with targets of the outputs' shape."""
