"""Perceptron: what `fit` and `partial_fit` do, for classes and for numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.model_selection import train_test_split
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, validate_data

from pdnn.comm import Communicator
from pdnn.sklearn.network import build
from pdnn.sklearn.passes import Work
from pdnn.sklearn.quasi_newton import QuasiNewton
from pdnn.sklearn.rows import Table
from pdnn.store import Array

Self = TypeVar("Self", bound="Perceptron")


_OF_EPOCHS = (
    "_progress",
    "stopped_",
    "loss_curve_",
    "best_loss_",
    "validation_scores_",
    "best_validation_score_",
)
"""What a fit by epochs leaves, and one by "lbfgs" does not."""


class Perceptron(QuasiNewton):
    """Base of both estimators."""

    n_layers_: int
    _layers: dict[str, Any]

    def fit(
        self: Self, X: Any, y: Any, sample_weight: Any = None, *, X_val: Any = None, y_val: Any = None
    ) -> Self:
        """Fits the model.

        Parameters
        ----------
        X : array, DataFrame or sparse matrix, shape (n, features)
            Under ranks the same on each. Zeros of a sparse matrix are left out where they can be.
        y : array, shape (n,) or (n, outputs)
        sample_weight : array, shape (n,), optional
            What each row counts, from 0. The loss of a batch is divided by the weights of its rows, and so is
            the L2 term (by those of an average batch).
        X_val, y_val : as X and y, optional
            Scored after each epoch, in `validation_scores_`. With ``early_stopping=True`` they decide when to
            stop, and no rows are held out. Not for "lbfgs", which has no epochs.

        Returns
        -------
        self

        Raises
        ------
        ValueError, TypeError
            If data or parameters are not as expected, or the loss or the network did not stay finite. What
            was fitted before is left as it was.
        """
        with self._undone_by_errors(anew=not self.warm_start):
            return self._fit(X, y, sample_weight, X_val, y_val, incremental=False)

    @contextmanager
    def _undone_by_errors(self, anew: bool = False) -> Iterator[None]:
        """An error, or an interrupt before there is a network to train, leaves what was fitted before."""
        before = vars(self).copy()
        if "_progress" in before:
            before["_progress"] = copy(self._progress)
        lengths = {name: len(value) for name, value in before.items() if isinstance(value, list)}
        learned = [values.copy() for values in self._learned()] if "model_" in before else []
        try:
            yield
        except BaseException as error:
            begun = "model_" in vars(self) and not (anew and self.model_ is before.get("model_"))
            if begun and not isinstance(error, Exception):
                raise  # an interrupted training keeps what was learned
            self.__dict__ = before
            for name, length in lengths.items():
                del before[name][length:]
            if learned:
                for values, old in zip(self._learned(), learned, strict=True):
                    values[...] = old
            raise

    def _fit(
        self: Self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any, *, incremental: bool
    ) -> Self:
        self._check()
        if (X_val is None) != (y_val is None):
            raise ValueError("X_val and y_val: got one of them; pass both or neither")
        new = "model_" not in vars(self) or not (self.warm_start or incremental)
        X, y = self._validated(X, y, reset=new)
        if sample_weight is not None:
            sample_weight = _checked(sample_weight, X)
        targets = self._encoded(y, new and not incremental)
        weight = self._counted(y, sample_weight)
        if weight is not None and not weight.any():
            raise ValueError("sample_weight: all weights are 0, so there is nothing to fit")
        table = Table(X, targets, weight)
        self.n_outputs_ = self._width(table.targets)
        held_out = None if X_val is None else self._to_validate(X_val, y_val)
        widths, activations, dropout = self._hidden()
        widths = [X.shape[1], *widths, self.n_outputs_]
        layers = {
            "hidden_layer_sizes": widths[1:-1],
            "activation": activations,
            "dropout": dropout,
            "batch_norm": self.batch_norm,
            "dtype": self.dtype,
            "out_activation_ (by loss)": self._link(),
        }
        if not new:
            self._check_same(layers)
        count = sum(inputs * outputs for inputs, outputs in pairwise(widths))
        batch = min(200 if self.batch_size == "auto" else int(self.batch_size), len(table))
        epochs = 1 if incremental else self.max_iter
        workers = self._workers(count * batch, epochs * len(table) / batch)
        random = _shared(check_random_state(self.random_state), workers.comm)
        if new:
            self.n_iter_, self.t_, self.n_layers_ = 0, 0, len(widths)
            self._layers, self.out_activation_ = layers, self._link()
            dtype = self._arithmetic(X.dtype, count * batch)
            sync = workers.comm.size > 1
            law = activations[-1] if activations else str(self.activation)
            self.model_ = build(widths, activations, law, dropout, self.batch_norm, sync, dtype, random)
            self.model_.classes = self._names()
        if self.solver == "lbfgs":
            for name in _OF_EPOCHS:  # of another network, or of other parameters
                self.__dict__.pop(name, None)
            self._minimize(table, workers.threads)
            return self
        if new or "_progress" not in vars(self):  # or fitted by "lbfgs" before
            self._begin_descent()
        rows = np.arange(len(table))
        if self.early_stopping and held_out is None:
            rows, held_out = self._hold_out(table, sample_weight, random)
        if not (incremental and self.early_stopping and self._progress.ended):
            self._descend(Work(table, rows, held_out, workers, random, incremental))
        return self

    def _hold_out(
        self, table: Table, sample_weight: Array | None, random: np.random.RandomState
    ) -> tuple[Array, Table]:
        """Numbers of rows to train on, and the rows by which early_stopping goes."""
        rows, held = self._split(table.targets, random)
        if table.weight is not None and not table.weight[rows].any():
            raise ValueError(
                "sample_weight: all rows that early_stopping does not hold out have weight 0; pass "
                "X_val, y_val"
            )
        held_out = Table(table.x, table.targets, sample_weight).pick(held)  # `score` knows no class_weight
        if held_out.weight is not None and not held_out.weight.any():
            raise ValueError(
                "sample_weight: all rows that early_stopping holds out have weight 0; pass X_val, y_val"
            )
        return rows, held_out

    def _split(self, targets: Array, random: np.random.RandomState) -> tuple[Array, Array]:
        """Numbers of rows to train on, and of those held out."""
        stratify = targets if is_classifier(self) and self.n_outputs_ == 1 else None
        rows = np.arange(len(targets))
        fraction = self.validation_fraction
        try:
            train, held = train_test_split(rows, test_size=fraction, stratify=stratify, random_state=random)
        except ValueError as error:
            raise ValueError(
                f"early_stopping: {fraction:g} (validation_fraction) of {len(rows)} rows cannot be held out; "
                f"pass X_val and y_val, or more rows ({error})"
            ) from error
        if len(held) < 2:
            raise ValueError(
                "The validation set is too small. Increase 'validation_fraction' or the size of your dataset."
            )
        return train, held

    def _to_validate(self, X_val: Any, y_val: Any) -> Table:
        """Rows of one's own to score."""
        if self.solver == "lbfgs":
            raise ValueError(
                'X_val: solver="lbfgs" has no epochs after which rows could be scored; use solver="adam" or '
                '"sgd", or score the fitted model'
            )
        try:
            X_val, y_val = self._validated(X_val, y_val, reset=False)
            held_out = Table(X_val, self._encoded(y_val, False))
        except ValueError as error:
            raise ValueError(f"X_val and y_val: {error}") from error
        if self._width(held_out.targets) != self.n_outputs_:
            raise ValueError(f"y_val has {self._width(held_out.targets)} outputs, y has {self.n_outputs_}")
        return held_out

    def _check_same(self, layers: dict[str, Any]) -> None:
        """Raises ValueError if parameters ask for another network than the one that there is."""
        for name, value in layers.items():
            if value != self._layers[name]:
                raise ValueError(
                    f"{name} is {value!r} now, the network that was fitted has {self._layers[name]!r}; "
                    "put it back, or begin anew by fit with warm_start=False"
                )

    def _validated(self, X: Any, y: Any, reset: bool) -> tuple[Any, Array]:
        """X as floats, dense or CSR, and y with as many rows."""
        X, y = validate_data(
            self,
            X,
            y,
            reset=reset,
            accept_sparse="csr",
            multi_output=True,
            y_numeric=not is_classifier(self),
            dtype=(np.float64, np.float32),
        )
        return X, y.toarray() if sparse.issparse(y) else y

    def _names(self) -> list[str] | None:
        """The names of classes, where their numbers do not say all."""
        return None

    def _counted(self, y: Array, weight: Array | None) -> Array | None:
        """What encoded rows count in the loss, if not all count 1."""
        return weight

    def _encoded(self, y: Array, new: bool) -> Array:
        """Targets as pdnn's loss takes them; if `new`, their kind and classes are noted."""
        raise NotImplementedError

    def _width(self, targets: Array) -> int:
        """The number of outputs for such targets."""
        raise NotImplementedError

    def _link(self) -> str:
        """The name of what turns raw outputs into predictions."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def _shared(random: np.random.RandomState, comm: Communicator) -> np.random.RandomState:
    """The generator, in the state that it has on rank 0."""
    if comm.size > 1:
        name, words, *rest = random.get_state(legacy=True)
        keys, numbers = np.array(words, np.int64), np.array(rest, np.float64)
        comm.broadcast(keys, root=0)
        comm.broadcast(numbers, root=0)
        random.set_state((name, keys.astype(np.uint32), int(numbers[0]), int(numbers[1]), float(numbers[2])))
    return random


def _checked(sample_weight: Any, x: Any) -> Array:
    """What each row counts; ValueError if that is less than 0."""
    found: Array = _check_sample_weight(sample_weight, x, dtype=np.float64)
    if (below := np.flatnonzero(found < 0)).size:
        raise ValueError(f"sample_weight: {found[below[0]]:g} of row {below[0]}; expected numbers, 0 or more")
    return found
