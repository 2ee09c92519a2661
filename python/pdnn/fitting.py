"""Fitting: what one call of `Trainer.fit` does, from its arguments to the last epoch."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from math import gcd, inf
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from pdnn import checkpoint as checkpoints
from pdnn._core import CommunicationError
from pdnn.comm import Communicator
from pdnn.comm.crew import Crew, Deaths, give
from pdnn.comm.ending import stop_on_sigterm
from pdnn.comm.settings import compare
from pdnn.copies import Copies, steps_between
from pdnn.data import BlockStream, Dataset, Subset
from pdnn.data.block_source import block_source
from pdnn.data.source import Data, Source, classes_of, data_of, refuse_raw, source_of
from pdnn.epochs import LOOK, Epochs
from pdnn.estimation import Estimation
from pdnn.progress import Progress
from pdnn.settings import Settings
from pdnn.store import Array

if TYPE_CHECKING:
    from pdnn._core import EpochSums

Watch: TypeAlias = Callable[[int, dict[str, float]], None]
"""Called after each epoch with its number, from 0, and what was measured."""


class Fitting:
    """One call of `Trainer.fit`; collective.

    Parameters
    ----------
    training : Estimation
        The Trainer.
    data : Dataset, Subset or BlockStream
    validation : Dataset, Subset or (x, y), optional
    settings : Settings
    copy_every : int
        Steps from one copy in memory to the next; 0: there are none.

    Raises
    ------
    ValueError, TypeError
        If the arguments do not fit each other or the model, or differ between ranks.
    """

    def __init__(
        self,
        training: Estimation,
        data: Dataset | Subset | BlockStream,
        validation: Data | None,
        settings: Settings,
        copy_every: int,
    ) -> None:
        settings = settings.checked(training)
        everyone = training.comm
        self._crew = Crew[None](everyone, everyone.spares) if copy_every else None
        self._waits = False
        if self._crew is not None:
            self._crew.begin()
            self._waits = self._crew.active is None
            training.go_on_with(self._crew.active or everyone)
        classes = training.classes_
        if classes is None and not isinstance(data, BlockStream):
            classes = classes_of(data)
        source, held_out = _sources(training, data, validation, classes, settings)
        batch_size = min(settings.batch_size, len(source))
        digests = (("training", source), ("validation", held_out)) if everyone.size > 1 else ()
        alike = {
            "training rows": len(source),
            "batch size": batch_size,  # no more than there are rows
            "row weights": source.weighted,
            "epochs": settings.epochs,
            "shuffle": source.shuffled(settings.shuffle),
            "augmentation": repr(settings.augment),
            "validation rows": None if held_out is None else len(held_out),
            "checkpoints": settings.checkpoint is not None,
            **{name: getattr(settings, name) for name in ("every", "every_steps", "timeline")},
            "elastic": copy_every,
            **{f"{name} data with the digest": data.digest() for name, data in digests if data is not None},
            "classes": None if classes is None else classes.tolist(),
        }
        shown = settings.verbose and training.comm.rank == 0
        directory = settings.checkpoint if settings.resume else None
        checkpoints.meet_to_resume(directory, everyone)
        if training.wants_auto or (training.wants_fastest and training.choice is None):
            had = None if directory is None else checkpoints.strategy_of(directory, training.comm.size)
            if training.wants_auto:
                if not self._waits:
                    training.choose_auto(source, batch_size, settings.augment, had, alike, shown)
                waiting = range(everyone.size - everyone.spares, everyone.size)
                training.train_by(give(everyone, waiting, lambda: training.strategy) or training.strategy)
            else:
                if everyone.spares:
                    raise ValueError('fit: "fastest" is chosen where no rank waits; name the strategy')
                training.agree(alike)
                training.choose_fastest(source, batch_size, had, shown)
        training.strategy.check_ranks(everyone.size - everyone.spares)
        training.strategy.check_rows(len(source), batch_size, settings.augment is not None)
        training.take_labels(classes, source.scale)
        if shown:
            training.tell_converted(train=source, validation=held_out)
        first, resumed = training.epoch, None
        check = partial(
            checkpoints.check_position, rows=len(source), shuffle=source.shuffled(settings.shuffle)
        )
        if directory is not None:
            first, resumed = 0, checkpoints.resume(training, directory, batch_size, check)
            alike["a checkpoint to resume"] = resumed and resumed.told
        training.history.begun = training.history.epochs
        check(training.position)
        training.agree(alike, comm=everyone)
        self._training, self._held_out, self._settings = training, held_out, settings
        self._batch_size = batch_size
        self._source = source
        folder, path = settings.checkpoint, resumed and resumed.path
        self._writer = None if folder is None else checkpoints.Writer(folder, settings.keep, path)
        self._written = time.monotonic()  # or begun
        self._end = first + settings.epochs
        self._first, self._shown, self._copy_every = first, shown, copy_every
        training.stop_training, training.validates = False, held_out is not None
        training.first_rates = training.first_rates or training.rates
        self._pause = gcd(settings.every_steps or 0, copy_every)
        self.copies = Copies(training)
        if self._waits:
            return
        self._alike = resumed is None and training.strategy.same_init
        if self._alike:
            training.share_model()
        self._run = self._epochs()
        if resumed is not None:
            checkpoints.resume_session(training, self._run.session, resumed)
        if copy_every:
            self.copies.take(self._run.session)

    @contextmanager
    def releasing(self) -> Iterator[None]:
        """An error on this rank before or after `run` releases those that wait for it."""
        try:
            yield
        except (Exception, KeyboardInterrupt, SystemExit):
            if not self._waits:
                self._run.session.leave()
            raise

    def run(self, watch: Watch | None) -> None:
        """Trains the epochs; if the job survives the death of a rank, on those that are left.

        Raises
        ------
        SystemExit
            After a SIGTERM to a rank, on all of them.
        """
        training, crew = self._training, self._crew
        self._watch = watch
        self._compared = False
        if crew is None and self._run.comm.size > 1:
            watched = np.array([float(watch is not None)])  # perhaps on another rank alone
            self._compared = self._run.comm.all_reduce(watched, op="max").item() > 0
            if self._compared and self._alike:
                self.compare_models(training.model.fingerprint())
        with stop_on_sigterm(training.comm, alone=self._writer is not None) as self._terminated:
            if crew is None:
                return self._train()
            try:
                crew.work(lambda _: self._train(), self._go_on, self._hand_on, all_raise=True)
            finally:
                training.go_on_with(crew.comm)
        if self._shown and self.copies.failures:
            print(f"elastic: {self.copies}", flush=True)

    def compare_models(self, fingerprint: str) -> None:
        """Raises ValueError if ranks hold different models, unless some may have died; collective."""
        if self._crew is None and self._run.comm.size > 1:
            compare(
                self._run.comm,
                "fit",
                {"model": fingerprint[:16]},
                "all hold the same model between epochs, so pass the same callbacks on every rank; or a "
                "registered all_reduce, or a codec of your own, gives ranks different sums",
            )

    def _epochs(self) -> Epochs:
        settings = self._settings
        kind, optimizer = Epochs, self._training.optimizer
        if optimizer.needs_closure:
            from pdnn.closures import ClosureEpochs, RowEpochs

            kind = RowEpochs if optimizer.needs_rows else ClosureEpochs
        return kind(
            self._training,
            self._source,
            self._batch_size,
            shuffle=settings.shuffle,
            augment=settings.augment,
            timeline=settings.timeline,
        )

    def _go_on(self, left: Communicator, deaths: Deaths) -> None:
        """Goes back with the ranks that train now, and deals the rows anew; collective."""
        training, settings = self._training, self._settings
        if why := training.strategy.misfit(left.size):
            raise CommunicationError(
                f'fit: {deaths}, and no rank waits to take the place; strategy "{training.strategy}" {why}; '
                "resume from a checkpoint, or keep more ranks in waiting (pdnn launch --spares N)"
            )
        training.go_on_with(left)
        self._shown = settings.verbose and left.rank == 0
        self.copies.go_back(left, deaths.new)
        self._run = self._epochs()
        self.copies.tell(self._run.session, left)
        if self._shown:
            print(f"fit: {deaths}; {left.size} go on from step {training.step}", flush=True)

    def _hand_on(self, everyone: Communicator, waiting: Collection[int]) -> None:
        """Gives the ranks that have waited what the others have trained; collective."""
        self.copies.hand_on(None if everyone.rank in waiting else self._run.session, everyone, waiting)

    def _train(self) -> None:
        """Trains the epochs that are left; several at once, where nobody looks at the model between them."""
        training, run, terminated = self._training, self._run, self._terminated
        self._progress = progress = Progress(self._shown, self._first, self._settings.epochs, run.steps)
        with closing(progress), run.together(), self._writer or nullcontext():
            if self._writer is not None and run.comm.rank == 0:
                self._writer.begin(training.checkpoints == self._writer.place, self.copies.failures > 0)
            if run.comm.rank == 0 and run.comm.size > 1:
                made = training.position.sums.steps if training.position else 0
                steps = (self._end - training.epoch) * run.steps - made
                training.strategy.warn_of_steps(training.step, training.step + steps)

            def poll(sums: EpochSums) -> bool:
                progress.at_step(sums.steps, sums.loss / (sums.weight or 1))
                return terminated.is_set()

            looked_at = self._watch or self._held_out or self._writer or self._copy_every
            training.trains = True
            begun, seconds, ending = None, inf, False  # seconds: the last epoch took
            while not ending and training.epoch < self._end and not training.stop_training:
                began, epoch = time.monotonic(), training.epoch
                if begun != epoch:
                    begun = epoch
                    progress.start_epoch(epoch)
                ahead = min(self._end - epoch, LOOK / seconds)
                if ahead >= 2 and not looked_at and run.ahead:
                    run.run_ahead(int(ahead), self._note)
                else:
                    sums = run.run(poll, self._steps_left(), self._seconds_left())
                    if run.complete:
                        self._end_epoch(sums)
                seconds = (time.monotonic() - began) / max(1, training.epoch - epoch)
                due = self._seconds_left() == 0
                ending, due = training.agree_to_stop(terminated.is_set(), due, run.comm)
                if self._copy_every and (run.complete or training.step % self._copy_every == 0):
                    self.copies.take(run.session)  # all ranks' callbacks are done
                self._keep(ending, due)
            if not ending:
                run.finish()
        if ending:  # all ranks
            raise SystemExit(128 + signal.SIGTERM)

    def _steps_left(self) -> int:
        """Until a checkpoint, or the copies of an elastic job, may be due; 0: never."""
        return self._pause and self._pause - self._training.step % self._pause

    def _seconds_left(self) -> float:
        """Until a checkpoint is due."""
        seconds = self._settings.every_seconds
        return inf if seconds is None else max(0.0, self._written + seconds - time.monotonic())

    def _end_epoch(self, sums: EpochSums) -> None:
        """Validation, history and callbacks."""
        training = self._training
        apart = self._watch is not None and training.strategy.models_apart
        with self._run.common_model():
            logs = self._note(sums, self._validate())
            shown = training.model.fingerprint() if apart else ""
            if self._watch is not None:
                self._watch(training.epoch - 1, logs)
            left = training.model.fingerprint() if apart or self._compared else ""
        if apart and left != shown and training.model.fingerprint() != left:
            raise ValueError(
                f"fit: a callback has changed the model after epoch {training.epoch - 1}, but under strategy "
                f'"{training.strategy}" it was shown what all ranks would agree on, and each goes on with a '
                "model of its own; change it in on_train_end, or between calls of fit"
            )
        if self._compared:
            self.compare_models(left)

    def _note(self, sums: EpochSums, validated: dict[str, float] | None = None) -> dict[str, float]:
        """Counts an epoch, and notes and shows what was measured."""
        training, run = self._training, self._run
        logs = run.logs(sums) | (validated or {}) | {"seconds": sums.seconds}
        run.record(logs, sums)
        training.epoch += 1
        self._progress.end_epoch(training.epoch - 1, logs)
        return logs

    def _validate(self) -> dict[str, float]:
        if self._held_out is None:
            return {}
        values = self._training.evaluate_source(self._held_out, self._training.metrics, self._run.comm)
        return {f"val_{name}": value for name, value in values.items()}

    def _keep(self, ending: bool, due: bool) -> None:
        """Writes a checkpoint if it is due; within an epoch, where training goes on meanwhile."""
        training, run = self._training, self._run
        between = training.position is None
        if self._writer is None or (between and not (run.complete and (due or self._due(ending)))):
            return
        content = checkpoints.collect(training, self._batch_size, run.session, run.comm)
        self._written = time.monotonic()
        if content is not None:
            self._writer.write(content)
        training.checkpoints = self._writer.place
        if between or ending:
            self._writer.wait()
            run.comm.barrier()

    def _due(self, ending: bool) -> bool:
        """Whether a checkpoint is due after an epoch."""
        training, settings = self._training, self._settings
        last = training.epoch == self._end or training.stop_training or ending
        at_step = settings.every_steps is not None and training.step % settings.every_steps == 0
        return last or at_step or training.epoch % settings.every == 0


def begin(
    training: Estimation,
    data: Dataset | Subset | BlockStream,
    validation: Data | None,
    settings: Settings,
) -> Fitting:
    """A `Fitting`, also if a rank dies meanwhile and the job survives that; collective."""
    copy_every = steps_between(training, settings.elastic)

    def fitting(_: Communicator) -> Fitting:
        return Fitting(training, data, validation, settings, copy_every)

    if not copy_every:
        return fitting(training.comm)

    def go_on(left: Communicator, deaths: Deaths) -> None:
        training.go_on_with(left)
        if settings.verbose and left.rank == 0:
            print(f"fit: {deaths}; {left.size - left.spares} begin", flush=True)

    crew = Crew[Fitting](training.comm)
    try:
        begun = crew.work(fitting, go_on)
    except BaseException:
        training.go_on_with(crew.comm)
        raise
    assert begun is not None, "nobody waits yet"
    return begun


def _sources(
    training: Estimation,
    data: Dataset | Subset | BlockStream,
    validation: Data | None,
    classes: Array | None,
    settings: Settings,
) -> tuple[Source, Source | None]:
    """What to train on and what to validate with."""

    def source_for(where: str, data: Data) -> Source:
        return source_of(where, data_of(where, data), training.model, training.loss, classes)

    augment = settings.augment
    if isinstance(data, BlockStream):
        if augment is not None:
            raise ValueError("fit: augment= is for a Dataset; a BlockStream's function can change its images")
        source: Source = block_source(data, training.model, training.loss, settings.batch_size)
    else:
        source = source_for("train", data)
    if len(source) == 0:
        raise ValueError("fit: the training data have no rows")
    if augment is not None:
        augment.tell(source.core, training.seed, training.epoch)  # refuses samples that are no images
    held_out = None if validation is None else source_for("validation", validation)
    if held_out is not None and len(held_out) == 0:
        raise ValueError("fit: the validation data have no rows; pass validation=None for none")
    if held_out is not None:
        refuse_raw("validation", held_out, source.scale)
    return source, held_out
