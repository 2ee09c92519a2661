"""Fitting, saving, losing the process and changing the strategy in any order: it equals the plain run."""

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
from pdnn.data import Dataset
from pdnn.optim import lr_scheduler

pytestmark = pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # more threads than cores

# Strategies of a line train with the same bits.
SAME_BITS = (
    ("serial", "team:2", "team:3", "pool:1/1"),
    ("pool:1/3", "pool:2/3", "pool:3/3"),
)
RNG = np.random.default_rng(8)
DATA = Dataset(RNG.random((23, 6), dtype=np.float32), RNG.integers(0, 3, 23))
BATCH, MOST = 5, 12  # 5 steps an epoch, the last of 3 rows
EXAMPLES = int(os.environ.get("PDNN_RANDOM_ROUNDS", "25"))


def trainer_of(strategy: str) -> pdnn.Trainer:
    layers = (nn.Linear(6, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Dropout(0.3), nn.Linear(9, 3))
    model = nn.Sequential(*layers, seed=3)
    adam = optim.Adam(model.parameters(), lr=0.03)
    schedule = lr_scheduler.StepLR(adam, step_size=3, gamma=0.5)
    loss = nn.CrossEntropyLoss()
    return pdnn.Trainer(model, loss, adam, strategy=strategy, seed=5, schedule=schedule, clip_value=0.2)


def fit(trainer: pdnn.Trainer, epochs: int) -> None:
    trainer.fit(DATA, epochs, BATCH, verbose=False)


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
        self.folder = tempfile.TemporaryDirectory()
        self.trainer = trainer_of(data.draw(st.sampled_from(family)))
        self.saved = 0

    @property
    def file(self) -> Path:
        return Path(self.folder.name, "checkpoint")

    @precondition(lambda self: self.trainer.epoch <= MOST - 3)
    @rule(epochs=st.integers(1, 3))
    def fit(self, epochs: int) -> None:
        fit(self.trainer, epochs)

    @rule()
    def save(self) -> None:
        self.trainer.save(self.file)
        self.saved = self.trainer.epoch

    @rule(data=st.data())
    def lose_the_process(self, data: st.DataObject) -> None:
        """Another one goes on from what was saved, under any strategy of the same bits."""
        self.trainer = trainer_of(data.draw(st.sampled_from(self.family)))
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
    run_state_machine_as_test(
        Life, settings=settings(max_examples=EXAMPLES, stateful_step_count=12, deadline=None)
    )
