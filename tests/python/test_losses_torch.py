"""Losses against PyTorch's, in float64, and the quantile loss against its formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim
from pdnn.comm import run_threads

RNG = np.random.default_rng(8)
ROWS, OUTPUTS = 17, 4
Y = RNG.normal(0, 2, (ROWS, OUTPUTS))
CLASSES = RNG.integers(0, OUTPUTS, ROWS)
PROBABILITIES = RNG.dirichlet(np.ones(OUTPUTS), ROWS)
VALUES = Y + RNG.normal(0, 1.5, Y.shape)
VALUES[0] = Y[0]  # errors of 0
Y[1], VALUES[1] = [1, 2, 3, 4], [2, 1, 3.5, 3.5]  # and at the borders
COUNTS = RNG.poisson(2.0, Y.shape).astype(np.float64)
CLASS_WEIGHTS = [0.5, 2.0, 0.0, 1.25]

ELEMENTWISE: dict[str, tuple[str, dict[str, Any], np.ndarray]] = {
    "l1": ("L1Loss", {}, VALUES),
    "smooth l1": ("SmoothL1Loss", {}, VALUES),
    "smooth l1, small beta": ("SmoothL1Loss", {"beta": 0.5}, VALUES),
    "smooth l1 of no width": ("SmoothL1Loss", {"beta": 0.0}, VALUES),
    "huber": ("HuberLoss", {}, VALUES),
    "huber, wide": ("HuberLoss", {"delta": 2.5}, VALUES),
    "poisson": ("PoissonNLLLoss", {}, COUNTS),
    "poisson in full": ("PoissonNLLLoss", {"full": True}, COUNTS),
    "poisson of rates": ("PoissonNLLLoss", {"log_input": False, "full": True, "eps": 1e-3}, COUNTS),
}
CROSS_ENTROPY: dict[str, dict[str, Any]] = {
    "plain": {},
    "weights": {"weight": CLASS_WEIGHTS},
    "smooth": {"label_smoothing": 0.2},
    "all smooth": {"label_smoothing": 1.0},
    "both": {"weight": CLASS_WEIGHTS, "label_smoothing": 0.2},
}


def ours(loss: nn.Loss, y: np.ndarray, target: np.ndarray, **more: Any) -> tuple[float, np.ndarray]:
    """A loss and its derivatives for the outputs, which are the parameters here."""
    model = nn.Sequential(nn.Linear(len(y), y.shape[1], bias=False), dtype="float64", seed=0)
    model.flat_parameters[...] = y.ravel()
    value, gradient = model.gradient(np.eye(len(y)), target, loss, **more)
    return value, gradient.reshape(y.shape)


def theirs(loss: Any, y: np.ndarray, target: np.ndarray) -> tuple[float, np.ndarray]:
    torch = pytest.importorskip("torch", reason="compares with PyTorch: pip install torch")
    outputs = torch.tensor(y, requires_grad=True)
    value = loss(outputs, torch.from_numpy(target))
    value.backward()
    return value.item(), outputs.grad.numpy()


def torch_loss(name: str, options: dict[str, Any], reduction: str) -> Any:
    torch = pytest.importorskip("torch", reason="compares with PyTorch: pip install torch")
    if isinstance(options.get("weight"), list):
        options = options | {"weight": torch.tensor(options["weight"], dtype=torch.float64)}
    return getattr(torch.nn, name)(reduction=reduction, **options)


def equal(got: tuple[float, np.ndarray], want: tuple[float, np.ndarray]) -> None:
    assert got[0] == pytest.approx(want[0], rel=1e-13)
    np.testing.assert_allclose(got[1], want[1], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("case", ELEMENTWISE)
def test_errors_of_values_are_those_of_torch(case: str, reduction: str) -> None:
    name, options, target = ELEMENTWISE[case]
    y = np.abs(Y) if "rates" in case else Y
    loss = getattr(nn, name)(reduction=reduction, **options)
    got = ours(loss, y, target)
    equal(got, theirs(torch_loss(name, options, reduction), y, target))
    assert loss(y, target).item() == pytest.approx(got[0], rel=1e-14)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("targets", ["classes", "ignored", "ignored by number", "probabilities"])
@pytest.mark.parametrize("case", CROSS_ENTROPY)
def test_cross_entropy_is_that_of_torch(case: str, targets: str, reduction: str) -> None:
    options, target = CROSS_ENTROPY[case], PROBABILITIES if targets == "probabilities" else CLASSES
    if targets == "ignored":
        target = np.where(np.arange(ROWS) % 3 == 1, -100, CLASSES)
    if targets == "ignored by number":
        options = options | {"ignore_index": 1}
    got = ours(nn.CrossEntropyLoss(reduction, **options), Y, target)
    equal(got, theirs(torch_loss("CrossEntropyLoss", options, reduction), Y, target))


@pytest.mark.parametrize("case", CROSS_ENTROPY)
def test_weights_of_rows_and_of_classes_are_multiplied(case: str) -> None:
    weight = RNG.integers(0, 4, ROWS)
    loss = nn.CrossEntropyLoss(**CROSS_ENTROPY[case])
    value, gradient = ours(loss, Y, CLASSES, weight=weight)
    want = ours(loss, np.repeat(Y, weight, 0), np.repeat(CLASSES, weight))
    assert value == pytest.approx(want[0], rel=1e-13)
    sums = [part.sum(0) for part in np.split(want[1], np.cumsum(weight)[:-1])]
    np.testing.assert_allclose(gradient, sums, rtol=1e-12, atol=1e-15)


def test_quantile_loss_is_its_formula() -> None:
    error = VALUES - Y
    for quantile in (0.5, 0.1, [0.1, 0.5, 0.9, 0.3]):
        q = np.broadcast_to(quantile, Y.shape)
        value, gradient = ours(nn.QuantileLoss(quantile, "sum"), Y, VALUES)
        assert value == pytest.approx(np.maximum(q * error, (q - 1) * error).sum(), rel=1e-14)
        np.testing.assert_allclose(gradient, np.select([error > 0, error < 0], [-q, 1 - q]), atol=1e-15)
    assert ours(nn.QuantileLoss(), Y, VALUES)[0] == pytest.approx(np.abs(error).mean() / 2)


def test_several_quantiles_share_a_target() -> None:
    loss, target = nn.QuantileLoss([0.1, 0.5, 0.9, 0.3]), VALUES[:, 0]
    want = ours(loss, Y, np.repeat(target[:, None], OUTPUTS, 1))
    for given in (target, target[:, None], np.round(target).astype(np.int64)):
        got = ours(loss, Y, given)
        if given.dtype.kind == "f":
            equal(got, want)
    x = RNG.normal(size=(400, 1))
    noise = RNG.normal(size=400)
    model = nn.Sequential(nn.Linear(1, 3), dtype="float64", seed=1)
    levels = nn.QuantileLoss([0.1, 0.5, 0.9])
    trainer = pdnn.Trainer(model, levels, optim.Adam(model.parameters(), lr=0.05), strategy="serial")
    trainer.fit(x, x[:, 0] + noise, epochs=150, batch_size=200, verbose=False)
    below = (x + noise[:, None] < trainer.predict(x)).mean(0)
    np.testing.assert_allclose(below, [0.1, 0.5, 0.9], atol=0.03)
    assert list(trainer.evaluate(x, noise)) == ["loss"]


TRAINED: list[tuple[nn.Loss, np.ndarray]] = [
    (nn.L1Loss(), VALUES),
    (nn.SmoothL1Loss("sum", 0.3), VALUES),
    (nn.HuberLoss("batchmean"), VALUES),
    (nn.PoissonNLLLoss(), COUNTS),
    (nn.QuantileLoss([0.1, 0.2, 0.3, 0.9]), VALUES[:, 0]),
    (nn.CrossEntropyLoss(weight=CLASS_WEIGHTS, label_smoothing=0.1), np.where(CLASSES == 3, -100, CLASSES)),
    (nn.CrossEntropyLoss(weight=CLASS_WEIGHTS), PROBABILITIES),
]
STRATEGIES = [("team:2", 1), ("pool:2/3", 1), ("ddp", 2), ("ddp/8", 2), ("scatter-gather", 2), ("tp:2", 2)]


@pytest.mark.parametrize(("loss", "target"), TRAINED)
@pytest.mark.parametrize(("strategy", "ranks"), [*STRATEGIES, ("pipeline:2/3", 2)])
def test_strategies_train_with_every_loss(
    loss: nn.Loss, target: np.ndarray, strategy: str, ranks: int
) -> None:
    def job(strategy: str) -> pdnn.Trainer:
        model = models.mlp([OUTPUTS, 6, OUTPUTS], "tanh", dtype="float64", seed=2)
        sgd = optim.SGD(model.parameters(), lr=0.05)
        trainer = pdnn.Trainer(model, loss, sgd, strategy=strategy)
        trainer.fit(Y, target, epochs=2, batch_size=9, verbose=False)
        return trainer

    want, got = job("serial"), run_threads(lambda: job(strategy), ranks)[-1]
    np.testing.assert_allclose(got.model.flat_parameters, want.model.flat_parameters, rtol=1e-11, atol=1e-13)
    for name, values in want.history.history.items():
        if name in ("loss", "accuracy"):
            np.testing.assert_allclose(got.history.history[name], values, rtol=1e-12)


@pytest.mark.parametrize(("strategy", "ranks"), STRATEGIES[:-1])
def test_a_sum_counts_a_batch_of_a_class_without_weight_that_is_smoothed(strategy: str, ranks: int) -> None:
    """In a mean it counts nothing, where torch divides by 0."""
    torch = pytest.importorskip("torch", reason="compares with PyTorch: pip install torch")
    classes, weight = np.repeat([1, 0, 2], 4), [0.0, 1.0, 2.5, 0.5]
    x = RNG.standard_normal((12, OUTPUTS))

    def job(reduction: str) -> tuple[pdnn.Trainer, np.ndarray]:
        model = models.mlp([OUTPUTS, OUTPUTS], dtype="float64", seed=2)
        before = model.flat_parameters.copy()
        loss = nn.CrossEntropyLoss(reduction, weight=weight, label_smoothing=0.2)
        trainer = pdnn.Trainer(model, loss, optimizer_of(model), strategy=strategy)
        trainer.fit(x, classes, batch_size=4, shuffle=False, verbose=False)
        return trainer, before

    trainer, before = run_threads(lambda: job("sum"), ranks)[0]
    linear = torch.nn.Linear(OUTPUTS, OUTPUTS, dtype=torch.float64)
    cut = OUTPUTS * OUTPUTS
    with torch.no_grad():
        linear.weight.copy_(torch.tensor(before[:cut].reshape(OUTPUTS, OUTPUTS).T))
        linear.bias.copy_(torch.tensor(before[cut:]))
    options = {"weight": weight, "label_smoothing": 0.2}
    loss, sgd = torch_loss("CrossEntropyLoss", options, "sum"), torch.optim.SGD(linear.parameters(), lr=0.1)
    for at in (0, 4, 8):
        sgd.zero_grad()
        loss(linear(torch.tensor(x[at : at + 4])), torch.tensor(classes[at : at + 4])).backward()
        sgd.step()
    want = np.concatenate([linear.weight.detach().numpy().T.ravel(), linear.bias.detach().numpy()])
    np.testing.assert_allclose(trainer.model.flat_parameters, want, rtol=1e-12)
    assert trainer.history.updates[0]["count"] == 3
    assert run_threads(lambda: job("mean"), ranks)[0][0].history.updates[0]["count"] == 2
    mean = nn.CrossEntropyLoss(weight=weight, label_smoothing=0.2)
    value, gradient = ours(mean, x[4:8], classes[4:8])
    assert value == 0 and not gradient.any()


def test_steps_leave_out_the_ignored_class() -> None:
    for ignored in (-100, 2):
        loss = nn.CrossEntropyLoss(ignore_index=ignored)
        y = np.where(CLASSES == 2, ignored, CLASSES)
        kept = CLASSES != 2
        got, want = (models.mlp([OUTPUTS, 6, OUTPUTS], dtype="float64", seed=2) for _ in range(2))
        for labels in (y, y.astype(np.int32)):
            value = got.step(Y, labels, loss, optimizer_of(got))
            assert value == pytest.approx(want.step(Y[kept], CLASSES[kept], loss, optimizer_of(want)))
            np.testing.assert_allclose(got.flat_parameters, want.flat_parameters, atol=1e-14)
        one_hot = np.eye(OUTPUTS, dtype=bool)[CLASSES]
        if ignored == 2:
            assert loss(Y, one_hot).item() == loss(Y, CLASSES).item() == loss(Y[kept], CLASSES[kept]).item()
            assert got.step(Y, one_hot, loss, optimizer_of(got)) == pytest.approx(
                want.step(Y[kept], CLASSES[kept], loss, optimizer_of(want))
            )
            np.testing.assert_allclose(got.flat_parameters, want.flat_parameters, atol=1e-14)
        before = got.flat_parameters.copy()
        assert got.step(Y, np.full(ROWS, ignored), loss, optimizer_of(got)) == 0
        np.testing.assert_array_equal(got.flat_parameters, before)
    with pytest.raises(ValueError, match="label -1 of row 0 is outside"):
        nn.CrossEntropyLoss()(Y, np.full(ROWS, -1))


def optimizer_of(model: nn.Sequential) -> optim.SGD:
    return optim.SGD(model.parameters(), lr=0.1)


def test_accuracy_has_the_weights_of_the_loss() -> None:
    model = nn.Sequential(nn.Linear(OUTPUTS, OUTPUTS, bias=False), dtype="float64", seed=0)
    model.flat_parameters[...] = np.eye(OUTPUTS).ravel()
    loss = nn.CrossEntropyLoss(weight=CLASS_WEIGHTS, ignore_index=0)
    trainer = pdnn.Trainer(model, loss, optimizer_of(model), strategy="serial")
    right = Y.argmax(1) == CLASSES
    weight = np.where(CLASSES == 0, 0, np.array(CLASS_WEIGHTS)[CLASSES])
    accuracy = trainer.evaluate(Y, CLASSES)["accuracy"]
    assert accuracy == pytest.approx((weight * right).sum() / weight.sum(), rel=1e-14)


def test_losses_say_what_they_are() -> None:
    shown = {
        "CrossEntropyLoss(reduction='mean')": nn.CrossEntropyLoss(),
        "CrossEntropyLoss(reduction='sum', weight=[1.0, 2.0], ignore_index=7, label_smoothing=0.1)": (
            nn.CrossEntropyLoss("sum", weight=[1, 2], ignore_index=7, label_smoothing=0.1)
        ),
        "SmoothL1Loss(reduction='mean', beta=0.5)": nn.SmoothL1Loss(beta=0.5),
        "QuantileLoss(reduction='mean', quantiles=[0.25])": nn.QuantileLoss(0.25),
    }
    for text, loss in shown.items():
        assert repr(loss) == text


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: nn.SmoothL1Loss(beta=-1), "SmoothL1Loss: beta = -1; expected a number, 0 or more"),
        (lambda: nn.HuberLoss(delta=0), "HuberLoss: delta = 0; expected a number above 0"),
        (lambda: nn.HuberLoss(delta=float("nan")), "HuberLoss: delta = nan"),
        (lambda: nn.PoissonNLLLoss(eps=0), "PoissonNLLLoss: eps = 0"),
        (lambda: nn.QuantileLoss(1.0), r"QuantileLoss: quantile = 1.0; expected numbers in \(0, 1\)"),
        (lambda: nn.QuantileLoss([]), r"QuantileLoss: quantile = \[\];"),
        (lambda: nn.CrossEntropyLoss(label_smoothing=1.5), "label_smoothing = 1.5; expected a number in"),
        (lambda: nn.CrossEntropyLoss(weight=[1, -1]), "CrossEntropyLoss, classes: weight -1 of row 1"),
        (lambda: nn.CrossEntropyLoss(weight=[1, 2])(Y, CLASSES), "weight has 2 classes, the network has 4"),
        (lambda: nn.QuantileLoss([0.1, 0.9])(Y, VALUES), "2 quantiles for 4 outputs"),
    ],
)
def test_what_losses_refuse(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()
