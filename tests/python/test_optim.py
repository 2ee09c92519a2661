"""Optimizers: parameter groups, their errors, and equality with PyTorch."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim, strategies
from pdnn.comm import run_threads
from pdnn.optim import rules
from pdnn.store import Handle, Parameter

X = np.random.default_rng(0).normal(size=(40, 6))
Y = np.arange(40) % 3


def trained(model: nn.Sequential, optimizer: optim.Optimizer, epochs: int = 5) -> None:
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optimizer, strategy="serial")
    trainer.fit((X, Y), epochs, 8, shuffle=False, verbose=False)


# Of both libraries: the optimizer's name and its arguments beside the groups'.
RULES: dict[str, tuple[str, dict[str, Any]]] = {
    "sgd": ("SGD", {"lr": 0.1}),
    "momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adam": ("Adam", {}),
    "adam of other numbers": ("Adam", {"lr": 0.01, "betas": (0.8, 0.9), "eps": 1e-3}),
    "adamw": ("AdamW", {"lr": 0.01, "weight_decay": 0.1}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop with momentum": ("RMSprop", {"lr": 0.001, "alpha": 0.9, "eps": 1e-4, "momentum": 0.9}),
    "rmsprop centered": ("RMSprop", {"lr": 0.001, "centered": True}),
    "rmsprop of all": ("RMSprop", {"lr": 0.001, "momentum": 0.5, "centered": True}),
}


def test_every_rule_is_compared_with_torch() -> None:
    """A new one has a line above; Lion, which torch lacks, a test below."""
    assert {kind for kind, _ in RULES.values()} | {"Lion"} == {*rules.__all__}


def of_two_groups(model: nn.Sequential, name: str) -> optim.Optimizer:
    kind, options = RULES[name]
    first, rest = list(model.parameters())[:2], list(model.parameters())[2:]
    groups = [{"params": first, "weight_decay": 0.01, "lr": 0.005}, {"params": rest}]
    optimizer: optim.Optimizer = getattr(optim, kind)(groups, **options)
    return optimizer


@pytest.mark.parametrize("name", RULES)
def test_a_hundred_steps_equal_torch(name: str) -> None:
    torch = pytest.importorskip("torch")
    model = models.mlp([6, 5, 3], "tanh", dtype="float64", seed=1)
    peer = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()
    with torch.no_grad():
        for theirs, ours in zip(peer.parameters(), model.parameters(), strict=True):
            theirs.copy_(torch.from_numpy(ours.data.T.copy()))
    trained(model, of_two_groups(model, name), epochs=20)
    kind, options = RULES[name]
    groups = [
        {"params": peer[0].parameters(), "weight_decay": 0.01, "lr": 0.005},
        {"params": peer[2].parameters()},
    ]
    descent = getattr(torch.optim, kind)(groups, **options)
    for _ in range(20):
        for begin in range(0, 40, 8):
            descent.zero_grad()
            outputs = peer(torch.from_numpy(X[begin : begin + 8]))
            torch.nn.functional.cross_entropy(outputs, torch.from_numpy(Y[begin : begin + 8])).backward()
            descent.step()
    for theirs, mine in zip(peer.parameters(), model.parameters(), strict=True):
        want = theirs.detach().numpy().T
        assert np.abs(mine.data - want).max() <= 1e-12 * np.abs(want).max()


@pytest.mark.parametrize("name", RULES)
def test_neither_team_nor_slices_change_a_bit(name: str) -> None:
    results = []
    for strategy in ("serial", "team:2", "team:3", "pool:2/1"):
        model = models.mlp([6, 37, 3], dtype="float32", seed=1)
        trainer = pdnn.Trainer(
            model, nn.CrossEntropyLoss(), of_two_groups(model, name), strategy=strategies.parse(strategy)
        )
        trainer.fit((X, Y), 3, 8, verbose=False)
        results.append(model.flat_parameters)
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@pytest.mark.parametrize("name", RULES)
def test_memory_is_resumed_bit_for_bit(name: str, tmp_path: Path) -> None:
    def trainer() -> pdnn.Trainer:
        model = models.mlp([6, 5, 3], seed=1)
        return pdnn.Trainer(model, nn.CrossEntropyLoss(), of_two_groups(model, name), strategy="serial")

    whole, first, second = trainer(), trainer(), trainer()
    whole.fit((X, Y), 4, 8, verbose=False)
    first.fit((X, Y), 2, 8, verbose=False, checkpoint=tmp_path)
    second.fit((X, Y), 4, 8, verbose=False, checkpoint=tmp_path, resume=True)
    np.testing.assert_array_equal(second.model.flat_parameters, whole.model.flat_parameters)


COPIES = [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))]


@pytest.mark.parametrize("duplicate", COPIES)
@pytest.mark.parametrize("name", [*RULES, "LBFGS", "LevenbergMarquardt"])
def test_a_copy_goes_on_with_its_model(name: str, duplicate: Any) -> None:
    kind, options = RULES.get(name, (name, {}))
    model = models.mlp([3, 4, 2], "tanh", dtype="float64", seed=1)
    optimizer: Any = getattr(optim, kind)(model.parameters(), **options)
    schedule = optim.StepLR(optimizer, 2, 1.0 if kind == "LevenbergMarquardt" else 0.1)
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(6, 3)), rng.normal(size=(6, 2))

    def step(model: Any, optimizer: Any, schedule: Any) -> None:
        if kind == "LBFGS":
            optimizer.step(lambda: model.gradient(x, y, nn.MSELoss(), out=model.flat_gradients)[0])
        else:
            model.step(x, y, nn.MSELoss(), optimizer)
        schedule.step()

    def twice(trio: Any) -> Any:
        copied = duplicate(duplicate(trio))  # the second time its model has no memory yet
        copied[0].place()
        return copied

    early = twice((model, optimizer, schedule))
    for _ in range(3):
        step(model, optimizer, schedule)
    late = twice((model, optimizer, schedule))
    assert late[2].optimizer is late[1]
    for _ in range(3):
        step(model, optimizer, schedule)
        step(*late)
    for _ in range(6):
        step(*early)
    state = optimizer.state_dict()
    for other, rule, _ in (early, late):
        assert other.fingerprint() == model.fingerprint()
        found = rule.state_dict()
        assert (found["steps"], found["param_groups"]) == (state["steps"], state["param_groups"])
        for key, values in state["state"].items():
            np.testing.assert_array_equal(found["state"][key], values)


@pytest.mark.parametrize("duplicate", COPIES)
def test_a_rate_that_a_copy_is_given_holds_from_its_first_step(duplicate: Any) -> None:
    model = models.mlp([3, 4, 2], dtype="float64", seed=1)
    rule = optim.Adam(model.parameters())
    model.step(np.ones((1, 3)), np.ones((1, 2)), nn.MSELoss(), rule)
    own, other = duplicate((model, rule))
    other.param_groups[0]["lr"] = 0.0
    own.step(np.ones((1, 3)), np.ones((1, 2)), nn.MSELoss(), other)
    np.testing.assert_array_equal(own.flat_parameters, model.flat_parameters)


def test_a_copy_needs_its_whole_model() -> None:
    model = models.mlp([3, 4, 2], dtype="float64", seed=1)
    rule = optim.Adam([*model.parameters()][:2])
    model.step(np.ones((1, 3)), np.ones((1, 2)), nn.MSELoss(), rule)
    alone = copy.deepcopy(rule)
    with pytest.raises(ValueError, match=r"Adam: its parameters belong to no model yet.*parameters\(\)"):
        alone.step()
    part, other = copy.deepcopy((model[0], rule))
    part(np.ones((1, 3)))
    for _ in range(2):
        with pytest.raises(ValueError, match=r"'exp_avg': \(26,\).*expected .*'exp_avg': \(16,\)"):
            other.step()


@pytest.mark.parametrize("clip", [{"clip_norm": 0.05}, {"clip_value": 0.01}, {"clip_norm": 1e3}])
def test_clipping_equals_torch(clip: dict[str, float]) -> None:
    torch = pytest.importorskip("torch")
    model, by_hand = (models.mlp([6, 5, 3], "tanh", dtype="float64", seed=1) for _ in range(2))
    peer = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()
    with torch.no_grad():
        for theirs, ours in zip(peer.parameters(), model.parameters(), strict=True):
            theirs.copy_(torch.from_numpy(ours.data.T.copy()))
    criterion = nn.CrossEntropyLoss()
    sgd = optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    trainer = pdnn.Trainer(model, criterion, sgd, strategy="team:2", **clip)  # type: ignore[arg-type]
    trainer.fit((X, Y), 4, 8, shuffle=False, verbose=False)
    descent, hand = (
        library.SGD(own.parameters(), lr=1.0, momentum=0.9)
        for library, own in ((torch.optim, peer), (optim, by_hand))
    )
    for _ in range(4):
        for begin in range(0, 40, 8):
            x, y = X[begin : begin + 8], Y[begin : begin + 8]
            descent.zero_grad()
            torch.nn.functional.cross_entropy(peer(torch.from_numpy(x)), torch.from_numpy(y)).backward()
            by_hand.flat_gradients[...] = by_hand.gradient(x, y, criterion)[1]
            for name, most in clip.items():
                norm = getattr(torch.nn.utils, f"clip_grad_{name[5:]}_")(peer.parameters(), most)
                own_norm = getattr(nn.utils, f"clip_grad_{name[5:]}_")(by_hand.parameters(), most)
                assert (norm is None and own_norm is None) or own_norm == pytest.approx(norm.item(), 1e-12)
            descent.step()
            hand.step()
    for theirs, *ours in zip(peer.parameters(), model.parameters(), by_hand.parameters(), strict=True):
        want = theirs.detach().numpy().T
        for mine in ours:
            assert np.abs(mine.data - want).max() <= 1e-12 * np.abs(want).max()


@pytest.mark.parametrize("strategy", ["serial", "team:2", "pool:2/2", "hogwild:1"])
def test_a_gradient_is_clipped_whose_square_no_float_holds(strategy: str) -> None:
    model = nn.Sequential(nn.Linear(1, 1), seed=1)
    before, sgd = model.flat_parameters.copy(), optim.SGD(model.parameters(), lr=0.1)
    trainer = pdnn.Trainer(model, nn.MSELoss(), sgd, strategy=strategy, clip_norm=1.0)
    x, y = np.ones((2, 1), np.float32), np.full((2, 1), 1e20, np.float32)
    trainer.fit((x, y), batch_size=2, verbose=False)
    assert model.flat_parameters - before == pytest.approx([0.1 / 2**0.5] * 2, rel=1e-5)
    four = models.mlp([3, 1])
    four.flat_gradients[...] = 1e20
    assert nn.clip_grad_norm_(four.parameters(), 1.0) == pytest.approx(2e20, rel=1e-6)
    assert four.flat_gradients == pytest.approx([0.5] * 4, rel=1e-6)


def test_two_trainers_of_one_optimizer_clip_each_in_its_way() -> None:
    def trained_by(clips: list[float | None]) -> np.ndarray:
        model = models.mlp([6, 5, 3], seed=1)
        sgd, loss = optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss()
        trainers = [pdnn.Trainer(model, loss, sgd, strategy="serial", clip_norm=clip) for clip in clips]
        trainers[0].fit((X, Y), 1, 8, verbose=False)
        return model.flat_parameters.copy()

    np.testing.assert_array_equal(trained_by([0.05, None]), trained_by([0.05]))
    assert (trained_by([0.05]) != trained_by([None])).any()


def test_clipping_is_refused_without_a_bound_or_with_two() -> None:
    model = models.mlp([2, 2])
    sgd = optim.SGD(model.parameters(), lr=0.1)
    for options, words in [
        ({"clip_norm": 1.0, "clip_value": 1.0}, "in one way"),
        ({"clip_norm": 0.0}, "clip_norm = 0.0; expected a number above 0"),
        ({"clip_value": -1.0}, "clip_value = -1.0; expected a number above 0"),
        ({"clip_norm": np.inf}, "clip_norm = inf; expected a number above 0 that is finite"),
    ]:
        with pytest.raises(ValueError, match=words):
            pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, **options)  # type: ignore[arg-type]
    model.flat_gradients[...] = 2
    assert nn.clip_grad_norm_(model.parameters(), float("inf")) == pytest.approx(24**0.5)
    assert (model.flat_gradients == 2).all()
    model.flat_gradients[...] = np.inf
    assert nn.clip_grad_norm_(model.parameters(), float("inf")) == np.inf
    assert (model.flat_gradients == np.inf).all()
    model.flat_gradients[0] = np.nan
    assert np.isnan(nn.clip_grad_norm_(model.parameters(), 1.0))
    assert np.isnan(model.flat_gradients).all()  # as torch has them
    for wrong in (0, float("nan")):
        with pytest.raises(ValueError, match=f"max_norm = {wrong}; expected a number above 0"):
            nn.clip_grad_norm_(model.parameters(), wrong)
    with pytest.raises(ValueError, match="clip_value = nan"):
        nn.clip_grad_value_(model.parameters(), float("nan"))


def test_parameters_in_no_group_stay() -> None:
    model = models.mlp([6, 5, 3], seed=1)
    first, *rest = model.parameters()
    before = first.data.copy()
    trained(model, optim.SGD(rest, lr=0.1))
    np.testing.assert_array_equal(first.data, before)


def test_a_parameter_is_not_frozen_as_in_torch() -> None:
    first = models.mlp([6, 5, 3], seed=1).layers[0].weight
    first.requires_grad = True
    with pytest.raises(
        ValueError, match=r"requires_grad = False; .* pass the optimizer the other parameters"
    ):
        first.requires_grad = False
    assert first.requires_grad


def test_what_is_given_by_place_is_what_torch_takes_there() -> None:
    """SGD has no dampening: what is after it must come by name."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch: pip install torch")

    def places(function: Any) -> list[str]:
        parameters = inspect.signature(function).parameters.values()
        return [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]

    modules = [(optim, torch.optim), (optim, torch.optim.lr_scheduler), (nn, torch.nn)]
    shared = [
        (name, places(getattr(own, name)), places(getattr(theirs, name)))
        for own, theirs in modules
        for name in {*own.__all__} & {*dir(theirs)}
        if isinstance(getattr(own, name), type) and not issubclass(getattr(own, name), (nn.Loss, Handle))
    ]
    assert {"SGD", "LBFGS", "StepLR", "Conv2d", "Embedding"} <= {name for name, *_ in shared}
    for name, ours, theirs in shared:
        if name not in ("Optimizer", "LBFGS"):  # a base; one more at the end
            assert ours == theirs[: len(ours)], name
    with pytest.raises(TypeError, match="positional"):
        optim.SGD(models.mlp([2, 2]).parameters(), 0.1, 0.9, 0, 1e-4)  # type: ignore[misc]


