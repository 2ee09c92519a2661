"""Labels as users have them, turned once into what the core computes with."""

from __future__ import annotations

from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from pdnn.arrays import to_numpy
from pdnn.checks import undated, unmasked
from pdnn.store import Array


class Judge(Protocol):
    """The interface of a loss for this module."""

    takes_classes: ClassVar[bool]
    one_class_a_row: ClassVar[bool]
    takes_probabilities: ClassVar[bool]

    @property
    def one_target_a_row(self) -> bool:
        """Whether a single target of a row is that of all its outputs."""

    @property
    def ignore_index(self) -> int | None:
        """The class of rows that do not count, beside those that the model knows."""


def prepare_rows(
    where: str, y: npt.ArrayLike, weight: npt.ArrayLike | None, loss: Judge, outputs: int, dtype: str
) -> tuple[Array, Array | None]:
    """Targets as `prepare_targets` makes them, and the weights of their rows as `row_weights` does.

    Rows of the class that the loss ignores have weight 0.

    Raises
    ------
    TypeError, ValueError
        As these two do.
    """
    rows = _array(where, "y", y)
    if rows.ndim == 0:
        raise ValueError(f"{where}: labels have shape (), expected (n,) or (n, {outputs})")
    if loss.ignore_index is not None and loss.ignore_index >= 0 and rows.dtype.kind == "f":
        raise ValueError(
            f"{where}: ignore_index {loss.ignore_index} with labels that are {rows.dtype}; it ignores "
            "integer classes: give rows of probabilities a weight of 0 instead"
        )
    weights = None if weight is None else row_weights(where, weight, len(rows))
    if loss.ignore_index is not None and rows.dtype.kind in "iub":
        if rows.shape[1:] == (outputs,) and _one_hot(rows):
            rows = rows.argmax(axis=1)
        if rows.ndim == 1 and (ignored := rows == loss.ignore_index).any():
            rows = np.where(ignored, 0, rows)
            weights = np.where(ignored, 0.0, 1.0 if weights is None else weights)
    targets = prepare_targets(where, rows, loss, outputs, dtype)
    if loss.takes_probabilities and targets.ndim == 2:
        _check_probabilities(where, targets, weights)
    return targets, weights


def _array(where: str, name: str, given: npt.ArrayLike) -> Array:
    unmasked(where, name, given)
    undated(where, name, given)
    return to_numpy(given)


