"""`model.step`: single training steps in one call, against the same steps written out."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim

RULES: dict[str, Any] = {
    "sgd": lambda p: optim.SGD(p, lr=0.1),
    "momentum": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda p: optim.Adam(p, lr=0.01, weight_decay=0.01),
    "adamw": lambda p: optim.AdamW(p, lr=0.01),
    "rmsprop": lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5, centered=True),
    "lion": lambda p: optim.Lion(p, lr=0.01),
}


def tiny(dtype: str) -> nn.Sequential:
    """A stack of narrow layers, which has kernels of its own."""
    return pdnn.models.mlp((8, 8, 4), activation="sigmoid", dtype=dtype, seed=3)


def mixed(dtype: str) -> nn.Sequential:
    """Dropout and batch normalization, wider than a stack."""
    return nn.Sequential(
        nn.Linear(8, 70),
        nn.BatchNorm1d(70),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(70, 4),
        dtype=dtype,
        seed=3,
    )


def cnn(dtype: str) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.2),
        nn.Flatten(),
        nn.Linear(36, 4),
        dtype=dtype,
        seed=3,
    )


def batch(model: str, rows: int, dtype: str, number: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(number)
    shape = (rows, 2, 6, 6) if model == "cnn" else (rows, 8)
    return rng.normal(size=shape).astype(dtype), rng.integers(0, 4, rows)


def by_hand(model: nn.Sequential, x: Any, y: Any, criterion: nn.Loss, optimizer: optim.Optimizer) -> float:
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return float(loss.item())


MODELS = {"tiny": tiny, "mixed": mixed, "cnn": cnn}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", MODELS)
def test_it_has_the_bits_of_the_step_written_out(name: str, rule: str, dtype: str) -> None:
    one, two = MODELS[name](dtype), MODELS[name](dtype)
    mine, theirs = RULES[rule](one.parameters()), RULES[rule](two.parameters())
    criterion = nn.CrossEntropyLoss()
    for number, rows in enumerate([1 if name == "tiny" else 3, 7, 20, 7]):
        x, y = batch(name, rows, dtype, number)
        assert one.step(x, y, criterion, mine) == by_hand(two, x, y, criterion, theirs)
        np.testing.assert_array_equal(one.flat_gradients, two.flat_gradients)
        assert one.fingerprint() == two.fingerprint()
    assert mine.state_dict()["steps"] == 4
    for key, values in theirs.state_arrays().items():
        np.testing.assert_array_equal(mine.state_arrays()[key], values)


@pytest.mark.parametrize(
    ("criterion", "labels"),
    [
        (nn.MSELoss(), np.linspace(0, 1, 12)[:, None]),
        (nn.MSELoss("sum"), np.arange(12)),  # integers that a loss without classes takes as values
        (nn.BCEWithLogitsLoss(), np.arange(12) % 2),
        (nn.BCEWithLogitsLoss("sum"), np.arange(12)[:, None] % 2 == 0),
    ],
)
def test_it_takes_the_labels_that_a_criterion_takes(criterion: nn.Loss, labels: np.ndarray) -> None:
    models = [pdnn.models.mlp((8, 5, 1), seed=1) for _ in range(2)]
    rules = [optim.SGD(model.parameters(), lr=0.1) for model in models]
    x = batch("tiny", 12, "float32")[0]
    for _ in range(2):
        ours = models[0].step(x, labels, criterion, rules[0])
        assert ours == by_hand(models[1], x, labels, criterion, rules[1])
    assert models[0].fingerprint() == models[1].fingerprint()


@pytest.mark.parametrize("change", ["float64", "fortran", "strided", "int32", "int8", "one-hot", "soft"])
def test_it_converts_what_it_cannot_take_in_place(change: str) -> None:
    model, other = tiny("float32"), tiny("float32")
    x, y = batch("tiny", 6, "float32")
    given: tuple[Any, Any] = {
        "float64": (x.astype("float64"), y),
        "fortran": (np.asfortranarray(x), y),
        "strided": (np.repeat(x, 2, axis=0)[::2], np.repeat(y, 2)[::2]),
        "int32": (x, y.astype("int32")),
        "int8": (x, y.astype("int8")),
        "one-hot": (x, np.eye(4, dtype=int)[y]),
        "soft": (x, np.eye(4, dtype="float32")[y]),
    }[change]
    criterion = nn.CrossEntropyLoss()
    loss = model.step(*given, criterion, optim.SGD(model.parameters(), lr=0.1))
    assert loss == pytest.approx(other.step(x, y, criterion, optim.SGD(other.parameters(), lr=0.1)), rel=1e-6)
    np.testing.assert_allclose(model.flat_parameters, other.flat_parameters, rtol=1e-5)


def test_steps_fits_and_eager_passes_go_on_from_each_other() -> None:
    """Also from a state that was loaded, under a schedule, with a frozen group."""
    x, y = batch("tiny", 8, "float64")
    criterion, finals = nn.CrossEntropyLoss(), []
    for single in (by_hand, None):
        model = tiny("float64")
        weights = list(model.parameters())
        rule = optim.Adam([{"params": weights[:2]}, {"params": weights[3:], "lr": 0.1}], lr=0.05)
        schedule = optim.lr_scheduler.StepLR(rule, step_size=2, gamma=0.5)
        frozen = weights[2].data.copy()

        def step(model: nn.Sequential, rule: optim.Optimizer, single: Any = single) -> None:
            (single or nn.Sequential.step)(model, x, y, criterion, rule)

        for _ in range(3):
            step(model, rule)
            schedule.step()
        pdnn.Trainer(model, criterion, rule, strategy="serial").fit(
            pdnn.data.Dataset(x, y), epochs=1, batch_size=4, verbose=False
        )
        step(model, rule)
        saved = {name: array.copy() for name, array in model.state_dict().items()}, rule.state_dict()
        step(model, rule)
        model.load_state_dict(saved[0])
        rule.load_state_dict(saved[1])
        by_hand(model, x, y, criterion, rule)
        step(model, rule)
        np.testing.assert_array_equal(weights[2].data, frozen)
        finals.append((model.fingerprint(), rule.state_dict()["steps"]))
    assert finals[0] == finals[1]
    assert finals[0][1] == 3 + 2 + 1 + 2


def test_in_evaluation_mode_layers_compute_as_in_evaluation() -> None:
    one, two = mixed("float64").eval(), mixed("float64").eval()
    x, y = batch("mixed", 5, "float64")
    buffers = one.flat_buffers.copy()
    rules = [optim.SGD(model.parameters(), lr=0.1) for model in (one, two)]
    criterion = nn.CrossEntropyLoss()
    assert one.step(x, y, criterion, rules[0]) == by_hand(two, x, y, criterion, rules[1])
    assert one.fingerprint() == two.fingerprint()
    np.testing.assert_array_equal(one.flat_buffers, buffers)


def test_a_batch_without_rows_is_a_step_too() -> None:
    one, two = tiny("float64"), tiny("float64")
    rules = [optim.Adam(model.parameters(), lr=0.1, weight_decay=0.1) for model in (one, two)]
    criterion = nn.CrossEntropyLoss("sum")
    for rows in (3, 0, 2):
        x, y = batch("tiny", rows, "float64", rows)
        assert one.step(x, y, criterion, rules[0]) == by_hand(two, x, y, criterion, rules[1])
    assert one.fingerprint() == two.fingerprint()
    assert rules[0].state_dict()["steps"] == rules[1].state_dict()["steps"] == 3


def test_a_rank_whose_rows_count_nothing_takes_part_in_the_sums_of_others() -> None:
    def steps() -> tuple[list[np.ndarray], np.ndarray]:
        rank, seen = pdnn.world().rank, []
        model = nn.Sequential(
            nn.Linear(4, 3), nn.BatchNorm1d(3, sync=True), nn.Linear(3, 2), seed=1, dtype="float64"
        )
        rng, rule = np.random.default_rng(rank), optim.Adam(model.parameters(), lr=0.1)
        for step in range(3):
            x, y = rng.normal(size=(5, 4)), rng.integers(0, 2, 5)
            weight = np.zeros(5) if (rank, step) == (1, 1) else np.ones(5)
            model.step(x, y, nn.CrossEntropyLoss(), rule, weight=weight)
            seen.append(model.flat_parameters.copy())
        return seen, model.flat_buffers.copy()

    (moved, one), (stood, other) = pdnn.run(steps, ranks=2, backend="threads")
    np.testing.assert_allclose(one, other, rtol=1e-12)  # the statistics of the same three batches
    assert (stood[0] == stood[1]).all() and (stood[1] != stood[2]).any() and (moved[0] != moved[1]).any()


def test_threads_take_turns() -> None:
    """Every step counts, whichever thread makes it; the gradient of a sum is the same for each."""
    model = nn.Sequential(nn.Linear(300, 1, bias=False), seed=1)
    model.flat_parameters[:] = 0
    rule, criterion = optim.SGD(model.parameters(), lr=0.5), nn.L1Loss("sum")
    x, y = np.ones((32, 300), "float32"), np.full((32, 1), 1e9, "float32")
    threads = [
        threading.Thread(target=lambda: [model.step(x[:n], y[:n], criterion, rule) for n in range(1, 33)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert rule.state_dict()["steps"] == 4 * 32
    assert (model.flat_parameters == 0.5 * 4 * sum(range(1, 33))).all()


def test_a_number_that_was_given_back_goes_to_one_thread() -> None:
    class Taken(list[int]):
        """There when it is looked at, and not when it is taken."""

        def __bool__(self) -> bool:
            return True

    model = tiny("float32")
    store = model.place().store
    store.give_back_call(store.next_call())
    assert [store.next_call(), store.next_call()] == [0, 1]
    store._unused_calls = Taken()
    assert store.next_call() == 2


@pytest.mark.parametrize(
    ("x", "y", "error", "words"),
    [
        ([[0.0] * 8], np.zeros(1, int), TypeError, "step: x is of type list, expected a NumPy array"),
        (np.zeros((1, 8), "uint8"), np.zeros(1, int), TypeError, "raw integers need their scale"),
        (np.zeros(8), np.zeros(1, int), ValueError, r"x has shape \(8,\), expected one row a sample"),
        (np.zeros((1, 7)), np.zeros(1, int), ValueError, "input has 7 features, this layer takes 8"),
        (np.zeros((2, 8)), np.zeros(3, int), ValueError, "step: y has 3 labels, x has 2 rows"),
        (np.zeros((2, 8)), np.array([0, 4]), ValueError, "step: label 4 of row 1 is outside 0 … 3"),
        (np.zeros((2, 8)), np.array([0, -1]), ValueError, "step: label -1 of row 1"),
        (np.zeros((2, 8)), np.array(["a", "b"]), TypeError, "expected integers or floats"),
        (np.zeros((2, 8)), np.zeros((2, 3)), ValueError, r"labels have shape \(2, 3\), expected"),
    ],
)
@pytest.mark.parametrize("steps_before", [0, 1])
def test_what_does_not_fit_is_refused_and_changes_nothing(
    x: Any, y: Any, error: type[Exception], words: str, steps_before: int
) -> None:
    model, criterion = tiny("float64"), nn.CrossEntropyLoss()
    rule = optim.Adam(model.parameters())
    for _ in range(steps_before):
        model.step(*batch("tiny", 2, "float64"), criterion, rule)
    before = model.fingerprint()
    with pytest.raises(error, match=words):
        model.step(x, y, criterion, rule)
    assert model.fingerprint() == before
    assert rule.state_dict()["steps"] == steps_before


def test_what_it_cannot_do_is_refused_by_name() -> None:
    model, (x, y) = tiny("float32"), batch("tiny", 2, "float32")
    rule, criterion = optim.SGD(model.parameters(), lr=0.1), nn.CrossEntropyLoss()
    with pytest.raises(TypeError, match="optimizer is of type float, expected"):
        model.step(x, y, criterion, 0.1)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="criterion is of type str"):
        model.step(x, y, "mse", rule)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="not this model's"):
        tiny("float32").step(x, y, criterion, rule)
    model.step(x, y, criterion, rule)
    hook = next(model.parameters()).register_hook(lambda grad: None)
    with pytest.raises(ValueError, match="has hooks"):
        model.step(x, y, criterion, rule)
    hook.remove()
    model.layers[1].eval()
    with pytest.raises(ValueError, match="some layers are in training mode"):
        model.step(x, y, criterion, rule)
    model.train()
    larger = nn.Sequential(model, nn.Linear(4, 4))
    larger.step(x, y, criterion, optim.SGD(larger.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="belong"):
        model.step(x, y, criterion, rule)


def test_a_distributed_optimizer_is_refused() -> None:
    model, (x, y) = tiny("float32"), batch("tiny", 2, "float32")
    rule = pdnn.ddp.DistributedOptimizer(optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(ValueError, match="has hooks"):
        model.step(x, y, nn.CrossEntropyLoss(), rule)
    rule.remove()
