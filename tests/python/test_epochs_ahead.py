"""Epochs that a fit makes in one call of the core: as those that a callback looks at, one after another."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import _core, fitting, nn, optim
from pdnn.callbacks import Callback
from pdnn.data import Dataset, Subset
from pdnn.data.source import source_of
from pdnn.epochs import Epochs
from pdnn.optim import lr_scheduler

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(23, 6)), RNG.integers(0, 3, 23)
DATA = Dataset(X, Y, weight=RNG.integers(1, 4, 23))
SEVERAL = 7

SETTINGS: dict[str, dict[str, Any]] = {
    "as usual": {},
    "float64": {"dtype": "float64"},
    "bfloat16": {"dtype": "bfloat16"},
    "team": {"strategy": "team:2"},
    "pool": {"strategy": "pool:2/4"},
    "hogwild": {"strategy": "hogwild:1"},
    "one rank of averaging": {"strategy": "average:2"},
    "one rank of ddp": {"strategy": "ddp"},
    "schedule": {"schedule": lambda adam: lr_scheduler.CosineAnnealingLR(adam, 20)},
    "own order": {"shuffle": False},
    "a part of the rows": {"data": Subset(DATA, [3, 1, 4, 15, 9, 2, 6])},
    "skipping": {"on_nonfinite": "skip"},
    "clipping": {"clip_norm": 0.1},
}


def trained(
    watched: bool,
    *,
    data: Dataset | Subset = DATA,
    schedule: Callable[[optim.Optimizer], lr_scheduler.LRScheduler] | None = None,
    dtype: str = "float32",
    shuffle: bool = True,
    epochs: tuple[int, ...] = (SEVERAL, 1, SEVERAL),
    **options: Any,
) -> pdnn.Trainer:
    """After some calls of fit."""
    layers = nn.Linear(6, 5), nn.Tanh(), nn.Dropout(0.3), nn.Linear(5, 3)
    model = nn.Sequential(*layers, dtype=dtype, seed=2)
    adam = optim.Adam(model.parameters(), 0.02)
    trainer = pdnn.Trainer(
        model,
        nn.CrossEntropyLoss(),
        adam,
        seed=3,
        schedule=schedule and schedule(adam),
        **{"strategy": "serial", **options},
    )
    for number in epochs:
        trainer.fit(
            data, number, 4, shuffle=shuffle, verbose=False, callbacks=[Callback()] if watched else []
        )
    return trainer


def state(trainer: pdnn.Trainer) -> dict[str, Any]:
    """What must be the same however the epochs were made: all but times."""
    history = {name: values for name, values in trainer.history.history.items() if name != "seconds"}
    return {
        "fingerprint": trainer.model.fingerprint(),
        "optimizer": {name: array.tobytes() for name, array in trainer.optimizer.state_arrays().items()},
        "at": (trainer.epoch, trainer.step, trainer.position),
        "schedule": trainer.schedule and (trainer.schedule.last_epoch, trainer.schedule.get_last_lr()),
        "rates": [group["lr"] for group in trainer.optimizer.param_groups],
        "history": str(history),
        "updates": [updates["count"] for updates in trainer.history.updates],
        "ranks": [[rank["steps"] for rank in epoch] for epoch in trainer.history.ranks],
    }


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Epochs of each call that makes several, which are as many as are left."""
    made: list[int] = []
    run_ahead = Epochs.run_ahead

    def counted(self: Epochs, epochs: int, note: Callable[[Any], None]) -> None:
        made.append(epochs)
        run_ahead(self, epochs, note)

    monkeypatch.setattr(Epochs, "run_ahead", counted)
    monkeypatch.setattr(fitting, "LOOK", 1e9)
    return made


@pytest.mark.parametrize("name", SETTINGS)
def test_they_have_the_bits_of_one_after_another(name: str, calls: list[int]) -> None:
    one_by_one = trained(True, **SETTINGS[name])
    assert calls == []
    several = trained(False, **SETTINGS[name])
    assert calls == [SEVERAL - 1, SEVERAL - 1]  # the first tells how long one takes
    assert several.history.epochs == 2 * SEVERAL + 1
    assert state(several) == state(one_by_one)


def test_they_end_before_a_step_that_is_not_finite(calls: list[int]) -> None:
    def too_fast(adam: optim.Optimizer) -> lr_scheduler.LRScheduler:
        return lr_scheduler.LambdaLR(adam, lambda epoch: 1e300 if epoch == 4 else 1.0)

    ended, errors = [], []
    for watched in (True, False):
        trainer = trained(watched, schedule=too_fast, epochs=())
        with pytest.raises(FloatingPointError) as error:
            trainer.fit(DATA, 9, 4, verbose=False, callbacks=[Callback()] if watched else [])
        ended.append(state(trainer))
        errors.append(str(error.value))
    assert calls == [8]
    assert ended[0] == ended[1]
    assert ended[0]["at"][0] == 4
    assert errors[0] == errors[1]