@pytest.mark.parametrize("key", ["lr", "weight_decay"])
def test_a_number_of_the_groups_is_no_attribute_that_is_set_in_vain(key: str) -> None:
    sgd = optim.SGD(models.mlp([2, 2]).parameters(), lr=0.1)
    with pytest.raises(AttributeError, match=rf'SGD: {key} is its groups.; set param_groups\[0\]\["{key}"\]'):
        setattr(sgd, key, 0.5)
    assert not hasattr(sgd, key)


def test_a_parameter_is_in_one_group_also_later() -> None:
    first, *rest = (model := models.mlp([2, 2], seed=1)).parameters()
    sgd, before = optim.SGD([first], lr=0.1), model.flat_parameters.copy()
    model.flat_gradients[...] = 1
    sgd.param_groups.append({"params": [first, *rest], "lr": 0.2, "weight_decay": 0.0})
    with pytest.raises(ValueError, match="SGD: a parameter appears twice"):
        sgd.step()
    np.testing.assert_array_equal(model.flat_parameters, before)
    sgd.param_groups[1]["params"] = rest
    sgd.step()
    np.testing.assert_allclose(before - model.flat_parameters, [0.1] * 4 + [0.2] * 2, rtol=1e-5)


def test_a_step_by_hand_is_the_formula() -> None:
    model = models.mlp([6, 5, 3], dtype="float64", seed=1)
    first, *rest = model.parameters()
    sgd = optim.SGD([{"params": first, "lr": 0.5}, {"params": rest, "weight_decay": 0.25}], lr=0.125)
    model.flat_gradients[...] = np.arange(model.flat_gradients.size)
    want = [first.data - 0.5 * first.grad, *(p.data - 0.125 * (p.grad + 0.25 * p.data) for p in rest)]
    sgd.step()
    for parameter, values in zip(model.parameters(), want, strict=True):
        np.testing.assert_allclose(parameter.data, values, rtol=1e-15)
    sgd.zero_grad()
    assert not model.flat_gradients.any()


