"""What a Ctrl-C leaves, at whatever moment it comes, agrees with itself and goes on."""

from __future__ import annotations

import copy
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import ddp, nn, optim
from pdnn.fit_lock import FitLock
from pdnn.history import History
from pdnn.optim import second_order
from pdnn.progress import Progress
from pdnn.recording import recording
from pdnn.store import Parameter, Store

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(40, 6)), RNG.normal(size=(40, 1))


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1), dtype="float64", seed=3)


def trainer_of(per: str = "epoch") -> pdnn.Trainer:
    model = network()
    adam = optim.Adam(model.parameters(), lr=0.02)
    schedule = optim.StepLR(adam, 1, 0.9)
    return pdnn.Trainer(
        model,
        nn.MSELoss(),
        adam,
        strategy="serial",
        schedule=schedule,
        schedule_per=per,  # type: ignore[arg-type]
    )


def counts(trainer: pdnn.Trainer) -> tuple[Any, ...]:
    history, schedule = trainer.history, trainer.schedule
    assert schedule is not None
    columns = [*history.history.values(), history.phases, history.updates, history.ranks, history.compression]
    return trainer.epoch, trainer.step, schedule.last_epoch, trainer.position, {len(each) for each in columns}


def press_once(patched: pytest.MonkeyPatch, owner: Any, name: str, call: int, before: bool = False) -> None:
    """Ctrl-C in one call of a function, before or after what it does."""
    usual, calls = getattr(owner, name), []

    def pressed(*arguments: Any, **options: Any) -> Any:
        calls.append(name)
        if before and len(calls) == call:
            raise KeyboardInterrupt
        result = usual(*arguments, **options)
        if not before and len(calls) == call:
            raise KeyboardInterrupt
        return result

    patched.setattr(owner, name, pressed)


@pytest.mark.parametrize("validation", [None, (X, Y)], ids=["several at once", "one by one"])
@pytest.mark.parametrize("per", ["epoch", "step"])
@pytest.mark.parametrize(
    ("owner", "name"), [(optim.StepLR, "step_to"), (History, "add"), (Progress, "end_epoch")]
)
def test_the_counts_of_a_fit_agree(
    owner: Any, name: str, per: str, validation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"validation": validation, "verbose": False}
    trainer, undisturbed = trainer_of(per), trainer_of(per)
    with monkeypatch.context() as patched:
        press_once(patched, owner, name, 4)
        with pytest.raises(KeyboardInterrupt):
            trainer.fit(X, Y, 30, 8, **options)
    epochs = trainer.epoch
    assert epochs >= 2
    assert counts(trainer) == (epochs, 5 * epochs, epochs * (5 if per == "step" else 1), None, {epochs})
    if (
        validation is None and per == "epoch"
    ):  # else the epoch, of which the model has the steps, begins again
        undisturbed.fit(X, Y, epochs, 8, **options)
        assert trainer.model.fingerprint() == undisturbed.model.fingerprint()
    trainer.fit(X, Y, 1, 8, **options)
    assert counts(trainer)[:2] == (epochs + 1, 5 * (epochs + 1))


def test_a_column_of_the_history_that_is_longer_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of()
    trainer.fit(X, Y, 2, 8, verbose=False)

    class Half(dict[str, list[float]]):
        """Ctrl-C where the second column is to grow."""

        def setdefault(self, name: str, column: Any = None) -> Any:
            if name == "seconds":
                raise KeyboardInterrupt
            return super().setdefault(name, column)

    trainer.history.history = Half(trainer.history.history)
    with pytest.raises(KeyboardInterrupt):
        trainer.fit(X, Y, 2, 8, validation=(X, Y), verbose=False)
    assert {len(column) for column in trainer.history.history.values()} <= {0, 2}
    assert (trainer.epoch, trainer.step) == (2, 10)


