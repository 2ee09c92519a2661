"""Random networks trained by random strategies: what serial training makes of them."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pytest

import pdnn
from pdnn import nn, optim
from pdnn.strategies import (
    DataParallel,
    ElasticAveraging,
    Engine,
    Grid,
    ModelAveraging,
    Pipeline,
    Pool,
    ScatterGather,
    Serial,
    Strategy,
    Team,
    TensorParallel,
)
from random_networks import Part, draw_parts, draw_shape
from random_rounds import random_rounds

pytestmark = [
    pytest.mark.filterwarnings("ignore:strategy:UserWarning"),  # more threads than cores
    pytest.mark.filterwarnings("ignore:fit.*without a move:UserWarning"),
]


class Drawn(NamedTuple):
    strategy: Strategy | str
    ranks: int = 1
    exact: bool = False
    norms: dict[str, Any] | None = None


def inner(rng: np.random.Generator, pool: bool = True) -> Engine:
    return [Serial(), Team(2), Team(3), Pool(2, 3)][rng.integers(4 if pool else 3)]


def data_parallel(rng: np.random.Generator) -> Drawn:
    options: dict[str, Any] = [
        {},
        {"shared_memory": True},
        {"shared_memory": False},
        {"bucket_bytes": int(rng.integers(1, 3000))},
    ][rng.integers(4)]
    norms = {"sync": True} if rng.integers(2) else None
    return Drawn(DataParallel(inner(rng, norms is None), **options), int(rng.integers(2, 5)), norms=norms)


def pipeline(rng: np.random.Generator) -> Drawn:
    stages, schedule = int(rng.integers(2, 4)), str(rng.choice(["gpipe", "1f1b"]))
    return Drawn(Pipeline(stages, int(rng.integers(1, 6)), schedule, engine=inner(rng, False)), stages)


def grid(rng: np.random.Generator) -> Drawn:
    stages, tensor, replicas = (int(count) for count in rng.integers(1, 3, 3))
    replicas = 2 if stages * tensor == 1 else replicas
    options: dict[str, Any] = [{}, {"shared_memory": True}, {"bucket_bytes": 500}][rng.integers(3)]
    return Drawn(
        Grid(
            Pipeline(stages, int(rng.integers(1, 5))) if stages > 1 else None,
            TensorParallel(tensor) if tensor > 1 else None,
            DataParallel(**options) if replicas > 1 else None,
            inner(rng, False),
        ),
        stages * tensor * replicas,
    )


KINDS: dict[str, Callable[[np.random.Generator], Drawn]] = {
    "team": lambda rng: Drawn(Team(int(rng.integers(2, 14))), exact=True, norms={}),
    "pool": lambda rng: Drawn(Pool(2, int(rng.integers(1, 6)))),
    "hogwild": lambda rng: Drawn("hogwild:1", exact=True, norms={}),
    "ddp": data_parallel,
    "codec": lambda rng: Drawn(DataParallel(codec="topk:1"), int(rng.integers(2, 5))),
    "scatter-gather": lambda rng: Drawn(ScatterGather(), int(rng.integers(2, 5)), norms={"sync": True}),
    "average": lambda rng: Drawn(ModelAveraging(every=int(rng.integers(1, 4))), int(rng.integers(2, 5))),
    "elastic-average": lambda rng: Drawn(
        ElasticAveraging(int(rng.integers(1, 4)), rng.uniform(0.1, 1)), int(rng.integers(2, 5))
    ),
    "tp": lambda rng: Drawn(TensorParallel(2, inner(rng, False)), 2),
    "pipeline": pipeline,
    "grid": grid,
}
"""Strategies of a kind, drawn."""


def draw_optimizer(rng: np.random.Generator) -> Callable[[nn.Sequential], optim.Optimizer]:
    return [
        lambda model: optim.SGD(model.parameters(), 0.05),
        lambda model: optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
        lambda model: optim.Adam(model.parameters(), 0.01, weight_decay=0.01),
        lambda model: optim.RMSprop(model.parameters(), 0.01, momentum=0.5),
    ][rng.integers(4)]


class Trained(NamedTuple):
    params: Any
    state: Any
    grads: Any
    memory: dict[str, Any]
    loss: list[float]


def check(rng: np.random.Generator, kind: str) -> None:
    drawn = KINDS[kind](rng)
    shape = draw_shape(rng)
    parts, out = draw_parts(rng, shape, int(rng.integers(6)), 1, drawn.norms, dropout=True)
    classes = int(rng.integers(2, 12))
    hidden = int(rng.integers(2, 40))
    end = (
        Part("Flatten"),
        Part("Linear", (prod(out), hidden)),
        Part("Tanh"),
        Part("Linear", (hidden, classes)),
    )
    rows = int(rng.integers(1, 50)) if parts else int(rng.integers(1, 200))
    most = rows if rng.integers(3) else min(rows, 4)  # also smaller than the ranks
    batch = int(rng.integers(1, most + 1))
    x, y = rng.standard_normal((rows, *shape)), rng.integers(0, classes, rows)
    optimizer = draw_optimizer(rng)
    clip = {"clip_norm": 0.5} if rng.integers(3) == 0 else {}
    print(drawn, shape, *parts, *end, f"{rows} rows by {batch}, {clip}")

    def train(strategy: Strategy | str) -> Trained:
        model = nn.Sequential(*(part.static() for part in (*parts, *end)), dtype="float64", seed=3)
        trainer = pdnn.Trainer(
            model, nn.CrossEntropyLoss(), optimizer(model), strategy=strategy, seed=5, **clip
        )
        history = trainer.fit((x, y), epochs=2, batch_size=batch, verbose=False)
        memory = {name: array.copy() for name, array in trainer.optimizer.state_arrays().items()}
        flat = model.flat_parameters.copy(), model.flat_buffers.copy(), model.flat_gradients.copy()
        return Trained(*flat, memory, history.history["loss"])

    outcomes = pdnn.run(train, drawn.strategy, ranks=drawn.ranks, backend="threads")
    for outcome in outcomes:
        np.testing.assert_array_equal(outcome.params, outcomes[0].params)
        np.testing.assert_array_equal(outcome.state, outcomes[0].state)
    if kind in ("average", "elastic-average"):
        return  # another way to train
    want = train("serial")

    def assert_close(got: Any, expected: Any) -> None:
        largest = np.abs(expected).max(initial=0)
        np.testing.assert_allclose(got, expected, rtol=0, atol=0 if drawn.exact else 1e-8 * largest + 1e-14)

    for rank, outcome in enumerate(outcomes):
        assert_close(outcome.params, want.params)
        assert_close(outcome.state, want.state)
        np.testing.assert_allclose(outcome.loss, want.loss, rtol=1e-6)
        if kind != "scatter-gather" or rank == 0:  # its root alone has the gradient and updates
            assert_close(outcome.grads, want.grads)
            for name, array in want.memory.items():
                assert_close(outcome.memory[name], array)


@pytest.mark.parametrize("kind", KINDS)
def test_every_strategy_trains_as_serial_does(kind: str) -> None:
    random_rounds(8, lambda rng: check(rng, kind))
