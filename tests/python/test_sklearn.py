"""The estimators for scikit-learn: its own checks, its own MLPs as the oracle, and what those do not have."""

from __future__ import annotations

import multiprocessing
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from joblib import Parallel, cpu_count, delayed
from scipy import sparse
from sklearn import neural_network
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import pdnn
from pdnn.sklearn import MLPClassifier, MLPRegressor, passes, rows
from pdnn.sklearn.minimizer import Minimum, minimize
from pdnn.strategies import DataParallel, Team
from processes import Completed

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

DIGITS, DIGIT = load_digits(return_X_y=True)
DIGITS = DIGITS[:420] / 16
DIGIT = DIGIT[:420]
PATIENTS, PROGRESS = load_diabetes(return_X_y=True)
PROGRESS = PROGRESS / 100

QUICK = {
    "check_classifiers_train",
    "check_dict_unchanged",
    "check_estimators_dtypes",
    "check_estimators_pickle",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_subset_invariance",
    "check_n_features_in_after_fitting",
    "check_regressors_train",
    "check_set_params",
}


CHECKED = [
    MLPClassifier(max_iter=100),
    MLPRegressor(max_iter=100),
    MLPClassifier((20, 10), ["tanh", "relu"], n_jobs=2),
    MLPRegressor(solver="sgd", dtype="float64"),
    MLPRegressor(solver="lbfgs"),
]


def checks() -> Iterator[Any]:
    """As parametrize_with_checks has them; a few of them for the first two in every run, the rest is long."""
    for number, model in enumerate(CHECKED):
        for estimator, check in estimator_checks_generator(model):
            quick = number < 2 and check.func.__name__ in QUICK
            yield pytest.param(
                estimator,
                check,
                marks=() if quick else pytest.mark.long,
                id=f"{number}-{check.func.__name__}",
            )


@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


SGD = {"solver": "sgd", "learning_rate_init": 0.1}
SAME_STEPS: list[tuple[dict[str, Any], float]] = [
    (SGD, 1e-10),
    (SGD | {"alpha": 1.0, "batch_size": 150}, 1e-10),  # whose last batch of 120 rows has more of the penalty
    (SGD | {"alpha": 50.0, "batch_size": 420, "learning_rate_init": 0.5}, 1e-10),
    (SGD | {"nesterovs_momentum": False, "activation": "logistic", "hidden_layer_sizes": (20, 10)}, 1e-10),
    (SGD | {"momentum": 0, "activation": "tanh", "shuffle": False}, 1e-10),
    (SGD | {"activation": "identity", "hidden_layer_sizes": 8}, 1e-10),
    (
        SGD | {"activation": "logistic", "hidden_layer_sizes": ()},
        1e-10,
    ),  # whose law the first parameters have
    (SGD | {"learning_rate": "invscaling", "power_t": 0.3}, 1e-8),
    (SGD | {"learning_rate": "adaptive", "tol": 0.1, "n_iter_no_change": 1, "max_iter": 12}, 1e-8),
    (SGD | {"early_stopping": True, "n_iter_no_change": 2, "tol": 0.1, "max_iter": 20}, 1e-10),
    ({"solver": "adam", "epsilon": 1e-14}, 1e-5),  # which the two add at different places
    ({"solver": "lbfgs"}, 1e-8),
]


# of scikit-learn 1.6 with SciPy from 1.16 on
@pytest.mark.filterwarnings("ignore:scipy.optimize. The `disp` and `iprint`:DeprecationWarning")
@pytest.mark.parametrize(("settings", "tolerance"), SAME_STEPS)
@pytest.mark.parametrize("kind", ["MLPClassifier", "MLPRegressor"])
def test_steps_are_those_of_scikit_learn(kind: str, settings: dict[str, Any], tolerance: float) -> None:
    random = np.random.RandomState(5)
    x = random.normal(size=(420, 6))
    y = np.sin(x[:, 0]) + x[:, 1] * x[:, 2]
    if kind == "MLPClassifier":
        y = np.digitize(y, [-0.5, 0.5])
    settings = {"hidden_layer_sizes": 30, "max_iter": 5, "random_state": 1} | settings
    expected = getattr(neural_network, kind)(**settings).fit(x, y)
    ours = {"MLPClassifier": MLPClassifier, "MLPRegressor": MLPRegressor}[kind]
    model = ours(**settings, dtype="float64", n_jobs=1).fit(x, y)
    for name in ("coefs_", "intercepts_"):
        for own, other in zip(getattr(model, name), getattr(expected, name), strict=True):
            np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance)
    for name in ("n_iter_", "n_layers_", "n_outputs_", "out_activation_", "t_"):
        assert getattr(model, name) == getattr(expected, name), name
    if settings.get("early_stopping"):
        np.testing.assert_allclose(model.validation_scores_, expected.validation_scores_, rtol=1e-8)
    # the L2 term within an epoch of several steps is interpolated
    close = 2e-2 if settings.get("alpha") and settings.get("batch_size") != len(x) else max(1e-5, tolerance)
    assert model.loss_ == pytest.approx(expected.loss_, rel=close)
    np.testing.assert_allclose(model.predict(x), expected.predict(x), rtol=1e-4)
    assert model.score(x, y) == pytest.approx(expected.score(x, y), rel=1e-4)