@pytest.mark.parametrize("kind", [optim.Adam, optim.LBFGS, optim.LevenbergMarquardt])
@pytest.mark.parametrize("name", ["_make_state", "load_state_dict"])
@pytest.mark.parametrize("before", [True, False])
def test_a_copied_optimizer_keeps_its_state(
    kind: Any, name: str, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(model: nn.Sequential, optimizer: Any) -> None:
        if kind is optim.LBFGS:
            loss = nn.MSELoss()
            optimizer.step(lambda: model.gradient(X, Y, loss, out=model.flat_gradients)[0])
        else:
            model.step(X, Y, nn.MSELoss(), optimizer)

    model = network()
    optimizer = kind(model.parameters(), **({"max_iter": 3} if kind is optim.LBFGS else {}))
    step(model, optimizer)
    step(model, optimizer)
    other, twin = copy.deepcopy((model, optimizer))
    with monkeypatch.context() as patched:
        press_once(patched, type(twin), name, 1, before)
        with pytest.raises(KeyboardInterrupt):
            step(other, twin)
    step(other, twin)
    step(model, optimizer)
    assert other.fingerprint() == model.fingerprint()
    assert twin.state_dict()["steps"] == optimizer.state_dict()["steps"]


@pytest.mark.parametrize(
    "made",
    [
        lambda own: optim.GaussNewton(own, damping=1e-4),
        lambda own: optim.LevenbergMarquardt(own, tau=1e-9),
    ],
    ids=["GaussNewton", "LevenbergMarquardt"],
)
def test_a_second_order_step_goes_back_from_the_point_that_it_tried(
    made: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network()
    optimizer, before = made(model.parameters()), model.fingerprint()
    with monkeypatch.context() as patched:
        press_once(patched, second_order, "_loss_at", 1)
        with pytest.raises(KeyboardInterrupt):
            model.step(X, Y, nn.MSELoss(), optimizer)
    assert model.fingerprint() == before
    assert optimizer.core.steps == 0
    other = network()
    model.step(X, Y, nn.MSELoss(), optimizer)
    other.step(X, Y, nn.MSELoss(), made(other.parameters()))
    assert model.fingerprint() == other.fingerprint()


@pytest.mark.parametrize(("name", "before"), [("acquire", False), ("release", True), ("release", False)])
def test_a_model_is_free_after_it(name: str, before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of()
    with monkeypatch.context() as patched:
        press_once(patched, FitLock, name, 1, before)
        with pytest.raises(KeyboardInterrupt):
            trainer.fit(X, Y, 1, 8, verbose=False)
    done = trainer.epoch
    trainer.fit(X, Y, 1, 8, verbose=False)
    assert trainer.epoch == done + 1


def test_a_fit_within_a_fit_leaves_the_outer_one_its_lock() -> None:
    trainer, heard = trainer_of(), []

    class Within(pdnn.callbacks.Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            for _ in range(2):
                with pytest.raises(ValueError, match="the model is within a fit") as error:
                    trainer.fit(X, Y, 1, 8, verbose=False)
                heard.append(str(error.value))

    trainer.fit(X, Y, 2, 8, callbacks=[Within()], verbose=False)
    assert len(heard) == 4 and trainer.epoch == 2


@pytest.mark.parametrize("decorated", [False, True])
def test_operations_are_recorded_after_a_block_in_which_they_are_not(decorated: bool) -> None:
    def block() -> None:
        with pdnn.no_grad():
            pass

    once = pdnn.no_grad()(lambda: None) if decorated else block

    def go_on() -> None:
        while True:
            once()

    former = signal.signal(signal.SIGVTALRM, signal.default_int_handler)
    try:
        for _ in range(60):
            signal.setitimer(signal.ITIMER_VIRTUAL, 1e-3)
            with pytest.raises(KeyboardInterrupt):
                go_on()
            assert recording()
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, former)


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        *((Parameter, "register_post_accumulate_grad_hook", call) for call in (1, 2)),
        (Store, "register_pass_hook", 1),
        (Parameter, "register_hook", 1),
    ],
)
@pytest.mark.parametrize("before", [True, False])
def test_a_distributed_optimizer_that_is_not_made_leaves_nothing(
    owner: Any, name: str, call: int, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = network()
    own = list(model.parameters())
    sgd = optim.SGD(own[:2] if name == "register_hook" else own, lr=0.1)
    with monkeypatch.context() as patched:
        press_once(patched, owner, name, call, before)
        with pytest.raises(KeyboardInterrupt):
            ddp.DistributedOptimizer(sgd)
    want = model.gradient(X, Y, nn.MSELoss())[1]
    for _ in range(2):
        sgd.zero_grad()
        model.flat_gradients[:] = 0
        nn.MSELoss()(model(X), Y).backward()
        np.testing.assert_allclose(model.flat_gradients, want, rtol=1e-12)
    ddp.DistributedOptimizer(sgd)


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        *((Parameter, "attach", call) for call in range(1, 5)),
        (Store, "__init__", 1),
        (nn.Sequential, "_allocate", 1),
    ],
)
@pytest.mark.parametrize("apart", [True, False])
def test_parameters_are_gathered_again(
    owner: Any, name: str, call: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed, model = network(), network()
    if apart:  # a part has values of its own already
        for each in (undisturbed, model):
            part = nn.Sequential(each.layers[0], seed=5, dtype="float64")
            part.flat_parameters[:] += 1
    with monkeypatch.context() as patched:
        press_once(patched, owner, name, call)
        with pytest.raises(KeyboardInterrupt):
            model.flat_parameters  # noqa: B018
    gradients = [each.gradient(X, Y, nn.MSELoss())[1] for each in (undisturbed, model)]
    assert np.array_equal(*gradients)
    assert model.fingerprint() == undisturbed.fingerprint()
    if apart:
        assert np.shares_memory(nn.Sequential(model.layers[0]).flat_parameters, model.flat_parameters)
