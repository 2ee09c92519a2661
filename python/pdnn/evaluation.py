"""Evaluation: losses and predictions of a training's model, in evaluation mode."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt

from pdnn.comm import Communicator
from pdnn.comm.calls import rows_of_ranks
from pdnn.comm.communicator import check_communicator
from pdnn.comm.settings import compare
from pdnn.core import CoreEvaluator, core_for
from pdnn.data import Dataset, Subset
from pdnn.data.checks import Indices
from pdnn.data.source import AS_THEY_ARE, Data, Source, data_of, refuse_raw, samples_of, source_of
from pdnn.metrics import Metric, Metrics, accuracy, measure, named
from pdnn.store import Array
from pdnn.training import Training


class Evaluation(Training):
    """A training whose model is evaluated and predicts, by the threads that train it."""

    _evaluator: CoreEvaluator | None = None

    def evaluate(
        self,
        data: Data | npt.ArrayLike,
        y: npt.ArrayLike | None = None,
        *,
        metrics: Metrics | None = None,
        comm: Communicator | None = None,
    ) -> dict[str, float]:
        """Loss, accuracy for classification, and metrics, in evaluation mode.

        Parameters
        ----------
        data : Dataset, Subset, (x, y), or x
        y : array or list, optional
            The labels, where `data` is x.
        metrics : list of str, callable or dict of str to callable, or such a dict, optional
            Others than the trainer's.
        comm : Communicator, optional
            Given, its ranks share the rows and all get the result, for which all must pass the same data;
            otherwise the caller does all rows and nothing is communicated.

        Returns
        -------
        dict
            ``{"loss": …, "accuracy": …}``, means in which each row counts its weight (0 if all are 0); and
            each metric by its name, of all rows alike.

        Raises
        ------
        TypeError, ValueError
            If the data have no rows or do not fit the model or a metric, or a label is a name that it was not
            trained on; on every rank, if ranks pass other data.
        """
        if comm is not None:
            check_communicator("evaluate", comm)
        wanted = self.metrics if metrics is None else named(metrics)
        source = source_of("evaluate", data_of("evaluate", data, y), self.model, self.loss, self.classes_)
        if len(source) == 0:
            raise ValueError("evaluate: the data have no rows, so there is no mean loss")
        refuse_raw("evaluate", source, self._scale)
        if comm is not None and comm.size > 1:
            own = {"rows": len(source), "data with the digest": source.digest(), "metrics": list(wanted)}
            compare(comm, "evaluate", own, "all ranks must pass the same data, whose rows they share")
        return self.evaluate_source(source, wanted, comm)

    def evaluate_source(
        self, source: Source, metrics: dict[str, Metric], comm: Communicator | None
    ) -> dict[str, float]:
        """As `evaluate`, of a source that was made before."""
        rows = source.rows
        if comm is not None:
            counts = rows_of_ranks(len(rows), comm.size)
            rows = rows[sum(counts[: comm.rank]) :][: counts[comm.rank]]
        width, ranks = source.width, None if comm is None else comm.core
        metrics = self._uncounted(metrics, width)
        *own, outputs = self._evaluating().loss(
            self.core_loss, source.core, width, rows, ranks, outputs=bool(metrics)
        )
        sums = np.array(own, np.float64)
        if comm is not None and comm.size > 1:
            comm.all_reduce(sums)
        loss, correct = (sums[:2] / (sums[2] or 1)).tolist()
        known = {"loss": loss} | ({"accuracy": correct} if self.core_loss.classifies(width) else {})
        if outputs is None:
            return known
        return known | self._measure(source, rows, outputs, metrics, comm)

    def _uncounted(self, metrics: dict[str, Metric], width: int) -> dict[str, Metric]:
        """Those that the core does not count; accuracy by the loss's threshold."""
        if self.core_loss.classifies(width):
            return {name: metric for name, metric in metrics.items() if metric is not accuracy}
        by_loss = partial(accuracy, threshold=self.loss.threshold)
        return {name: by_loss if metric is accuracy else metric for name, metric in metrics.items()}

    def _measure(
        self,
        source: Source,
        rows: Indices,
        outputs: Array,
        metrics: dict[str, Metric],
        comm: Communicator | None,
    ) -> dict[str, float]:
        """The metrics over the rows of all ranks, on every rank; these are its own."""
        columns = [source.arrays[1][rows], outputs]
        if source.arrays[4] is not None:
            columns.append(source.arrays[4][rows].astype(np.float64))
        if comm is not None and comm.size > 1:
            columns = [np.concatenate(comm.all_gather(column)) for column in columns]
        return measure(metrics, *columns, expected=self.loss.expected)

    def predict(self, x: Dataset | Subset | npt.ArrayLike) -> Array:
        """The model's raw outputs, in evaluation mode.

        Any number of threads may call this, and `evaluate` without `comm`, at once; the calls take turns.

        Parameters
        ----------
        x : Dataset, Subset, or samples as `fit` takes them, shape (n, ...)

        Returns
        -------
        ndarray, shape (n, outputs), of the model's dtype

        Raises
        ------
        TypeError
            If x has integers, and `fit` has not just trained on unscaled integers: only a Dataset knows
            their scale.
        ValueError
            If the samples do not fit the model.
        """
        source, rows = samples_of("predict", x, self.model.dtype, self._scale == AS_THEY_ARE)
        return self._evaluating().predict(source, rows)

    def predict_classes(self, x: Dataset | Subset | npt.ArrayLike) -> Array:
        """The class of each sample: of the largest output, or 1 where a single one is above the threshold.

        Returns
        -------
        ndarray, shape (n,)
            Names, where `fit` was given names (`classes_`); else numbers, int64.

        Raises
        ------
        TypeError, ValueError
            As `predict`; or if an output is NaN, or there are names, but none for a class that is predicted.
        """
        outputs = self.predict(x)
        if (unknown := np.isnan(outputs).any(axis=1)).any():
            raise ValueError(
                f"predict_classes: row {int(unknown.argmax())} has outputs that are NaN, and so no class; "
                "predict returns the outputs"
            )
        if outputs.shape[1] > 1:
            numbers: Array = np.argmax(outputs, axis=1)
        else:
            numbers = (outputs[:, 0] > self.loss.threshold).astype(np.int64)
        if self.classes_ is None:
            return numbers
        if (largest := numbers.max(initial=0)) >= len(self.classes_):
            raise ValueError(
                f"predict_classes: class {largest} has no name; the model has {outputs.shape[1]} outputs and "
                f"the names {self.classes_.tolist()}"
            )
        return self.classes_[numbers]

    def forget_evaluator(self) -> None:
        """The next one has as many threads as the strategy has by then."""
        self._evaluator = None

    def _evaluating(self) -> CoreEvaluator:
        evaluator = self._evaluator
        if evaluator is None:
            core, threads = core_for(self.model.dtype), self.strategy.engine.threads
            evaluator = self._evaluator = core.Evaluator(self.model.core, threads)
        return evaluator
