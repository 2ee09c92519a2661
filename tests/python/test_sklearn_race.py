"""Estimators find out by their own first steps how many threads pay."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from scipy import sparse
from sklearn.datasets import load_digits

from pdnn.epochs import Epochs
from pdnn.estimate import turns
from pdnn.sklearn import MLPClassifier, race
from pdnn.strategies import Strategy
from pdnn.strategies.engines import engines_up_to

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

DIGITS, DIGIT = load_digits(return_X_y=True)
DIGITS, DIGIT = DIGITS[:410] / 16, DIGIT[:410]


def raced(patch: pytest.MonkeyPatch, cores: int, seconds: Callable[[int], float]) -> list[str]:
    """One race begins at once; a step takes what is told of its threads. Lists who has turns."""
    patch.setenv("PDNN_THREADS", str(cores))
    patch.setattr(race, "PATIENCE", 1e-9)
    patch.setattr(race, "AGAIN", 1e12)
    patch.setattr(turns, "BLOCK", 2e-4)
    made, by = list[str](), Epochs.by

    def named(own: Epochs, engine: Strategy) -> Epochs:
        other = by(own, engine)
        other.engine = engine  # type: ignore[attr-defined]
        return other

    def note(own: race.Race, _: float, steps: int) -> None:
        engine = getattr(own.run, "engine", own.run._training.strategy)
        made.append(str(engine))
        noted(own, seconds(engine.threads) * steps, steps)

    noted = race.Race.note
    patch.setattr(Epochs, "by", named)
    patch.setattr(race.Race, "note", note)
    return made


@pytest.mark.parametrize(("cores", "fastest"), [(2, 2), (2, 1), (4, 4), (8, 1), (8, 4)])
def test_no_more_than_two_sessions_are_in_memory(
    cores: int, fastest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As each has the parameters, their gradients, the optimizer's state and a copy to undo steps."""
    there = weakref.WeakSet[Epochs]()
    most, begin = list[int](), Epochs._begin

    def begun(own: Epochs, engine: Strategy) -> None:
        begin(own, engine)
        there.add(own)
        if len(there) > 2:
            gc.collect()
        most.append(len(there))

    monkeypatch.setattr(Epochs, "_begin", begun)
    made = raced(monkeypatch, cores, lambda threads: 1e-3 * (1 + abs(threads - fastest)))
    monkeypatch.setattr(race, "AGAIN", 2.0)
    monkeypatch.setattr(race, "PATIENCE", 1e-4)
    MLPClassifier((9,), batch_size=41, max_iter=25, random_state=1).fit(DIGITS, DIGIT)
    assert {f"team:{fastest}" if fastest > 1 else "serial", "team:2"} <= {*made}
    assert len(most) > 2 and max(most) == 2


SETTINGS: list[dict[str, Any]] = [
    {"batch_size": 40},
    {"batch_size": 41},  # no row is left: epochs are made several at once
    {"solver": "sgd", "learning_rate": "invscaling", "batch_size": 82},
    {"dropout": 0.3, "dtype": "float32"},
    {"early_stopping": True, "batch_size": 30},
    {"batch_norm": True, "dtype": "bfloat16"},
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("fastest", [1, 2, 3])
def test_a_race_leaves_no_trace(
    settings: dict[str, Any], fastest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "hidden_layer_sizes": (24,),
        "max_iter": 30,
        "random_state": 0,
        "n_iter_no_change": 40,
    } | settings
    with monkeypatch.context() as patch:
        made = raced(patch, 3, lambda threads: 1e-4 * (1 + abs(threads - fastest)))
        own = MLPClassifier(**settings).fit(DIGITS, DIGIT)
    alone = MLPClassifier(**settings, strategy="serial").fit(DIGITS, DIGIT)
    assert set(made) == {"serial", "team:2", "team:3"} - ({"team:3"} if fastest == 1 else set())
    assert made[-1] == ("serial" if fastest == 1 else f"team:{fastest}")
    assert own.model_.fingerprint() == alone.model_.fingerprint()
    for name in ("loss_curve_", "n_iter_", "t_", "best_loss_", "stopped_", "validation_scores_"):
        assert getattr(own, name) == getattr(alone, name), name


def test_sparse_rows_and_single_epochs_race_too(monkeypatch: pytest.MonkeyPatch) -> None:
    settings: dict[str, Any] = {"hidden_layer_sizes": (9,), "batch_size": 8, "max_iter": 3, "random_state": 0}
    alone = MLPClassifier(**settings, strategy="serial")
    alone.fit(sparse.csr_array(DIGITS), DIGIT).partial_fit(DIGITS, DIGIT)
    made = raced(monkeypatch, 2, lambda threads: 1e-4 / threads)
    own = MLPClassifier(**settings).fit(sparse.csr_array(DIGITS), DIGIT)
    assert made[-1] == "team:2"
    made.clear()
    own.partial_fit(DIGITS, DIGIT)
    assert set(made) == {"serial", "team:2"}
    assert own.model_.fingerprint() == alone.model_.fingerprint()


def test_where_steps_or_fits_are_short_or_a_strategy_is_given_one_engine_makes_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seconds, patience, settings, engine in [
        (1e-6, 1e-9, {}, "serial"),
        (1e-3, 1e9, {}, "serial"),
        (1e-3, 1e-9, {"strategy": "team:2"}, "team:2"),
        (1e-3, 1e-9, {"n_jobs": 2}, "team:2"),
    ]:
        with monkeypatch.context() as patch:
            made = raced(patch, 2, lambda _, seconds=seconds: seconds)  # type: ignore[misc]
            patch.setattr(race, "PATIENCE", patience)
            MLPClassifier((5,), max_iter=4, random_state=0, **settings).fit(DIGITS, DIGIT)  # type: ignore[arg-type]
        assert set(made) == {engine}


def test_the_next_race_may_end_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr(race, "perf_counter", lambda: clock[0])

    class Run:
        threads = 1

        def by(self, engine: Strategy) -> Run:
            other = Run()
            other.threads = engine.engine.threads
            return other

        @property
        def seconds(self) -> float:
            return 1e-4 / (self.threads if clock[0] > 0.3 else 1)

    own = race.Race(Run(), engines_up_to(8))  # type: ignore[arg-type]
    long = []
    while clock[0] < 4:
        run: Run = own.run  # type: ignore[assignment]
        if clock[0] < race.PATIENCE:
            assert run.threads == 1
        if run.seconds * own.steps > race.PATIENCE / 2:
            long.append(run.threads)
        clock[0] += run.seconds * own.steps
        own.note(run.seconds * own.steps, own.steps)
    assert long[:2] == [1, 1]
    assert set(long[2:]) == {8}


def test_a_step_that_is_not_finite_ends_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    raced(monkeypatch, 2, lambda _: 1e-3)
    runaway = MLPClassifier((9,), solver="sgd", learning_rate_init=1e9, batch_size=41, random_state=0)
    with pytest.raises(ValueError, match=r"It was in epoch \d+; scale X and y"):
        runaway.fit(DIGITS * 1e30, DIGIT)
