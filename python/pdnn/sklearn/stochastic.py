"""Stochastic solvers: epochs of mini-batches, with scikit-learn's schedules and its rule for stopping."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from dataclasses import dataclass, field
from math import inf, isfinite, isnan
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from pdnn import optim
from pdnn.epochs import Epochs
from pdnn.optim.optimizer import Optimizer
from pdnn.sklearn.fitted import NOT_FINITE, Fitted
from pdnn.sklearn.network import linears
from pdnn.sklearn.passes import Passes, Sums, Work
from pdnn.sklearn.race import Race
from pdnn.sklearn.rows import Feed, Table
from pdnn.sklearn.workers import Workers
from pdnn.store import Array
from pdnn.strategies.engines import engines_up_to
from pdnn.trainer import Trainer

_OF_A_RANK = ("n_jobs", "random_state", "strategy", "verbose")
"""Parameters that ranks need not share; a Trainer compares what of a strategy they must."""


@dataclass
class Progress:
    """What a later call of `fit` or `partial_fit` goes on from.

    Attributes
    ----------
    optimizer : dict
        Its `state_dict`; empty before the first epoch.
    rate_init : float
        The `learning_rate_init` that its learning rate comes from.
    stale : int
        Epochs without improvement.
    best : tuple of ndarray
        Parameters and buffers of the best validation score.
    ended : bool
        Whether calls of `partial_fit` have stopped early.
    loss : str
        The `repr` of the loss that all this is of.
    """

    optimizer: dict[str, Any] = field(default_factory=dict)
    rate_init: float = 0.0
    stale: int = 0
    best: tuple[Array, ...] = ()
    ended: bool = False
    loss: str = ""


class Stochastic(Fitted):
    """An estimator that is fitted by "sgd" or "adam"."""

    n_iter_: int
    t_: int
    loss_: float
    stopped_: bool
    best_loss_: float | None
    best_validation_score_: float | None
    validation_scores_: list[float] | None
    loss_curve_: list[float]
    _progress: Progress

    def _begin_descent(self) -> None:
        """Forgets what was fitted."""
        self.loss_curve_ = []
        self.validation_scores_, self.best_validation_score_, self.best_loss_ = None, None, None
        self._progress = Progress()

    def _descend(self, work: Work) -> None:
        """Makes epochs of updates until it converges or has made all."""
        rows, workers = work.rows, work.workers
        self._take_up(work)
        batch = min(200, len(rows)) if self.batch_size == "auto" else int(self.batch_size)
        if batch > len(rows):
            warnings.warn(
                f"batch_size={batch} is larger than the {len(rows)} rows, which are one batch", stacklevel=4
            )
            batch = len(rows)
        optimizer = self._optimizer_for(work)
        seed = int(work.random.randint(2**31)) if any(self._hidden()[2]) else 0
        criterion = self._criterion("batchmean")
        trainer = Trainer(
            self.model_, criterion, optimizer, strategy=workers.strategy, seed=seed, comm=workers.comm
        )
        trainer.step = optimizer.core.steps  # dropout's masks go on with it
        step = min(trainer.strategy.rows_per_step(batch, workers.comm.size), len(rows))
        feed = Feed(
            work.table.x,
            self._smoothed(work.table.targets),
            work.table.weight,
            self.model_,
            criterion,
            rows,
            step,
        )
        if trainer.wants_auto and workers.comm.size > 1:
            trainer.choose_auto(feed.source, batch, None, None, {}, False)
        if workers.comm.size > 1:
            self._compare_ranks(work, trainer, batch)
        if trainer.strategy.same_init:
            trainer.share_model()
        engines = [trainer.strategy]
        if trainer.wants_auto and workers.comm.size == 1:
            engines = [*engines_up_to(workers.threads)]
            trainer.train_by(engines[0])
        race = Race(Epochs(trainer, feed.source, batch, shuffle=False, augment=None, timeline=False), engines)
        passes = Passes(work, trainer, race, feed, batch, self.shuffle)
        try:
            # Those of a race come and go, and no rank waits for it.
            with passes.run.together() if len(engines) == 1 else nullcontext():
                self._epochs(work, trainer, passes)
                passes.run.finish()
        except FloatingPointError as error:
            raise ValueError(
                f"{NOT_FINITE} It was in epoch {trainer.epoch + 1}; scale X and y, or lower "
                "learning_rate_init."
            ) from error
        except KeyboardInterrupt:
            if workers.comm.size > 1:
                raise
            warnings.warn("Training interrupted by user.", stacklevel=4)
        self._progress.optimizer = optimizer.state_dict()
        self._progress.ended = self.stopped_ and self.early_stopping and work.incremental
        if self.early_stopping and self._progress.best and (self.stopped_ or not work.incremental):
            for values, best in zip(self._learned(), self._progress.best, strict=True):
                values[...] = best

    def _take_up(self, work: Work) -> None:
        """Goes on from what earlier calls saw, or forgets what belongs to another loss."""
        if work.incremental and self.early_stopping and self._progress.stale > self.n_iter_no_change:
            self._progress.stale = 0  # a `fit` stopped early: passes are counted anew
        self.stopped_ = False
        loss = repr(self._criterion("sum"))
        if loss != self._progress.loss != "":  # another's moments and values
            self._progress.optimizer, self._progress.stale, self._progress.best = {}, 0, ()
            self.best_loss_ = None
            if self.best_validation_score_ is not None:
                self.best_validation_score_ = -inf
        self._progress.loss = loss
        if work.held_out is not None and self.validation_scores_ is None:
            self.validation_scores_, self.best_validation_score_ = [], -inf
        if not self.early_stopping and self.best_loss_ is None:
            self.best_loss_ = inf

    def _optimizer_for(self, work: Work) -> Optimizer:
        """The optimizer, which goes on where the last call of `partial_fit` ended."""
        optimizer = self._optimizer()
        before, rate = self._progress.optimizer, self._rate() or optimizer.param_groups[0]["lr"]
        if work.incremental and before and list(before["state"]) == optimizer.state_names():
            optimizer.load_state_dict(before)  # else another solver began, or another momentum
            if self.learning_rate_init != self._progress.rate_init:
                self._set_rate(optimizer, rate)
        self._progress.rate_init = self.learning_rate_init
        return optimizer

    def _compare_ranks(self, work: Work, trainer: Trainer, batch: int) -> None:
        """Raises ValueError on all ranks if data or parameters of one differ."""
        held_out = work.held_out
        parameters = {
            name: repr(value) for name, value in self.get_params().items() if name not in _OF_A_RANK
        }
        trainer.agree(
            {
                "batch size": batch,
                "training rows": len(work.rows),
                "row weights": work.table.weight is not None,
                "training data with the digest": work.table.digest(work.rows),
                "validation rows": None if held_out is None else len(held_out),
                "validation data with the digest": held_out and held_out.digest(np.arange(len(held_out))),
                "classes": str(vars(self).get("classes_")),
                **parameters,
            }
        )

    def _epochs(self, work: Work, trainer: Trainer, passes: Passes) -> None:
        optimizer, chief = trainer.optimizer, work.workers.comm.rank == 0
        most = 1 if work.incremental else self.max_iter
        held_out = work.held_out
        self.n_iter_, squares = 0, passes.squares()
        while self.n_iter_ < most:
            certain = min(most - self.n_iter_, self.n_iter_no_change - self._progress.stale + 1)
            if self.verbose:  # each is told when it is made
                certain = 1
            for made in passes.make(certain, self._scale * self.alpha, self._rate):
                looks = held_out is not None or made.squares is None
                with passes.run.common_model() if looks else nullcontext():
                    before, squares = squares, passes.squares() if made.squares is None else made.squares
                    self._note(made, before, squares)
                    if self.verbose and chief:
                        print(f"Iteration {self.n_iter_}, loss = {self.loss_:.8f}", flush=True)
                    improved = self._improved(held_out, work.workers, chief)
                trainer.epoch += 1
                self._progress.stale = 0 if improved else self._progress.stale + 1
            if (rate := self._rate()) is not None:
                self._set_rate(optimizer, rate)
            if self._progress.stale > self.n_iter_no_change:
                trainer.stop_training = not self._slower(optimizer, chief)
            trainer.agree_to_stop(False, False, passes.run.comm)
            if trainer.stop_training:
                self.stopped_ = True
                break
        else:
            if not work.incremental:
                warnings.warn(
                    f"Stochastic optimizer: {self.max_iter} iterations (max_iter) and not converged",
                    ConvergenceWarning,
                    stacklevel=5,
                )

    def _note(self, made: Sums, before: float, squares: float) -> None:
        """Notes the loss of an epoch; the squares of all weights were so many, and are now."""
        steps, total = made.steps, made.weight or 1
        # As if they grew evenly. Without a penalty they may be infinite.
        even = steps * before + (squares - before) * (steps - 1) / 2 if self.alpha else 0.0
        self.loss_ = self._reported(made.loss / total) + 0.5 * self.alpha * even / total
        if not isfinite(self.loss_):
            raise FloatingPointError(f"the loss is {self.loss_:g}")
        self.loss_curve_.append(self.loss_)
        self.n_iter_ += 1
        self.t_ += made.rows

    def _improved(self, held_out: Table | None, workers: Workers, chief: bool) -> bool:
        """Notes the epoch's validation score, and whether it, or else the loss, is better by `tol`."""
        if held_out is not None:
            assert self.validation_scores_ is not None and self.best_validation_score_ is not None
            score = self._score_of(self._raw(held_out.x, workers.threads), held_out.targets, held_out.weight)
            self.validation_scores_.append(score)
            if self.verbose and chief:
                print(f"Validation score: {score:f}", flush=True)
            enough = isnan(score) or score >= self.best_validation_score_ + self.tol
            if score > self.best_validation_score_:
                self.best_validation_score_ = score
                if self.early_stopping:
                    self._progress.best = tuple(values.copy() for values in self._learned())
        if self.early_stopping:
            return enough
        assert self.best_loss_ is not None
        enough = not self.loss_ > self.best_loss_ - self.tol
        self.best_loss_ = min(self.best_loss_, self.loss_)
        return enough

    def _learned(self) -> tuple[Array, Array]:
        return self.model_.flat_parameters, self.model_.flat_buffers

    def _optimizer(self) -> Optimizer:
        """The solver of two groups: weights, which the penalty is of, and the rest.

        Gradients are `_scale` times scikit-learn's; the other numbers are such that updates are the same.
        """
        model = self.model_
        weights = [linear.weight for linear in linears(model)]
        groups = [
            {"params": weights},
            {"params": [each for each in model.parameters() if each not in weights]},
        ]
        if self.solver == "adam":
            return optim.Adam(
                groups, self.learning_rate_init, (self.beta_1, self.beta_2), self._scale * self.epsilon
            )
        nesterov = self.nesterovs_momentum and self.momentum > 0
        return optim.SGD(groups, self.learning_rate_init / self._scale, self.momentum, nesterov=nesterov)

    def _rate(self, more: int = 0) -> float | None:
        """The optimizer's learning rate when so many more rows have been trained on; None if it stays."""
        if self.solver != "sgd" or self.learning_rate != "invscaling":
            return None
        return float(self.learning_rate_init / (self.t_ + more + 1) ** self.power_t) / self._scale

    def _set_rate(self, optimizer: Optimizer, rate: float) -> None:
        """Sets the optimizer's learning rate. scikit-learn's velocities contain the rate of their time."""
        before = optimizer.param_groups[0]["lr"]
        for group in optimizer.param_groups:
            group["lr"] = rate
        if self.solver == "sgd":
            optimizer.core.scale_state(before / rate)

    def _slower(self, optimizer: Optimizer, chief: bool) -> bool:
        """After too many epochs without improvement: goes on more slowly, if the schedule says so."""
        what = "Validation score" if self.early_stopping else "Training loss"
        message = f"{what} did not improve by tol={self.tol:f} for {self.n_iter_no_change} epochs."
        lr = optimizer.param_groups[0]["lr"]
        rate = lr * self._scale
        goes_on = self.solver == "sgd" and self.learning_rate == "adaptive" and rate > 1e-6
        if goes_on:
            self._progress.stale = 0
            self._set_rate(optimizer, lr / 5)
        if self.verbose and chief:
            print(message, f"Setting learning rate to {rate / 5:f}" if goes_on else "Stopping.", flush=True)
        return goes_on
