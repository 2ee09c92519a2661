"""The scatter-gather example in one process: the published numbers, sums over shards, its measuring tools."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pdnn
from data_root import real_data
from pdnn import nn, optim
from pdnn.comm import SELF
from pdnn.data import Dataset
from processes import Completed

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


def test_own_weights_cost_what_their_docstring_says(digits: Dataset) -> None:
    thetas = pdnn.exercises.ex4_own_weights()
    cost, _ = summed(thetas, digits)
    precision = job.precision(*thetas, digits.x, digits.y)
    said = " ".join((pdnn.exercises.ex4_own_weights.__doc__ or "").split())
    assert f"is {cost / len(digits):.6f} and their precision {100 * precision:.2f} %" in said


@pytest.mark.long
def test_the_script_trains_the_own_weights(
    digits: Dataset, root: Path, tmp_path: Path, run_python: Callable[..., Completed]
) -> None:
    """To rounding: other instruction sets add in other orders, for 1000 steps."""
    script, data = (
        root / "scripts" / "make_ex4_weights.py",
        {"PDNN_DATA": str(real_data("ex4-digits").parent)},
    )
    printed = run_python([script, tmp_path / "weights.npz"], timeout=100, env=data)
    assert "cost 0.2153" in printed.stdout
    with np.load(tmp_path / "weights.npz") as made:
        for name, own in zip(("Theta1", "Theta2"), pdnn.exercises.ex4_own_weights(), strict=True):
            np.testing.assert_allclose(made[name], own, rtol=0, atol=1e-4)


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


@pytest.mark.parametrize("ranks", [1, 2])
def test_rows_that_are_sent_once_lie_as_before_when_a_training_goes_on(ranks: int, tmp_path: Path) -> None:
    """Dropout's masks tell where they lie."""
    rows = Dataset(np.random.RandomState(2).rand(41, 8), np.arange(41) % 3)

    def trained(*epochs: int, **settings: object) -> job.Array:
        layers = nn.Linear(8, 16), nn.Dropout(0.5), nn.Linear(16, 3)
        model = nn.Sequential(*layers, dtype="float64", seed=1)
        sgd = optim.SGD(model.parameters(), 0.1)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="scatter-gather:once")
        for count in epochs:
            trainer.fit(rows, count, len(rows), verbose=False, **settings)
        return model.flat_parameters.copy()

    def resumed() -> job.Array:
        trained(2, checkpoint=tmp_path / "run")
        return trained(4, checkpoint=tmp_path / "run", resume=True)

    def parts() -> list[job.Array]:
        return [trained(4), trained(2, 2), resumed()]

    for whole, *others in pdnn.run(parts, ranks=ranks, backend="threads"):
        for other in others:
            np.testing.assert_array_equal(whole, other)


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

    def rank_of_ddp() -> job.Run:
        mine = (data, thetas) if pdnn.world().rank == 0 else (None, None)
        return job.train_ddp(pdnn.world(), *mine, iterations=10, learning_rate=2.0)

    for runs in (
        pdnn.run(rank, False, ranks=3, backend="threads"),
        pdnn.run(rank, True, ranks=3, backend="threads"),
        pdnn.run(rank_of_ddp, ranks=3, backend="threads"),
    ):
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


def test_one_rank_is_timed_beside_several_ways() -> None:
    data, thetas = few_digits(50), job.initial_thetas(seed=6)
    plans, other = pdnn.run(
        lambda: job.time_plans(pdnn.world(), data, thetas, iterations=2, rounds=1), ranks=2, backend="threads"
    )
    assert list(plans) == ["1 rank", "2 ranks, scatter every time", "2 ranks, scatter once", "2 ranks, ddp"]
    assert set(plans["2 ranks, scatter once"]) == set(job.PHASES)
    assert "all-reduce" in plans["2 ranks, ddp"] and "gather 1" not in plans["2 ranks, ddp"]
    assert "1 rank" not in other
    assert list(job.time_plans(SELF, data, thetas, iterations=1, rounds=1)) == ["1 rank"]


@pytest.mark.parametrize("name", ["pdnn", pytest.param("eigen", marks=pytest.mark.long)])
def test_products_can_be_exchanged(name: str) -> None:
    if name not in measure.contestants(1):
        pytest.skip("no compiler or no Eigen")
    data, thetas = few_digits(40), job.initial_thetas(seed=7)
    costs = [
        job.train(
            SELF, data, thetas, iterations=5, learning_rate=2.0, product=measure.PRODUCTS[product]
        ).costs
        for product in ("numpy", name)
    ]
    np.testing.assert_allclose(costs[0], costs[1], rtol=0, atol=1e-13)


def test_a_matrix_that_lies_by_columns_is_refused() -> None:
    with pytest.raises(ValueError, match=r"broadcast: .*Fortran-ordered \(25, 401\).*ascontiguousarray"):
        SELF.broadcast(np.asfortranarray(job.initial_thetas(0)[0]))


def test_crossover_is_where_the_other_is_faster_for_good() -> None:
    a = {8: 3.0, 16: 1.0, 32: 3.0, 64: 1.0, 128: 1.0, 256: 2.02}
    rows = [((n, n, n), "a", t) for n, t in a.items()] + [((n, n, n), "b", 2.0) for n in a]
    assert measure.crossover(rows, "a", "b") == 64  # 1 % behind is a draw
    assert measure.crossover(rows, "b", "a") is None
    assert measure.crossover(rows, "a", "b", margin=0.001) is None


def test_the_products_of_the_job_are_those_it_makes() -> None:
    shapes = []

    def product(a: job.Array, b: job.Array) -> job.Array:
        shapes.append((*a.shape, b.shape[1]))
        return a @ b

    data = few_digits(40)
    job.train(SELF, data, job.initial_thetas(seed=7), iterations=1, learning_rate=2.0, product=product)
    assert shapes == list(measure.products_of_the_job(40).values())


def test_products_are_timed_and_drawn(tmp_path: Path) -> None:
    products = measure.contestants(threads=2)
    assert {"numpy", "pdnn", "pdnn, 2 threads"} <= set(products)
    shapes = measure.products_of_the_job(20)
    squares = measure.time_products(measure.squares([4, 8]), products, rounds=2, seconds=0.0)
    of_job = measure.time_products(shapes.values(), products, rounds=2, seconds=0.0)
    assert [(shape, name) for shape, name, _ in squares] == [
        ((n, n, n), name) for n in (4, 8) for name in products
    ]
    assert all(0 < seconds < 1 for *_, seconds in squares + of_job)
    measure.draw(tmp_path / "a.png", lambda axes: measure.draw_products(axes, squares))
    measure.draw(tmp_path / "b.png", lambda axes: measure.draw_job_products(axes, of_job, list(shapes)))
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in ("a.png", "b.png"))