SHORT_EPOCHS: list[dict[str, Any]] = [
    {"solver": "adam"},
    SGD | {"momentum": 0, "alpha": 0},
    SGD | {"learning_rate": "invscaling"},
    SGD | {"learning_rate": "adaptive", "tol": 1e-3, "n_iter_no_change": 2},
    SGD | {"shuffle": False, "batch_size": 50},
    SGD | {"tol": 1e-3, "n_iter_no_change": np.inf, "strategy": "hogwild:1", "n_jobs": None},
]


@pytest.mark.parametrize("settings", SHORT_EPOCHS)
def test_short_epochs_are_made_several_at_once_with_the_same_bits(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, make = [], passes.Passes.make

    def counted(*arguments: Any) -> Iterator[passes.Sums]:
        sums = list(make(*arguments))
        made.append(len(sums))
        return iter(sums)

    monkeypatch.setattr(passes.Passes, "make", counted)

    def fitted(look: float) -> MLPClassifier:
        monkeypatch.setattr(passes, "LOOK", look)
        made.clear()
        model = MLPClassifier((12,), **{"max_iter": 60, "random_state": 2, "n_jobs": 1} | settings)
        return model.fit(DIGITS[:150], DIGIT[:150], np.linspace(0.5, 1.5, 150))

    several = fitted(10)
    assert sum(made) == several.n_iter_
    assert len(made) < several.n_iter_ / 2
    one = fitted(0)
    assert made == [1] * one.n_iter_
    assert several.model_.fingerprint() == one.model_.fingerprint()
    for name in ("loss_curve_", "n_iter_", "t_", "best_loss_", "stopped_"):
        assert getattr(several, name) == getattr(one, name), name


def test_epochs_at_once_end_where_one_is_not_finite(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = []
    for look in (0, 10):
        monkeypatch.setattr(passes, "LOOK", look)
        runaway = MLPRegressor(solver="sgd", learning_rate_init=0.5, momentum=0, random_state=0)
        with pytest.raises(ValueError, match=r"It was in epoch \d") as error:
            runaway.fit(PATIENTS[:100] * 30, PROGRESS[:100])
        messages.append((str(error.value), str(error.value.__cause__)))
    assert messages[0] == messages[1]


def test_two_classes_labels_and_outputs_are_as_in_scikit_learn() -> None:
    labels = np.stack([DIGIT > 4, DIGIT % 2 == 0, DIGIT == 3], axis=1).astype(int)
    numbers = np.stack([PROGRESS, PATIENTS[:, 2]], axis=1)
    both: list[Any]
    for kind, x, y in [
        ("MLPClassifier", DIGITS, DIGIT > 4),
        ("MLPClassifier", DIGITS, labels),
        ("MLPRegressor", PATIENTS, numbers),
    ]:
        ours = {"MLPClassifier": MLPClassifier, "MLPRegressor": MLPRegressor}[kind]
        settings = SGD | {"max_iter": 6, "random_state": 0}
        both = [ours(**settings, dtype="float64"), getattr(neural_network, kind)(**settings)]
        own, expected = (model.fit(x, y) for model in both)
        assert own.loss_ == pytest.approx(expected.loss_, rel=1e-5)
        np.testing.assert_allclose(own.predict(x), expected.predict(x), rtol=1e-8)
        if kind == "MLPClassifier":
            np.testing.assert_allclose(own.predict_proba(x), expected.predict_proba(x), rtol=1e-8)
            np.testing.assert_array_equal(own.classes_, expected.classes_)


def test_the_network_knows_names_of_classes(tmp_path: Path) -> None:
    x = np.arange(12.0).reshape(6, 2)
    for y, names in [(list("aabbcc"), ["a", "b", "c"]), ([3, 3, 3, 5, 5, 5], ["3", "5"]), ([0, 1] * 3, None)]:
        model = MLPClassifier((3,), max_iter=1, random_state=0).fit(x, y).model_
        model.save(tmp_path / "model.safetensors")
        known = pdnn.load_model(tmp_path / "model.safetensors").classes
        assert (None if known is None else known.tolist()) == names


def test_signature_begins_with_that_of_scikit_learn() -> None:
    for ours, theirs in [
        (MLPClassifier(), neural_network.MLPClassifier()),
        (MLPRegressor(), neural_network.MLPRegressor()),
    ]:
        own = ours.get_params()
        expected = theirs.get_params()
        assert {name: own[name] for name in expected} == expected


@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("weighed", [False, True])
def test_sparse_rows_train_as_dense_ones(early_stopping: bool, weighed: bool) -> None:
    settings: dict[str, Any] = {"max_iter": 3, "batch_size": 100, "alpha": 1.0, "random_state": 0}
    settings["early_stopping"] = early_stopping
    weight = np.random.RandomState(0).rand(len(DIGIT)) ** 4 if weighed else None
    dense = MLPClassifier(**settings).fit(DIGITS, DIGIT, weight)
    halves = sparse.csr_array(DIGITS)  # in which each element comes twice, and columns in any order
    starts, order = 2 * halves.indptr, np.random.RandomState(1).permutation(len(halves.data))
    rows_of = np.repeat(np.arange(len(DIGIT)), np.diff(halves.indptr))[order]
    order = order[np.argsort(rows_of, kind="stable")]
    values, columns = np.repeat(halves.data[order] / 2, 2), np.repeat(halves.indices[order], 2)
    twice = sparse.csr_array((values, columns, starts), halves.shape)
    for x in (sparse.csr_matrix(DIGITS), sparse.csc_array(DIGITS), twice):
        model = MLPClassifier(**settings).fit(x, DIGIT, weight)
        assert model.model_.fingerprint() == dense.model_.fingerprint()
        assert model.loss_curve_ == dense.loss_curve_
        np.testing.assert_array_equal(model.predict_proba(x), dense.predict_proba(DIGITS))


SHARED = DataParallel(shared_memory=True)  # else what is faster is measured, and has other bits
SHARED_BY_TEAMS = DataParallel(shared_memory=True, engine=Team(2))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize(
    ("strategy", "ranks"),
    [
        *((strategy, 1) for strategy in ("serial", "serial/4", "team:2", "pool:2/4", "hogwild:1")),
        *((strategy, 2) for strategy in (SHARED, SHARED_BY_TEAMS, "ddp/4", "average:2", "ddp:int8")),
    ],
)
def test_a_few_elements_of_many_train_as_with_their_zeros(strategy: Any, ranks: int, dtype: str) -> None:
    few = sparse.random(90, 700, 0.03, "csr", random_state=0)
    words, counts = few + sparse.random(90, 700, 0.02, "csr", random_state=1), few.copy()
    counts.indices = counts.indices[::-1].copy()  # which are in another order then
    label = np.arange(90) % 3

    def fit() -> None:
        for x in (words, counts):
            settings: dict[str, Any] = {"strategy": strategy, "dtype": dtype, "early_stopping": True}
            settings |= {"hidden_layer_sizes": (70, 5), "max_iter": 3, "batch_size": 32, "random_state": 0}
            got, want = (MLPClassifier(**settings).fit(each, label) for each in (x, x.toarray()))
            assert got.model_.fingerprint() == want.model_.fingerprint()
            assert got.loss_curve_ == want.loss_curve_
            np.testing.assert_array_equal(got.predict_proba(x), want.predict_proba(x.toarray()))
        assert not counts.has_sorted_indices  # it is as it was given

    pdnn.run(fit, ranks=ranks, backend="threads")


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_lbfgs_minimizes_over_sparse_rows_as_over_dense_ones(dtype: str) -> None:
    few = sparse.random(700, 300, 0.03, "csr", random_state=0)
    label, weight = np.arange(700) % 3, np.random.RandomState(0).rand(700)
    settings: dict[str, Any] = {"solver": "lbfgs", "max_iter": 5, "hidden_layer_sizes": (20,), "dtype": dtype}
    want = MLPClassifier(**settings, random_state=0).fit(few.toarray(), label, weight)
    for n_jobs in (1, 2):
        got = MLPClassifier(**settings, random_state=0, n_jobs=n_jobs).fit(few, label, weight)
        assert got.model_.fingerprint() == want.model_.fingerprint()
        assert got.loss_ == want.loss_


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_sparse_elements_of_one_place_may_be_too_large_together(solver: str) -> None:
    few = sparse.csr_array(([3e38, 3e38, 1.0], [0, 0, 1], [0, 2, 3]), (2, 2))
    with pytest.raises(ValueError, match="non-finite parameter weights"):
        MLPRegressor(solver=solver, dtype="float32", random_state=0).fit(few, [0.0, 1.0])


def test_sparse_rows_may_diverge() -> None:
    settings: dict[str, Any] = {"solver": "sgd", "learning_rate_init": 1e30, "random_state": 0}
    with pytest.raises(ValueError, match="Solver produced non-finite parameter weights"):
        MLPClassifier(**settings).fit(sparse.csr_array(DIGITS), DIGIT)


def test_a_table_has_the_same_bits_converted_whole_or_by_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    x = DIGITS + 1e-9 * np.random.RandomState(0).standard_normal(DIGITS.shape)  # more digits than float32 has
    settings = {"max_iter": 3 * rows.FEW, "random_state": 0, "dtype": "float32"}
    note, types = rows.Feed.note, list[str]()

    def noting(feed: rows.Feed, epochs: int) -> None:
        types.append(feed.source.arrays[0].dtype.name)
        note(feed, epochs)

    monkeypatch.setattr(rows.Feed, "note", noting)
    whole = MLPClassifier(**settings).fit(x, DIGIT)
    assert types[0] == "float64" and types[-1] == "float32"
    monkeypatch.setattr(rows, "CONVERTED_BYTES", 0)
    assert MLPClassifier(**settings).fit(x, DIGIT).model_.fingerprint() == whole.model_.fingerprint()
    assert types[-1] == "float64"


def test_a_table_without_room_is_converted_by_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"max_iter": 2 * rows.FEW, "random_state": 0, "dtype": "float32"}
    whole, note, refused = MLPClassifier(**settings).fit(DIGITS, DIGIT), rows.Feed.note, []

    def without_memory(*_: object) -> None:
        refused.append(1)
        raise MemoryError

    def noting(feed: rows.Feed, epochs: int) -> None:
        with monkeypatch.context() as full:
            full.setattr(np, "ascontiguousarray", without_memory)
            note(feed, epochs)

    monkeypatch.setattr(rows.Feed, "note", noting)
    assert MLPClassifier(**settings).fit(DIGITS, DIGIT).model_.fingerprint() == whole.model_.fingerprint()
    assert len(refused) == 1


@pytest.mark.filterwarnings("ignore:batch_size=500 is larger")
@pytest.mark.parametrize("solver", ["sgd", "adam", "lbfgs"])
def test_a_weight_is_how_often_a_row_counts(solver: str) -> None:
    settings: dict[str, Any] = {"solver": solver, "alpha": 0.1, "batch_size": 500, "max_iter": 8}
    settings |= {"random_state": 0, "dtype": "float64"}
    random = np.random.RandomState(0)
    weight = random.randint(0, 3, len(PATIENTS))
    rows = np.repeat(np.arange(len(PATIENTS)), weight)
    classes = np.digitize(PROGRESS, [1, 2])
    for kind, y in ((MLPRegressor, PROGRESS), (MLPClassifier, classes)):
        weighed = kind(**settings).fit(PATIENTS, y, weight)
        repeated = kind(**settings).fit(PATIENTS[rows], y[rows])
        np.testing.assert_allclose(weighed.predict(PATIENTS), repeated.predict(PATIENTS), rtol=1e-8)
        assert weighed.loss_ == pytest.approx(repeated.loss_, rel=1e-6)
        alike = kind(**settings).fit(PATIENTS, y, np.ones(len(y)))
        assert alike.model_.fingerprint() == kind(**settings).fit(PATIENTS, y).model_.fingerprint()


def test_classes_have_weights() -> None:
    settings: dict[str, Any] = {"max_iter": 4, "random_state": 0}
    counts = {digit: 1.0 + (digit == 3) for digit in range(10)}
    given = MLPClassifier(**settings).fit(DIGITS, DIGIT, 1.0 + (DIGIT == 3))
    by_class = MLPClassifier(**settings, class_weight=counts).fit(DIGITS, DIGIT)
    assert by_class.model_.fingerprint() == given.model_.fingerprint()
    spread = MLPClassifier(**settings, class_weight=counts).fit(sparse.csr_array(DIGITS), DIGIT)
    assert spread.model_.fingerprint() == given.model_.fingerprint()
    rare = DIGIT == 3
    plain = MLPClassifier(max_iter=30, random_state=0)
    balanced = clone(plain).set_params(class_weight="balanced").fit(DIGITS, rare)
    assert balanced.predict(DIGITS).sum() > plain.fit(DIGITS, rare).predict(DIGITS).sum()
    with pytest.raises(ValueError, match="partial_fit does not see"):
        balanced.partial_fit(DIGITS, rare)
    with pytest.raises(ValueError, match=r"weights are 0|non-zero"):
        plain.fit(DIGITS, rare, np.zeros(len(rare)))


def test_rows_held_out_are_scored_as_by_score(monkeypatch: pytest.MonkeyPatch) -> None:
    train, held = np.arange(300), np.arange(300, 420)
    monkeypatch.setattr(MLPClassifier, "_split", lambda *_: (train, held))
    model = MLPClassifier(max_iter=4, early_stopping=True, class_weight={3: 50, 4: 0}, random_state=0)
    for weight in (None, np.linspace(0, 2, len(DIGIT))):
        own = None if weight is None else weight[held]
        model.fit(DIGITS, DIGIT, weight)
        assert model.best_validation_score_ == model.score(DIGITS[held], DIGIT[held], own)


def test_a_class_counts_the_same_in_every_batch() -> None:
    settings: dict[str, Any] = {"random_state": 0, "shuffle": False}
    counts, some = {0: 1, 1: 5}, DIGIT[:50]  # the others count 1
    weighed = MLPClassifier(**settings, class_weight=counts)
    given = MLPClassifier(**settings)
    for batch in (np.isin(some, [0, 2]), some > 3, some < 4):
        weighed.partial_fit(DIGITS[:50][batch], some[batch], classes=np.arange(10))
        given.partial_fit(DIGITS[:50][batch], some[batch], 1.0 + 4 * (some == 1)[batch], np.arange(10))
    assert weighed.model_.fingerprint() == given.model_.fingerprint()
    labels = np.stack([some == 3, some == 1], axis=1)
    weighed = MLPClassifier(**settings, class_weight=[{1: 1}, {1: 5}])
    for batch in (some > 3, some < 4):
        weighed.partial_fit(DIGITS[:50][batch], labels[batch], classes=np.arange(2))
    unknown = MLPClassifier(class_weight={0: 1, 11: 5})
    with pytest.raises(ValueError, match="not in class_weight"):
        unknown.fit(DIGITS, DIGIT)
    with pytest.raises(ValueError, match="not in class_weight"):
        unknown.partial_fit(DIGITS[:1], [0], classes=np.arange(10))


def test_counts_are_learned_as_by_scikit_learn() -> None:
    if "loss" not in neural_network.MLPRegressor().get_params():
        pytest.skip("this scikit-learn has no loss for counts")
    counts = np.floor(PROGRESS)
    settings: dict[str, Any] = {"loss": "poisson", "solver": "sgd", "max_iter": 6, "random_state": 0}
    own = MLPRegressor(**settings, dtype="float64").fit(PATIENTS, counts)
    expected = neural_network.MLPRegressor(**settings).fit(PATIENTS, counts)
    assert own.out_activation_ == expected.out_activation_ == "exp"
    np.testing.assert_allclose(own.predict(PATIENTS), expected.predict(PATIENTS), rtol=1e-8)
    drop = own.loss_curve_[0] - own.loss_
    assert drop == pytest.approx(expected.loss_curve_[0] - expected.loss_, rel=1e-4)
    with pytest.raises(ValueError, match="negative"):
        own.fit(PATIENTS, counts - 10)


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_losses_predict_what_they_are_for(solver: str) -> None:
    random = np.random.RandomState(0)
    x = random.normal(size=(400, 2))
    y = x[:, 0] + random.exponential(size=400)
    y[::20] += 1000  # outliers
    settings: dict[str, Any] = {"solver": solver, "learning_rate_init": 0.02, "max_iter": 150}
    settings |= {"hidden_layer_sizes": (), "random_state": 0}
    for quantile in (0.2, 0.8):
        model = MLPRegressor("quantile", **settings, quantile=quantile).fit(x, y)
        assert np.mean(y < model.predict(x)) == pytest.approx(quantile, abs=0.1)
    for settings["loss"] in ("absolute_error", "huber"):
        errors = MLPRegressor(**settings, delta=0.5).fit(x, y).predict(x) - x[:, 0]
        assert 0.3 < np.median(errors) < 1.6


def test_labels_are_smoothed() -> None:
    settings: dict[str, Any] = {"max_iter": 150, "learning_rate_init": 0.02, "random_state": 0, "alpha": 0}
    for y in (DIGIT, DIGIT > 4):
        sure, smooth = (
            MLPClassifier(**settings, label_smoothing=share).fit(DIGITS, y).predict_proba(DIGITS).max(axis=1)
            for share in (0, 0.2)
        )
        classes = len(np.unique(y))
        assert np.median(sure) > 0.98
        assert np.median(smooth) == pytest.approx(0.8 + 0.2 / classes, abs=0.03)


def test_smoothed_labels_have_all_digits_of_float64() -> None:
    labels, share = np.stack([DIGIT > 4, DIGIT % 2 == 0], 1), 0.2
    settings: dict[str, Any] = {"solver": "lbfgs", "max_iter": 1, "alpha": 0, "random_state": 0}
    model = MLPClassifier(**settings, label_smoothing=share).fit(DIGITS, labels)
    true, log = labels * (1 - share) + share / 2, np.log(model.predict_proba(DIGITS))
    false = np.log(1 - np.exp(log))
    assert model.loss_ == pytest.approx(-(true * log + (1 - true) * false).sum(1).mean(), rel=1e-12)


def test_names_of_features_are_kept() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(PATIENTS[:, :3], columns=["age", "sex", "bmi"])
    model = MLPRegressor(max_iter=2).fit(frame, pandas.Series(PROGRESS))
    assert list(model.feature_names_in_) == ["age", "sex", "bmi"]
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["bmi", "sex", "age"]])


