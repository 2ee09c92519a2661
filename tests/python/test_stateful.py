"""Fitting, saving, dying and changing strategy and ranks in any order: it equals the plain run."""

from __future__ import annotations

import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import pdnn
from pdnn import nn, optim
from pdnn.comm import die, run_threads
from pdnn.data import Dataset
from pdnn.optim import lr_scheduler

pytestmark = pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # more threads than cores

# Strategies of a line train with the same bits; the last line's on several ranks, too.
SAME_BITS = (
    ("serial", "team:2", "team:3", "pool:1/1"),
    ("pool:1/3", "pool:2/3", "pool:3/3"),
    ("serial/4", "team:2/4", "pool:3/4", "ddp/4"),
)
RNG = np.random.default_rng(8)
DATA = Dataset(RNG.random((23, 6), dtype=np.float32), RNG.integers(0, 3, 23))
BATCH, MOST = 5, 12  # 5 steps an epoch, the last of 3 rows
MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # waits for no disk
EXAMPLES = int(os.environ.get("PDNN_RANDOM_ROUNDS", "25"))


def trainer_of(strategy: str) -> pdnn.Trainer:
    norm = nn.BatchNorm1d(9, sync=strategy.endswith("/4"))
    layers = (nn.Linear(6, 9), norm, nn.ReLU(), nn.Dropout(0.3), nn.Linear(9, 3))
    model = nn.Sequential(*layers, seed=3)
    adam = optim.Adam(model.parameters(), lr=0.03)
    schedule = lr_scheduler.StepLR(adam, step_size=3, gamma=0.5)
    loss = nn.CrossEntropyLoss()
    return pdnn.Trainer(model, loss, adam, strategy=strategy, seed=5, schedule=schedule, clip_value=0.2)


def fit(trainer: pdnn.Trainer, epochs: int, **options: Any) -> None:
    trainer.fit(DATA, epochs, BATCH, verbose=False, **options)


def state(trainer: pdnn.Trainer) -> tuple[Any, ...]:
    """All that has to be the same."""
    optimizer = trainer.optimizer.core
    arrays = (trainer.model.flat_parameters, trainer.model.flat_buffers, *optimizer.state)
    words = (trainer.epoch, trainer.step, optimizer.steps, trainer.optimizer.param_groups[0]["lr"])
    return *(np.asarray(array).tobytes() for array in arrays), *words, str(trainer.history.history["loss"])


@cache
def plain(strategy: str) -> list[tuple[Any, ...]]:
    """The states of an uninterrupted training, after each of its epochs."""
    trainer = trainer_of(strategy)
    states = []
    for _ in range(MOST):
        fit(trainer, 1)
        states.append(state(trainer))
    return states


class Life(RuleBasedStateMachine):
    """One training, with all that may happen to it."""

    @initialize(family=st.sampled_from(SAME_BITS), data=st.data())
    def begin(self, family: tuple[str, ...], data: st.DataObject) -> None:
        self.family = family
        self.folder = tempfile.TemporaryDirectory(dir=MEMORY)
        self.trainer = self.another(data)
        self.saved = 0

    @property
    def file(self) -> Path:
        return Path(self.folder.name, "checkpoint")

    def another(self, data: st.DataObject) -> pdnn.Trainer:
        """In another process, under any strategy of the same bits."""
        return trainer_of(data.draw(st.sampled_from(self.family)))

    @precondition(lambda self: self.trainer.epoch <= MOST - 3)
    @rule(epochs=st.integers(1, 3))
    def fit(self, epochs: int) -> None:
        fit(self.trainer, epochs)

    @precondition(lambda self: self.trainer.epoch <= MOST - 2 and "ddp/4" in self.family)
    @rule(
        ranks=st.integers(2, 3), epochs=st.integers(1, 2), dies=st.none() | st.integers(1, 60), data=st.data()
    )
    def fit_on_ranks(self, ranks: int, epochs: int, dies: int | None, data: st.DataObject) -> None:
        """Ranks take it up, of which the last may die; one process goes on with what they leave."""
        file = Path(self.folder.name, "ranks")
        self.trainer.save(file)

        def train() -> tuple[Any, ...]:
            trainer = trainer_of("ddp/4")
            trainer.load(file)
            if dies and pdnn.world().rank == ranks - 1:
                die(after=30 + dies)  # in fit, not in what goes before
            fit(trainer, epochs, elastic=2 if dies else None)
            trainer.save(file)
            return state(trainer)

        states = [each for each in run_threads(train, ranks) if each is not None]
        self.trainer = self.another(data)
        self.trainer.load(file)
        assert len(states) >= ranks - 1
        assert all(each == state(self.trainer) for each in states)

    @precondition(lambda self: self.trainer.epoch <= MOST - 1)
    @rule(steps=st.integers(1, 7), data=st.data())
    def lose_the_process_within_an_epoch(self, steps: int, data: st.DataObject) -> None:
        """What was written while it trained is found, and the epoch finished."""
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            fit(self.trainer, 1, checkpoint=folder, every_steps=steps, keep=9)
            file = data.draw(st.sampled_from(sorted(Path(folder).glob("*.safetensors"))))
            epoch, self.trainer = self.trainer.epoch, self.another(data)
            self.trainer.load(file)
        if self.trainer.epoch < epoch:
            fit(self.trainer, 1)
        assert (self.trainer.epoch, self.trainer.position) == (epoch, None)

    @rule()
    def save(self) -> None:
        self.trainer.save(self.file)
        self.saved = self.trainer.epoch

    @rule(data=st.data())
    def lose_the_process(self, data: st.DataObject) -> None:
        """Another one goes on from what was saved."""
        self.trainer = self.another(data)
        if self.file.exists():
            self.trainer.load(self.file)
        assert self.trainer.epoch == self.saved

    @rule(data=st.data())
    def change_the_strategy(self, data: st.DataObject) -> None:
        self.save()
        self.lose_the_process(data)

    @rule()
    def lose_the_file_while_it_is_read(self) -> None:
        """A damaged checkpoint is refused, and leaves the training as it is."""
        if not self.file.exists():
            return
        sound = self.file.read_bytes()
        self.file.write_bytes(sound[: len(sound) // 2])
        with pytest.raises(ValueError, match="checkpoint"):
            self.trainer.load(self.file)
        self.file.write_bytes(sound)

    @invariant()
    def equals_the_plain_run(self) -> None:
        epoch = self.trainer.epoch
        assert epoch == 0 or state(self.trainer) == plain(self.family[0])[epoch - 1]

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.folder.cleanup()


@pytest.mark.timeout(0 if EXAMPLES > 1000 else 120)
def test_any_order_equals_the_plain_run() -> None:
    same = "PDNN_RANDOM_ROUNDS" not in os.environ  # else they are drawn anew in every run
    run_state_machine_as_test(
        Life, settings=settings(max_examples=EXAMPLES, stateful_step_count=12, derandomize=same)
    )