def test_steps_by_hand_need_one_model() -> None:
    with pytest.raises(ValueError, match="no model"):
        optim.SGD([nn.Linear(2, 2).weight], lr=0.1).step()
    both = [*models.mlp([2, 2]).parameters(), *models.mlp([2, 2]).parameters()]
    with pytest.raises(ValueError, match="several models"):
        optim.SGD(both, lr=0.1).step()


def test_changed_groups_count_from_the_next_epoch() -> None:
    model = models.mlp([6, 5, 3], seed=1)
    sgd = optim.SGD(model.parameters(), lr=0.1)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="serial")
    trainer.fit((X, Y), 1, verbose=False)
    before = model.flat_parameters.copy()
    sgd.param_groups[0]["lr"] = 0.0
    trainer.fit((X, Y), 1, verbose=False)
    np.testing.assert_array_equal(model.flat_parameters, before)


class TorchLion:
    """Algorithm 2 of arXiv:2302.06675, on torch's tensors; torch itself has no Lion."""

    def __init__(self, groups: list[dict[str, Any]], lr: float, betas: tuple[float, float]) -> None:
        self.groups = [{"lr": lr, "weight_decay": 0.0, **group} for group in groups]
        self.betas, self.means = betas, {}

    def step(self) -> None:
        torch = pytest.importorskip("torch")
        beta1, beta2 = self.betas
        for group in self.groups:
            for w in group["params"]:
                m = self.means.setdefault(w, torch.zeros_like(w))
                with torch.no_grad():
                    w.mul_(1 - group["lr"] * group["weight_decay"])
                    w.sub_(group["lr"] * torch.sign(beta1 * m + (1 - beta1) * w.grad))
                    m.mul_(beta2).add_((1 - beta2) * w.grad)