def test_layers_are_as_asked() -> None:
    model = MLPClassifier(
        (6, 5, 4), ["relu", "identity", "gelu"], dropout=[0.5, 0, 0.1], batch_norm=True, max_iter=1
    ).fit(DIGITS, DIGIT)
    kinds = [type(layer).__name__ for layer in model.model_.layers]
    first, second = ["Linear", "BatchNorm1d", "ReLU", "Dropout"], ["Linear", "BatchNorm1d"]
    assert kinds == [*first, *second, "Linear", "BatchNorm1d", "GELU", "Dropout", "Linear"]
    assert [coef.shape for coef in model.coefs_] == [(64, 6), (6, 5), (5, 4), (4, 10)]
    assert np.shares_memory(model.coefs_[0], model.model_.flat_parameters)
    linear = MLPClassifier((), max_iter=1).fit(DIGITS, DIGIT)
    assert [coef.shape for coef in linear.coefs_] == [(64, 10)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"activation": ["relu", "tanh"]}, "activation has 2 values for 1 hidden layers"),
        ({"activation": ["step"]}, "activation has .'step'.; expected some of 'identity'"),
        ({"activation": [["relu"]]}, r"activation has .*'relu'.*; expected some of 'identity'"),
        ({"hidden_layer_sizes": (3, 0)}, "hidden_layer_sizes must be"),
        ({"hidden_layer_sizes": True}, "hidden_layer_sizes must be"),
        ({"dropout": [1.5]}, "expected probabilities"),
        ({"solver": "lbfgs", "dropout": 0.1}, "batch_norm and dropout"),
        ({"solver": "lbfgs", "strategy": "team:2"}, "no strategy"),
        ({"strategy": "team:2", "n_jobs": 2}, "give one of the two"),
        ({"solver": "newton"}, "The 'solver' parameter"),
        ({"n_jobs": 0}, "The 'n_jobs' parameter"),
        ({"early_stopping": True, "validation_fraction": 0.002}, "validation set is too small"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MLPRegressor(**settings).fit(PATIENTS, PROGRESS)


def test_parameters_that_are_not_finite_are_an_error() -> None:
    for solver in ("adam", "lbfgs"):
        with pytest.raises(ValueError, match="non-finite parameter weights"):
            MLPRegressor(solver=solver, dtype="float32").fit(PATIENTS * 1e30, PROGRESS * 1e30)
    runaway = MLPRegressor(solver="sgd", learning_rate_init=1e5, max_iter=5)
    with pytest.raises(ValueError, match=r"It was in epoch \d; scale X and y, or lower learning_rate_init"):
        runaway.fit(PATIENTS[:100] * 1e4, PROGRESS[:100] * 1e4)


@pytest.mark.parametrize("table", [np.asarray, sparse.csr_array])
def test_numbers_beyond_the_range_of_the_model_are_refused(table: Callable[[Any], Any]) -> None:
    model = MLPClassifier(dtype="float32", max_iter=1, random_state=0).fit(DIGITS, DIGIT)
    for predict in (model.predict, model.predict_proba):
        for scale in (1e200, -1e200):
            with pytest.raises(ValueError, match="X has numbers beyond the range of float32, in"):
                predict(table(DIGITS * scale))
    assert np.isfinite(model.predict_proba(table(DIGITS * 1e30))).all()
    for solver in ("adam", "lbfgs"):
        for epochs in (1, 30):
            with pytest.raises(ValueError, match=r"beyond the range|non-finite"):
                clone(model).set_params(solver=solver, max_iter=epochs).fit(table(DIGITS * 1e200), DIGIT)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MLPRegressor().fit(PATIENTS, PROGRESS.astype(str)), "y has dtype <U32, expected numbers"),
        (lambda: MLPRegressor().fit(PATIENTS[:3], PROGRESS[:3], [1, 1, -2]), "sample_weight: -2 of row 2"),
        (lambda: MLPClassifier(class_weight={0: -1}).fit(DIGITS, DIGIT > 4), "class_weight={0: -1}"),
        (
            lambda: MLPClassifier(early_stopping=True).fit(DIGITS[:5], DIGIT[:5] > 3),
            "of 5 rows cannot be held",
        ),
        (
            lambda: MLPClassifier(solver="lbfgs").fit(DIGITS, DIGIT, X_val=DIGITS, y_val=DIGIT),
            'X_val: solver="lbfgs" has no epochs',
        ),
        (
            lambda: MLPClassifier().fit(DIGITS, DIGIT, X_val=DIGITS[:, :3], y_val=DIGIT),
            "X_val and y_val: X has 3 features",
        ),
        (
            lambda: MLPClassifier().fit(DIGITS[:9], DIGIT[:9], X_val=DIGITS, y_val=DIGIT),
            "X_val and y_val: y has classes that the model was not fitted to",
        ),
        (
            lambda: MLPClassifier().fit(DIGITS, np.stack([DIGIT > 4, DIGIT % 2], 1) * 2 - 1),
            "y has -1 among several labels a row; expected 1",
        ),
        (lambda: MLPClassifier([[3, 4]]).fit(DIGITS, DIGIT), r"integers > 0, got \[\[3, 4\]\]"),
        (lambda: MLPClassifier([3], dropout=[None]).fit(DIGITS, DIGIT), r"dropout has \[None\]"),
    ],
)
def test_what_is_wrong_with_the_data_is_said(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_words_beside_numbers_are_no_classes() -> None:
    with pytest.raises(TypeError, match="y has words beside other labels"):
        MLPClassifier().fit(DIGITS[:2], np.array([1, "one"], object))


def test_a_validation_set_of_ones_own_stops_and_the_best_parameters_stay() -> None:
    train, test = (DIGITS[:300], DIGIT[:300]), (DIGITS[300:], DIGIT[300:])
    model = MLPClassifier(learning_rate_init=0.02, early_stopping=True, n_iter_no_change=3, random_state=0)
    model.fit(*train, X_val=test[0], y_val=test[1])
    assert model.stopped_ and 4 < model.n_iter_ < 200
    assert model.validation_scores_ is not None and len(model.validation_scores_) == model.n_iter_
    assert model.score(*test) == model.best_validation_score_ == max(model.validation_scores_)
    watched = MLPClassifier(max_iter=3).fit(*train, X_val=test[0], y_val=test[1])
    assert watched.validation_scores_ is not None and watched.score(*test) == watched.validation_scores_[-1]
    with pytest.raises(ValueError, match="X_val and y_val"):
        model.fit(*train, X_val=test[0])


def test_partial_fit_goes_on_as_fit_does_and_stops_early() -> None:
    settings = {"shuffle": False, "random_state": 0, "hidden_layer_sizes": 20}
    whole = MLPClassifier(max_iter=4, **settings).fit(DIGITS, DIGIT)
    pieces = MLPClassifier(**settings).partial_fit(DIGITS, DIGIT, classes=np.arange(10))
    pieces.partial_fit(DIGITS, DIGIT)
    pieces = pickle.loads(pickle.dumps(pieces)).partial_fit(DIGITS, DIGIT)  # with the optimizer's state
    pieces.partial_fit(DIGITS, DIGIT)
    assert pieces.model_.fingerprint() == whole.model_.fingerprint()
    assert pieces.loss_curve_ == whole.loss_curve_
    model = MLPClassifier(early_stopping=True, n_iter_no_change=2, learning_rate_init=0.1, random_state=0)
    for _ in range(60):
        model.partial_fit(
            DIGITS[:300], DIGIT[:300], classes=np.arange(10), X_val=DIGITS[300:], y_val=DIGIT[300:]
        )
    assert model.stopped_ and model.validation_scores_ is not None and len(model.validation_scores_) < 60
    assert model.score(DIGITS[300:], DIGIT[300:]) == max(model.validation_scores_)
    with pytest.raises(ValueError, match="not fitted to, such as 11"):
        model.partial_fit(DIGITS[:2], [3, 11])
    with pytest.raises(AttributeError):
        MLPClassifier(solver="lbfgs").partial_fit  # noqa: B018


def test_partial_fit_drops_others_in_every_pass() -> None:
    settings = {"solver": "sgd", "learning_rate_init": 1e-300, "dtype": "float64", "shuffle": False}
    model = MLPClassifier(dropout=0.5, random_state=0, **settings)
    for _ in range(4):
        model.partial_fit(DIGITS, DIGIT, classes=np.arange(10))
    assert len(set(model.loss_curve_)) == 4


@pytest.mark.parametrize("early_stopping", [True, False])
def test_without_a_tolerance_equal_is_good_enough_as_in_scikit_learn(early_stopping: bool) -> None:
    settings = {"solver": "sgd", "learning_rate_init": 1e-300, "tol": 0, "n_iter_no_change": 1, "max_iter": 5}
    settings |= {"early_stopping": early_stopping, "shuffle": False, "random_state": 0}
    for kind in (MLPClassifier, neural_network.MLPClassifier):
        assert kind(**settings).fit(DIGITS, DIGIT).n_iter_ == 5


def test_partial_fit_goes_on_with_another_solver() -> None:
    settings = {"hidden_layer_sizes": 20, "random_state": 0, "shuffle": False}
    model = MLPClassifier(**settings).partial_fit(DIGITS, DIGIT, classes=np.arange(10))
    other = MLPClassifier(solver="sgd", max_iter=1, warm_start=True, **settings).fit(DIGITS, DIGIT)
    for mine, start in zip(other.model_.parameters(), model.model_.parameters(), strict=True):
        mine.data = start.data
    other.fit(DIGITS, DIGIT)  # from the same parameters, with a new state of "sgd"
    model.set_params(solver="sgd").partial_fit(DIGITS, DIGIT)
    assert model.model_.fingerprint() == other.model_.fingerprint()
    model.set_params(momentum=0).partial_fit(DIGITS, DIGIT)
    assert len(model.loss_curve_) == 3 and model.loss_curve_[2] < model.loss_curve_[0]


def test_partial_fit_stops_early_only_if_asked() -> None:
    model = MLPClassifier((), n_iter_no_change=1, tol=10, random_state=0)
    for _ in range(4):
        model.partial_fit(DIGITS, DIGIT, classes=np.arange(10))
    assert len(model.loss_curve_) == 4
    model.fit(DIGITS, DIGIT)
    assert model.stopped_
    passes = len(model.loss_curve_)
    model.partial_fit(DIGITS, DIGIT, X_val=DIGITS, y_val=DIGIT)
    assert len(model.loss_curve_) == passes + 1 and model.validation_scores_ == [model.score(DIGITS, DIGIT)]


def test_a_warm_start_goes_on() -> None:
    model = MLPRegressor(warm_start=True, max_iter=3, random_state=0)
    first = model.fit(PATIENTS, PROGRESS).loss_curve_.copy()
    again = model.fit(PATIENTS, PROGRESS).loss_curve_
    assert again[:3] == first and len(again) == 6 and again[3] < again[0] and model.n_iter_ == 3


def test_a_warm_start_goes_on_after_another_solver() -> None:
    model = MLPClassifier(solver="lbfgs", warm_start=True, max_iter=30, random_state=0).fit(DIGITS, DIGIT)
    reached = model.loss_
    model.set_params(solver="adam", max_iter=2).fit(DIGITS, DIGIT)
    assert len(model.loss_curve_) == 2 and model.loss_curve_[0] < 2 * reached + 0.01
    assert model.best_loss_ == min(model.loss_curve_)


@pytest.mark.parametrize(
    "change",
    [
        {"hidden_layer_sizes": (7,)},
        {"activation": "tanh"},
        {"dropout": 0.5},
        {"batch_norm": True},
        {"dtype": "float32"},
        {"loss": "poisson"},
    ],
)
def test_a_warm_start_refuses_another_network(change: dict[str, Any]) -> None:
    model = MLPRegressor(warm_start=True, max_iter=2).fit(PATIENTS, PROGRESS)
    model.set_params(**change)
    for begin_again in (model.fit, model.partial_fit):
        with pytest.raises(ValueError, match=f"{next(iter(change))}.* now, the network that was fitted has"):
            begin_again(PATIENTS, PROGRESS)
    model.set_params(warm_start=False).fit(PATIENTS, PROGRESS)


def test_results_do_not_depend_on_threads() -> None:
    settings = {"max_iter": 3, "random_state": 0}
    for solver in ("adam", "lbfgs"):
        one, two = (MLPClassifier(**settings, solver=solver, n_jobs=n).fit(DIGITS, DIGIT) for n in (1, 2))
        assert one.model_.fingerprint() == two.model_.fingerprint()
    rounded = MLPClassifier(**settings, dtype="bfloat16", strategy="pool:2").fit(DIGITS, DIGIT)
    assert rounded.model_.dtype == "bfloat16"
    assert rounded.score(DIGITS, DIGIT) == pytest.approx(one.score(DIGITS, DIGIT), abs=0.3)


def workers_of(model: Any) -> tuple[str, int]:
    workers = model._workers(1e7, 1e7)
    return str(workers.strategy), workers.threads


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.long)])
def test_a_worker_of_joblib_has_one_thread_unless_asked(backend: str) -> None:
    models = [MLPClassifier(), MLPClassifier(n_jobs=3)]
    found = Parallel(n_jobs=2, backend=backend)(delayed(workers_of)(model) for model in models)
    assert found == [("serial", 1), ("team:3", 3)]


