"""Embedding: against PyTorch, under every strategy, in files, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import models, nn, optim
from pdnn._core import Aborted
from pdnn.comm import run_threads
from pdnn.core import core_for
from pdnn.data import Dataset
from pdnn.estimate import probes

RNG = np.random.default_rng(2)
CODES, LABELS = RNG.integers(0, 11, (53, 3)), RNG.integers(0, 4, 53)


def network(dtype: str = "float64", padding: int | None = None) -> nn.Sequential:
    layers = [nn.Embedding(11, 5, padding), nn.Flatten(), nn.Linear(15, 7), nn.Tanh(), nn.Linear(7, 4)]
    return nn.Sequential(*layers, dtype=dtype, seed=3)


@pytest.mark.parametrize("padding", [None, 4, -1])
def test_twenty_steps_equal_torch(padding: int | None) -> None:
    torch = pytest.importorskip("torch", reason="compares with PyTorch")
    t = torch.nn
    head = t.Linear(15, 7), t.Tanh(), t.Linear(7, 4)
    theirs = t.Sequential(t.Embedding(11, 5, padding), t.Flatten(), *head).double()
    model = network(padding=padding)
    arrays = model.state_dict(format="torch")
    assert arrays["0.weight"].shape == (11, 5) and model[0].padding_idx == theirs[0].padding_idx
    if padding is not None:
        assert not arrays["0.weight"][padding].any()
    theirs.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    x, y = torch.from_numpy(CODES), torch.from_numpy(LABELS)
    own = optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    for _ in range(20):
        optimizer.zero_grad()
        t.functional.cross_entropy(theirs(x), y).backward()
        optimizer.step()
        model.step(CODES, LABELS, nn.CrossEntropyLoss(), own)
    again = network()
    state = {name: tensor.numpy() for name, tensor in theirs.state_dict().items()}
    again.load_state_dict(state, format="torch")
    np.testing.assert_allclose(model.flat_parameters, again.flat_parameters, rtol=0, atol=1e-13)


@pytest.mark.parametrize("padding", [None, 4])
def test_gradients_equal_finite_differences(padding: int | None) -> None:
    model = network(padding=padding)
    gradient = model.gradient(CODES, LABELS, nn.CrossEntropyLoss())[1]
    flat, h = model.flat_parameters, 1e-5
    for at in range(11 * 5):
        value = flat[at]
        losses = []
        for moved in (value + h, value - h):
            flat[at] = moved
            losses.append(model.gradient(CODES, LABELS, nn.CrossEntropyLoss())[0])
        flat[at] = value
        want = 0 if padding == at // 5 else (losses[0] - losses[1]) / (2 * h)
        assert abs(gradient[at] - want) <= 1e-9


def test_layer_by_layer_is_the_network() -> None:
    model = network()
    model.place()
    rows = model[0](CODES)
    assert rows.shape == (53, 3, 5)
    np.testing.assert_array_equal(rows.numpy(), model[0].weight.data[CODES])
    loss = nn.CrossEntropyLoss()(model(CODES.astype("float64")), LABELS)
    loss.backward()
    gradient = model.gradient(CODES, LABELS, nn.CrossEntropyLoss())[1]
    np.testing.assert_allclose(model.flat_gradients, gradient, rtol=1e-12, atol=1e-15)
    lines = nn.Sequential(nn.Embedding(11, 5), nn.Conv1d(3, 2, 4), dtype="float64", seed=3)
    lines.place()
    by_hand = lines[1](lines[0](CODES))
    assert by_hand.shape == (53, 2, 2)
    np.testing.assert_allclose(lines.predict(CODES), by_hand.numpy(), rtol=0, atol=1e-14)
    ends = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Embedding(11, 2)), dtype="float64")
    found = ends.predict(CODES)
    np.testing.assert_array_equal(found, ends[1][0].weight.data[CODES])


def trained(strategy: str, ranks: int, dtype: str) -> Any:
    def job() -> Any:
        model = network(dtype)
        trainer = pdnn.Trainer(
            model, nn.CrossEntropyLoss(), optim.Adam(model.parameters()), strategy=strategy
        )
        return trainer.fit(Dataset(CODES, LABELS), 2, 16, verbose=False).fingerprint, model.flat_parameters

    return job() if ranks == 1 else pdnn.run(job, ranks=ranks, backend="threads")[0]


@pytest.mark.filterwarnings("ignore:Dataset")
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_the_same_bits_on_any_layout(dtype: str) -> None:
    serial = trained("serial/8", 1, dtype)[0]
    for strategy, ranks in [("team:3/8", 1), ("pool:2/8", 1), ("ddp/8", 3), ("pipeline:2/8", 2)]:
        assert trained(strategy, ranks, dtype)[0] == serial, strategy


@pytest.mark.filterwarnings("ignore:Dataset")
def test_every_strategy_equals_serial() -> None:
    serial = trained("serial", 1, "float64")[1]
    strategies = [("team:2", 1), ("pool:2", 1), ("hogwild:1", 1), ("ddp", 2), ("scatter-gather", 2)]
    strategies += [("pipeline:2", 2), ("tp:2", 2), ("auto", 1)]
    for strategy, ranks in strategies:
        found = trained(strategy, ranks, "float64")[1]
        np.testing.assert_allclose(found, serial, rtol=0, atol=1e-12, err_msg=strategy)


def test_bytes_are_indices_and_a_file_has_it(tmp_path: Path) -> None:
    model = network("float32", 2)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), optim.SGD(model.parameters(), lr=0.1))
    trainer.fit(Dataset(CODES.astype(np.uint8), LABELS), 1, 16, verbose=False)
    assert not model[0].weight.data[2].any()
    model.save(tmp_path / "model.safetensors")
    again = models.load_model(tmp_path / "model.safetensors")
    assert again.fingerprint() == model.fingerprint() and repr(again) == repr(model)
    rows = model.summary((3,)).rows
    assert [(row.flops, row.parameters) for row in rows if row.layer == "Embedding"] == [(0, 55)]


def test_initial_values_are_normal() -> None:
    (weight,) = nn.Sequential(nn.Embedding(500, 40), seed=1).state_dict().values()
    assert abs(weight.mean()) < 0.05 and abs(weight.std() - 1) < 0.02


def test_what_is_no_index_is_refused() -> None:
    model, x = network(), np.tile(CODES.astype("float64"), (10, 1))
    for bad in (11, -1, 2.5, np.nan, np.inf):
        x[407, 2] = bad
        said = rf"x\[407, 2\] of the batch is {bad}, expected a whole number from 0 to 10"
        with pytest.raises(ValueError, match=said):
            model.predict(x)
        with pytest.raises(ValueError, match=said):
            model.gradient(x, np.tile(LABELS, 10), nn.CrossEntropyLoss())
    data = Dataset(x, np.tile(LABELS, 10))
    for strategy in ("serial", "team:2", "pool:2/4", "hogwild:2", "serial/8"):
        own = network()
        sgd = optim.SGD(own.parameters(), lr=0.1)
        trainer = pdnn.Trainer(own, nn.CrossEntropyLoss(), sgd, strategy=strategy)
        with pytest.raises(ValueError, match=r"x\[\d+, 2\] of the batch is inf, expected a whole number"):
            trainer.fit(data, 1, 16, verbose=False)
        with pytest.raises(ValueError, match=r"x\[407, 2\] of the batch is inf"):
            trainer.evaluate(data)


def test_a_refused_step_changes_nothing() -> None:
    models = [
        nn.Sequential(network(), nn.Dropout(0.5), nn.Linear(4, 4), dtype="float64", seed=5) for _ in range(2)
    ]
    rules = [optim.Adam(model.parameters()) for model in models]
    for step in range(3):
        for bad in (CODES + 11, CODES[:, :2], CODES[:-1]):
            with pytest.raises(ValueError, match=r"expected a whole number|this layer takes 15|53 labels"):
                models[1].step(bad, LABELS, nn.CrossEntropyLoss(), rules[1])
        losses = [
            model.step(CODES, LABELS, nn.CrossEntropyLoss(), rule)
            for model, rule in zip(models, rules, strict=True)
        ]
        assert losses[0] == losses[1], step
    assert models[0].fingerprint() == models[1].fingerprint()
    assert rules[0].state_dict()["steps"] == rules[1].state_dict()["steps"] == 3


@pytest.mark.parametrize("strategy", ["serial", "team:2", "pool:2/4", "serial/8", "ddp", "ddp/8"])
def test_a_step_of_fit_that_is_refused_does_not_count(strategy: str) -> None:
    x = CODES.astype("float64")
    x[40, 2] = 11

    def steps() -> int:
        model = network()
        adam = optim.Adam(model.parameters())
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), adam, strategy=strategy)
        with pytest.raises((ValueError, Aborted)):
            trainer.fit((x, LABELS), 1, 8, shuffle=False, verbose=False)
        made: int = adam.state_dict()["steps"]
        return made

    ranks = 2 if "ddp" in strategy else 1
    assert run_threads(steps, ranks) == [5] * ranks


def test_inputs_of_a_table_are_its_rows() -> None:
    table = nn.Sequential(nn.Embedding(800, 2, weight_init=nn.init.kaiming_normal()), nn.Flatten(), seed=1)
    assert np.std(table.flat_parameters) == pytest.approx((2 / 800) ** 0.5, rel=0.1)


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match=r"this layer takes \(indices\)"):
        network().output_shape((3, 1))
    with pytest.raises(ValueError, match="Embedding: num_embeddings = 0; expected an integer from 1"):
        nn.Embedding(0, 3)
    assert [nn.Embedding(3, 2, row).padding_idx for row in (-3, -1, 0, 2)] == [0, 2, 0, 2]
    with pytest.raises(ValueError, match="padding_idx 3; expected one of its 3 rows"):
        nn.Embedding(3, 3, 3)
    with pytest.raises(ValueError, match="exact up to 16777216; use float64"):
        nn.Sequential(nn.Embedding(2**24 + 1, 1)).output_shape((2,))
    with pytest.raises(TypeError, match="raw integers need their scale"):
        nn.Sequential(nn.Linear(3, 2)).predict(CODES)


def test_what_measures_with_made_samples_makes_indices() -> None:
    model = network()
    model.place()
    assert len(core_for("float64").measured_cut(model.core, [3], 2, 8)) == 1
    assert probes._on_a_rank(model, nn.CrossEntropyLoss(), (3,), 8).flops > 0


def test_what_torch_is_given_shares_no_memory() -> None:
    model = nn.Sequential(nn.Embedding(4, 2), nn.Flatten(), nn.Linear(6, 2), seed=1)
    before = model.fingerprint()
    for array in model.state_dict(format="torch").values():
        array[...] = 7
    assert model.fingerprint() == before