def test_a_hundred_steps_of_lion_equal_its_algorithm_on_torch() -> None:
    torch = pytest.importorskip("torch")
    model = models.mlp([6, 5, 3], "tanh", dtype="float64", seed=1)
    peer = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).double()
    with torch.no_grad():
        for theirs, ours in zip(peer.parameters(), model.parameters(), strict=True):
            theirs.copy_(torch.from_numpy(ours.data.T.copy()))
    first, rest = list(model.parameters())[:2], list(model.parameters())[2:]
    groups = [{"params": first, "weight_decay": 0.1, "lr": 0.005}, {"params": rest}]
    trained(model, optim.Lion(groups, lr=0.01, betas=(0.8, 0.95)), epochs=20)
    groups = [{"params": list(peer[0].parameters()), "weight_decay": 0.1, "lr": 0.005}]
    lion = TorchLion([*groups, {"params": list(peer[2].parameters())}], 0.01, (0.8, 0.95))
    for begin in 20 * list(range(0, 40, 8)):
        peer.zero_grad()
        x, y = torch.from_numpy(X[begin : begin + 8]), torch.from_numpy(Y[begin : begin + 8])
        torch.nn.functional.cross_entropy(peer(x), y).backward()
        lion.step()
    for theirs, ours in zip(peer.parameters(), model.parameters(), strict=True):
        np.testing.assert_allclose(ours.data, theirs.detach().numpy().T, rtol=0, atol=1e-12)


