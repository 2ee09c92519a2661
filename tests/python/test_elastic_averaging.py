"""Elastic averaging through the Trainer, with ranks as threads."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import apart
import pdnn
from apart import DATA, make, train
from pdnn import nn, optim, strategies
from pdnn.checkpoint import FILE
from pdnn.strategies import ElasticAveraging, Pool, Team

pytestmark = [
    pytest.mark.filterwarnings("ignore:strategy:UserWarning"),  # more threads than cores
    pytest.mark.filterwarnings("ignore:fit.*without a move:UserWarning"),
]


def on_ranks(ranks: int, *arguments: Any, **options: Any) -> list[Any]:
    """What the ranks have afterwards; they are made with models of their own."""
    return apart.on_ranks(ranks, *arguments, seeds=range(2, 2 + ranks), **options)


def test_validation_callbacks_and_the_end_see_one_center() -> None:
    for ranks in (2, 3):
        outcomes = on_ranks(ranks, "elastic-average:2")
        for model, history, seen, result in outcomes:
            np.testing.assert_array_equal(model, outcomes[0][0])
            np.testing.assert_array_equal(seen[0], outcomes[0][2][0])
            np.testing.assert_array_equal(seen[1], model[: len(seen[1])])
            assert history.history["val_loss"] == outcomes[0][1].history["val_loss"]
            assert history.history["val_loss"][-1] == pytest.approx(result["loss"], rel=1e-12)


def test_looking_at_the_center_changes_nothing() -> None:
    def unseen() -> Any:
        trainer = make("elastic-average:2")
        trainer.fit(DATA, 2, 6, verbose=False)
        return np.concatenate([trainer.model.flat_parameters, trainer.model.flat_buffers])

    want = on_ranks(2, "elastic-average:2")[0][0]
    np.testing.assert_array_equal(pdnn.run(unseen, ranks=2, backend="threads")[0], want)


def test_a_training_without_a_move_is_warned_of() -> None:
    """Its epochs looked like learning, and the model was the untrained one."""
    with pytest.warns(UserWarning, match="steps 1 to 8 without a move, and ends with the model that it beg"):
        on_ranks(2, "elastic-average:10", epochs=2, batch_size=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        on_ranks(2, "elastic-average:8", epochs=2, batch_size=8)


def small(epochs: int, every: int, folder: Path | None = None, catch: bool = False) -> str:
    """Trains 4 steps an epoch; what kind of error it ends with, if that is to be told."""
    model = pdnn.models.mlp([5, 4, 3], dtype="float64", seed=1)
    sgd = optim.SGD(model.parameters(), lr=0.1)
    trainer = pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy=f"elastic-average:{every}")
    data, resume = (np.random.default_rng(0).normal(size=(64, 5)), np.arange(64) % 3), folder is not None
    try:
        trainer.fit(data, epochs, 8, checkpoint=folder, resume=resume, verbose=False)
    except Exception as error:
        if not catch:
            raise
        return type(error).__name__
    return "trained"


@pytest.mark.parametrize(("first", "every", "told"), [(2, 100, None), (1, 10, "steps 5 to 8"), (1, 6, None)])
def test_a_resumed_training_is_warned_of_its_own_steps(
    first: int, every: int, told: str | None, tmp_path: Path
) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pdnn.run(small, first, every, tmp_path, ranks=2, backend="threads")
        caught.clear()
        pdnn.run(small, 2, every, tmp_path, ranks=2, backend="threads")
    words = [str(each.message) for each in caught if "without a move" in str(each.message)]
    assert len(words) == (told is not None)
    assert told is None or told in words[0]


def test_a_warning_that_is_an_error_releases_the_other_ranks() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pdnn.run(small, 2, 100, None, True, ranks=2, backend="threads") == ["UserWarning", "Aborted"]


def test_a_network_learns() -> None:
    for spec in ("elastic-average:1", "elastic-average:10:0.5"):
        history = on_ranks(2, spec, epochs=30)[0][1]
        assert history.history["val_loss"][-1] < 0.8 * history.history["val_loss"][0]
        assert history.updates[0]["count"] == 10  # of 53 rows: 4 × 12, then 5


def test_teams_change_no_bit_and_ranks_may_have_different_engines() -> None:
    want = on_ranks(2, "elastic-average:3")
    for spec in (
        "elastic-average:3+team:2",
        "elastic-average:3+team:3",
        ElasticAveraging(3, engine=Pool(2, 1)),
    ):
        np.testing.assert_array_equal(on_ranks(2, spec)[1][0], want[0][0])
    pool = on_ranks(2, "elastic-average:3+pool:2")[0][0]
    np.testing.assert_array_equal(on_ranks(2, "elastic-average:3+pool:1")[0][0], pool)

    def with_own_cores() -> Any:
        return train(ElasticAveraging(3, engine=Team(2) if pdnn.world().rank else Pool(1, 1)))

    for model, *_ in pdnn.run(with_own_cores, ranks=2, backend="threads"):
        np.testing.assert_array_equal(model, want[0][0])


def test_one_rank_is_serial() -> None:
    want, got = make("serial"), make("elastic-average:3")
    for trainer in (want, got):
        trainer.fit(DATA, 2, 6, verbose=False)
    np.testing.assert_array_equal(got.model.flat_parameters, want.model.flat_parameters)


@pytest.mark.parametrize("spec", ["elastic-average:2", "elastic-average:5:0.4+team:2"])
def test_resumed_equals_uninterrupted_bit_for_bit(spec: str, tmp_path: Path) -> None:
    whole = on_ranks(3, spec, epochs=5)
    for epochs in (1, 3, 5, 5):  # 3 steps an epoch; the last fit finds all epochs done
        parts = on_ranks(3, spec, epochs=epochs, checkpoint=tmp_path, resume=True)
    for (want, history, *_), (got, resumed, *_) in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(got, want)
        assert resumed.history["loss"] == history.history["loss"]
        assert resumed.history["val_loss"] == history.history["val_loss"]


def test_a_checkpoint_holds_the_center_and_each_ranks_model(tmp_path: Path) -> None:
    whole = on_ranks(2, "elastic-average:2", checkpoint=tmp_path)
    trainer = make("serial")
    trainer.load(tmp_path / FILE)
    np.testing.assert_array_equal(trainer.model.flat_parameters, whole[0][2][-1])
    arrays, _ = pdnn.files.safetensors.read(tmp_path / FILE)
    first, second = (arrays[f"rank.{rank}.parameters"] for rank in range(2))
    assert np.abs(first - second).max() > 1e-3
    assert np.abs(first - trainer.model.flat_parameters).max() > 1e-3


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="every = 0; expected an integer from 1"):
        ElasticAveraging(0)
    for rate in (0.0, -0.1, 1.01, float("nan")):
        with pytest.raises(ValueError, match=f"moving_rate = {rate}; expected more than 0 and at most 1"):
            ElasticAveraging(4, rate)
    with pytest.raises(ValueError, match=r"moving_rate = 2\.0; expected more than 0 and at most 1"):
        strategies.parse("elastic-average:4:2")

    def different() -> None:
        rank = pdnn.world().rank
        train(ElasticAveraging(2, 0.9 - 0.1 * rank), seed=2 + rank)

    with pytest.raises(
        ValueError, match=r"rank 1 has strategy elastic-average:2:0\.8, rank 0 has elastic-average:2"
    ):
        pdnn.run(different, ranks=2, backend="threads")

    def synchronized() -> None:
        model = nn.Sequential(nn.Linear(12, 4), nn.BatchNorm1d(4, sync=True), seed=0)
        sgd = optim.SGD(model.parameters(), lr=0.1)
        pdnn.Trainer(model, nn.CrossEntropyLoss(), sgd, strategy="elastic-average:2").fit(DATA, 1)

    with pytest.raises(
        ValueError, match=r"^averaging: a layer with sync=True sums over the ranks.*; use data parallel"
    ):
        pdnn.run(synchronized, ranks=2, backend="threads")


def test_the_command_line_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("data.npz", x_train=DATA.x, y_train=DATA.y, x_test=DATA.x, y_test=DATA.y)
    words = ["--model", "mlp:12-9-4", "--strategy", "elastic-average:10", "--epochs", "1", "--quiet"]
    from pdnn.cli import main

    assert main(["train", "--data", "npz:data.npz", *words]) == 0
    assert "accuracy" in capsys.readouterr().out