@pytest.mark.parametrize("factor", [-1.0, float("nan"), float("inf")])
def test_they_end_before_a_learning_rate_that_is_none(factor: float, calls: list[int]) -> None:
    def wrong(adam: optim.Optimizer) -> lr_scheduler.LRScheduler:
        return lr_scheduler.LambdaLR(adam, lambda epoch: factor if epoch == 4 else 1.0)

    ended = []
    for watched in (True, False):
        trainer = trained(watched, schedule=wrong, epochs=())
        for _ in range(2):  # also in a further fit
            words = f"Adam: lr that a schedule has set = {0.02 * factor}; expected a number from 0"
            with pytest.raises(ValueError, match=words):
                trainer.fit(DATA, 9, 4, verbose=False, callbacks=[Callback()] if watched else [])
        assert trainer.epoch == 4
        ended.append(str(state(trainer)))  # NaN is not equal to itself
    assert calls[0] == 8
    assert ended[0] == ended[1]


@pytest.mark.parametrize("factor", [-1.0, float("nan"), float("inf")])
def test_an_epoch_whose_steps_would_have_a_learning_rate_that_is_none_does_not_begin(factor: float) -> None:
    def wrong(adam: optim.Optimizer) -> lr_scheduler.LRScheduler:
        return lr_scheduler.LambdaLR(adam, lambda step: factor if step == 9 else 1.0)

    trainer = trained(False, schedule=wrong, schedule_per="step", epochs=(1,))  # of six steps
    before = state(trainer)
    words = f"Adam: lr that LambdaLR gives for t = 9 = {0.02 * factor}; expected a number from 0"
    with pytest.raises(ValueError, match=words):
        trainer.fit(DATA, 3, 4, verbose=False)
    assert state(trainer) == before


def test_a_ctrl_c_keeps_those_that_were_made(monkeypatch: pytest.MonkeyPatch, calls: list[int]) -> None:
    run_epochs = Epochs._run_epochs

    def interrupted(self: Epochs, *arguments: Any) -> None:
        def press(*_: object) -> None:
            raise KeyboardInterrupt

        former = signal.signal(signal.SIGINT, press)
        try:
            run_epochs(self, *arguments)
            os.kill(os.getpid(), signal.SIGINT)  # as one that came meanwhile is heard afterwards
        finally:
            signal.signal(signal.SIGINT, former)

    with monkeypatch.context() as patched:
        patched.setattr(Epochs, "_run_epochs", interrupted)
        trainer = trained(False, epochs=())
        with pytest.raises(KeyboardInterrupt):
            trainer.fit(DATA, 5, 4, verbose=False)
    assert calls == [4]
    assert state(trainer) == state(trained(True, epochs=(5,)))
    trainer.fit(DATA, 2, 4, verbose=False)
    assert state(trainer) == state(trained(True, epochs=(5, 2)))


@pytest.mark.parametrize(
    "options",
    [{"validation": DATA}, {"checkpoint": "there"}, {"callbacks": [Callback()]}, {"timeline": True}],
    ids=["validation", "checkpoint", "callback", "timeline"],
)
def test_epochs_that_something_is_done_after_are_made_one_by_one(
    options: dict[str, Any], calls: list[int], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    trainer = trained(False, epochs=(), strategy="pipeline:1" if "timeline" in options else "serial")
    trainer.fit(DATA, 3, 4, verbose=False, **options)
    assert calls == []
    assert trainer.epoch == 3


def test_an_order_is_looked_at_as_far_as_the_steps_and_the_next_one_go() -> None:
    """A part of many took as long as a look at the whole epoch."""
    trainer = trained(False, epochs=())
    source = source_of("train", DATA, trainer.model, trainer.loss, None)
    session = Epochs(trainer, source, 4, shuffle=False, augment=None, timeline=False).session

    def steps(wrong: int, most: int) -> int:
        order, rates = np.arange(23), np.zeros((0, 1))
        order[wrong] = 23
        stop = _core.OnNonfinite.stop
        sums = session.run_epoch(
            source.core, order, 4, 0, 0, rates, stop, lambda _: False, first_row=4, most_steps=most
        )
        return int(sums.steps)

    assert [steps(wrong, 1) for wrong in (0, 3, 12, 22)] == [1] * 4
    assert [steps(wrong, 3) for wrong in (3, 20)] == [3, 3]
    for wrong, most in ((4, 1), (7, 1), (8, 1), (11, 1), (19, 3), (22, 4), (22, 9), (4, 0), (22, 0)):
        with pytest.raises(ValueError, match="order: row 23 of 23"):
            steps(wrong, most)


def test_lines_of_progress_are_one_an_epoch(capsys: pytest.CaptureFixture[str], calls: list[int]) -> None:
    trained(False, epochs=()).fit(DATA, 6, 4)
    assert calls == [5]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [f"epoch {epoch}/6" for epoch in range(1, 7)]


@pytest.mark.parametrize(("strategy", "has_a_place"), [("serial", True), ("average:2", False)])
def test_models_that_differ_have_no_common_place_where_they_stop(strategy: str, has_a_place: bool) -> None:
    trainer = trained(False, epochs=(), strategy=strategy)
    data = Dataset(np.tile(X, (4000, 1)), np.tile(Y, 4000))  # as long as it takes until somebody asks
    source = source_of("train", data, trainer.model, trainer.loss, None)
    epochs = Epochs(trainer, source, 1, shuffle=False, augment=None, timeline=False)
    assert epochs.run(lambda _: True).stopped
    assert (trainer.position is not None) == has_a_place