def test_the_core_hears_of_groups_when_they_changed() -> None:
    model = models.mlp([3, 2], seed=1)
    weight, bias = model.parameters()
    sgd = optim.SGD([{"params": [weight]}, {"params": [bias], "lr": 0.5}], lr=1.0)
    core, told = sgd.core, []

    class Told:
        """The core's optimizer, which counts what it is told."""

        def __getattr__(self, name: str) -> Any:
            if name == "set_segments":
                told.append(name)
            return getattr(core, name)

    sgd._core = Told()
    model.flat_gradients[...] = 1

    def moved() -> list[float]:
        before = [float(each.data.flat[0]) for each in (weight, bias)]
        sgd.step()
        return [old - float(each.data.flat[0]) for old, each in zip(before, (weight, bias), strict=True)]

    assert moved() == pytest.approx([1, 0.5])
    assert moved() == pytest.approx([1, 0.5])
    assert told == []  # nothing changed since the core was made
    sgd.param_groups[1]["lr"] = 0.25
    assert moved() == pytest.approx([1, 0.25])
    assert moved() == pytest.approx([1, 0.25])
    assert len(told) == 1
    sgd.param_groups[1]["params"] = []  # a parameter of no group stays as it is
    assert moved() == pytest.approx([1, 0])
    assert len(told) == 2


