"""Calls from several threads of a program, with one model."""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim

RNG = np.random.default_rng(0)
X = RNG.random((16, 6), dtype=np.float32)
Y = RNG.integers(0, 3, 16)


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def at_once(work: Callable[[], object], count: int) -> None:
    """Calls it in so many threads."""
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3), seed=1)


class Doubled(nn.Module):
    """A layer in Python."""

    def forward(self, x: Any) -> Any:
        return x * 2


def test_predictions_leave_dropout_as_it_was_for_all_threads(switching: None) -> None:
    for _ in range(10):
        net = nn.Sequential(Doubled(), nn.Linear(6, 32), nn.Dropout(0.5), nn.Linear(32, 3), seed=1)
        want, wrong = net.predict(X), []

        def work(net: nn.Sequential = net, want: Any = want, wrong: list[bool] = wrong) -> None:
            wrong.extend(not np.array_equal(net.predict(X), want) for _ in range(10))

        at_once(work, 8)
        assert not any(wrong) and len(wrong) == 80
        assert all(module.training for module in net.modules())


def test_steps_with_several_criteria_take_turns() -> None:
    def trained(threads: int) -> Any:
        net = network()
        adam = optim.Adam(net.parameters())

        def work() -> None:
            criterion = nn.CrossEntropyLoss()
            for _ in range(120 // threads):
                net.step(X, Y, criterion, adam)

        at_once(work, threads)
        return net.flat_parameters

    want = trained(1)
    for _ in range(15):
        np.testing.assert_array_equal(trained(3), want)


@pytest.mark.parametrize(("steps", "repeats"), [(12, 100), (400, 5)])
def test_steps_of_an_optimizer_take_turns(switching: None, steps: int, repeats: int) -> None:
    def trained(threads: int) -> Any:
        net = network()
        adam = optim.Adam(net.parameters())  # the first step makes the core's
        net.flat_gradients[:] = 1

        def work() -> None:
            for _ in range(steps // threads):
                adam.step()

        at_once(work, threads)
        return net.flat_parameters

    want = trained(1)
    for _ in range(repeats):
        np.testing.assert_array_equal(trained(4), want)


@pytest.mark.parametrize("kind", [optim.LevenbergMarquardt, optim.GaussNewton])
def test_steps_of_second_order_take_turns(kind: type[optim.Optimizer], switching: None) -> None:
    y = np.stack([label == Y for label in range(3)], 1).astype(np.float64)

    def trained(threads: int) -> Any:
        net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3), seed=1, dtype="float64")
        optimizer, criterion = kind(net.parameters()), nn.MSELoss()

        def work() -> None:
            for _ in range(12 // threads):
                net.step(X.astype(np.float64), y, criterion, optimizer)

        at_once(work, threads)
        return net.flat_parameters

    sys.setswitchinterval(1e-6)
    want = trained(1)
    for _ in range(60):
        np.testing.assert_array_equal(trained(3), want)


def test_first_steps_of_a_copied_optimizer_take_turns(switching: None) -> None:
    net = network()
    adam = optim.Adam(net.parameters())
    net.flat_gradients[:] = 1
    for _ in range(5):
        adam.step()
    for _ in range(60):
        twin, own = copy.deepcopy((net, adam))
        twin.flat_gradients[:] = 1

        def work(own: optim.Adam = own) -> None:
            for _ in range(3):
                own.step()

        at_once(work, 4)
        assert own.core.steps == 17


def test_what_would_disturb_a_fit_of_another_thread_is_refused(tmp_path: Path) -> None:
    net = network()
    sgd = optim.SGD(net.parameters(), lr=0.1)
    loss = nn.CrossEntropyLoss()
    lbfgs = optim.LBFGS(net.parameters())
    trainer = pdnn.Trainer(net, loss, sgd, strategy="serial")

    def closure() -> float:
        return net.gradient(X, Y, loss, out=net.flat_gradients).loss

    trainer.save(tmp_path / "before")
    calls: dict[str, Callable[[], object]] = {
        "save": lambda: trainer.save(tmp_path / "saved"),
        "load": lambda: trainer.load(tmp_path / "before"),
        "step": lambda: net.step(X, Y, loss, sgd),
        "SGD.load_state_dict": lambda: sgd.load_state_dict(sgd.state_dict()),
    }
    inside, go_on = threading.Event(), threading.Event()

    class Waits(pdnn.callbacks.Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            calls["save"]()  # the fit's own thread may
            inside.set()
            assert go_on.wait(60)

    fit = threading.Thread(target=lambda: trainer.fit((X, Y), 1, callbacks=[Waits()], verbose=False))
    fit.start()
    try:
        assert inside.wait(60)
        for name, call in [*calls.items(), ("step", sgd.step), ("step", lambda: lbfgs.step(closure))]:
            with pytest.raises(ValueError, match=f"^{name}: another thread is within a fit of this model"):
                call()
    finally:
        go_on.set()
        fit.join()
    assert trainer.epoch == 1
    for call in calls.values():
        call()


def test_a_step_with_another_rate_waits_for_no_backward_pass() -> None:
    net, loss = network(), nn.CrossEntropyLoss()
    sgd = optim.SGD(net.parameters(), lr=0.1)
    sgd.step()
    inside, go_on = threading.Event(), threading.Event()

    def hook(parameter: object) -> None:
        inside.set()
        assert go_on.wait(60)

    next(iter(net.parameters())).register_post_accumulate_grad_hook(hook)
    back = threading.Thread(target=lambda: loss(net(X), Y).backward())
    back.start()
    try:
        assert inside.wait(60)
        sgd.param_groups[0]["lr"] = 0.05
        step = threading.Thread(target=sgd.step, daemon=True)
        step.start()
        step.join(20)
        assert not step.is_alive()
    finally:
        go_on.set()
        back.join()
