"""The scatter-gather example in one process: the published numbers, sums over shards, its measuring tools."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import pdnn
from data_root import real_data
from pdnn import nn
from pdnn.comm import SELF
from pdnn.data import Dataset

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import scatter_gather_job as job
import scatter_gather_measure as measure


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return pdnn.exercises.ex4(real_data("ex4-digits"), train=True)


def few_digits(rows: int) -> Dataset:
    random = np.random.RandomState(5)
    return Dataset(random.rand(rows, job.INPUTS), random.randint(0, job.CLASSES, rows))


def summed(thetas: tuple[job.Array, job.Array], data: Dataset) -> tuple[float, job.Array]:
    """Cost and gradients summed over the rows, the gradients in one array."""
    cost, *gradients = job.cost_and_gradients(*thetas, data.x, data.y, np.matmul, job.Timer())
    return cost, np.concatenate([gradient.ravel() for gradient in gradients])


def test_pretrained_weights_cost_what_was_published(digits: Dataset) -> None:
    thetas = pdnn.exercises.ex4_weights(real_data("ex4-digits"))
    cost, _ = summed(thetas, digits)
    assert cost / len(digits) == pytest.approx(0.287629, abs=5e-7)
    assert job.precision(*thetas, digits.x, digits.y) == 0.9752
    values = job.make_trainer(thetas).evaluate(digits)
    assert values["loss"] == pytest.approx(cost / len(digits), abs=1e-12)
    assert values["accuracy"] == 0.9752


def test_the_first_iterations_learn_as_published(digits: Dataset) -> None:
    """Learning rate 2: 76-78 % after 50 iterations, 87 % after 100, 93 % and a cost of .572 after 200."""
    trainer, seen = job.make_trainer(job.initial_thetas(seed=2), 2.0, "scatter-gather:once"), {}
    for iterations, end in ((50, 50), (50, 100), (100, 200)):
        trainer.fit(digits, iterations, batch_size=len(digits), shuffle=False, verbose=False)
        seen[end] = trainer.evaluate(digits)["accuracy"]
    assert 0.75 <= seen[50] <= 0.80
    assert 0.85 <= seen[100] <= 0.90
    assert 0.915 <= seen[200] <= 0.94
    assert trainer.history.history["loss"][-1] == pytest.approx(0.572, rel=0.08)


@pytest.mark.parametrize("once", [False, True])
def test_the_trainer_does_the_same_job(once: bool) -> None:
    data, thetas = few_digits(203), job.initial_thetas(seed=1)
    run = job.train(SELF, data, thetas, iterations=20, learning_rate=2.0, once=once)
    costs = job.train_by_pdnn(data, thetas, iterations=20, learning_rate=2.0, once=once)
    np.testing.assert_allclose(run.costs, costs, rtol=0, atol=1e-12)
    assert run.costs[-1] < run.costs[0]


def test_the_gradient_is_that_of_the_library() -> None:
    data, thetas = few_digits(50), job.initial_thetas(seed=3)
    cost, gradient = summed(thetas, data)
    loss, expected = job.network(thetas).gradient(data.x, data.y, nn.BCELoss(reduction="sum"))
    weight1, bias1, weight2, bias2 = np.split(
        expected, np.cumsum([job.INPUTS * job.HIDDEN, job.HIDDEN, job.HIDDEN * job.CLASSES])
    )
    theta1 = np.column_stack([bias1, weight1.reshape(job.INPUTS, job.HIDDEN).T])
    theta2 = np.column_stack([bias2, weight2.reshape(job.HIDDEN, job.CLASSES).T])
    assert cost == pytest.approx(loss, rel=1e-13)
    np.testing.assert_allclose(gradient, np.concatenate([theta1.ravel(), theta2.ravel()]), atol=1e-12)


def test_sums_over_uneven_shards_add_up_and_means_do_not() -> None:
    data, thetas = few_digits(100), job.initial_thetas(seed=4)
    shards = [data[:71], data[71:98], data[98:]]
    cost, gradient = summed(thetas, data)
    parts = [summed(thetas, shard) for shard in shards]
    assert sum(part[0] for part in parts) == pytest.approx(cost, rel=1e-13)
    np.testing.assert_allclose(sum(part[1] for part in parts), gradient, atol=1e-12)
    mean_of_means = np.mean([part[0] / len(shard) for part, shard in zip(parts, shards, strict=True)])
    assert abs(mean_of_means - cost / len(data)) > 1e-4


def test_ranks_of_unequal_shares_agree_with_one() -> None:
    """203 rows on 3 ranks, which are threads; only rank 0 has data."""
    data, thetas = few_digits(203), job.initial_thetas(seed=6)
    alone = job.train(SELF, data, thetas, iterations=10, learning_rate=2.0)

    def rank(once: bool) -> job.Run:
        comm = pdnn.world()
        mine = (data, thetas) if comm.rank == 0 else (None, None)
        return job.train(comm, *mine, iterations=10, learning_rate=2.0, once=once)

    for once in (False, True):
        runs = pdnn.run(rank, once, ranks=3, backend="threads")
        np.testing.assert_allclose(runs[0].costs, alone.costs, rtol=0, atol=1e-12)
        for run in runs:
            np.testing.assert_array_equal(run.theta1, runs[0].theta1)
            np.testing.assert_array_equal(run.theta2, runs[0].theta2)


def test_every_phase_is_timed_and_every_iteration_logged() -> None:
    lines: list[str] = []
    run = job.train(
        SELF, few_digits(30), job.initial_thetas(0), iterations=3, learning_rate=0.1, log=lines.append
    )
    assert set(run.timer.seconds) == set(job.PHASES)
    assert all(seconds > 0 for seconds in run.timer.seconds.values())
    assert lines[1].startswith(
        f"Iteration 2 (learning rate 0.1, iteration 3), cost: {run.costs[1]:.6f}, time: "
    )


def test_products_can_be_exchanged() -> None:
    data, thetas = few_digits(40), job.initial_thetas(seed=7)
    costs = [
        job.train(SELF, data, thetas, iterations=5, learning_rate=2.0, product=product).costs
        for product in measure.PRODUCTS.values()
    ]
    np.testing.assert_allclose(costs[0], costs[1], rtol=0, atol=1e-13)


def test_a_matrix_that_lies_by_columns_is_refused() -> None:
    with pytest.raises(ValueError, match=r"broadcast: .*Fortran-ordered \(25, 401\).*ascontiguousarray"):
        SELF.broadcast(np.asfortranarray(job.initial_thetas(0)[0]))


def test_crossover_is_where_the_other_is_faster_for_good() -> None:
    rows = [(n, "a", t) for n, t in [(8, 3.0), (16, 1.0), (32, 3.0), (64, 1.0), (128, 1.0)]]
    rows += [(n, "b", 2.0) for n in (8, 16, 32, 64, 128)]
    assert measure.crossover(rows, "a", "b") == 64
    assert measure.crossover(rows, "b", "a") is None


def test_products_are_timed_and_drawn(tmp_path: Path) -> None:
    rows = measure.time_products([4, 8], threads=2, seconds=0.001)
    assert [(n, name) for n, name, _ in rows] == [
        (n, name) for n in (4, 8) for name in ("numpy", "pdnn", "pdnn, 2 threads")
    ]
    assert all(0 < seconds < 1 for *_, seconds in rows)
    measure.draw(tmp_path / "products.png", lambda axes: measure.draw_products(axes, rows))
    assert (tmp_path / "products.png").read_bytes().startswith(b"\x89PNG")