def test_threads_may_be_asked_for_where_processes_may_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(multiprocessing.current_process())["_config"], "daemon", True)
    with warnings.catch_warnings(), ThreadPoolExecutor(1) as threads:
        warnings.simplefilter("error")
        assert workers_of(MLPClassifier(n_jobs=2)) == ("team:2", 2)
        assert threads.submit(workers_of, MLPClassifier(n_jobs=-1)).result()[1] == cpu_count()


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.long)])
def test_it_works_inside_what_scikit_learn_offers(backend: str) -> None:
    from joblib import parallel_config

    cells, kind = load_breast_cancer(return_X_y=True)
    pipeline = make_pipeline(
        StandardScaler(), MLPClassifier((8,), max_iter=20, learning_rate_init=0.01, random_state=0)
    )
    grid = {"mlpclassifier__alpha": [1e-4, 1.0], "mlpclassifier__dropout": [0.0]}
    with parallel_config(backend=backend):
        search = GridSearchCV(pipeline, grid, cv=2, n_jobs=2).fit(cells, kind)
    assert search.best_score_ > 0.9
    calibrated = CalibratedClassifierCV(clone(pipeline), cv=2).fit(cells, kind)
    assert accuracy_score(kind, calibrated.predict(cells)) > 0.9
    assert cross_val_score(pipeline, cells, kind, cv=2).mean() > 0.9


