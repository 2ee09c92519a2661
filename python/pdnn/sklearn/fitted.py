"""Fitted: the network of an estimator, its parameters under scikit-learn's names, and its outputs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from pdnn import nn
from pdnn.checks import unmasked
from pdnn.core import array_dtype, core_for
from pdnn.data.source import samples_of
from pdnn.data.sparse import is_sparse
from pdnn.sklearn.network import linears
from pdnn.sklearn.rows import Blocks, check_range
from pdnn.sklearn.settings import Settings
from pdnn.store import Array

NOT_FINITE = (
    "Solver produced non-finite parameter weights. The input data may contain large values and need to be "
    "preprocessed."
)


BLOCK = 2048
"""Rows whose outputs one thread computes at a time."""


class Memory(list[Array]):
    """Arrays of a network's layers: one that takes the place of another is copied into its memory."""

    def __setitem__(self, place: Any, given: Any) -> None:
        several = isinstance(place, slice)
        own = self[place] if several else [self[place]]
        unmasked("an estimator", "coefs_ or intercepts_", given)
        new = [np.asarray(array) for array in (given if several else [given])]
        shapes, came = ([array.shape for array in arrays] for arrays in (own, new))
        if shapes != came:
            raise ValueError(f"got arrays of shape {came}, the layers have {shapes}")
        for memory, array in zip(own, new, strict=True):
            memory[...] = array


class Fitted(Settings):
    """An estimator that may have a network, `model_`."""

    model_: nn.Sequential
    n_outputs_: int
    out_activation_: str

    @property
    def coefs_(self) -> list[Array]:
        """The weights of each layer, shape (inputs, outputs): the memory of `model_`."""
        return Memory(linear.weight.data for linear in linears(self._fitted_model("coefs_")))

    @coefs_.setter
    def coefs_(self, arrays: Iterable[Array]) -> None:
        self.coefs_[:] = arrays

    @property
    def intercepts_(self) -> list[Array]:
        """The biases of each layer, shape (outputs,): the memory of `model_`."""
        biases = [linear.bias for linear in linears(self._fitted_model("intercepts_"))]
        return Memory(bias.data for bias in biases if bias is not None)

    @intercepts_.setter
    def intercepts_(self, arrays: Iterable[Array]) -> None:
        self.intercepts_[:] = arrays

    def _fitted_model(self, name: str) -> nn.Sequential:
        if "model_" not in vars(self):
            raise AttributeError(f"{type(self).__name__} has no {name} before it is fitted")
        self.model_.place()  # a copy's parameters have no memory before
        return self.model_

    @property
    def _scale(self) -> float:
        """How many times scikit-learn's loss the loss is."""
        return 1.0

    def _criterion(self, reduction: str) -> Any:
        """The loss of raw outputs."""
        raise NotImplementedError

    def _smoothed(self, targets: Array) -> Array:
        """Targets as the loss takes them."""
        return targets

    def _score_of(self, outputs: Array, targets: Array, weight: Array | None) -> float:
        """The score of raw outputs for rows of these weights, as `score` has it."""
        raise NotImplementedError

    def _reported(self, loss: float) -> float:
        """A row's loss as scikit-learn reports it."""
        return loss / self._scale

    def _raw(self, x: Any, threads: int) -> Array:
        """Raw outputs for a validated table, shape (n, outputs)."""
        model = self.model_
        dtype = np.dtype(array_dtype(model.dtype))

        def outputs(block: slice) -> Array:
            check_range(x[block], dtype)
            return model.predict(np.ascontiguousarray(x[block], dtype))

        model.place()  # which threads would otherwise do at once
        if is_sparse(x):
            check_range(x, dtype)
            source, rows = samples_of("predict", x, model.dtype, plain=True)
            return core_for(model.dtype).Evaluator(model.core, threads).predict(source, rows)
        with Blocks(x.shape[0], BLOCK, threads) as blocks:
            return np.concatenate([*blocks.results(outputs)])

    def _outputs(self, X: Any) -> Array:
        """Raw outputs for a table as users have it, float64.

        Raises
        ------
        NotFittedError, ValueError, TypeError
        """
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        threads = self._workers().threads if X.shape[0] > BLOCK else 1
        return self._raw(X, threads).astype(np.float64, copy=False)
