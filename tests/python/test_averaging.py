"""Averaging of models that ranks train apart, through the Trainer, with ranks as threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pdnn
from apart import DATA, make, on_ranks, train
from pdnn import nn, optim
from pdnn.checkpoint import FILE
from pdnn.checkpoint.content import CHECKSUM
from pdnn.comm import run_threads
from pdnn.data import Dataset, Subset
from pdnn.strategies import ModelAveraging, Pool, Team

pytestmark = pytest.mark.filterwarnings("ignore:strategy:UserWarning")  # more threads than cores


def test_all_ranks_end_with_the_same_model_whoever_adds() -> None:
    for ranks in (2, 3):
        for every in (None, 1, 4):
            want = on_ranks(ranks, ModelAveraging(every))
            for model, *_ in want + on_ranks(ranks, ModelAveraging(every, by="master")):
                np.testing.assert_array_equal(model, want[0][0])


def test_validation_and_callbacks_see_the_average_and_ranks_go_on_apart() -> None:
    ranks = on_ranks(2, "average:end")
    for model, history, seen, result in ranks:
        assert history.history["val_loss"] == ranks[0][1].history["val_loss"]
        np.testing.assert_array_equal(seen[0], ranks[0][2][0])
        np.testing.assert_array_equal(seen[1], model[: len(seen[1])])  # the last epoch's is what fit leaves
        assert history.history["val_loss"][-1] == pytest.approx(result["loss"], rel=1e-12)
    for want, got in zip(on_ranks(2, "average:end", epochs=1), ranks, strict=True):
        np.testing.assert_array_equal(got[2][0], want[2][0])
    adopting = on_ranks(2, "average:5")  # five steps an epoch
    np.testing.assert_array_equal(adopting[0][2][0], ranks[0][2][0])
    assert np.abs(adopting[0][0] - ranks[0][0]).max() > 1e-6


@pytest.mark.parametrize("spec", ["average:3", "average:3:int8", "elastic-average:2"])
def test_training_begins_with_what_a_callback_loads(spec: str) -> None:
    pretrained = {name: values + 0.1 for name, values in make("serial").model.state_dict().items()}

    class Load(pdnn.callbacks.Callback):
        def on_train_begin(self, trainer: pdnn.Trainer) -> None:
            trainer.model.load_state_dict(pretrained)

    def trained(loads: bool) -> np.ndarray:
        trainer = make(spec)
        if not loads:
            trainer.model.load_state_dict(pretrained)
        trainer.fit(DATA, 2, 6, callbacks=[Load()] if loads else [], verbose=False)
        return trainer.model.flat_parameters.copy()

    ranks = [
        model for loads in (True, False) for model in pdnn.run(trained, loads, ranks=2, backend="threads")
    ]
    for model in ranks[1:]:
        np.testing.assert_array_equal(model, ranks[0])


@pytest.mark.parametrize("spec", ["average:end", "average:4", "elastic-average:5"])
def test_a_model_that_a_callback_changes_is_kept_or_refused(spec: str) -> None:
    class Bound(pdnn.callbacks.Callback):
        def on_epoch_end(self, trainer: pdnn.Trainer, epoch: int, logs: dict[str, float]) -> None:
            trainer.model.flat_parameters.clip(-0.1, 0.1, out=trainer.model.flat_parameters)

    def largest(strategy: str) -> float:
        trainer = make(strategy)
        trainer.fit(DATA, 1, 6, callbacks=[Bound()], verbose=False)
        return float(np.abs(trainer.model.flat_parameters).max())

    assert pdnn.run(largest, "average:5", ranks=2, backend="threads") == [0.1, 0.1]  # five steps an epoch
    assert pdnn.run(largest, spec, ranks=1, backend="threads") == [0.1]
    with pytest.raises(ValueError, match=f'callback has changed the model .* "{spec}" .* on_train_end, or'):
        pdnn.run(largest, spec, ranks=2, backend="threads")


def test_every_step_with_plain_sgd_is_data_parallel() -> None:
    def plain(strategy: str, batch_size: int) -> Any:
        model = pdnn.models.mlp([12, 9, 4], "sigmoid", dtype="float64", seed=2)
        sgd = optim.SGD(model.parameters(), lr=0.3, weight_decay=1e-3)
        trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=strategy)
        return trainer.fit(DATA, 2, batch_size, verbose=False).history["loss"], model.flat_parameters

    for ranks in (2, 3, 4):  # 53 rows: the last step deals uneven shares
        (ddp, want), *_ = pdnn.run(plain, "ddp", 6 * ranks, ranks=ranks, backend="threads")
        for loss, got in pdnn.run(plain, "average:1", 6, ranks=ranks, backend="threads"):
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-14)
            np.testing.assert_allclose(loss, ddp, rtol=1e-12)


def test_ranks_that_start_apart_average_to_another_model() -> None:
    same = on_ranks(2, "average:end", seeds=(2, 3))
    np.testing.assert_array_equal(same[0][0], on_ranks(2, "average:end", seeds=(2, 2))[0][0])
    apart = on_ranks(2, "average:end:own-init", seeds=(2, 3))
    np.testing.assert_array_equal(apart[0][0], apart[1][0])
    assert np.abs(apart[0][0] - same[0][0]).max() > 0.1
    alike = on_ranks(2, ModelAveraging(same_init=False), seeds=(2, 2))
    np.testing.assert_array_equal(alike[0][0], same[0][0])


def test_updates_are_each_ranks_and_rows_are_dealt_once() -> None:
    one = make("serial").fit(DATA, 1, 6, verbose=False)
    assert one.updates[0]["count"] == 9
    for ranks, updates in ((2, 10), (3, 9), (4, 12)):  # of 53: 6 · 2, 5; 6 · 3, 17; 6 · 4, 24, 5
        for _, history, *_ in on_ranks(ranks, "average:end", epochs=1):
            assert history.updates[0]["count"] == updates
            assert history.updates[0]["per_second"] > 0


@pytest.mark.parametrize("spec", ["average:end", "average:3", "average:3:master", "average:end:own-init"])
def test_resumed_equals_uninterrupted_bit_for_bit(spec: str, tmp_path: Path) -> None:
    own = {"seeds": (2, 3, 4)} if "own-init" in spec else {}
    whole = on_ranks(3, spec, epochs=5, **own)
    for epochs in (1, 3, 5, 5):  # 3 steps an epoch; the last fit finds all epochs done
        parts = on_ranks(3, spec, epochs=epochs, checkpoint=tmp_path, resume=True, **own)
    for (want, history, *_), (got, resumed, *_) in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(got, want)
        assert resumed.history["loss"] == history.history["loss"]
        assert resumed.history["val_loss"] == history.history["val_loss"]


def test_a_checkpoint_holds_the_average_for_whoever_loads_it_alone(tmp_path: Path) -> None:
    whole = on_ranks(2, "average:end", checkpoint=tmp_path)
    trainer = make("serial")
    trainer.load(tmp_path / FILE)
    np.testing.assert_array_equal(trainer.model.flat_parameters, whole[0][2][-1])
    assert trainer.history.updates[0].keys() == {"count", "per_second"}


def test_a_damaged_part_of_one_rank_is_refused(tmp_path: Path) -> None:
    on_ranks(2, "average:end", checkpoint=tmp_path)
    arrays, metadata = pdnn.files.safetensors.read(tmp_path / FILE)
    assert {"rank.0.parameters", "rank.1.velocity", "rank.1.counts"} <= arrays.keys()
    arrays["rank.1.parameters"] = arrays["rank.1.parameters"][1:]
    del metadata[CHECKSUM]  # as in files of the first versions
    pdnn.files.safetensors.write(tmp_path / FILE, arrays, metadata)
    with pytest.raises(ValueError, match="this model needs"):
        on_ranks(2, "average:end", epochs=3, checkpoint=tmp_path, resume=True)
    del arrays["rank.1.velocity"]
    pdnn.files.safetensors.write(tmp_path / FILE, arrays, metadata)
    with pytest.raises(ValueError, match="lacks a part of what each rank had"):
        on_ranks(1, "serial", epochs=3, checkpoint=tmp_path, resume=True)


@pytest.mark.parametrize("spec", ["average:4", "elastic-average:2"])
def test_a_second_fit_goes_on_from_what_the_first_left(spec: str) -> None:
    def twice() -> Any:
        trainer = make(spec)
        for _ in range(2):
            trainer.fit(DATA, 1, 6, verbose=False)
        return trainer.model.flat_parameters, trainer.step, trainer.epoch

    ranks = pdnn.run(twice, ranks=2, backend="threads")
    np.testing.assert_array_equal(ranks[0][0], ranks[1][0])
    assert ranks[0][1:] == (10, 2)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="every = 0; expected an integer from 1"):
        ModelAveraging(0)
    with pytest.raises(ValueError, match='by "vote"; expected "all_reduce" or "master"'):
        ModelAveraging(by="vote")

    def different() -> None:
        train(ModelAveraging(every=2 + pdnn.world().rank))

    with pytest.raises(ValueError, match="rank 1 has strategy average:3, rank 0 has average:2"):
        pdnn.run(different, ranks=2, backend="threads")

    def synchronized() -> None:
        model = nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4, sync=True), seed=0)
        sgd = optim.SGD(model.parameters(), lr=0.1)
        pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="average:2").fit(DATA, 1)

    with pytest.raises(
        ValueError, match=r"^averaging: a layer with sync=True sums over the ranks.*; use data parallel"
    ):
        pdnn.run(synchronized, ranks=2, backend="threads")


def test_ranks_may_have_different_engines() -> None:
    def train_with_own_cores() -> Any:
        return train(ModelAveraging(3, engine=Team(2) if pdnn.world().rank else Pool(1, 1)), epochs=1)

    for model, *_ in pdnn.run(train_with_own_cores, ranks=2, backend="threads"):
        np.testing.assert_array_equal(model, on_ranks(2, "average:3", epochs=1)[0][0])


def test_the_command_line_counts_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", x_train=DATA.x, y_train=DATA.y, x_test=DATA.x, y_test=DATA.y)
    words = ["--model", "mlp:12-9-4", "--strategy", "average:4", "--schedule", "cosine", "--quiet"]
    from pdnn.cli import main

    assert main(["train", "--data", "npz:data.npz", *words, "--json", "history.json"]) == 0
    assert "accuracy" in capsys.readouterr().out
    assert json.loads(Path("history.json").read_text())["updates"][0]["count"] == 1


def test_steps_that_are_undone_and_made_again_count_once_in_an_average() -> None:
    """Each rank's model is that of its rows alone; the average weighs them by what these count."""
    rng = np.random.default_rng(3)
    x, y, weight = rng.normal(size=(64, 5)), rng.integers(0, 3, 64), np.full((8, 8), 5.0)
    x[33] = np.nan  # on rank 0, which makes its first four steps again
    weight[:4] = [1] * 4 + [9] * 4
    data = Dataset(x, y, weight=weight.ravel())

    def job(strategy: str, rows: slice = slice(None)) -> np.ndarray:
        model = nn.Sequential(nn.Linear(5, 3), dtype="float64", seed=1)
        sgd = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        loss = nn.CrossEntropyLoss()
        trainer = pdnn.Trainer(model, loss, sgd, strategy=strategy, on_nonfinite="skip")
        own = np.arange(64).reshape(8, 8)[:, rows].ravel()
        trainer.fit(Subset(data, own), batch_size=4, shuffle=False, verbose=False)
        return model.flat_parameters.copy()

    alone = job("serial", slice(0, 4)), job("serial", slice(4, 8))
    for got in run_threads(lambda: job("average:end"), 2):
        np.testing.assert_allclose(got, 0.3 * alone[0] + 0.7 * alone[1], rtol=1e-12)


def test_updates_are_those_of_all_ranks_and_the_last_average_is_of_the_last_epoch() -> None:
    def fit() -> pdnn.History:
        model = nn.Sequential(nn.Linear(3, 2), seed=1)
        sgd = optim.SGD(model.parameters(), lr=0.1)
        trainer = pdnn.Trainer(model, nn.MSELoss(), sgd, strategy="average:2:int8")
        return trainer.fit(np.ones((20, 3)), np.zeros((20, 2)), 1, 2, verbose=False)

    for history in pdnn.run(fit, ranks=2, backend="threads"):
        (updates,) = history.updates
        assert updates["count"] == 10 == 2 * history.ranks[0][0]["steps"]
        assert updates["per_second"] == pytest.approx(10 / history.history["seconds"][0])
        assert history.compression[0]["sums"] == 3  # after the second step, the fourth and the last
