"""MLPClassifier: one of several classes, or any number of labels, for each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any, ClassVar, TypeVar

import numpy as np
from scipy.special import expit, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import (
    _check_partial_fit_first_call,
    check_classification_targets,
    type_of_target,
    unique_labels,
)
from sklearn.utils.validation import column_or_1d

from pdnn import nn
from pdnn.sklearn.perceptron import Perceptron
from pdnn.store import Array
from pdnn.strategies import Strategy

Self = TypeVar("Self", bound="MLPClassifier")


class MLPClassifier(ClassifierMixin, Perceptron):
    """A multilayer perceptron that classifies, in the place of ``sklearn.neural_network.MLPClassifier``.

    Parameters to `max_fun` have scikit-learn's meaning and defaults. With the same ``random_state`` the
    network begins with scikit-learn's parameters and the order of rows is scikit-learn's, so that in float64
    the steps of "sgd" are scikit-learn's to rounding. docs/sklearn.md says what differs.

    Parameters
    ----------
    hidden_layer_sizes : int or sequence of int
        Widths of the hidden layers; ``()`` for none.
    activation : str or sequence of str
        "identity", "logistic", "tanh", "relu", "leaky_relu", "gelu", "silu", "elu" or "softplus": of all
        hidden layers, or one for each.
    solver : "adam", "sgd" or "lbfgs"
    alpha : float
        L2: alpha/2 times the sum of squared weights, over the rows of the batch, is added to the loss.
    batch_size : int or "auto"
        Rows of an update, over all threads and ranks; "auto" is min(200, n).
    learning_rate : "constant", "invscaling" or "adaptive"
        Of "sgd".
    learning_rate_init : float
    power_t : float
        Exponent of "invscaling": after each epoch the rate is ``learning_rate_init / (t_ + 1) ** power_t``.
    max_iter : int
        Epochs at most; iterations of "lbfgs".
    shuffle : bool
    random_state : int, RandomState or None
        Under ranks, rank 0's.
    tol : float
        What counts as an improvement of the loss, or of the validation score; of "lbfgs", how small the
        largest element of the gradient has to be.
    verbose : bool
    warm_start : bool
        Whether `fit` goes on with the parameters that it finds.
    momentum, nesterovs_momentum : float, bool
        Of "sgd".
    early_stopping : bool
        Stops by a validation score, and keeps the best parameters.
    validation_fraction : float
        Of the rows, held out for early stopping unless `fit` gets X_val and y_val.
    beta_1, beta_2, epsilon : float
        Of "adam", as in algorithm 1 of its paper.
    n_iter_no_change : int
        Epochs without improvement after which it stops, or "adaptive" divides the rate by 5.
    max_fun : int
        Evaluations at most, of "lbfgs".
    dropout : float or sequence of float
        Share of a hidden layer's outputs that are zeroed in training: of all, or one for each.
    batch_norm : bool
        Whether hidden layers are normalized over the batch before their activation.
    dtype : "auto", "float32", "float64" or "bfloat16"
        Of the arithmetic. "auto" is float64 for "lbfgs", and for X of another type than float32 where steps
        are very short; else float32.
    strategy : str or Strategy
        How steps are computed in parallel, as `pdnn.Trainer` takes it; "auto": by `n_jobs`.
    n_jobs : int, optional
        Threads; -1 is all cores. None: what ``joblib.parallel_config`` says; in a worker of joblib, such as
        that of a search, one; else as many as pay, by the first steps of a fit that takes more than .01 s.
    class_weight : dict, "balanced" or None
        What a row of each class counts in the loss, beside its own weight; "balanced": n / (classes · rows of
        the class). With several labels a list of dicts, one for each.
    label_smoothing : float
        Share of a row's probability that its target spreads evenly over all classes.

    Attributes
    ----------
    model_ : nn.Sequential
        The network, which ends in raw outputs (logits).
    coefs_, intercepts_ : list of ndarray
        Weights, shape (inputs, outputs), and biases: the memory of `model_`.
    classes_ : ndarray
    loss_, best_loss_ : float
        Of the last epoch, and the least of all; ``best_loss_`` is None with early stopping.
    loss_curve_ : list of float
        Loss of each epoch, with the L2 term (of several updates in an epoch, as if it grew evenly).
    validation_scores_, best_validation_score_ : list of float, float
        None unless there are rows to validate with.
    n_iter_, t_, n_layers_, n_outputs_, n_features_in_ : int
        Epochs of the last fit; rows trained on; layers; outputs; features.
    feature_names_in_ : ndarray of str
        Where X had names.
    out_activation_ : "softmax" or "logistic"
    stopped_ : bool
        Whether the last fit, or calls of `partial_fit`, ended for lack of improvement. After "lbfgs", which
        has no epochs, there is neither this nor `loss_curve_`, `best_loss_` and those of validation.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MLPClassifier((50,), dropout=0.1, learning_rate_init=0.01, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    classes_: Array
    _multilabel: bool

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = Perceptron._parameter_constraints | {
        "class_weight": [dict, list, StrOptions({"balanced"}), None],
        "label_smoothing": [Interval(Real, 0, 1, closed="left")],
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
        class_weight: Mapping[Any, float] | str | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        self._take(locals())

    @available_if(lambda estimator: estimator._check_partial())
    def partial_fit(
        self: Self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        classes: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
    ) -> Self:
        """One pass over these rows.

        With ``early_stopping=True`` each pass is scored, on X_val or else on a part of these rows, on which
        it does not train. After more than `n_iter_no_change` passes without improvement the parameters of
        the best one are put back, `stopped_` is True, and later calls change nothing.

        Parameters
        ----------
        X, y, sample_weight, X_val, y_val
            As for `fit`.
        classes : array, shape (n_classes,)
            Of all calls; the first call needs them.

        Returns
        -------
        self
        """
        with self._undone_by_errors():
            _check_partial_fit_first_call(self, classes)
            if self.class_weight == "balanced":
                raise ValueError(
                    'class_weight="balanced" counts the classes of all rows, which partial_fit does not see; '
                    "pass a dict, as sklearn.utils.class_weight.compute_class_weight makes it"
                )
            return self._fit(X, y, sample_weight, X_val, y_val, incremental=True)

    def predict(self, X: Any) -> Array:
        """The class of each row, shape (n,), or its labels as zeros and ones, shape (n, labels)."""
        codes = self._codes(self._outputs(X))
        if self._multilabel:
            return codes.astype(np.int64)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of classes in the order of `classes_`, or of labels, shape (n, classes), float64."""
        outputs = self._outputs(X)
        if self.out_activation_ == "softmax":
            return np.asarray(softmax(outputs, axis=1))
        return np.asarray(expit(self._both(outputs)))

    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of `predict_proba`; -inf where a probability is 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def _both(self, outputs: Array) -> Array:
        """Raw outputs of both classes, where there are two."""
        return outputs if self._multilabel else np.hstack([-outputs, outputs])

    def _codes(self, outputs: Array) -> Array:
        """Class numbers, or a boolean for each label."""
        if self.out_activation_ == "softmax":
            return np.asarray(np.argmax(outputs, axis=1))
        if self._multilabel:
            return outputs > 0
        return np.minimum(outputs[:, 0] > 0, len(self.classes_) - 1).astype(np.int64)  # there may be one

    def _score_of(self, outputs: Array, targets: Array, weight: Array | None) -> float:
        right = self._codes(outputs) == targets
        return float(np.average(right.all(axis=1) if self._multilabel else right, weights=weight))

    def _counted(self, y: Array, weight: Array | None) -> Array | None:
        if self.class_weight is None:
            return weight
        if self.class_weight == "balanced":
            columns = y.T if self._multilabel else [y.ravel()]
            by_class = np.prod([_balanced(column, weight) for column in columns], axis=0)
        else:  # which classes there are does not depend on the rows
            known = np.tile([[0], [1]], y.shape[1]) if self._multilabel else self.classes_
            rows = np.concatenate([known, y if self._multilabel else y.ravel()])
            by_class = compute_sample_weight(self.class_weight, rows)[-len(y) :]
        if not (np.isfinite(by_class).all() and by_class.min() >= 0):
            raise ValueError(f"class_weight={self.class_weight}: expected finite numbers, 0 or more")
        return np.asarray(by_class if weight is None else weight * by_class)

    def _encoded(self, y: Array, new: bool) -> Array:
        if y.dtype == object and any(label is None for label in y.flat):
            raise ValueError("y has missing labels (None); leave their rows out")
        if y.dtype == object and len({isinstance(label, str) for label in y.flat}) > 1:
            raise TypeError(
                "y has words beside other labels, which have no common order; make all of them words"
            )
        if (kind := type_of_target(y)) not in ("binary", "multiclass", "multilabel-indicator"):
            check_classification_targets(y)
            raise ValueError(
                f"y is {kind}: several classes a row are not supported; fit a model for each column"
            )
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        if new:
            self.classes_ = unique_labels(y)
        if not len(self.classes_):
            raise ValueError("classes: got none; pass those of all calls")
        if new or "_multilabel" not in vars(self):
            self._multilabel = y.ndim == 2
        if self._multilabel != (y.ndim == 2) or (y.ndim == 2 and y.shape[1] != len(self.classes_)):
            raise ValueError(
                f"y has shape {y.shape}, the model was fitted to {len(self.classes_)} "
                f"{'labels a row' if self._multilabel else 'classes'}"
            )
        if self._multilabel:
            if len(others := y[(y != 0) & (y != 1)]):
                raise ValueError(
                    f"y has {others[0]} among several labels a row; expected 1 where a row has one, else 0"
                )
            return np.asarray(y, np.float32)
        try:
            codes: Array = np.minimum(np.searchsorted(self.classes_, y), len(self.classes_) - 1)
        except TypeError:  # words and numbers have no common order, so that none is known
            codes = np.zeros(len(y), np.int64)
        if len(unknown := y[self.classes_[codes] != y]):
            raise ValueError(
                f"y has classes that the model was not fitted to, such as {unknown[0]}; "
                f"it knows {self.classes_}"
            )
        return codes

    def _names(self) -> list[str] | None:
        numbered = np.array_equal(self.classes_, np.arange(len(self.classes_)))
        return None if self._multilabel or numbered else list(map(str, self.classes_.tolist()))

    def _width(self, targets: Array) -> int:
        if targets.ndim == 2:
            return int(targets.shape[1])
        return len(self.classes_) if len(self.classes_) > 2 else 1

    def _link(self) -> str:
        return "softmax" if self.n_outputs_ > 1 and not self._multilabel else "logistic"

    def _criterion(self, reduction: str) -> Any:
        if self.out_activation_ == "softmax":
            return nn.CrossEntropyLoss(reduction, label_smoothing=self.label_smoothing)
        return nn.BCEWithLogitsLoss(reduction)

    def _smoothed(self, targets: Array) -> Array:
        if self.out_activation_ == "softmax" or self.label_smoothing == 0:
            return targets
        share, exact = self.label_smoothing, targets.astype(np.float64)
        return np.asarray(exact * (1 - share) + share / 2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags


def _balanced(labels: Array, weight: Array | None) -> Array:
    """What balances the classes: n / (classes · rows of the class), where rows count their weight."""
    codes = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(codes, weight).astype(np.float64)
    there = counts > 0
    shares = np.divide(counts.sum() / max(there.sum(), 1), counts, out=np.zeros(len(counts)), where=there)
    return np.asarray(shares[codes])
