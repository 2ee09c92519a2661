"""Trainer: epochs of steps in the C++ core, and around them validation, progress, history and checkpoints."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pdnn import _core, handshake, strategies
from pdnn import checkpoint as checkpoints
from pdnn.callbacks import Callback
from pdnn.comm import Communicator, world
from pdnn.core import core_for
from pdnn.data import Dataset, PadCropFlip, Subset
from pdnn.data.source import (
    Data,
    Source,
    classes_of,
    data_of,
    epochs_may_come_second,
    samples_of,
    source_of,
)
from pdnn.history import History
from pdnn.nn.losses import Loss
from pdnn.nn.module import Array
from pdnn.nn.sequential import Sequential
from pdnn.nn.tensor_parallel import PartOfLinear
from pdnn.optim import LRScheduler, Optimizer
from pdnn.progress import Progress
from pdnn.strategies.options import session_options

if TYPE_CHECKING:
    from pdnn.estimate import Choice, Estimate, Steps


class Trainer:
    """Trains and evaluates a model.

    Parameters
    ----------
    model : nn.Sequential
    loss : Loss
    optimizer : Optimizer
        Of the model's parameters.
    strategy : str or a strategy of `pdnn.strategies`
        ``"auto"``: alone a team of threads on all cores; under ranks data parallel with a team on
        each rank's cores. ``"fastest"``: when `fit` first begins, of the exact strategies the one that is
        estimated, and where that is close measured, to take least. Others: see `pdnn.strategies`.
    seed : int
        Orders of rows and dropout masks are functions of it.
    comm : Communicator, optional
        The ranks that train together; `pdnn.world()` unless given.
    schedule : LRScheduler, optional
        Of the optimizer's learning rates; see `pdnn.optim.lr_scheduler`.
    schedule_per : "epoch" or "step"
        When the schedule goes on: after every epoch, or after every update.
    clip_norm, clip_value : float, optional
        At most one: before the update, the gradient of every global batch is shortened to this norm, or its
        elements are bounded to this size, as `nn.utils.clip_grad_norm_` and `clip_grad_value_` do.

    Attributes
    ----------
    history : History
        Of all fits.
    epoch, step : int
        Epochs finished and steps made so far.
    classes_ : ndarray of str, or None
        The names of the classes in the order of the model's outputs, where labels came as names.
    stop_training : bool
        A callback sets it to end training after the epoch.
    choice : estimate.Choice or None
        What ``"fastest"`` came to, and why; None before the first `fit` and for other strategies.

    Raises
    ------
    TypeError
        If the model is no nn.Sequential, or another argument is of the wrong kind.
    ValueError
        If the strategy does not fit the number of ranks, the optimizer's parameters are not the model's, or
        the schedule is another optimizer's.
    """

    def __init__(
        self,
        model: Sequential,
        loss: Loss,
        optimizer: Optimizer,
        *,
        strategy: str | strategies.Strategy = "auto",
        seed: int = 0,
        comm: Communicator | None = None,
        schedule: LRScheduler | None = None,
        schedule_per: str = "epoch",
        clip_norm: float | None = None,
        clip_value: float | None = None,
    ) -> None:
        if not isinstance(model, Sequential):
            raise TypeError(
                f"Trainer: model is a {type(model).__name__}, expected an nn.Sequential; "
                "use that, or write the loop by hand"
            )
        if not isinstance(loss, Loss):
            raise TypeError(f"Trainer: loss is a {type(loss).__name__}, expected one of pdnn.nn's losses")
        if type(loss).__call__ is not Loss.__call__:
            raise TypeError(
                f"Trainer: {type(loss).__name__} has a __call__ of its own, which training in the core "
                "does not call; write the loop by hand"
            )
        if not isinstance(optimizer, Optimizer):
            raise TypeError(
                f"Trainer: optimizer is a {type(optimizer).__name__}, expected one of pdnn.optim's"
            )
        if not (schedule is None or isinstance(schedule, LRScheduler)):
            raise TypeError(
                f"Trainer: schedule is a {type(schedule).__name__}, expected one of pdnn.optim.lr_scheduler; "
                "a function goes into LambdaLR"
            )
        if schedule is not None and schedule.optimizer is not optimizer:
            raise ValueError("Trainer: the schedule is of another optimizer")
        if schedule_per not in ("epoch", "step"):
            raise ValueError(f'Trainer: schedule_per "{schedule_per}"; expected "epoch" or "step"')
        if clip_norm is not None and clip_value is not None:
            raise ValueError("Trainer: got clip_norm and clip_value; gradients are clipped in one way")
        if clip_norm is not None and any(isinstance(module, PartOfLinear) for module in model.modules()):
            raise ValueError(
                "Trainer: clip_norm needs the whole gradient, of which a rank has a part here; use clip_value"
            )
        self.comm = world() if comm is None else comm
        self._fastest = strategy == "fastest"
        self.choice: Choice | None = None
        self.strategy = strategies.choose("auto" if self._fastest else strategy, self.comm)
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.schedule = schedule
        self.schedule_per = schedule_per
        self.clip_norm = clip_norm
        self.clip_value = clip_value
        self.seed = seed
        self.history = History()
        self.epoch = 0
        self.step = 0
        self.stop_training = False
        self.classes_: Array | None = None
        self._plain = False  # whether integers that it trained on meant themselves
        self._told: set[str] = set()
        model.core  # noqa: B018  a model without a static form is refused here
        self._core_loss = loss.build(core_for(model.dtype))
        self._evaluators: dict[tuple[int, ...], Any] = {}
        self._calibrated: dict[tuple[int, tuple[int, ...]], Steps] = {}
        self._core_optimizer()  # says what does not fit

    # ---- training

    @epochs_may_come_second
    def fit(
        self,
        train: Data | npt.ArrayLike,
        y: npt.ArrayLike | None = None,
        epochs: int = 1,
        batch_size: int = 32,
        *,
        validation: Data | None = None,
        shuffle: bool = True,
        augment: PadCropFlip | None = None,
        callbacks: Iterable[Callback] = (),
        checkpoint: str | os.PathLike[str] | None = None,
        every: int = 1,
        resume: bool = False,
        timeline: bool = False,
        verbose: bool = True,
    ) -> History:
        """Trains; a second call continues where the first ended.

        ``fit(x, y, 3)`` is ``fit((x, y), 3)``, and both are ``fit(Dataset(x, y), 3)``.

        Parameters
        ----------
        train : Dataset, Subset, (x, y), or x
            The same on every rank; each rank reads its share. A line says what of it had to be converted.
        y : array or list, optional
            The labels, where `train` is x. Names of classes are kept in `classes_`.
        epochs : int
            Epochs to train; with ``resume=True`` the epochs to have trained in all.
        batch_size : int
            Rows behind one update, over all threads and ranks; under "average" and "hogwild" an update is one
            worker's. The last batch of an epoch may be smaller.
        validation : Dataset, Subset or (x, y), optional
            Evaluated after each epoch, its rows shared between ranks.
        shuffle : bool
            A new order each epoch, a function of (seed, epoch); otherwise the rows' own order.
        augment : PadCropFlip, optional
            What happens to each training image, a function of (seed, epoch, its number in the data set).
        callbacks : iterable of Callback
        checkpoint : path, optional
            Directory of the checkpoint, written every ``every`` epochs and at the end.
        resume : bool
            Continue from the checkpoint if there is one, bit for bit as if never interrupted.
        timeline : bool
            Keep in `history.timeline` what each rank of a pipeline did when, of one step an epoch. The ranks
            then begin every step together.
        verbose : bool
            Progress on rank 0: a bar on a terminal, a line an epoch elsewhere.

        Returns
        -------
        History

        Raises
        ------
        ValueError, TypeError
            If the arguments do not fit each other or the model.
        CommunicationError
            If a rank was started with another model, data or settings, or does not answer.
        KeyboardInterrupt
            On Ctrl-C, between two updates; `history` keeps the epochs finished.
        """
        if epochs < 0 or batch_size < 1 or every < 1:
            raise ValueError(
                f"fit: epochs={epochs}, batch_size={batch_size}, every={every}; expected ≥ 0, ≥ 1 and ≥ 1"
            )
        if resume and checkpoint is None:
            raise ValueError("fit: resume=True needs checkpoint=, the directory of the checkpoint")
        if any(parameter.hooks or parameter.post_hooks for parameter in self.model.parameters()):
            raise ValueError(
                "fit: the model has hooks, which only backward passes by hand run; remove them, or write the "
                "loop by hand"
            )
        if timeline and not self.strategy.has_pipeline:
            raise ValueError(f'fit: timeline=True is for pipelines, strategy "{self.strategy}" has none')
        data = data_of("train", train, y)
        classes = classes_of(data) if self.classes_ is None else self.classes_
        source = self._source("train", data, classes)
        if len(source) == 0:
            raise ValueError("fit: the training data have no rows")
        if augment is not None:
            augment.tell(source.core, self.seed, self.epoch)  # refuses samples that are no images
        held_out = None if validation is None else self._source("validation", validation, classes)
        batch_size = min(batch_size, len(source))
        settings: dict[str, Any] = {"batch size": batch_size, "training rows": len(source), "epochs": epochs}
        settings["augmentation"] = repr(augment)
        settings["classes"] = None if classes is None else classes.tolist()
        if self._fastest and self.choice is None:
            handshake.agree(self, settings)
            self._choose_fastest(source, batch_size, checkpoint if resume else None, verbose)
        self.strategy.check_rows(len(source), batch_size, augment is not None)
        self.classes_, self._plain = classes, source.plain
        if verbose and self.comm.rank == 0:
            self._tell_converted(train=source, validation=held_out)
        first = self.epoch
        rows_apart = None
        if resume:
            assert checkpoint is not None
            rows_apart = checkpoints.resume(self, checkpoint, batch_size)
            first = 0
        handshake.agree(self, settings)
        if rows_apart is None and self.strategy.same_init:
            handshake.share_model(self)

        step_rows = min(self.strategy.rows_per_step(batch_size, self.comm.size), len(source))
        session = self._session(source, step_rows)
        if rows_apart is not None:
            assert checkpoint is not None
            session.rows_apart = rows_apart
            checkpoints.resume_memory(self, checkpoint, session)
        if timeline:
            session.record()
        steps = ceil(len(source) / step_rows)
        progress = Progress(verbose and self.comm.rank == 0, first, epochs, steps)
        watchers = list(callbacks)
        self.stop_training = False
        sums = None  # of the last epoch
        for watcher in watchers:
            watcher.on_train_begin(self)
        with _stop_on_sigterm(self.comm) as terminated:
            try:
                while self.epoch < first + epochs and not self.stop_training:
                    progress.start_epoch(self.epoch)
                    if augment is not None:
                        augment.tell(source.core, self.seed, self.epoch)
                    sums = self._run_epoch(session, source, step_rows, shuffle, progress, terminated)
                    if sums.stopped:
                        raise SystemExit(128 + signal.SIGTERM)
                    if timeline:
                        self.history.timeline = strategies.Timeline(session.timeline())
                    with _common_model(session):
                        logs = self._logs(sums, held_out, source)
                        self.epoch += 1
                        self.history.add(
                            logs, sums.phases, self._updates(sums), _sent(sums.books), self._ranks(sums)
                        )
                        progress.end_epoch(self.epoch - 1, logs)
                        for watcher in watchers:
                            watcher.on_epoch_end(self, self.epoch - 1, logs)
                    ending = self._agree_to_stop(terminated.is_set())
                    last = self.epoch == first + epochs or self.stop_training or ending
                    if checkpoint is not None and (last or self.epoch % every == 0):
                        checkpoints.write(self, checkpoint, batch_size, session)
                    if ending:
                        raise SystemExit(128 + signal.SIGTERM)
                session.finish()
                late = session.take_books()
                if sums is not None and late.sums > 0:  # an average made just now
                    self.history.books[-1] = _sent(sums.books, late)
            finally:
                progress.close()
        for watcher in watchers:
            watcher.on_train_end(self)
        return self.history

    def estimate(
        self, train: Data, batch_size: int = 32, strategy: str | strategies.Strategy | None = None
    ) -> Estimate:
        """What a step of `fit` is expected to take, send and keep; collective.

        Measures, for a second or less, this machine and parts of the step on copies of the model; what is
        known already is not measured again, so that asking for several strategies is cheap.

        Parameters
        ----------
        train : Dataset, Subset or (x, y)
            What `fit` will get.
        batch_size : int
        strategy : str or a strategy of `pdnn.strategies`, optional
            Another one than the trainer's (which before the first `fit` under "fastest" is that of "auto").

        Returns
        -------
        Estimate
            Printed, it explains itself; `Estimate.beside` compares it with what was measured.

        Raises
        ------
        ValueError
            If the strategy does not fit the ranks or the model, or ranks hold some of its layers together.
        """
        chosen = self.strategy if strategy is None else strategies.choose(strategy, self.comm)
        data = data_of("estimate", train)
        steps = self.calibrate(data, batch_size)
        a_step = chosen.rows_per_step(steps.rows, self.comm.size)
        return replace(steps.estimate(chosen), steps=len(data) / a_step)

    def calibrate(self, train: Data, batch_size: int = 32) -> Steps:
        """What `estimate` goes by: this machine's numbers, and a clock for steps of this model; collective.

        Measures once for each batch size and shape of samples, and later returns the same.

        Raises
        ------
        ValueError
            If there are no rows, or ranks hold some of the model's layers together.
        CommunicationError
            If a rank came with another model, data or settings.
        """
        data = data_of("estimate", train)
        source = self._source("estimate", data, classes_of(data) if self.classes_ is None else self.classes_)
        if len(source) == 0 or batch_size < 1:
            raise ValueError(
                f"estimate: {len(source)} rows in batches of {batch_size}; expected at least 1 of both"
            )
        batch_size = min(batch_size, len(source))
        known = (batch_size, source.sample) in self._calibrated
        if not known:
            settings = {"batch size": batch_size, "training rows": len(source)}
            handshake.agree(self, settings, "estimate")
        return self._steps(source, batch_size)

    def _steps(self, source: Source, batch_size: int) -> Steps:
        """`calibrate` for ranks that have agreed on their job."""
        from pdnn.estimate.trainer import calibrate, samples_of  # few programs ask

        if (batch_size, source.sample) not in self._calibrated:
            samples = samples_of(source.arrays, source.rows, source.width, batch_size)
            steps = calibrate(self.model, self.loss, self.optimizer, samples, batch_size, self.comm)
            self._calibrated[batch_size, source.sample] = steps
        return self._calibrated[batch_size, source.sample]

    def _choose_fastest(
        self, source: Source, batch_size: int, resumed: str | os.PathLike[str] | None, verbose: bool
    ) -> None:
        """Takes the fastest strategy; a training that is resumed goes on with the one that it had."""
        from pdnn.estimate import candidates, choose
        from pdnn.estimate.trainer import threads_of_ranks

        steps, threads = self._steps(source, batch_size), threads_of_ranks(self.comm)
        had = None if resumed is None else checkpoints.strategy_of(resumed)
        among = candidates(steps.network, self.comm.size, threads) if had is None else [strategies.parse(had)]
        self.choice = choose(steps, among, self.comm)
        self.strategy = self.choice.strategy
        self._evaluators.clear()
        if verbose and self.comm.rank == 0:
            print(self.choice.why, flush=True)

    def _core_optimizer(self) -> Any:
        optimizer = self.optimizer.bind(self.model)
        optimizer.set_clip(self.clip_norm, self.clip_value)
        return optimizer

    def _session(self, source: Source, step_rows: int) -> Any:
        return core_for(self.model.dtype).Session(
            model=self.model.core,
            loss=self._core_loss,
            optimizer=self._core_optimizer(),
            comm=self.comm.core,
            sample=list(source.sample),
            target_width=source.width,
            batch_size=step_rows,
            plan=session_options(self.strategy),
        )

    def _run_epoch(
        self,
        session: Any,
        source: Source,
        step_rows: int,
        shuffle: bool,
        progress: Progress,
        terminated: threading.Event,
    ) -> Any:
        order = source.rows
        if shuffle:
            order = source.rows[_core.epoch_order(self.seed % 2**64, self.epoch, len(source))]
        self.optimizer.bind(self.model)  # the groups' numbers may have changed

        def poll(sums: Any) -> bool:
            progress.at_step(sums.steps, sums.loss / max(sums.rows, 1))
            return terminated.is_set()

        rates = np.zeros((0, len(self.optimizer.param_groups)))  # as the groups say
        if self.schedule is not None and self.schedule_per == "step":
            now, steps = self.schedule.last_epoch, ceil(len(source) / step_rows)
            rates = np.array([self.schedule.rates(now + step) for step in range(steps)])
        sums = session.run_epoch(source.core, order, step_rows, self.seed % 2**64, self.step, rates, poll)
        self.step += sums.steps
        if self.schedule is not None:
            passed = 1 if self.schedule_per == "epoch" else sums.steps
            self.schedule.step_to(self.schedule.last_epoch + passed)
        return sums

    def _logs(self, sums: Any, held_out: Source | None, source: Source) -> dict[str, float]:
        logs = {"loss": sums.loss / sums.rows}
        if self._core_loss.classifies(source.width):
            logs["accuracy"] = sums.correct / sums.rows
        if held_out is not None:
            values = self._evaluate(held_out, self.comm)
            logs.update({f"val_{name}": value for name, value in values.items()})
        logs["seconds"] = sums.seconds
        return logs

    def _updates(self, sums: Any) -> dict[str, float]:
        """What `History.updates` keeps of an epoch."""
        updates = {"count": sums.updates, "per_second": sums.updates / max(sums.seconds, 1e-9)}
        if self.strategy.asynchronous:
            updates |= {"mean_staleness": sums.mean_staleness, "max_staleness": sums.max_staleness}
        return updates

    def _ranks(self, sums: Any) -> list[dict[str, float]]:
        """What `History.ranks` keeps of an epoch; collective."""
        names = ("seconds", "steps", "bytes", "shared_bytes")
        mine = {name: float(getattr(sums, name)) for name in names} | sums.phases
        everyones = self.comm.all_gather(np.array(list(mine.values())), check=False)
        return [dict(zip(mine, values.tolist(), strict=True)) for values in everyones]

    def _agree_to_stop(self, terminated: bool) -> bool:
        """Rank 0 decides for all; returns whether any rank got a SIGTERM, in an epoch too short to poll."""
        if self.comm.size > 1:
            wishes = np.array([self.stop_training and self.comm.rank == 0, terminated], np.int32)
            self.comm.all_reduce(wishes, op="max")
            self.stop_training, terminated = bool(wishes[0]), bool(wishes[1])
        return terminated

    # ---- evaluation

    def evaluate(
        self, data: Data | npt.ArrayLike, y: npt.ArrayLike | None = None, *, comm: Communicator | None = None
    ) -> dict[str, float]:
        """Loss, and accuracy for classification, in evaluation mode.

        Parameters
        ----------
        data : Dataset, Subset, (x, y), or x
        y : array or list, optional
            The labels, where `data` is x.
        comm : Communicator, optional
            Given, its ranks share the rows and all get the result; otherwise the caller does all rows and
            nothing is communicated.

        Returns
        -------
        dict
            ``{"loss": …, "accuracy": …}``

        Raises
        ------
        TypeError, ValueError
            If the data do not fit the model, or a label is a name that it was not trained on.
        """
        return self._evaluate(self._source("evaluate", data_of("evaluate", data, y), self.classes_), comm)

    def _evaluate(self, source: Source, comm: Communicator | None) -> dict[str, float]:
        rows = source.rows
        if comm is not None:
            rows = rows[len(rows) * comm.rank // comm.size : len(rows) * (comm.rank + 1) // comm.size]
        value, correct = self._evaluator(source.sample).loss(self._core_loss, source.core, source.width, rows)
        sums = np.array([value, correct], np.float64)
        if comm is not None and comm.size > 1:
            comm.all_reduce(sums)
        count = max(len(source), 1)
        result = {"loss": float(sums[0]) / count}
        if self._core_loss.classifies(source.width):
            result["accuracy"] = float(sums[1]) / count
        return result

    def predict(self, x: Dataset | Subset | npt.ArrayLike) -> Array:
        """The model's raw outputs, in evaluation mode.

        Parameters
        ----------
        x : Dataset, Subset, or samples as `fit` takes them, shape (n, ...)

        Returns
        -------
        ndarray, shape (n, outputs), of the model's dtype

        Raises
        ------
        TypeError
            If x has integers, and `fit` has not just trained on some that were not scaled: their scale is the
            Dataset's to know.
        """
        source, rows, sample = samples_of("predict", x, self.model.dtype, self._plain)
        outputs: Array = self._evaluator(sample).predict(source, rows)
        return outputs

    def predict_classes(self, x: Dataset | Subset | npt.ArrayLike) -> Array:
        """The class of each sample: of the largest output, or 1 where a single one is above the threshold.

        Returns
        -------
        ndarray, shape (n,)
            Names, where `fit` was given names (`classes_`); else numbers, int64.
        """
        outputs = self.predict(x)
        if outputs.shape[1] > 1:
            numbers: Array = np.argmax(outputs, axis=1)
        else:
            numbers = (outputs[:, 0] > self.loss.threshold).astype(np.int64)
        return numbers if self.classes_ is None else self.classes_[numbers]

    def _evaluator(self, sample: tuple[int, ...]) -> Any:
        if sample not in self._evaluators:
            self._evaluators[sample] = core_for(self.model.dtype).Evaluator(
                self.model.core, list(sample), self.strategy.engine.threads
            )
        return self._evaluators[sample]

    # ---- data and files

    def _source(self, where: str, data: Data, classes: Array | None) -> Source:
        return source_of(where, data_of(where, data), self.model, self.loss, classes)

    def _tell_converted(self, **sources: Source | None) -> None:
        """Says once what of the data had to be converted."""
        for name, source in sources.items():
            if source is not None and source.converted and source.converted not in self._told:
                self._told.add(source.converted)
                print(
                    f"{name}: converted {source.converted}; arrays of uint8, float32 or float64 in "
                    "C order, and class numbers, are read as they are",
                    flush=True,
                )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes parameters, optimizer, epoch, step, seed and history to one file, all or nothing."""
        checkpoints.save(self, path)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Reads what `save` wrote into this trainer.

        Raises
        ------
        ValueError
            If the file is damaged, or belongs to another model or optimizer; nothing is changed then.
        """
        checkpoints.load(self, path)


def _sent(*books: Any) -> dict[str, float]:
    """What `History.books` keeps of an epoch, from the core's books."""
    if not any(each.bytes_uncompressed for each in books):
        return {}
    from pdnn.codec import Books

    return sum(map(Books.of, books), Books()).to_dict()


@contextmanager
def _common_model(session: Any) -> Iterator[None]:
    """Meanwhile the model is what all ranks would agree on, where each trains a model of its own."""
    session.enter_evaluation()
    try:
        yield
    finally:
        session.leave_evaluation()


@contextmanager
def _stop_on_sigterm(comm: Communicator) -> Iterator[threading.Event]:
    """Under ranks a SIGTERM becomes a wish to stop, which all ranks learn of in the same step."""
    wish = threading.Event()
    if comm.size == 1 or threading.current_thread() is not threading.main_thread():
        yield wish
        return
    before = signal.signal(signal.SIGTERM, lambda *_: wish.set())
    try:
        yield wish
    finally:
        signal.signal(signal.SIGTERM, before)
