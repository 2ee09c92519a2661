"""Loss: the base of the losses, and how one is called."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from pdnn.checks import kind_of, number
from pdnn.core import CoreLoss, Width, core_for, name_of
from pdnn.nn.eager import LossNode
from pdnn.nn.targets import prepare_rows
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

    def expected(self, outputs: Array) -> Array:
        """What the targets of rows with these outputs are expected to be: rates of their logarithms, say.

        Metrics that compare numbers compare these with the targets.
        """
        return outputs

    def __repr__(self) -> str:
        options = "".join(f", {name}={value!r}" for name, value in self._options.items())
        return f"{type(self).__name__}(reduction={self.reduction!r}{options})"


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
