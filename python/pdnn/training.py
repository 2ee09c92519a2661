"""Training: what is trained, by what, and how far it has come; the same on all ranks that train together."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pdnn._core import EpochSums
from pdnn.checks import flag, integer, kind_of, number
from pdnn.comm import Communicator, become_world, world
from pdnn.comm.communicator import check_communicator
from pdnn.comm.settings import compare
from pdnn.core import CoreOptimizer, core_for, kernels_of
from pdnn.data.source import Scale, Source
from pdnn.history import History
from pdnn.metrics import Metrics, named
from pdnn.nn.loss import Loss, check_loss
from pdnn.nn.sequential import Sequential
from pdnn.nn.tensor_parallel import PartOfLinear
from pdnn.optim import LRScheduler, Optimizer
from pdnn.optim.groups import GROUP_KEYS
from pdnn.optim.lr_scheduler import check_schedule
from pdnn.store import Array

if TYPE_CHECKING:
    from pdnn.estimate import AutoChoice, Choice
    from pdnn.strategies import Strategy


ON_NONFINITE = ("raise", "skip", "ignore")
"""What may become of a step whose loss or gradient is not finite."""
APART = ("loss", "correct", "weight", "rows", "updates", "skipped", "skipped_rows")
"""Sums of an epoch that ranks which train models of their own have each for itself."""


@dataclass
class Position:
    """Where a training is in an epoch that has begun and is not over.

    Attributes
    ----------
    row : int
        Rows of the epoch's order that all ranks together have trained on.
    rows : int
        Of the epoch.
    shuffle : bool or str
        Whether its order is a function of (seed, epoch), or the rows' own; of a Stream the blocks of it.
    sums : EpochSums
        Of the steps made in it; where ranks train models of their own, this rank's.
    """

    row: int
    rows: int
    shuffle: bool | str
    sums: EpochSums

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"row": self.row, "rows": self.rows, "shuffle": self.shuffle, "sums": self.sums.numbers}

    @classmethod
    def from_dict(cls, written: dict[str, Any] | None) -> Position | None:
        """What `to_dict` wrote; None of None."""
        if written is None:
            return None
        row, rows, shuffle = int(written["row"]), int(written["rows"]), written["shuffle"]
        shuffle = shuffle if isinstance(shuffle, str) else bool(shuffle)
        return cls(row, rows, shuffle, EpochSums(dict(written["sums"])))


@dataclass
class Best:
    """The best epoch so far by a value of each, for a callback that goes on comparing in a later process.

    Attributes
    ----------
    value : float
    epoch : int
        Counted from 0.
    until : int
        Epochs that were compared.
    model : (ndarray, ndarray) or None
        Its parameters and buffers, if the training may end with them.
    """

    value: float
    epoch: int
    until: int
    model: tuple[Array, Array] | None


@dataclass
class State:
    """Where a training stands, beside its arrays and its history: copies in memory and checkpoints have it.

    Attributes
    ----------
    epoch, step : int
    position : dict or None
        As `Position.to_dict` makes it.
    updates : int
        That the optimizer has counted.
    time : int
        Of the schedule.
    rates : list of float or None
        The learning rates of the optimizer's groups; None: as they are.
    first_rates : list of float or None
    best : dict of str to Best
    """

    epoch: int
    step: int
    position: dict[str, Any] | None
    updates: int
    time: int
    rates: list[float] | None
    first_rates: list[float] | None
    best: dict[str, Best]


class Training:
    """What a `Trainer`, its epochs and its checkpoints share; arguments and attributes are the Trainer's."""

    def __init__(
        self,
        model: Sequential,
        loss: Loss,
        optimizer: Optimizer,
        *,
        strategy: str | Strategy = "auto",
        seed: int = 0,
        comm: Communicator | None = None,
        schedule: LRScheduler | None = None,
        schedule_per: str = "epoch",
        clip_norm: float | None = None,
        clip_value: float | None = None,
        reproducible: bool = False,
        on_nonfinite: str = "raise",
        metrics: Metrics = (),
    ) -> None:
        if flag("Trainer", "reproducible", reproducible) and strategy == "fastest":
            raise ValueError(
                'Trainer: strategy "fastest" goes by measured times, and what it takes decides on the bits; '
                "with reproducible=True name the strategy"
            )
        _check(model, loss, optimizer, comm)
        if on_nonfinite not in ON_NONFINITE:
            words = ", ".join(map(repr, ON_NONFINITE))
            raise ValueError(f"Trainer: on_nonfinite={on_nonfinite!r}; expected one of {words}")
        from pdnn.strategies import choose  # here, because `import pdnn` is to be quick

        self.comm, self._joins_world = world() if comm is None else comm, comm is None
        self.wants_auto, self.wants_fastest = strategy == "auto", strategy == "fastest"
        self.choice: AutoChoice | Choice | None = None
        self.strategy = choose("auto" if self.wants_fastest else strategy, self.comm, reproducible)
        if reproducible and any(getattr(module, "sync", True) is False for module in model.modules()):
            raise ValueError(
                "Trainer: reproducible=True and a layer with sync=False, whose statistics are of the rows "
                "that are computed together, which depend on the ranks; pass sync=True"
            )
        self.model = model
        self.loss = loss
        self.optimizer = optimizer
        self.schedule, self.schedule_per = schedule, schedule_per
        self.clip_norm, self.clip_value = clip_norm, clip_value
        self.on_nonfinite = on_nonfinite
        self.metrics = named(metrics)
        self.seed = integer("Trainer", "seed", seed)
        self.history = History()
        self.epoch = self.step = 0
        self.position: Position | None = None
        self.notes: dict[str, Any] = {}  # on the data, as JSON has them: checkpoints have them, and compare
        self.checkpoints: Path | None = None  # the folder that has its own: it wrote them, or read one
        self.first_rates: list[float] | None = None  # the learning rates with which it began
        self.best: dict[str, Best] = {}  # by the name of the value, while a fit that compares is not over
        self.stop_training = self.trains = False  # trains: the last fit began to, or took up a checkpoint
        self.validates = False
        self._scale: Scale | None = None  # of integers that it trained on
        self._told: set[str] = set()
        model.core  # noqa: B018  a model without a static form is refused here
        self.core_loss = loss.build(core_for(model.dtype))
        self.core_optimizer()  # says what does not fit

    @property
    def classes_(self) -> Array | None:
        """The names of the model's classes, where a `fit` of it was given names (`Sequential.classes`)."""
        return self.model.classes

    @property
    def rates(self) -> list[float]:
        """The learning rates of the optimizer's groups now."""
        return [float(group["lr"]) for group in self.optimizer.param_groups]

    @property
    def _groups(self) -> list[dict[str, float]]:
        """The numbers of the optimizer's groups now."""
        return [{key: group[key] for key in GROUP_KEYS} for group in self.optimizer.param_groups]

    def state(self) -> State:
        """Where it stands."""
        return State(
            self.epoch,
            self.step,
            None if self.position is None else self.position.to_dict(),
            self.optimizer.core.steps,
            0 if self.schedule is None else self.schedule.last_epoch,
            self.rates,
            self.first_rates,
            dict(self.best),
        )

    def go_to(self, state: State) -> None:
        """Stands there from now on; its arrays and its history are not changed."""
        self.epoch, self.step, self.position = state.epoch, state.step, Position.from_dict(state.position)
        self.optimizer.core.steps = state.updates
        if self.schedule is not None:
            self.schedule.step_to(state.time)
        if state.rates is not None:
            for group, rate in zip(self.optimizer.param_groups, state.rates, strict=True):
                group["lr"] = rate
        self.first_rates, self.best = state.first_rates, dict(state.best)

    def _check_changing(self) -> None:
        """Raises TypeError or ValueError unless what may change between two calls of fit suits the rest."""
        if self.schedule is not None:
            check_schedule(self.schedule, self.optimizer)
        if self.schedule_per not in ("epoch", "step"):
            raise ValueError(f'Trainer: schedule_per "{self.schedule_per}"; expected "epoch" or "step"')
        for name in ("clip_norm", "clip_value"):
            if (largest := getattr(self, name)) is not None:
                wanted = "a number above 0 that is finite; None clips nothing"
                number("Trainer", name, largest, wanted, lambda found: 0 < found < inf)
        if self.clip_norm is not None and self.clip_value is not None:
            raise ValueError("Trainer: got clip_norm and clip_value; gradients are clipped in one way")
        if self.clip_norm is not None and any(
            isinstance(each, PartOfLinear) for each in self.model.modules()
        ):
            raise ValueError(
                "Trainer: clip_norm needs the whole gradient, of which a rank has a part here; use clip_value"
            )

    def _check_evaluations(self) -> None:
        """Raises ValueError if a step evaluates its batch several times and other arguments forbid that."""
        if not self.optimizer.needs_closure:
            return
        why = None
        if self.optimizer.needs_rows and self.strategy.grid is not None:
            why = f'strategy "{self.strategy}" divides the network, of which it needs all; "ddp" does not'
        elif self.optimizer.needs_rows and self.wants_fastest:
            why = 'strategy "fastest" goes by the times of gradients; "auto" and "ddp" fit'
        elif not self.strategy.whole_gradient:
            why = f'strategy "{self.strategy}" does not give every rank the gradient of a batch; "ddp" does'
        elif (self.clip_norm, self.clip_value) != (None, None):
            why = "a clipped gradient is not the loss's; leave clip_norm and clip_value out"
        elif self.on_nonfinite != "raise":
            why = f'on_nonfinite="{self.on_nonfinite}" is for single updates; leave it out'
        if why is not None:
            name = type(self.optimizer).__name__
            raise ValueError(f"Trainer: {name} evaluates a batch several times in a step; {why}")

    def core_optimizer(self) -> CoreOptimizer:
        """The core's optimizer for this model, which clips as the arguments say."""
        self._check_changing()
        self._check_evaluations()
        self.optimizer.attach(self.model)
        self.optimizer.core.set_clip(self.clip_norm, self.clip_value)
        return self.optimizer.core

    def train_by(self, strategy: Strategy) -> None:
        """Trains by this one from now on."""
        vars(self)["strategy"] = strategy

    def go_on_with(self, left: Communicator) -> None:
        """Trains with those that are left of its ranks, as also `pdnn.world` then is if it was its group."""
        if self.comm is world():
            become_world(left)
        self.comm = left

    def take_labels(self, classes: Array | None, scale: Scale | None) -> None:
        """Notes the names of classes, and the scale of integers that it trains on."""
        self.model.classes, self._scale = classes, scale

    def agree(
        self, settings: dict[str, Any], where: str = "fit", *, comm: Communicator | None = None
    ) -> None:
        """Compares the job over ranks; collective.

        Parameters
        ----------
        settings : dict of str to what JSON can hold
            What must be alike beside the training itself.
        where : str
            Begins the messages.
        comm : Communicator, optional
            The ranks; those that train unless given.

        Raises
        ------
        ValueError
            On every rank, if one differs: names the first rank that does, what differs, and both values.
        """
        model, comm = self.model, self.comm if comm is None else comm
        if comm.size == 1:
            return
        mine: dict[str, Any] = {
            "model": str([(name, parameter.shape) for name, parameter in model.named_parameters()]),
            "layers": str(model.config()),
            "dtype": model.dtype,
            "kernels": kernels_of(model.dtype),
            "loss": repr(self.loss),
            "optimizer": str(self.optimizer.config()),
            "groups": str(self._groups),
            "groups of": self.optimizer.names_of_groups(),
            "clipping": str((self.clip_norm, self.clip_value)),
            "on_nonfinite": self.on_nonfinite,
            "metrics": list(self.metrics),
            "schedule": str(self.schedule and (self.schedule.config(), self.schedule_per)),
            "strategy": self.strategy.identity(),
            "all_reduce": comm.core.all_reduce_name,
            "seed": self.seed,
            **settings,
            "epoch": self.epoch,
            "step": self.step,
            "row": self.position.row if self.position else 0,
        }
        compare(comm, where, mine, "every rank must start the same job, on the same data")

    def share_model(self) -> None:
        """Gives all ranks rank 0's parameters and buffers; its optimizer's too, where ranks update alike."""
        comm, model = self.comm, self.model
        if comm.size == 1:
            return
        comm.broadcast(model.flat_parameters, root=0)
        comm.broadcast(model.flat_buffers, root=0)
        if self.strategy.same_updates:
            self.share_optimizer()

    def take_root_updates(self) -> None:
        """Gives all ranks the optimizer's state that rank 0 alone has until then, by some strategies."""
        if self.strategy.root_updates:
            self.share_optimizer()

    def share_optimizer(self) -> None:
        """Gives all ranks the state of rank 0's optimizer."""
        comm, optimizer = self.comm, self.optimizer.core
        steps = np.array([optimizer.steps], np.int64)
        comm.broadcast(steps, root=0)
        optimizer.steps = int(steps[0])
        for array in self.optimizer.state_arrays().values():
            comm.broadcast(array, root=0)

    def agree_to_stop(self, terminated: bool, due: bool, comm: Communicator) -> tuple[bool, bool]:
        """Rank 0 decides for all, and whether a checkpoint is due; returns whether a rank got a SIGTERM.

        Raises
        ------
        ValueError
            On every rank, if a callback has given a rank other learning rates or weight decays.
        """
        if comm.size > 1:
            numbers = np.array([list(group.values()) for group in self._groups], np.float64).ravel()
            wishes = [self.stop_training and comm.rank == 0, terminated, due and comm.rank == 0]
            agreed = comm.all_reduce(np.array([*wishes, *numbers, *-numbers]), op="max")
            if (agreed[3 : 3 + len(numbers)] != -agreed[3 + len(numbers) :]).any():
                compare(
                    comm, "fit", {"groups": str(self._groups)}, "callbacks must set the same on every rank"
                )
            self.stop_training, terminated, due = agreed[:3].astype(bool).tolist()
        return terminated, due

    def tell_converted(self, **sources: Source | None) -> None:
        """Says once what of the data had to be converted."""
        for name, source in sources.items():
            if source is not None and source.converted and source.converted not in self._told:
                self._told.add(source.converted)
                told = (
                    "arrays of uint8, float32 or float64 in C order, and class numbers, are read as they are"
                )
                own = "" if source.converted.startswith("y from names") else f"; {told}"
                print(f"{name}: converted {source.converted}{own}", flush=True)


def _check(model: object, loss: object, optimizer: object, comm: object) -> None:
    if not isinstance(model, Sequential):
        raise TypeError(
            f"Trainer: model is of type {kind_of(model)}, expected an nn.Sequential; "
            "use that, or write the loop by hand"
        )
    if isinstance(loss, Optimizer) and isinstance(optimizer, Loss):
        raise TypeError("Trainer: the optimizer came before the loss; pass (model, loss, optimizer)")
    check_loss("Trainer", "loss", loss)
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"Trainer: optimizer is of type {kind_of(optimizer)}, expected one of pdnn.optim's")
    optimizer.check_own_step("Trainer")
    if comm is not None:
        check_communicator("Trainer", comm)