ALONE = """
import time, warnings
import numpy as np
from pdnn.sklearn import MLPRegressor

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
x, y = rng.normal(size=(1000, 200)), rng.normal(size=1000)
model = MLPRegressor(hidden_layer_sizes=(100,), solver="SOLVER", max_iter=15, dtype="float64", n_jobs=1)
model.fit(x, y)  # which imports what it needs
alone, together = time.thread_time(), time.process_time()
model.fit(x, y)
print(time.thread_time() - alone, time.process_time() - together)
"""


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_no_thread_of_a_blas_spins_beside_ours(solver: str, run_python: Callable[..., Completed]) -> None:
    shown = run_python(
        ["-c", ALONE.replace("SOLVER", solver)], timeout=60, env={"OPENBLAS_NUM_THREADS": "2"}
    ).stdout
    alone, together = map(float, shown.split())
    assert together < 1.3 * alone


@pytest.mark.long
@pytest.mark.parametrize("part", ["learning", "alpha", "weights"])
def test_the_example_shows_the_same_by_both_libraries(
    part: str, root: Path, run_python: Callable[..., Completed]
) -> None:
    script = root / "examples" / "sklearn_mlp.py"
    shown = [
        run_python([script, "--fast", "--parts", part, "--library", library], timeout=60).stdout
        for library in ("pdnn", "sklearn")
    ]
    ours, theirs = (re.findall(r"\d+\.\d+|[a-zA-Z]+", re.sub(r"\d+\.\d+ s;", "", text)) for text in shown)
    assert len(ours) > 10
    for own, expected in zip(ours, theirs, strict=True):
        assert own == expected or float(own) == pytest.approx(float(expected), rel=0.1, abs=0.02)


def test_lbfgs_leaves_the_minimum_that_it_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []

    def tries_another(function: Callable[[Any], Any], *args: Any, **options: Any) -> Minimum:
        ends.append(minimize(function, *args, **options))
        function(ends[0].x + 1)
        return ends[0]

    monkeypatch.setattr("pdnn.sklearn.quasi_newton.minimize", tries_another)
    model = MLPClassifier((8,), solver="lbfgs", max_iter=3, random_state=0).fit(DIGITS[:60], DIGIT[:60])
    np.testing.assert_array_equal(model.model_.flat_parameters, ends[0].x)


def test_lbfgs_leaves_nothing_of_an_earlier_fit() -> None:
    model = MLPClassifier((8,), max_iter=3, random_state=0).fit(DIGITS[:60], DIGIT[:60])
    model.set_params(solver="lbfgs").fit(DIGITS[:60], DIGIT[:60])
    for name in ("stopped_", "loss_curve_", "best_loss_", "validation_scores_", "best_validation_score_"):
        assert not hasattr(model, name)