def test_an_optimizer_stays_with_its_model() -> None:
    small = models.mlp([3, 2], seed=1)
    sgd = optim.SGD(small.parameters(), lr=1.0)
    sgd.step()
    next(nn.Sequential(*small, nn.Linear(2, 2), seed=1).parameters())  # takes the parameters along
    with pytest.raises(ValueError, match="SGD: it belongs to another model; make one for each"):
        sgd.step()


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("SGD", {"lr": -1}, "lr = -1"),
        ("SGD", {"lr": float("nan")}, "lr = nan"),
        ("SGD", {"lr": 0.1, "momentum": 1}, "momentum = 1"),
        ("SGD", {"lr": 0.1, "nesterov": True}, "nesterov needs"),
        ("SGD", {"lr": 0.1, "weight_decay": -0.1}, "weight_decay"),
        ("Adam", {"betas": (0.9, 1.0)}, "beta2 = 1"),
        ("AdamW", {"eps": -1}, "AdamW: eps = -1"),
        ("Lion", {"betas": (0.9, 1.0)}, "Lion: beta2 = 1"),
        ("RMSprop", {"alpha": -0.5}, "alpha = -0.5"),
        ("RMSprop", {"momentum": 2}, "momentum = 2"),
    ],
)
def test_numbers_out_of_range_are_refused(kind: str, options: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        getattr(optim, kind)(models.mlp([2, 2]).parameters(), **options)


@pytest.mark.parametrize("wrong", ["0.1", None, [0.1]])
def test_a_rate_that_is_no_number_is_refused(wrong: Any) -> None:
    for kind in (optim.SGD, optim.Adam, optim.LBFGS, optim.GaussNewton):
        with pytest.raises(TypeError, match=rf"{kind.__name__}: lr is .*, expected a number from 0"):
            kind(models.mlp([2, 2]).parameters(), lr=wrong)
    with pytest.raises(TypeError, match=r"SGD: momentum is .*, expected a number in \[0, 1\)"):
        optim.SGD(models.mlp([2, 2]).parameters(), lr=0.1, momentum=wrong)
    for betas in (wrong, (0.9, wrong), (0.9, 0.9, 0.9)):
        with pytest.raises(TypeError, match=r"Adam: beta.* is .*, expected .* in"):
            optim.Adam(models.mlp([2, 2]).parameters(), betas=betas)


@pytest.mark.parametrize(
    ("key", "value", "kind", "words"),
    [
        ("lr", -0.1, ValueError, "SGD: lr = -0.1; expected a number from 0"),
        ("lr", float("nan"), ValueError, "SGD: lr = nan"),
        ("lr", "0.1", TypeError, "SGD: lr is '0.1', expected a number"),
        ("weight_decay", float("inf"), ValueError, "SGD: weight_decay = inf"),
        ("momentum", 0.5, ValueError, r"unknown \['momentum'\]; a group may give lr and weight_decay"),
    ],
)
def test_a_group_that_was_changed_is_checked(key: str, value: Any, kind: type[Exception], words: str) -> None:
    model = models.mlp([6, 3], dtype="float64", seed=1)
    sgd = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model.step(X, Y, nn.CrossEntropyLoss(), sgd)
    kept, state = model.fingerprint(), sgd.state_dict()
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="serial")
    sgd.param_groups[0][key] = value
    for step in (
        sgd.step,
        lambda: model.step(X, Y, nn.CrossEntropyLoss(), sgd),
        lambda: trainer.fit((X, Y), verbose=False),
    ):
        with pytest.raises(kind, match=words):
            step()
    assert model.fingerprint() == kept
    other = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state["param_groups"][0][key] = value
    with pytest.raises((TypeError, ValueError)):
        other.load_state_dict(state)
    assert other.param_groups[0].keys() == {"params", "lr", "weight_decay"}
    assert other.param_groups[0]["lr"] == 0.1


CLOSURES = [optim.LBFGS, optim.LevenbergMarquardt, optim.GaussNewton, optim.NaturalGradient]


@pytest.mark.parametrize("name", [*RULES, *CLOSURES])
def test_numbers_of_a_rule_stay_as_they_were_made(name: Any) -> None:
    model = models.mlp([6, 5, 3], seed=1)
    optimizer = of_two_groups(model, name) if isinstance(name, str) else name(model.parameters())
    kind = type(optimizer).__name__
    for number in optimizer.config().keys() - {"type"}:
        assert f"{number}={getattr(optimizer, number)!r}" in repr(optimizer)
        if number == "damping":
            optimizer.damping = 0.25
            with pytest.raises(ValueError, match=rf"{kind}: damping = 0; expected a number above 0"):
                optimizer.damping = 0
            assert optimizer.config()["damping"] == 0.25
            continue
        before = getattr(optimizer, number)
        with pytest.raises(AttributeError, match=f"{kind}: {number} is fixed; make a new {kind}, which can"):
            setattr(optimizer, number, 0.5)
        assert getattr(optimizer, number) == before
        assert getattr(copy.copy(optimizer), number) == before


