"""Estimation: what steps of a training would take, by any strategy, and the fastest one."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pdnn.data.source import Data, Source, classes_of, data_of, source_of
from pdnn.evaluation import Evaluation
from pdnn.progress import say

if TYPE_CHECKING:
    from pdnn.comm import Communicator
    from pdnn.data import PadCropFlip
    from pdnn.estimate import Alternatives, AutoChoice, Choice, Estimate, Steps
    from pdnn.estimate.calibration import Calibration
    from pdnn.strategies import Strategy


class Estimation(Evaluation):
    """A training whose steps are estimated; measurements are kept."""

    _calibration: Calibration | None = None

    @cached_property
    def _chosen(self) -> dict[tuple[object, ...], AutoChoice]:
        """What "auto" came to, for each kind of batch."""
        return {}

    def estimate(self, train: Data, batch_size: int = 32, strategy: str | Strategy | None = None) -> Estimate:
        """Estimates the time, messages and memory of a step of `fit`; collective.

        Measures this machine and parts of the step, on copies of the model, for about a second.
        Measurements are reused, so estimating several strategies is cheap.

        Parameters
        ----------
        train : Dataset, Subset or (x, y)
            What `fit` will get.
        batch_size : int
        strategy : str or a strategy of `pdnn.strategies`, optional
            Another one than the trainer's (which before the first `fit` under "auto" and "fastest" is a team
            on all cores, on several ranks data parallel with such teams).

        Returns
        -------
        Estimate
            Its string explains it; `Estimate.beside` compares it with the measured time.

        Raises
        ------
        ValueError
            If the strategy does not fit the ranks or the model, the model has layers that ranks share, or the
            optimizer evaluates a batch several times in a step.
        """
        if self.optimizer.needs_closure:
            raise ValueError(
                f"estimate: {type(self.optimizer).__name__} evaluates a batch as often as a step needs, "
                "which is not known before"
            )
        from pdnn.strategies import choose

        chosen = self.strategy if strategy is None else choose(strategy, self.comm)
        data = data_of("estimate", train)
        steps = self.calibrate(data, batch_size)
        a_step = chosen.rows_per_step(steps.rows, self.comm.size)
        return replace(steps.estimate(chosen), steps=len(data) / a_step)

    def alternatives(self, train: Data, batch_size: int = 32) -> Alternatives | None:
        """What would pay where the exchange between ranks costs more than it brings, estimated; collective.

        Takes what `estimate` takes, and reuses its measurements.

        Returns
        -------
        Alternatives or None
            None in one process, and where each rank trains a model of its own.
        """
        strategy = self.strategy
        if self.comm.size == 1 or strategy.models_apart or strategy.asynchronous:
            return None
        from pdnn.estimate import Alternatives

        steps = self.calibrate(data_of("estimate", train), batch_size)
        return Alternatives.estimated(steps, strategy, steps.estimate(strategy).seconds)

    def go_on_with(self, left: Communicator) -> None:
        """As `Training.go_on_with`; what was measured on more ranks is forgotten."""
        if left is not self.comm:
            self._calibration = None
            self._chosen.clear()
        super().go_on_with(left)

    def calibrate(self, train: Data, batch_size: int = 32) -> Steps:
        """This machine's numbers and a compute model of its steps, as `estimate` uses them; collective.

        Measures once for each batch size and shape of samples, and later returns the same.

        Raises
        ------
        ValueError
            If there are no rows, or the model has layers that ranks share.
        CommunicationError
            If a rank came with another model, data or settings.
        """
        data = data_of("estimate", train)
        classes = classes_of(data) if self.classes_ is None else self.classes_
        source = source_of("estimate", data, self.model, self.loss, classes)
        if len(source) == 0 or batch_size < 1:
            raise ValueError(
                f"estimate: {len(source)} rows in batches of {batch_size}; expected at least 1 of both"
            )
        batch_size, calibration = min(batch_size, len(source)), self._calibrations()
        if not calibration.knows(source, batch_size):
            self.agree({"training rows": len(source), "batch size": batch_size}, "estimate")
        return calibration.steps(source, batch_size)

    def _calibrations(self) -> Calibration:
        from pdnn.estimate.calibration import Calibration  # few programs ask

        if self.comm.spares:
            raise ValueError(
                f"estimate: {self.comm.spares} of {self.comm.size} ranks wait until another one dies; "
                "estimate without them"
            )
        if self._calibration is None:
            undoes, clip = self.on_nonfinite != "ignore", (self.clip_norm, self.clip_value)
            self._calibration = Calibration(self.model, self.loss, self.optimizer, self.comm, undoes, clip)
        return self._calibration

    def choose_fastest(self, source: Source, batch_size: int, had: str | None, shown: bool) -> None:
        """Takes the fastest strategy, or the one that a resumed training had; collective."""
        self._take(self._calibrations().fastest(source, batch_size, had), shown)

    def choose_auto(
        self,
        source: Source,
        batch_size: int,
        augment: PadCropFlip | None,
        had: str | None,
        alike: dict[str, Any],
        shown: bool,
    ) -> None:
        """Takes as many threads as pay, or the strategy that a resumed training had; collective.

        Compares the job over ranks (`alike` as `agree` takes it) and measures, once for each batch size and
        shape of samples.
        """
        kind = (batch_size, source.sample, repr(augment))
        if known := self._chosen.get(kind):
            self._take(known, False)
            return
        self.agree(alike)
        leaves = self.strategy.leaves
        self._chosen[kind] = self._calibrations().auto(source, batch_size, augment, leaves, had)
        self._take(self._chosen[kind], shown)

    def _take(self, choice: AutoChoice | Choice, shown: bool) -> None:
        if choice.strategy != self.strategy:
            self.forget_evaluator()
        self.choice = choice
        self.train_by(choice.strategy)
        if shown:
            say(choice.why)
