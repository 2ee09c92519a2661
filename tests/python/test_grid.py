"""Ranks that hold parts of a network, and their products with data parallel, train what one process does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim, strategies
from pdnn.strategies import DataParallel, Grid, Pipeline, Pool, Team, TensorParallel

pytestmark = pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # more threads than cores

RNG = np.random.default_rng(2)
DATA = RNG.standard_normal((56, 30)), RNG.integers(0, 5, 56)  # batches of 12, the last of 8


def trained(
    spec: Any, build: Any, clip: Any = None, **options: Any
) -> tuple[dict[str, np.ndarray], pdnn.History]:
    """What five steps leave: parameters, state, the last gradient and the optimizer's memory.

    `clip` goes to the Trainer.
    """
    model = build()
    alone = spec in ("serial", "pool:1/4")
    if not alone:
        model.flat_parameters[:] += pdnn.world().rank  # rank 0's are what counts
    adam = optim.Adam(
        [
            {"params": list(model.parameters())[:2], "weight_decay": 1e-3},
            {"params": list(model.parameters())[2:]},
        ],
        lr=0.01,
    )
    comm = pdnn.comm.SELF if alone else None
    trainer = pdnn.Trainer(
        model, nn.CrossEntropyLoss(), adam, strategy=spec, comm=comm, seed=1, **(clip or {})
    )
    history = trainer.fit(
        DATA, **({"epochs": 1, "batch_size": 12, "verbose": False, "validation": DATA} | options)
    )
    gradients = np.concatenate([parameter.grad.ravel() for parameter in model.parameters()])
    left = {"parameters": model.flat_parameters, "state": model.flat_buffers, "gradients": gradients}
    return left | adam.state_arrays(), history


def check(spec: Any, ranks: int, build: Any, serial: str = "serial", **options: Any) -> None:
    want, wanted = trained(serial, build, **options)
    for got, history in pdnn.run(lambda: trained(spec, build, **options), ranks=ranks, backend="threads"):
        for name, array in want.items():
            assert np.abs(got[name] - array).max(initial=0) <= 1e-12 * np.abs(array).max(initial=0), name
        for name in ("loss", "accuracy", "val_loss", "val_accuracy"):
            np.testing.assert_allclose(history.history[name], wanted.history[name], rtol=1e-12)


def perceptron() -> nn.Sequential:
    """Odd widths, Dropout inside a pair and behind it."""
    layers = [nn.Linear(30, 17), nn.Tanh(), nn.Dropout(0.3), nn.Linear(17, 9), nn.Sigmoid(), nn.Dropout(0.2)]
    return nn.Sequential(
        *layers, nn.Linear(9, 8, bias=False), nn.ReLU(), nn.Linear(8, 5), dtype="float64", seed=3
    )


def wide() -> nn.Sequential:
    """Wide enough for weights in panels."""
    return models.mlp([30, 101, 70, 5], "tanh", dtype="float64", seed=3)


def normalized() -> nn.Sequential:
    """Statistics, and a residual block; no biases that normalizing takes away again."""
    inner = nn.Sequential(nn.Linear(12, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU())
    layers = [nn.Linear(30, 12, bias=False), nn.BatchNorm1d(12), nn.ReLU(), nn.Residual(inner)]
    return nn.Sequential(*layers, nn.Linear(12, 5), dtype="float64", seed=3)


@pytest.mark.parametrize("build", [perceptron, wide])
@pytest.mark.parametrize(
    ("spec", "ranks"),
    [
        ("tp:2", 2),
        ("tp:3", 3),
        ("tp:2+team:2", 2),
        ("pipeline:2", 2),
        ("pipeline:3/4:gpipe", 3),
        ("pipeline:4/5", 4),
        ("pipeline:2/3:interleaved", 2),
        ("pipeline:2/13+team:2", 2),  # more micro-batches than rows
        ("tp:2 x ddp", 4),
        ("pipeline:2 x ddp", 4),
        ("pipeline:2/3 x tp:2", 4),
        ("pipeline:2/3 x tp:2 x ddp", 8),
    ],
)
def test_every_product_equals_one_process(spec: str, ranks: int, build: Any) -> None:
    if "interleaved" in spec and build is wide:
        pytest.skip("five layers for four stages: the cut is another test's")
    check(spec, ranks, build)


@pytest.mark.parametrize("spec", ["pipeline:2/4", "pipeline:2/4:gpipe", "pipeline:2/4:interleaved"])
def test_batch_norm_in_a_pipeline_is_that_of_as_many_pieces(spec: str) -> None:
    check(spec, 2, normalized, serial="pool:1/4")


def test_a_cut_by_hand() -> None:
    check(Pipeline(2, 3, cut=(7,)), 2, perceptron)
    check(Grid(Pipeline(2, 2, cut=(5,)), data=DataParallel(bucket_bytes=400), engine=Team(2)), 4, perceptron)
    with pytest.raises(ValueError, match="cut"):
        pdnn.run(lambda: trained(Pipeline(2, cut=(9,)), perceptron), ranks=2, backend="threads")


def test_what_cannot_be_dealt_out_is_refused() -> None:
    def refused(spec: Any, build: Any = perceptron, ranks: int = 2, **options: Any) -> str:
        with pytest.raises(ValueError) as caught:  # noqa: PT011  the texts are looked at
            pdnn.run(lambda: trained(spec, build, **options), ranks=ranks, backend="threads")
        return str(caught.value)

    assert '"tp:2 x ddp" fits' in refused("tp:2", ranks=4)
    assert "start 4" in refused("pipeline:2 x tp:2", ranks=2)
    assert "start a multiple of 2" in refused("tp:2 x ddp", ranks=3)
    one = lambda: nn.Sequential(nn.Linear(30, 5), dtype="float64", seed=1)  # noqa: E731
    assert "nothing in this network can be split" in refused("tp:2", one)
    assert "2 stages" in refused("pipeline:2", one)
    synchronized = lambda: nn.Sequential(  # noqa: E731
        nn.Linear(30, 8), nn.BatchNorm1d(8, sync=True), nn.Linear(8, 5), dtype="float64", seed=1
    )
    assert "sync=True needs the whole batch" in refused("pipeline:2", synchronized)

    def message() -> str:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            trained("pipeline:2", synchronized)
        return str(caught.value)

    one_rank, other = pdnn.run(message, ranks=2, backend="threads")
    assert one_rank == other  # though only one of them has the layer


@pytest.mark.parametrize("clip", [{"clip_norm": 0.1}, {"clip_value": 0.01}], ids=str)
@pytest.mark.parametrize(
    ("spec", "ranks", "build"),
    [
        ("tp:2", 2, perceptron),  # an odd Linear and second biases are on both ranks, and count once
        ("tp:3+team:2", 3, wide),
        ("pipeline:3/4", 3, perceptron),
        ("pipeline:2/3:interleaved", 2, perceptron),
        ("tp:2 x ddp", 4, perceptron),
        ("pipeline:2/3 x tp:2 x ddp", 8, wide),
        (Grid(tensor=TensorParallel(2), data=DataParallel(bucket_bytes=400)), 4, perceptron),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_parts_are_clipped_by_the_norm_of_the_whole_gradient(
    spec: Any, ranks: int, build: Any, clip: dict[str, float]
) -> None:
    gradients = trained("serial", build, clip)[0]["gradients"]
    assert np.abs(gradients - trained("serial", build)[0]["gradients"]).max() > 1e-3  # it is clipped
    if "clip_norm" in clip:
        assert np.linalg.norm(gradients) == pytest.approx(0.1, rel=1e-4)
    check(spec, ranks, build, clip=clip)


def test_how_products_are_spelled() -> None:
    for spec in ("tp:2", "tp:2+team:2", "pipeline:2", "pipeline:2/8:gpipe", "pipeline:2 x tp:2 x ddp+team:2"):
        assert str(strategies.parse(spec)) == spec
    assert strategies.parse("tp:2 x pipeline:3/6 x ddp:sum") == Grid(
        Pipeline(3, 6), TensorParallel(2), DataParallel(average="sum")
    )
    assert Pipeline(3).num_micro_batches == 12
    with pytest.raises(ValueError, match='schedule "2f2b"; expected one of 1f1b'):
        strategies.parse("pipeline:2:2f2b")
    with pytest.raises(ValueError, match="expected 1 numbers of layers"):
        Pipeline(2, cut=(1, 2))
    with pytest.raises(ValueError, match="use a team"):
        TensorParallel(2, Pool(2))
    with pytest.raises(ValueError, match="one each of"):
        strategies.parse("ddp x ddp")
    with pytest.raises(ValueError, match="one each of"):
        strategies.parse("ddp x average:3")
    with pytest.raises(ValueError, match="an engine of its own"):
        Grid(tensor=TensorParallel(2, Team(2)))
    with pytest.raises(ValueError, match="an engine of its own"):
        Grid(pipeline=Pipeline(2), data=DataParallel(Pool(1, 4)))
    with pytest.raises(ValueError, match="no factors"):
        Grid()


def test_a_replica_has_the_leaves_that_others_do_not_have() -> None:
    grid = strategies.parse("pipeline:2 x ddp/3").grid
    assert grid.pipeline_of(2).num_micro_batches == 2  # of one of the two, the other has one


@pytest.mark.parametrize(
    ("name", "wrong", "kind"),
    [
        ("pipeline", TensorParallel(2), "Pipeline"),
        ("pipeline", 2, "Pipeline"),
        ("tensor", Pipeline(2), "TensorParallel"),
        ("data", Pipeline(2), "DataParallel"),
    ],
)
def test_a_product_names_the_factor_that_is_another(name: str, wrong: Any, kind: str) -> None:
    with pytest.raises(TypeError, match=f"Grid: {name} is .*, expected a {kind} or None"):
        Grid(**{name: wrong})


def test_training_goes_on_where_it_ended(tmp_path: Any) -> None:
    # With a cut by measured times, another one might add up in another order.
    grid = Grid(Pipeline(2, cut=(4,)), TensorParallel(2))

    def twice() -> np.ndarray:
        return trained(grid, perceptron, epochs=2)[0]["parameters"]

    def interrupted() -> np.ndarray:
        trained(grid, perceptron, epochs=1, checkpoint=tmp_path)
        return trained(grid, perceptron, epochs=2, checkpoint=tmp_path, resume=True)[0]["parameters"]

    whole = pdnn.run(twice, ranks=4, backend="threads")
    for got in pdnn.run(interrupted, ranks=4, backend="threads"):
        np.testing.assert_array_equal(got, whole[0])