def test_parameters_that_do_not_fit_are_refused() -> None:
    model = models.mlp([2, 2])
    parameters = list(model.parameters())
    with pytest.raises(ValueError, match="appears twice"):
        optim.SGD([*parameters, parameters[0]], lr=0.1)
    with pytest.raises(ValueError, match="no parameters"):
        optim.SGD([], lr=0.1)
    with pytest.raises(ValueError, match="no parameters"):
        optim.SGD([{"params": []}], lr=0.1)
    with pytest.raises(ValueError, match=r"unknown \['betas'\]; a group may give lr and weight_decay"):
        optim.Adam([{"params": parameters, "betas": (0.5, 0.5)}])
    sgd = optim.SGD(parameters, lr=0.1)
    with pytest.raises(ValueError, match="not this model's"):
        pdnn.Trainer(models.mlp([2, 2]), nn.CrossEntropyLoss(), sgd)


@pytest.mark.parametrize("base", [optim.SGD, optim.LBFGS, optim.GaussNewton])
def test_a_step_of_its_own_is_refused_where_the_core_would_not_call_it(base: type[optim.Optimizer]) -> None:
    class Own(base):  # type: ignore[misc,valid-type]
        def step(self) -> None:
            raise AssertionError("called")

    model = models.mlp([4, 3])
    own = Own(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match="Trainer: Own has a step of its own, which the core does not call"):
        pdnn.Trainer(model, nn.CrossEntropyLoss(), own)
    if base is not optim.LBFGS:  # which such steps refuse anyway
        with pytest.raises(TypeError, match=r"step: Own has a step of its own, .* write the loop by hand"):
            model.step(np.ones((2, 4), np.float32), np.zeros(2, np.int64), nn.CrossEntropyLoss(), own)


def test_a_rule_that_the_core_lacks_is_refused() -> None:
    model = models.mlp([4, 3])
    own = type("Own", (optim.Optimizer,), {})(model.parameters(), 0.1, 0.0)
    for use in (own.step, lambda: pdnn.Trainer(model, nn.CrossEntropyLoss(), own)):
        with pytest.raises(TypeError, match=r"Own: the core has no such rule; subclass one that it has"):
            use()


def on_ranks(change: dict[str, Any]) -> Any:
    """Parameters after some epochs of a rank; rank 1 differs from the others by `change`."""
    numbers = {"lr": 0.01, "start": 0.5, "clip_norm": 0.5, **(change if pdnn.world().rank == 1 else {})}
    model = models.mlp([6, 5, 3], dtype="float64", seed=1)
    adam = optim.AdamW(model.parameters(), lr=numbers["lr"])
    trainer = pdnn.Trainer(
        model,
        nn.CrossEntropyLoss(),
        adam,
        strategy="auto" if pdnn.world().size == 1 else "ddp",
        schedule=optim.LinearLR(adam, numbers["start"], total_iters=7),
        schedule_per="step",
        clip_norm=numbers["clip_norm"],
    )
    trainer.fit((X, Y), 3, 9, verbose=False)
    return model.flat_parameters.copy()


def test_ranks_equal_one_process() -> None:
    alone = on_ranks({})
    for parameters in run_threads(lambda: on_ranks({}), 3):
        assert np.abs(parameters - alone).max() <= 1e-12 * np.abs(alone).max()


def test_state_goes_from_one_optimizer_to_another() -> None:
    def stepped(steps: int, lr: float) -> tuple[nn.Module, optim.Optimizer]:
        model = models.mlp([6, 4], dtype="float64", seed=1)
        adam = optim.Adam(model.parameters(), lr=lr)
        for _ in range(steps):
            model.flat_gradients[:] = np.arange(28) - 7.5
            adam.step()
        return model, adam

    (first, one), (second, other) = stepped(3, 0.1), stepped(1, 0.5)
    other.load_state_dict(one.state_dict())
    second.load_state_dict(first.state_dict())
    for model, adam in ((first, one), (second, other)):
        model.flat_gradients[:] = 1
        adam.step()
    np.testing.assert_array_equal(first.flat_parameters, second.flat_parameters)
    assert other.state_dict()["steps"] == 4
    sgd = optim.SGD(first.parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(ValueError, match=r"SGD.load_state_dict: got .*exp_avg.*expected .*velocity"):
        sgd.load_state_dict(one.state_dict())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lr": 0.02}, "rank 1 has groups"),
        ({"start": 0.25}, r"rank 1 has (groups|schedule)"),
        ({"clip_norm": None}, "rank 1 has clipping"),
    ],
)
def test_ranks_that_update_otherwise_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        run_threads(lambda: on_ranks(change), 2)


