"""Schedules of learning rates: torch's values, by hand and in a Trainer, and over a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim

X = np.random.default_rng(0).normal(size=(40, 6))
Y = np.arange(40) % 3

# Made by the words of both libraries: `library` is pdnn.optim or torch.optim.lr_scheduler.
SCHEDULES: dict[str, Callable[[Any, Any], Any]] = {
    "linear": lambda library, sgd: library.LinearLR(sgd),
    "linear down": lambda library, sgd: library.LinearLR(sgd, 1.0, 0.3, 70),
    "constant": lambda library, sgd: library.ConstantLR(sgd, 0.25, 30),
    "step": lambda library, sgd: library.StepLR(sgd, 7, 0.9),
    "milestones": lambda library, sgd: library.MultiStepLR(sgd, [30, 5, 30, 80], 0.5),
    "exponential": lambda library, sgd: library.ExponentialLR(sgd, 0.97),
    "cosine": lambda library, sgd: library.CosineAnnealingLR(sgd, 100),
    "cosine waves": lambda library, sgd: library.CosineAnnealingLR(sgd, 13, eta_min=0.01),
    "lambda": lambda library, sgd: library.LambdaLR(sgd, lambda t: 1 / (1 + t)),
    "lambdas": lambda library, sgd: library.LambdaLR(sgd, [lambda t: 1 / (1 + t), lambda t: 0.9**t]),
    "warm-up": lambda library, sgd: library.SequentialLR(
        sgd,
        [library.LinearLR(sgd, 0.1, total_iters=10), library.CosineAnnealingLR(sgd, 90)],
        [10],
    ),
    "three": lambda library, sgd: library.SequentialLR(
        sgd,
        [library.ConstantLR(sgd, 0.1, 99), library.StepLR(sgd, 5), library.LinearLR(sgd, 1.0, 0.5, 20)],
        [10, 40],
    ),
}


def network(seed: int = 1) -> nn.Sequential:
    return models.mlp([6, 5, 3], dtype="float64", seed=seed)


def two_rates(model: nn.Sequential) -> optim.SGD:
    parameters = list(model.parameters())
    return optim.SGD([{"params": parameters[:2], "lr": 0.2}, {"params": parameters[2:]}], lr=0.05)


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_have_torchs_values(name: str) -> None:
    torch = pytest.importorskip("torch")
    ours = SCHEDULES[name](optim, two_rates(network()))
    tensors = [torch.zeros(1, requires_grad=True) for _ in range(2)]
    peer = torch.optim.SGD([{"params": tensors[:1], "lr": 0.2}, {"params": tensors[1:]}], lr=0.05)
    theirs = SCHEDULES[name](torch.optim.lr_scheduler, peer)
    for t in range(101):
        assert ours.last_epoch == t
        rates = [group["lr"] for group in ours.optimizer.param_groups]
        assert rates == pytest.approx([group["lr"] for group in peer.param_groups], rel=1e-12, abs=1e-15)
        assert ours.get_last_lr() == rates
        peer.step()
        ours.step()
        theirs.step()


def test_a_trainer_goes_on_after_every_epoch_or_every_step() -> None:
    def trained(per: str, factors: list[float], epochs: int) -> nn.Sequential:
        model = network()
        sgd = two_rates(model)
        schedule = optim.LambdaLR(sgd, lambda t: [*factors, 0.0][t])
        trainer = pdnn.Trainer(
            model, nn.CrossEntropyLoss(), sgd, strategy="serial", schedule=schedule, schedule_per=per
        )
        for _ in range(epochs):
            trainer.fit((X, Y), 1, 8, shuffle=False, verbose=False)
        assert schedule.last_epoch == (epochs if per == "epoch" else 5 * epochs)
        return model

    per_epoch = trained("epoch", [1.0, 0.5, 0.25], 3)
    per_step = trained("step", 5 * [1.0] + 5 * [0.5] + 5 * [0.25], 3)
    other = trained("step", 5 * [1.0] + 5 * [0.5] + 4 * [0.25] + [0.2], 3)
    np.testing.assert_array_equal(per_step.flat_parameters, per_epoch.flat_parameters)
    assert (other.flat_parameters != per_epoch.flat_parameters).any()


def test_by_hand_equals_the_trainer() -> None:
    by_hand, twin = network(), network()
    loss = nn.CrossEntropyLoss()
    descent = two_rates(by_hand)
    schedule = optim.CosineAnnealingLR(descent, 7)
    for _ in range(2):
        for begin in range(0, 40, 8):
            descent.zero_grad()
            batch = X[begin : begin + 8], Y[begin : begin + 8]
            by_hand.flat_gradients[...] += by_hand.gradient(*batch, loss)[1]
            descent.step()
            schedule.step()
    sgd = two_rates(twin)
    trainer = pdnn.Trainer(
        twin, loss, sgd, strategy="serial", schedule=optim.CosineAnnealingLR(sgd, 7), schedule_per="step"
    )
    trainer.fit((X, Y), 2, 8, shuffle=False, verbose=False)
    np.testing.assert_allclose(by_hand.flat_parameters, twin.flat_parameters, rtol=1e-13)
    assert [group["lr"] for group in sgd.param_groups] == schedule.get_last_lr()


@pytest.mark.parametrize("per", ["epoch", "step"])
def test_a_resumed_schedule_goes_on_bit_for_bit(tmp_path: Path, per: str) -> None:
    def make(total_iters: int = 17) -> pdnn.Trainer:
        model = network()
        sgd = two_rates(model)
        sequence = [optim.LinearLR(sgd, 1.0, 0.3, total_iters), optim.StepLR(sgd, 2)]
        return pdnn.Trainer(
            model,
            nn.CrossEntropyLoss(),
            sgd,
            strategy="serial",
            schedule=optim.SequentialLR(sgd, sequence, [4]),
            schedule_per=per,
        )

    whole, first, second = make(), make(), make()
    whole.fit((X, Y), 6, 8, verbose=False)
    first.fit((X, Y), 3, 8, verbose=False, checkpoint=tmp_path)
    second.fit((X, Y), 6, 8, verbose=False, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(second.model.flat_parameters, whole.model.flat_parameters)
    with pytest.raises(ValueError, match=r"with schedule .*17.*this trainer has .*18"):
        make(18).fit((X, Y), 6, 8, verbose=False, checkpoint=tmp_path, resume=True)


def test_what_does_not_fit_is_refused() -> None:
    model = network()
    sgd, other = two_rates(model), two_rates(network())
    linear = optim.LinearLR(sgd)
    loss = nn.CrossEntropyLoss()
    for make, words in [
        (lambda: optim.StepLR(sgd, 0), "step_size = 0"),
        (lambda: optim.StepLR(sgd, 1, last_epoch=-5), "last_epoch = -5; expected an integer from -1"),
        (lambda: linear.step_to(-1), "t = -1; expected an integer from 0"),
        (lambda: optim.LinearLR(sgd, -1.0), "start_factor = -1"),
        (lambda: optim.CosineAnnealingLR(sgd, 5, float("nan")), "eta_min = nan"),
        (lambda: optim.LambdaLR(sgd, [float]), "1 functions for 2 parameter groups"),
        (lambda: optim.SequentialLR(sgd, [linear], [5]), "one milestone less"),
        (lambda: optim.SequentialLR(sgd, [linear, linear, linear], [5, 5]), "rise"),
        (lambda: optim.SequentialLR(other, [linear], []), "same optimizer"),
        (lambda: pdnn.Trainer(model, loss, sgd, schedule=optim.StepLR(other, 1)), "another optimizer"),
        (lambda: pdnn.Trainer(model, loss, sgd, schedule=linear, schedule_per="week"), '"week"'),
    ]:
        with pytest.raises(ValueError, match=words):
            make()
    unfit: Any = 3
    for make, words in [
        (lambda: optim.StepLR(sgd, 1, last_epoch="3"), "StepLR: last_epoch is '3', expected an integer"),
        (lambda: optim.MultiStepLR(sgd, unfit), "MultiStepLR: milestones is of type int, expected a list"),
        (lambda: optim.SequentialLR(sgd, unfit, [1]), "SequentialLR: schedulers is of type int, expected a"),
        (lambda: optim.SequentialLR(sgd, [linear, unfit], [1]), "SequentialLR: got int, expected a schedule"),
        (lambda: optim.SequentialLR(sgd, [linear], unfit), "SequentialLR: milestones is of type int, expec"),
    ]:
        with pytest.raises(TypeError, match=words):
            make()
    late = optim.LambdaLR(sgd, lambda t: 1.0 if t < 2 else None)  # type: ignore[arg-type,return-value]
    late.step()
    with pytest.raises(TypeError, match=r"LambdaLR: lr_lambda\(2\) is None, expected a number"):
        late.step()
    assert late.last_epoch == 1
    with pytest.raises(TypeError, match="LambdaLR"):
        pdnn.Trainer(model, loss, sgd, schedule=lambda t: 1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="Sequential"):
        optim.StepLR(model, 1)  # type: ignore[arg-type]


class Own(optim.LRScheduler):
    """A schedule whose rates are those of a test."""

    given: Callable[[int], Any]

    def rates(self, t: int) -> Any:
        return type(self).given(t)


@pytest.mark.parametrize("per", ["epoch", "step"])
@pytest.mark.parametrize(
    ("late", "error", "words"),
    [
        ([0.1], ValueError, r"Own: rates\(2\) gives 1 for 2 parameter groups"),
        ([0.1, None], TypeError, "Own: the rate at t = 2 is None, expected a number"),
        (ZeroDivisionError("in a rate"), ZeroDivisionError, "in a rate"),
    ],
)
def test_a_schedule_of_ones_own_is_told_what_is_wrong(
    late: Any, error: type[Exception], words: str, per: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(t: int) -> Any:
        if t < 2:
            return [0.1, 0.1]
        if isinstance(late, Exception):
            raise late
        return late

    monkeypatch.setattr(Own, "given", staticmethod(given), raising=False)
    model = network()
    sgd = two_rates(model)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, schedule=Own(sgd), schedule_per=per)
    with pytest.raises(error, match=words):
        trainer.fit((X, Y), 3, 8, verbose=False)
    assert trainer.schedule is not None and trainer.schedule.last_epoch == (1 if per == "epoch" else 0)
    assert trainer.step == trainer.epoch * -(-len(X) // 8) and trainer.position is None


@pytest.mark.parametrize("per", ["epoch", "step"])
@pytest.mark.parametrize("rate", [1, np.int64(1), np.float32(0.5), Fraction(1, 4)])
def test_rates_of_ones_own_are_numbers_of_any_kind(
    rate: Any, per: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []
    for given in (rate, float(rate)):
        monkeypatch.setattr(Own, "given", staticmethod(lambda _, given=given: [given] * 2), raising=False)
        trained.append(network())
        sgd = two_rates(trained[-1])
        trainer = pdnn.Trainer(
            trained[-1], nn.CrossEntropyLoss(), sgd, schedule=Own(sgd), schedule_per=per, strategy="serial"
        )
        trainer.fit((X, Y), 2, 8, verbose=False)
    np.testing.assert_array_equal(trained[0].flat_parameters, trained[1].flat_parameters)


def test_what_torch_calls_and_a_trainer_does_not_is_refused() -> None:
    with pytest.raises(TypeError, match="Rates: nothing calls get_lr; define rate"):
        type("Rates", (optim.StepLR,), {"get_lr": lambda self: [0.1]})
    model = network()
    sgd = two_rates(model)
    with pytest.raises(NotImplementedError, match="Empty: define rate"):
        type("Empty", (optim.LRScheduler,), {})(sgd)
    steps = type("Steps", (optim.StepLR,), {"step": lambda self: None})
    with pytest.raises(TypeError, match="Trainer: Steps has a step of its own, which only loops by hand"):
        pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, schedule=steps(sgd, 1))


def test_a_power_too_large_for_a_float_is_no_rate() -> None:
    optimizer = optim.SGD(nn.Sequential(nn.Linear(1, 1)).parameters(), lr=0.1)
    schedule = optim.lr_scheduler.ExponentialLR(optimizer, 1.1)
    with pytest.raises(ValueError, match="lr"):
        schedule.check(9000)
    assert 0 < len(schedule.table(range(0, 9000, 10))) < 900


def test_a_checkpoint_compares_the_settings_that_a_schedule_lists(tmp_path: Path) -> None:
    class Wave(optim.LRScheduler):
        settings = ("period",)

        def __init__(self, optimizer: optim.Optimizer, period: int) -> None:
            self.period = period
            super().__init__(optimizer)

        def rate(self, base: float, t: int) -> float:
            return base * (1 + t % self.period) / self.period

    for period in (3, 4):
        model = network()
        sgd = two_rates(model)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, schedule=Wave(sgd, period))
        if period == 3:
            trainer.fit((X, Y), 1, 8, checkpoint=tmp_path, verbose=False)
            continue
        with pytest.raises(ValueError, match=r"trained with schedule .*'period': 3.* has .*'period': 4"):
            trainer.fit((X, Y), 2, 8, checkpoint=tmp_path, resume=True, verbose=False)


@pytest.mark.parametrize("settings", [(2, 4), {30: 0.1, 4: 0.5}, float("nan"), np.float64(0.5)])
def test_settings_are_compared_as_files_have_them(tmp_path: Path, settings: Any) -> None:
    kind = type("Kept", (optim.StepLR,), {"settings": ("kept",), "kept": settings})
    for epochs in (1, 2):
        sgd = two_rates(model := network())
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, schedule=kind(sgd, 3))
        trainer.fit((X, Y), epochs, 8, checkpoint=tmp_path, resume=epochs > 1, verbose=False)
    assert trainer.epoch == 2


def test_one_is_one_whatever_its_type(tmp_path: Path) -> None:
    for number in (1, 1.0, np.float64(1)):
        sgd = two_rates(model := network())
        schedule = optim.StepLR(sgd, 3, gamma=number)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, schedule=schedule)
        trainer.fit((X, Y), trainer.epoch + 1, 8, checkpoint=tmp_path, resume=True, verbose=False)


@pytest.mark.parametrize("settings", [np.arange(3), np.int64(3), {1, 2}])
def test_settings_that_no_file_can_hold_are_refused_at_once(settings: Any) -> None:
    kind = type("Lost", (optim.StepLR,), {"settings": ("kept",), "kept": settings})
    sgd = two_rates(model := network())
    with pytest.raises(
        TypeError, match=r"Lost: checkpoints cannot hold the settings .*'kept': .*lists or dicts"
    ):
        pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, schedule=kind(sgd, 3))


def test_settings_are_beside_those_of_a_base_class() -> None:
    warm = type("Warm", (optim.StepLR,), {"settings": ("period",), "period": 4})
    sgd = two_rates(network())
    assert warm(sgd, 3).config() == {"type": "Warm", "step_size": 3, "gamma": 0.1, "period": 4}


@pytest.mark.parametrize(
    "schedule",
    [
        lambda sgd, n: optim.LinearLR(sgd, total_iters=n),
        lambda sgd, n: optim.ConstantLR(sgd, total_iters=n),
        lambda sgd, n: optim.StepLR(sgd, n),
        lambda sgd, n: optim.MultiStepLR(sgd, [n]),
        lambda sgd, n: optim.CosineAnnealingLR(sgd, n),
        lambda sgd, n: optim.SequentialLR(sgd, [optim.StepLR(sgd, 1), optim.StepLR(sgd, 1)], [n]),
        lambda sgd, n: optim.SequentialLR(sgd, [optim.StepLR(sgd, 1), optim.StepLR(sgd, n)], [1]),
    ],
)
def test_settings_say_when_rates_change(schedule: Callable[[Any, int], Any]) -> None:
    sgd = optim.SGD(network().parameters(), lr=0.1)
    assert schedule(sgd, 3).config() == schedule(sgd, 3).config() != schedule(sgd, 4).config()
