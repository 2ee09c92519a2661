"""The thread-pool exercise: its published curves, and gradients that no number of threads can change."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from multiprocessing.pool import ThreadPool
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import pdnn
import processes
from modules import module_at
from pdnn import nn, strategies
from pdnn.data import Dataset, Subset, minibatches
from pdnn.exercises import legacy_batches

Digits = tuple[Dataset, Dataset]
Run = Callable[..., processes.Completed]

# Epoch to (training objective, test accuracy), measured with NumPy alone on the split of mnist_mini().
MEASURED = {
    "vanilla": {
        0: (2.1678, 0.6497),
        10: (0.7701, 0.8854),
        20: (0.4529, 0.9029),
        50: (0.2266, 0.9197),
        100: (0.1375, 0.9277),
        160: (0.0996, 0.9286),
    },
    "parallel": {
        0: (2.3030, 0.0940),
        10: (2.2617, 0.2009),
        20: (2.1984, 0.6100),
        50: (1.9268, 0.6649),
        100: (1.5013, 0.7380),
        160: (1.1457, 0.8283),
    },
}
PLANS = {"vanilla": ("serial", 1), "parallel": (strategies.Pool(5, parallel_batches=25), 25)}


@pytest.fixture(scope="module")
def w0(root: Path) -> ModuleType:
    """examples/threadpool_minibatches.py, imported."""
    return module_at(root / "examples" / "threadpool_minibatches.py")


@pytest.fixture(scope="module")
def digits() -> Digits:
    return pdnn.datasets.mnist_mini(scale=1)


def check_curve(w0: ModuleType, digits: Digits, name: str, epochs: int) -> None:
    train, test = digits
    strategy, batches = PLANS[name]
    watch = w0.Watch(train, test, verbose=False)
    w0.Batching(train).fit(w0.make_trainer(strategy), epochs, batches, watch)
    ours = dict(zip(watch.epochs, zip(watch.loss, watch.accuracy, strict=True), strict=True))
    expected = {epoch: values for epoch, values in MEASURED[name].items() if epoch < epochs}
    assert {epoch: ours[epoch] for epoch in expected} == {
        epoch: pytest.approx(values, rel=0.03) for epoch, values in expected.items()
    }


@pytest.mark.parametrize("name", PLANS)
def test_both_runs_follow_the_measured_curves(w0: ModuleType, digits: Digits, name: str) -> None:
    check_curve(w0, digits, name, epochs=11)


@pytest.mark.full_length
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", PLANS)
def test_both_runs_follow_the_measured_curves_to_the_end(w0: ModuleType, digits: Digits, name: str) -> None:
    check_curve(w0, digits, name, epochs=161)


def trained(
    w0: ModuleType, digits: Digits, strategy: str, batches_a_round: int, epochs: int = 1
) -> np.ndarray:
    """All parameters after a few epochs of the exercise."""
    trainer = w0.make_trainer(strategy)
    w0.Batching(digits[0]).fit(trainer, epochs, batches_a_round)
    return trainer.model.flat_parameters


def test_the_number_of_workers_changes_no_bit(w0: ModuleType, digits: Digits) -> None:
    alone = trained(w0, digits, "pool:1/25", 25, epochs=2)
    for workers in (2, 5):
        np.testing.assert_array_equal(trained(w0, digits, f"pool:{workers}/25", 25, epochs=2), alone)


def test_one_batch_a_round_is_the_vanilla_run_bit_for_bit(w0: ModuleType, digits: Digits) -> None:
    vanilla = trained(w0, digits, "serial", 1)
    for workers in (1, 2, 5):
        np.testing.assert_array_equal(trained(w0, digits, f"pool:{workers}/1", 1), vanilla)


def test_the_size_of_a_team_changes_no_bit(w0: ModuleType, digits: Digits) -> None:
    vanilla = trained(w0, digits, "serial", 1)
    for members in (1, 2):
        np.testing.assert_array_equal(trained(w0, digits, f"team:{members}", 1), vanilla)


def test_the_mean_over_equal_batches_is_the_gradient_of_their_union(w0: ModuleType, digits: Digits) -> None:
    batches = legacy_batches(len(digits[0]))[:25]
    model, criterion = w0.network(), nn.CrossEntropyLoss()
    parts = [model.gradient(*digits[0].gather(rows, "float64"), criterion) for rows in batches]
    loss, gradient = model.gradient(*digits[0].gather(np.concatenate(batches), "float64"), criterion)
    mean = np.mean([gradient for _, gradient in parts], axis=0)
    assert np.mean([value for value, _ in parts]) == pytest.approx(loss, rel=1e-13)
    assert np.abs(mean - gradient).max() <= 1e-13 * np.abs(gradient).max()


def test_a_thread_pool_over_gradients_equals_a_loop(w0: ModuleType, digits: Digits) -> None:
    batches = [digits[0].gather(rows, "float64") for rows in legacy_batches(len(digits[0]))[:10]]
    model, criterion = w0.network(), nn.CrossEntropyLoss()
    before = model.flat_parameters.copy()
    loop = [model.gradient(x, y, criterion) for x, y in batches]
    with ThreadPool(5) as pool:
        pooled = pool.map(lambda batch: model.gradient(*batch, criterion), batches)
    for (loss, gradient), (same_loss, same_gradient) in zip(loop, pooled, strict=True):
        assert loss == same_loss
        np.testing.assert_array_equal(gradient, same_gradient)
    np.testing.assert_array_equal(model.flat_parameters, before)  # gradients only read the model


def test_a_round_by_hand_is_a_step_of_the_trainer(w0: ModuleType, digits: Digits) -> None:
    rounds = legacy_batches(len(digits[0]))[:10]
    model, criterion = w0.network(), nn.CrossEntropyLoss()
    with ThreadPool(2) as pool:
        results = pool.map(lambda rows: model.gradient(*digits[0].gather(rows, "float64"), criterion), rounds)
    model.flat_gradients[...] = np.mean([gradient for _, gradient in results], axis=0)
    for parameter, decay in zip(model.parameters(), w0.L2, strict=True):
        parameter.data -= 1e-3 * (parameter.grad + decay * parameter.data)

    trainer = w0.make_trainer("pool:2/10")
    trainer.fit(
        Subset(digits[0], np.concatenate(rounds)), batch_size=10 * w0.BATCH, shuffle=False, verbose=False
    )
    np.testing.assert_allclose(model.flat_parameters, trainer.model.flat_parameters, rtol=0, atol=1e-14)


def test_general_batching_takes_any_number_of_rows_and_shuffles_anew(w0: ModuleType, digits: Digits) -> None:
    train = digits[0][:1009]
    with pytest.raises(ValueError, match="legacy_batches"):
        w0.Batching(train).fit(w0.make_trainer("serial"), 1, 1)

    def after(epochs: int, batch_size: int) -> np.ndarray:
        trainer = w0.make_trainer("serial")
        w0.Batching(train, batch_size, legacy=False).fit(trainer, epochs, 1)
        assert trainer.step == epochs * -(-len(train) // batch_size)
        return trainer.model.flat_parameters

    np.testing.assert_array_equal(after(1, 1009), after(1, 2000))
    trainer = w0.make_trainer("serial")  # two epochs in one fixed order are no two fresh shuffles
    trainer.fit(
        Subset(train, np.concatenate(minibatches(len(train), 105))), 2, 105, shuffle=False, verbose=False
    )
    assert np.abs(trainer.model.flat_parameters - after(2, 105)).max() > 1e-6


def test_the_script_writes_its_lines_curves_and_sweep(root: Path, tmp_path: Path, run_python: Run) -> None:
    script = root / "examples" / "threadpool_minibatches.py"
    done = run_python([script, "--fast", "--epochs", "1", "--sweep-epochs", "1", "--out", tmp_path])
    lines = re.findall(
        r"^Epoch (\d+) Loss (\d\.\d{6}) Accuracy (0\.\d{6}) time taken \d+ ms$", done.stdout, re.M
    )
    assert [int(epoch) for epoch, _, _ in lines] == [0, 0]
    for name, (_, loss, accuracy) in zip(MEASURED, lines, strict=True):
        assert (float(loss), float(accuracy)) == pytest.approx(MEASURED[name][0], rel=0.03)
        assert (tmp_path / f"{name}.json").exists()
    with open(tmp_path / "sweep.csv", newline="", encoding="utf-8") as file:
        table = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    assert [(row["threads"], row["batches_a_round"]) for row in table] == [
        (threads, batches) for batches in (1, 5, 25) for threads in (1, 2)
    ]
    assert all(0 < row["gradient_ms"] < row["epoch_ms"] for row in table)
    assert len({(row["batches_a_round"], row["loss"], row["accuracy"]) for row in table}) == 3
    for picture in ("runs.png", "sweep.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")


def test_the_script_explains_itself(root: Path, run_python: Run) -> None:
    script = root / "examples" / "threadpool_minibatches.py"
    assert "--batches-a-round" in run_python([script, "--help"]).stdout
    refused = run_python([script, "everything"], check=False)
    assert refused.returncode == 2 and "vanilla, parallel, sweep" in refused.stdout
