"""Losses as users make and change them: subclasses, and labels that change under way."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim
from pdnn.callbacks import Callback
from pdnn.tensor import Tensor

RNG = np.random.default_rng(3)
X = RNG.standard_normal((40, 8)).astype(np.float32)
Y = RNG.integers(0, 2, 40)
LOSSES = [nn.CrossEntropyLoss, nn.NLLLoss, nn.BCELoss, nn.BCEWithLogitsLoss, nn.MSELoss]
EVERY = sorted(
    {kind for kind in vars(nn).values() if inspect.isclass(kind) and issubclass(kind, nn.Loss)} - {nn.Loss},
    key=lambda kind: kind.__name__,
)


def trainer_of(loss: nn.Loss, outputs: int = 2) -> pdnn.Trainer:
    net = nn.Sequential(nn.Linear(8, outputs), nn.Sigmoid(), seed=1)
    return pdnn.Trainer(net, loss, optim.SGD(net.parameters(), lr=0.1), strategy="serial")


@pytest.mark.parametrize("base", LOSSES)
def test_a_subclass_computes_as_its_base(base: type[nn.Loss]) -> None:
    own = type("Own", (base,), {})
    targets = np.eye(2)[Y] if base is nn.MSELoss else Y
    want, got = trainer_of(base("sum")), trainer_of(own("sum"))
    for trainer in (want, got):
        trainer.fit((X, targets), 2, verbose=False)
    np.testing.assert_array_equal(got.model.flat_parameters, want.model.flat_parameters)
    assert got.evaluate((X, targets)) == want.evaluate((X, targets))
    outputs = np.full((40, 2), 0.25)
    assert own()(outputs, targets).item() == base()(outputs, targets).item()
    assert repr(got.loss) == "Own(reduction='sum')"


@pytest.mark.parametrize("base", [nn.CrossEntropyLoss, nn.NLLLoss])
def test_a_subclass_refuses_what_its_base_refuses(base: type[nn.Loss]) -> None:
    own = type("Own", (base,), {})
    with pytest.raises(ValueError, match="not one-hot"):
        own()(np.zeros((2, 2)), np.array([[1, 1], [0, 1]]))


def test_an_ignored_class_is_a_number() -> None:
    with pytest.raises(TypeError, match="CrossEntropyLoss: ignore_index is 'none', expected an integer"):
        nn.CrossEntropyLoss(ignore_index="none")  # type: ignore[arg-type]
    assert nn.CrossEntropyLoss(ignore_index=np.int8(3)).ignore_index == 3  # type: ignore[arg-type]


def test_a_subclass_predicts_with_the_threshold_of_its_base() -> None:
    own = type("Own", (nn.BCEWithLogitsLoss,), {})
    for loss, threshold in ((own(), 0.0), (nn.BCEWithLogitsLoss(), 0.0), (nn.BCELoss(), 0.5)):
        trainer = trainer_of(loss, outputs=1)
        outputs = trainer.predict(X)[:, 0]
        np.testing.assert_array_equal(trainer.predict_classes(X), outputs > threshold)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in EVERY if kind.takes_classes and not kind.one_class_a_row],
    ids=lambda kind: kind.__name__,
)
def test_the_core_counts_what_is_above_the_threshold_as_class_1(kind: type[nn.Loss]) -> None:
    net = nn.Sequential(nn.Linear(1, 1, bias=False))
    net.flat_parameters[:] = 1
    for x in np.float32([[0.25], [0.75]]):
        trainer = pdnn.Trainer(net, kind(), optim.SGD(net.parameters(), lr=0), strategy="serial")
        labels = trainer.predict_classes(x[None])
        history = trainer.fit((x[None], labels), 1, verbose=False).history
        assert history["accuracy"] == [1], f"{x} is class {labels}"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.HuberLoss(delta="x"), "HuberLoss: delta is 'x', expected a number above 0"),
        (lambda: nn.SmoothL1Loss(beta=None), "SmoothL1Loss: beta is None, expected a number, 0 or more"),
        (lambda: nn.PoissonNLLLoss(eps="x"), "PoissonNLLLoss: eps is 'x', expected a number above 0"),
        (lambda: nn.QuantileLoss("x"), "QuantileLoss: quantile is 'x', expected numbers in"),
        (lambda: nn.CrossEntropyLoss(label_smoothing="x"), "label_smoothing is 'x', expected a number in"),
        (lambda: nn.CrossEntropyLoss(label_smoothing=None), "label_smoothing is None, expected a number in"),
        (lambda: nn.CrossEntropyLoss(ignore_index=True), "ignore_index is True, expected an integer"),
    ],
)
def test_an_option_that_is_no_number_is_told(make: Callable[[], nn.Loss], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        make()


def test_weights_are_given_by_name_and_may_be_a_tensor_of_torch() -> None:
    weight = np.array([1.0, 3.0])
    for given in (weight, [1.0, 3.0], None):
        with pytest.raises(TypeError, match=r"CrossEntropyLoss: reduction is of type .* given by name"):
            nn.CrossEntropyLoss(given)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="weights of rows to the call"):
        nn.BCELoss(weight)  # type: ignore[arg-type]
    torch = pytest.importorskip("torch", reason="compares with PyTorch: pip install torch")
    assert repr(nn.CrossEntropyLoss(weight=torch.tensor(weight))) == repr(nn.CrossEntropyLoss(weight=weight))
    with pytest.raises(TypeError, match=r"outputs are of type torch\.Tensor, expected a pdnn\.Tensor"):
        nn.CrossEntropyLoss()(torch.zeros(2, 2), np.zeros(2, np.int64))
    with pytest.raises(
        TypeError, match=r"Linear: got torch\.Tensor, expected a NumPy array or a pdnn\.Tensor"
    ):
        nn.Linear(2, 2)(torch.zeros(2, 2))


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.__name__)
def test_options_are_not_set_in_vain(kind: type[nn.Loss]) -> None:
    loss = kind()
    for name in inspect.signature(kind).parameters:
        with pytest.raises(AttributeError, match=f"{name} is fixed; make a new {kind.__name__}"):
            setattr(loss, name, 0.5)
    loss.note = "one's own"  # type: ignore[attr-defined]


def test_a_loss_that_the_core_lacks_is_refused() -> None:
    own = type("Own", (nn.Loss,), {})
    with pytest.raises(TypeError, match="Own: the core has no such loss; subclass"):
        trainer_of(own())
    with pytest.raises(TypeError, match="Own: the core has no such loss"):
        own()(np.zeros((2, 2)), np.zeros(2, np.int64))


def test_a_call_of_its_own_is_refused_where_the_core_would_not_call_it() -> None:
    class Doubled(nn.MSELoss):
        def __call__(self, outputs: Any, targets: Any) -> Tensor:
            return super().__call__(outputs, targets) * 2

    assert Doubled()(np.ones((2, 1)), np.zeros(2)).item() == 2
    with pytest.raises(TypeError, match=r"Doubled has a __call__ of its own.*by hand"):
        trainer_of(Doubled())
    model = models.mlp([2, 1])
    x, y = np.ones((3, 2), "float32"), np.ones((3, 1), "float32")
    rules: list[Any] = [optim.SGD(model.parameters(), 0.1), optim.GaussNewton(model.parameters())]
    calls = [lambda loss: model.gradient(x, y, loss)]
    calls += [lambda loss, rule=rule: model.step(x, y, loss, rule) for rule in rules]
    for call in calls:
        with pytest.raises(TypeError, match=r"Doubled has a __call__ of its own.*by hand"):
            call(Doubled())
        with pytest.raises(TypeError, match=r"criterion is of type function, expected one of pdnn.nn's"):
            call(lambda outputs, targets: 0)


def test_a_forward_is_refused_that_nothing_would_call() -> None:
    with pytest.raises(TypeError, match="Own: a loss has no forward; name it __call__"):
        type("Own", (nn.MSELoss,), {"forward": lambda self, outputs, targets: outputs})


def test_integers_are_targets_where_the_loss_takes_no_classes() -> None:
    y = RNG.integers(-5, 6, 40)
    want, got = trainer_of(nn.MSELoss(), outputs=1), trainer_of(nn.MSELoss(), outputs=1)
    want.fit((X, y[:, None].astype(np.float32)), verbose=False)
    got.fit((X, y), verbose=False)
    np.testing.assert_array_equal(got.model.flat_parameters, want.model.flat_parameters)


@pytest.mark.parametrize("loss", [nn.BCELoss(), nn.BCEWithLogitsLoss()])
@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_a_column_of_integers_is_classes_of_a_single_output(loss: nn.Loss, dtype: str) -> None:
    trainer = trainer_of(loss, outputs=1)
    for y in (np.ones(40), np.zeros(40), Y):  # rows of ones alone look one-hot
        column = y.astype(dtype)[:, None]
        want = trainer.model.gradient(X, y.astype("float32"), loss)
        got = trainer.model.gradient(X, column, loss)
        assert got[0] == want[0] == pytest.approx(loss(trainer.model(X), column).item())
        np.testing.assert_array_equal(got[1], want[1])
        assert trainer.evaluate((X, column)) == trainer.evaluate((X, y.astype(dtype)))
    with pytest.raises(ValueError, match="label 2 of row 0 is outside 0 … 1, the classes of a network"):
        loss(np.zeros((1, 1)), np.array([[2]]))


@pytest.mark.parametrize("loss", [nn.CrossEntropyLoss(), nn.CrossEntropyLoss(weight=[1.0]), nn.NLLLoss()])
@pytest.mark.parametrize("labels", [Y, Y.astype(float), Y.astype(float)[:, None]])
def test_classes_need_an_output_each(loss: nn.Loss, labels: Any) -> None:
    trainer = trainer_of(loss, outputs=1)
    model, words = trainer.model, "the network has 1 output, and targets are classes"
    for call in (
        lambda: trainer.fit((X, labels), verbose=False),
        lambda: trainer.evaluate((X, labels)),
        lambda: model.gradient(X, labels, loss),
        lambda: model.step(X, labels, loss, optim.SGD(model.parameters(), lr=0.1)),
        lambda: loss(model(X), labels),
    ):
        with pytest.raises(ValueError, match=words):
            call()


@pytest.mark.parametrize("labels", [Y.astype(np.int32), np.eye(2, dtype=np.int32)[Y]])
def test_labels_that_change_during_a_fit_change_nothing(labels: Any) -> None:
    class Change(Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            changed[...] = 50_000_000

    want, got, changed = trainer_of(nn.CrossEntropyLoss()), trainer_of(nn.CrossEntropyLoss()), labels.copy()
    want.fit((X, labels), 3, verbose=False)
    got.fit((X, changed), 3, callbacks=[Change()], verbose=False)
    assert (changed == 50_000_000).all()
    np.testing.assert_array_equal(got.model.flat_parameters, want.model.flat_parameters)


@pytest.mark.parametrize("loss", [nn.BCELoss(), nn.BCEWithLogitsLoss()], ids=repr)
def test_targets_that_are_no_probabilities_are_refused(loss: nn.Loss) -> None:
    """The loss fell without end."""
    mask = 255 * np.eye(4, dtype=np.uint8)
    model = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), dtype="float64", seed=0)
    said = r"targets of row 0 are \[255.*expected numbers from 0 to 1; divide"
    with pytest.raises(ValueError, match=said):
        loss(model(np.ones((4, 3))), mask[:, [0, 0, 1, 1]])
    trainer = pdnn.Trainer(model, loss, optim.SGD(model.parameters(), lr=0.1), strategy="serial")
    with pytest.raises(ValueError, match=said):
        trainer.fit(np.ones((4, 3)), mask.astype(np.float64), epochs=1, verbose=False)
    loss(model(np.ones((4, 3))), np.full((4, 4), np.nan))
    left_out = np.array([[1 + 1.2e-7, 0, 0, 0], [-1.0, -1, -1, -1]])  # rounded; without weight
    assert np.isfinite(loss(model(np.ones((2, 3))), left_out, weight=[1.0, 0]).item())


def test_a_loss_of_probabilities_says_so_where_it_is_nan() -> None:
    model = nn.Sequential(nn.Linear(3, 1), dtype="float64", seed=0)
    trainer = pdnn.Trainer(model, nn.BCELoss(), optim.SGD(model.parameters(), lr=9.0), strategy="serial")
    with pytest.raises(FloatingPointError, match=r"BCELoss is of probabilities, as nn\.Sigmoid\(\) gives"):
        trainer.fit(9 * np.ones((4, 3)), np.zeros(4, np.int64), epochs=9, verbose=False)


def test_only_integer_classes_are_ignored() -> None:
    loss = nn.CrossEntropyLoss(ignore_index=1)
    model = nn.Sequential(nn.Linear(3, 3), dtype="float64", seed=0)
    for rows in (np.eye(3), np.eye(3, dtype=np.float32)):
        with pytest.raises(ValueError, match="ignore_index 1 with labels that are float"):
            loss(model(np.ones((3, 3))), rows)
        with pytest.raises(ValueError, match="step: ignore_index 1 with"):
            model.step(np.ones((3, 3)), rows, loss, optim.SGD(model.parameters(), lr=0.1))
    loss(model(np.ones((3, 3))), np.eye(3, dtype=np.int64))


def test_rows_that_are_not_ignored_keep_their_weights() -> None:
    outputs = np.random.default_rng(0).normal(size=(3, 4))
    each = [nn.CrossEntropyLoss()(outputs[row : row + 1], np.array([row])).item() for row in range(3)]
    got = nn.CrossEntropyLoss(ignore_index=1)(outputs, np.arange(3), np.array([1.0, 2.0, 3.0])).item()
    assert got == pytest.approx((each[0] + 3 * each[2]) / 4)


@pytest.mark.parametrize("labels", [np.array([[True, True, False]]), np.ones((1, 257), np.uint8)])
def test_labels_of_several_classes_are_not_one_hot_however_they_are_stored(labels: Any) -> None:
    with pytest.raises(ValueError, match="are not one-hot; pass probabilities as floats"):
        nn.CrossEntropyLoss()(np.zeros(labels.shape), labels)