@pytest.mark.parametrize("strategy", ["ddp", "average:2", "pipeline:2"])
def test_ranks_whose_groups_hold_other_parameters_are_refused(strategy: str) -> None:
    def fit() -> None:
        model = models.mlp([2, 2, 2], seed=1)
        own = list(model.parameters())
        body, head = (own[:2], own[2:]) if pdnn.world().rank == 0 else (own[2:], own[:2])
        sgd = optim.SGD([{"params": body, "lr": 0.5}, {"params": head, "lr": 0.1}], lr=0.1)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
        trainer.fit(np.ones((8, 2)), np.zeros(8, int), epochs=1, batch_size=4, verbose=False)

    words = (
        r"rank 1 has groups of \[\['2.weight', '2.bias'\], \['0.weight', '0.bias'\]\], rank 0 has \[\['0.w"
    )
    with pytest.raises(ValueError, match=words):
        run_threads(fit, 2)


@pytest.mark.parametrize("wrap", [iter, lambda own: own[0]], ids=["iterator", "one parameter"])
def test_ranks_train_a_group_that_is_appended(wrap: Callable[[list[Parameter]], Any]) -> None:
    def fit() -> None:
        model = models.mlp([2, 2, 2], seed=1)
        own = list(model.parameters())
        if pdnn.world().rank == 1:  # the order within a group is no difference
            own[:2] = own[1::-1]
        sgd = optim.SGD(own[:2], lr=0.1)
        sgd.param_groups.append({"params": wrap(own[3:]), "lr": 0.1, "weight_decay": 0.0})
        before = [each.data.copy() for each in own]
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="ddp")
        x = np.random.default_rng(0).normal(size=(8, 2))
        trainer.fit(x, np.arange(8) % 2, epochs=1, batch_size=4, verbose=False)
        moved = [(each.data != old).any() for each, old in zip(own, before, strict=True)]
        assert moved == [True, True, False, True]

    run_threads(fit, 2)


@pytest.mark.parametrize("first", ["step", "zero_grad"])
def test_a_group_that_is_appended_may_be_an_iterator(first: str) -> None:
    """It was empty from the second step on."""
    model = models.mlp([2, 2, 2], seed=1)
    own = list(model.parameters())
    sgd, before = optim.SGD(own[2:], lr=0.1), model.flat_parameters.copy()
    sgd.param_groups.append({"params": iter(own[:2]), "lr": 0.1, "weight_decay": 0.0})
    assert repr(sgd).endswith("lr=0.1, weight_decay=0.0 of parameters)")
    if first == "zero_grad":
        sgd.zero_grad()
    for _ in range(2):
        model.flat_gradients[...] = 1
        sgd.step()
    np.testing.assert_allclose(before - model.flat_parameters, 0.2, rtol=1e-5)
    sgd.param_groups.append({"lr": 0.1, "weight_decay": 0.0})
    with pytest.raises(ValueError, match='no "params"'):
        sgd.step()
    sgd.param_groups = []
    with pytest.raises(ValueError, match="SGD: there are no parameters in its groups"):
        sgd.step()


def test_a_schedule_of_fewer_groups_says_so() -> None:
    first, second = models.mlp([2, 2]).parameters()
    sgd = optim.SGD([first], lr=0.1)
    schedule = optim.StepLR(sgd, 2)
    schedule.step()
    sgd.param_groups.append({"params": [second], "lr": 0.1, "weight_decay": 0.0})
    with pytest.raises(ValueError, match="2 parameter groups, 1 when this schedule was made"):
        schedule.step()
    assert schedule.last_epoch == 1 == optim.StepLR(sgd, 2, last_epoch=0).last_epoch


def test_optimizers_and_schedules_show_their_numbers() -> None:
    sgd = optim.SGD(models.mlp([2, 2]).parameters(), lr=0.1, momentum=0.9)
    assert repr(sgd) == "SGD(momentum=0.9, nesterov=False, lr=0.1, weight_decay=0.0 of 2 parameters)"
    assert repr(optim.StepLR(sgd, 2)) == "StepLR(last_epoch=0, lr=[0.1])"


def test_clipping_says_what_it_takes() -> None:
    for wrong, said in ((nn.Sequential(nn.Linear(2, 2)), "Linear"), ([3], "int")):
        with pytest.raises(TypeError, match=f"clip_grad_norm_: got {said}, expected Parameters"):
            nn.utils.clip_grad_norm_(wrong, 1.0)  # type: ignore[arg-type]