def prepare_targets(where: str, y: Array, loss: Judge, outputs: int, dtype: str) -> Array:
    """Classes as int32, shape (n,), or values of the model's dtype, shape (n, outputs).

    Parameters
    ----------
    where : str
        Begins the messages.
    y : ndarray
        Integers (n,): classes, checked to lie in [0, outputs) (for a single output: 0 and 1), where the loss
        takes classes; those of a single output may be a column, (n, 1). Integers (n, outputs): one-hot rows
        or targets. Numbers (n, outputs), or floats (n,), and integers where the loss takes no classes, for a
        single output: targets. If the loss has one target a row, it is that of all outputs.
    outputs : int
        Width of the model's output.

    Returns
    -------
    ndarray
        C-ordered. Classes are a copy: what was checked cannot change under way. Targets that are as needed
        are y itself.

    Raises
    ------
    TypeError
        If y is neither integers nor floats.
    ValueError
        If its shape or a class does not fit, naming the first row that does not.
    """
    y = np.asarray(y)
    kind = y.dtype.kind
    if kind not in "iubf":
        raise TypeError(f"{where}: labels are {y.dtype}, expected integers or floats")
    if loss.one_class_a_row and outputs == 1:
        raise ValueError(
            f"{where}: the network has 1 output, and targets are classes, each of which needs one; use a "
            "network of 2 outputs and labels that are integers, or BCEWithLogitsLoss for classes 0 and 1"
        )
    if y.ndim == 1 and kind == "f" and outputs != 1 and not loss.one_target_a_row:
        expected = "integer classes (n,) or floats" if loss.takes_classes else "numbers"
        way_out = ""
        if loss.takes_classes:
            missing = np.flatnonzero(~np.isfinite(y))
            if missing.size:
                way_out = f"; row {missing[0]} is {y[missing[0]]}: fill it, or leave it out"
            elif (y == np.trunc(y)).all():
                way_out = "; pass y.astype(int)"
        raise ValueError(
            f"{where}: labels are {y.dtype} of shape {y.shape}, expected {expected} (n, {outputs}){way_out}"
        )
    if loss.one_target_a_row and y.size == len(y):
        y = np.repeat(y.reshape(-1, 1), outputs, axis=1)
    if y.ndim == 1 and (kind == "f" or (outputs == 1 and not loss.takes_classes)):
        y = y[:, np.newaxis]
    if loss.takes_classes and kind != "f" and outputs == 1 and y.shape[1:] == (1,):
        y = y[:, 0]  # a row of one integer is a class: 1 is not the class 0 that is one-hot
    if y.ndim == 1:
        if not loss.takes_classes and (y.min(initial=0) < 0 or y.max(initial=0) >= max(outputs, 2)):
            raise ValueError(f"{where}: targets are classes, expected values of shape (n, {outputs})")
        return _classes(where, y, outputs)
    if y.ndim != 2 or y.shape[1] != outputs:
        one = "(n,) or " if loss.takes_classes or loss.one_target_a_row or outputs == 1 else ""
        column = "; pass y[:, 0]" if loss.takes_classes and y.shape[1:] == (1,) else ""
        raise ValueError(f"{where}: labels have shape {y.shape}, expected {one}(n, {outputs}){column}")
    if kind != "f" and loss.takes_classes:
        if _one_hot(y):
            return np.asarray(y.argmax(axis=1), np.int32)
        if loss.one_class_a_row:
            raise ValueError(
                f"{where}: integer labels of shape {y.shape} are not one-hot; pass probabilities as floats"
            )
    with np.errstate(over="ignore"):  # infinity comes of it, which is told with its row
        return np.ascontiguousarray(y, dtype=dtype)


def _check_probabilities(where: str, y: Array, weights: Array | None) -> None:
    low, high = -1e-6, 1 + 1e-6  # sums of probabilities are rounded
    if y.size and not (y.min() >= low and y.max() <= high):
        wrong = ((y < low) | (y > high)).any(axis=1)
        if weights is not None:
            wrong &= weights != 0
        if wrong.any():  # else NaN, which is told elsewhere
            row = int(np.argmax(wrong))
            raise ValueError(
                f"{where}: targets of row {row} are {y[row].tolist()[:8]}, expected numbers from 0 to 1; "
                "divide masks of 255 by 255, and give classes -1 and 1 as 0 and 1"
            )


def _classes(where: str, y: Array, outputs: int) -> Array:
    classes, whose = max(outputs, 2), "the model's classes"
    if outputs == 1:
        whose = "the classes of a network with 1 output; give it an output for each class"
    wrong = (y < 0) | (y >= classes) if y.dtype.kind == "i" else y >= classes
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"{where}: label {y[row]} of row {row} is outside 0 … {classes - 1}, {whose}")
    return y.astype(np.int32, order="C")


def _one_hot(y: Array) -> bool:
    return bool(((y == 0) | (y == 1)).all() and (y.sum(axis=1, dtype=np.int64) == 1).all())


def row_weights(where: str, weight: npt.ArrayLike, rows: int) -> Array:
    """Weights of rows as float64, shape (rows,); what is so already is not copied.

    Raises
    ------
    TypeError
        If they are no numbers.
    ValueError
        If there is not one a row, or one is negative or not finite, naming the first such row.
    """
    given = _array(where, "weight", weight)
    if given.dtype.kind not in "iubf":
        raise TypeError(f"{where}: weight has dtype {given.dtype}, expected one number a row")
    if given.shape != (rows,):
        raise ValueError(
            f"{where}: weight has shape {given.shape}, expected ({rows},), one number for each of the rows"
        )
    wrong = ~((given >= 0) & (given < np.inf))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise ValueError(f"{where}: weight {given[row]} of row {row}; expected finite numbers, 0 or more")
    return np.ascontiguousarray(given, np.float64)


def target_width(targets: Array) -> int:
    """0 for classes, else values a row."""
    return 0 if targets.ndim == 1 else targets.shape[1]
