"""Calls of an estimator after each other: what an error leaves, and what a change of a parameter does."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn import neural_network
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

import pdnn
from pdnn.epochs import Epochs
from pdnn.sklearn import MLPClassifier, MLPRegressor
from pdnn.sklearn.rows import Blocks

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

DIGITS, DIGIT = load_digits(return_X_y=True)
DIGITS = DIGITS[:200] / 16
DIGIT = DIGIT[:200]
NAMES = np.array(list("abcdefghij"))[DIGIT]

Call = Callable[[Any], Any]

WRONG: list[Call] = [
    lambda model: model.fit(DIGITS[:, :9], NAMES, X_val=DIGITS, y_val=NAMES),
    lambda model: model.fit(DIGITS, DIGIT > 4, X_val=DIGITS, y_val=NAMES),
    lambda model: model.fit(DIGITS, DIGIT, -np.ones(len(DIGIT))),
    lambda model: model.fit(DIGITS[:, :9], DIGIT[:, None] == np.arange(3), np.zeros(len(DIGIT))),
    lambda model: model.set_params(class_weight={"z": 1}).fit(DIGITS, NAMES),
    lambda model: model.set_params(early_stopping=True, validation_fraction=0.002).fit(DIGITS, DIGIT),
    lambda model: model.partial_fit(
        DIGITS[:, :9], NAMES, classes=np.unique(NAMES), X_val=DIGITS, y_val=NAMES
    ),
    lambda model: model.partial_fit(DIGITS, NAMES, -np.ones(len(DIGIT)), np.unique(NAMES)),
]


@pytest.mark.parametrize("call", WRONG)
def test_an_error_leaves_what_was_fitted(call: Call) -> None:
    settings: dict[str, Any] = {"max_iter": 3, "random_state": 0}
    model = MLPClassifier(**settings).fit(DIGITS, NAMES)
    before, answers = copy.deepcopy(vars(model)), model.predict_proba(DIGITS)
    with pytest.raises(ValueError, match=r"\w"):
        call(model)
    model.set_params(**MLPClassifier(**settings).get_params())
    assert vars(model).keys() == before.keys()
    assert model.classes_.tolist() == before["classes_"].tolist() and model.t_ == before["t_"]
    np.testing.assert_array_equal(model.predict_proba(DIGITS), answers)
    again = MLPClassifier(**settings).fit(DIGITS, NAMES).partial_fit(DIGITS, NAMES)
    assert model.partial_fit(DIGITS, NAMES).model_.fingerprint() == again.model_.fingerprint()


@pytest.mark.parametrize("call", WRONG)
def test_after_a_first_fit_that_fails_nothing_is_fitted(call: Call) -> None:
    model = MLPClassifier(max_iter=3, random_state=0)
    with pytest.raises(ValueError, match=r"\w"):
        call(model)
    with pytest.raises(NotFittedError):
        model.predict(DIGITS)
    assert not [name for name in vars(model) if name.startswith("_") or name.endswith("_")]


@pytest.mark.parametrize("solver", ["sgd", "lbfgs"])
def test_a_warm_start_that_runs_away_leaves_what_was_fitted(solver: str) -> None:
    model = MLPRegressor(
        solver=solver, warm_start=True, max_iter=3, batch_norm=solver == "sgd", random_state=0
    )
    model.fit(DIGITS, DIGIT / 9)
    scale = 1e200 if solver == "lbfgs" else 1e3
    before, memory = copy.deepcopy(vars(model)), model.coefs_[0]
    with pytest.raises(ValueError, match="non-finite"):
        model.set_params(learning_rate_init=1e3, max_iter=100).fit(DIGITS * scale, DIGIT * scale)
    assert model.model_.fingerprint() == before["model_"].fingerprint()
    assert np.shares_memory(model.coefs_[0], memory)
    assert model.loss_ == before["loss_"] and model.n_iter_ == before["n_iter_"]
    if solver == "sgd":
        assert model.loss_curve_ == before["loss_curve_"]
        assert model._progress.stale == before["_progress"].stale


@pytest.mark.parametrize("evaluations", [2, 3, 8, 20])
def test_an_interrupted_lbfgs_keeps_its_last_iteration(
    evaluations: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, left = Blocks.results, [*range(evaluations)]

    def interrupted(blocks: Blocks, work: Call) -> Any:
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return results(blocks, work)

    model = MLPRegressor(solver="lbfgs", random_state=0)
    with monkeypatch.context() as patched:
        patched.setattr(Blocks, "results", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(DIGITS, DIGIT)
    want = MLPRegressor(solver="lbfgs", max_iter=model.n_iter_, random_state=0).fit(DIGITS, DIGIT)
    assert model.model_.fingerprint() == want.model_.fingerprint()
    assert model.loss_ == want.loss_


@pytest.mark.parametrize("solver", ["sgd", "adam"])
@pytest.mark.parametrize("when", ["as an epoch is told", "as several epochs are made"])
def test_an_interrupted_fit_has_the_network_of_its_epochs(
    solver: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Told(io.StringIO):
        def write(self, text: str) -> int:
            if "Iteration 3" in text:
                raise KeyboardInterrupt
            return len(text)

    run_epochs = Epochs._run_epochs

    def interrupted(*arguments: Any) -> None:
        run_epochs(*arguments)
        raise KeyboardInterrupt

    told = when == "as an epoch is told"
    model = MLPRegressor(solver=solver, max_iter=20, verbose=told, random_state=0)
    with monkeypatch.context() as patched:
        if told:
            patched.setattr("sys.stdout", Told())
        else:
            patched.setattr(Epochs, "_run_epochs", interrupted)
        with pytest.warns(UserWarning, match="interrupted by user"):
            model.fit(DIGITS[:40], DIGIT[:40])
    assert model.n_iter_ == 3 if told else 1 < model.n_iter_ < 20
    want = MLPRegressor(solver=solver, max_iter=model.n_iter_, random_state=0).fit(DIGITS[:40], DIGIT[:40])
    assert model.model_.fingerprint() == want.model_.fingerprint()
    assert (model.t_, model.loss_curve_) == (want.t_, want.loss_curve_)


@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        ({"solver": "adam", "epsilon": 1e-14}, 1e-5),
        ({"solver": "sgd"}, 1e-9),
        ({"solver": "sgd", "learning_rate": "invscaling"}, 1e-9),
        ({"solver": "sgd", "learning_rate": "adaptive", "tol": 10, "n_iter_no_change": 1}, 1e-9),
    ],
)
@pytest.mark.parametrize("kind", ["MLPClassifier", "MLPRegressor"])
def test_a_new_learning_rate_holds_from_the_next_call(
    kind: str, settings: dict[str, Any], tolerance: float
) -> None:
    settings = {"hidden_layer_sizes": 20, "learning_rate_init": 0.01, "random_state": 0} | settings
    theirs = getattr(neural_network, kind)(**settings)
    model = {"MLPClassifier": MLPClassifier, "MLPRegressor": MLPRegressor}[kind](**settings, dtype="float64")
    classes = {"classes": np.arange(10)} if kind == "MLPClassifier" else {}
    for step in range(7):
        if step == 4:
            model.set_params(learning_rate_init=0.02)
            rule = theirs._optimizer  # which alone knows the rate
            rule.learning_rate_init = rule.learning_rate = 0.02
            rule.iteration_ends(theirs.t_)
        for each in (model, theirs):
            each.partial_fit(DIGITS, DIGIT, **classes)
        np.testing.assert_allclose(model.coefs_[0], theirs.coefs_[0], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("estimator", [MLPClassifier, MLPRegressor])
def test_held_out_rows_without_weights_are_refused(estimator: Any) -> None:
    x = np.random.RandomState(0).normal(size=(40, 2))
    fitted = estimator(early_stopping=True, random_state=0)
    with pytest.raises(ValueError, match="all rows that early_stopping holds out have weight 0"):
        fitted.fit(x, (x[:, 0] > 0).astype(int), np.arange(40) == 3)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0.5}, "rank 1 has alpha 0.5, rank 0 has 0.0001"),
        ({"max_iter": 4}, "rank 1 has max_iter 4, rank 0 has 3"),
        ({"class_weight": {0: 2}}, "rank 1 has row weights True, rank 0 has False"),
        ({"shuffle": False}, "rank 1 has shuffle False, rank 0 has True"),
    ],
)
@pytest.mark.parametrize("call", ["fit", "partial_fit"])
def test_ranks_with_other_parameters_are_told_apart(
    settings: dict[str, Any], message: str, call: str
) -> None:
    def train() -> None:
        rank = pdnn.world().rank
        model = MLPClassifier((8,), max_iter=3, random_state=rank, verbose=False)
        model.set_params(**settings if rank else {})
        classes = {"classes": np.arange(10)} if call == "partial_fit" else {}
        getattr(model, call)(DIGITS, DIGIT, **classes)

    with pytest.raises(ValueError, match=message):
        pdnn.run(train, ranks=2, backend="threads")


def test_parameters_of_another_network_can_be_assigned() -> None:
    """As scikit-learn's, whole or one layer's; an array of another shape changes nothing."""
    x, y = DIGITS[:, 10:13], DIGIT % 3
    theirs = neural_network.MLPClassifier(5, max_iter=3, random_state=1).fit(x, y)
    model = MLPClassifier(5, max_iter=3, dtype="float64", random_state=2).fit(x, y)
    model.coefs_, model.intercepts_ = theirs.coefs_, theirs.intercepts_
    np.testing.assert_allclose(model.predict_proba(x), theirs.predict_proba(x), rtol=1e-12)
    model.coefs_[0] = theirs.coefs_[0] = 2 * theirs.coefs_[0]
    model.coefs_[1] *= 2
    theirs.coefs_[1] *= 2
    np.testing.assert_allclose(model.predict_proba(x), theirs.predict_proba(x), rtol=1e-12)
    before = model.model_.fingerprint()
    with pytest.raises(ValueError, match=r"got arrays of shape \[\(5, 3\)\], the layers have \[\(3, 5\)\]"):
        model.coefs_[0] = np.ones((5, 3))
    with pytest.raises(ValueError, match="the layers have"):
        model.coefs_ = [np.ones((3, 5))]
    with pytest.raises(AttributeError, match="no intercepts_ before it is fitted"):
        MLPClassifier().intercepts_ = theirs.intercepts_
    assert model.model_.fingerprint() == before


def test_labels_and_numbers_that_are_none_are_missing() -> None:
    for labels in (["a", None, "b"], [0, None, 1]):
        with pytest.raises(ValueError, match=r"y has missing labels \(None\)"):
            MLPClassifier(max_iter=1).fit(DIGITS[:3], np.array(labels, object))
    for numbers in ([0.5, None, 1], [[0.5, 1], [2, None], [1, 1]]):
        with pytest.raises(ValueError, match=r"y has missing numbers \(None\)"):
            MLPRegressor(max_iter=1).fit(DIGITS[:3], np.array(numbers, object))


@pytest.mark.parametrize("words", [NAMES, NAMES.astype(object)])
def test_words_are_no_classes_where_numbers_were_and_the_other_way_round(words: Any) -> None:
    model = MLPClassifier(max_iter=1)
    for known, other, such in ((DIGIT, words, "a"), (words, DIGIT, "0")):
        model.fit(DIGITS, known)
        with pytest.raises(ValueError, match=rf"was not fitted to, such as {such}; it knows"):
            model.partial_fit(DIGITS, other)


@pytest.mark.parametrize("twin", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_a_copy_has_coefficients_of_its_own(twin: Call) -> None:
    model = MLPClassifier((3,), max_iter=2, random_state=0).fit(DIGITS, NAMES)
    answers = model.predict_proba(DIGITS)
    for name in ("coefs_", "intercepts_"):
        other = twin(model)
        for mine, its in zip(getattr(model, name), getattr(other, name), strict=True):
            np.testing.assert_array_equal(mine, its)
        other = twin(model)
        setattr(other, name, [2 * array for array in getattr(model, name)])
        assert not np.allclose(other.predict_proba(DIGITS), answers)
    np.testing.assert_array_equal(model.predict_proba(DIGITS), answers)


def two_classes(n: int = 200) -> tuple[Any, Any]:
    x = np.random.default_rng(0).normal(size=(n, 3))
    return x, (x[:, 0] > 0).astype(int)


def test_partial_fit_after_lbfgs_knows_nothing_of_the_network_before() -> None:
    x, y = two_classes()
    stopping = {"early_stopping": True, "n_iter_no_change": 60, "max_iter": 600, "learning_rate_init": 0.05}
    model = MLPClassifier((8,), random_state=0, n_jobs=1, **stopping).fit(x, y)
    model.set_params(solver="lbfgs", early_stopping=False).fit(x, 1 - y)
    model.set_params(solver="adam", early_stopping=True, learning_rate_init=1e-4).partial_fit(x, 1 - y)
    assert model.score(x, 1 - y) > 0.9


def test_partial_fit_trains_again_without_early_stopping() -> None:
    x, y = two_classes(60)
    model = MLPClassifier((4,), random_state=0, early_stopping=True, n_iter_no_change=2, n_jobs=1)
    model.partial_fit(x, y, classes=[0, 1])
    for _ in range(500):
        if model.stopped_:
            break
        model.partial_fit(x, y)
    assert model.stopped_
    before = model.coefs_[0].copy()
    model.set_params(early_stopping=False).partial_fit(x, y)
    assert (model.coefs_[0] != before).any()


def test_partial_fit_counts_passes_anew_after_a_fit_that_stopped() -> None:
    x, y = two_classes(60)
    stopping = {"early_stopping": True, "n_iter_no_change": 5, "max_iter": 300, "learning_rate_init": 0.01}
    model = MLPClassifier((4,), random_state=0, n_jobs=1, **stopping).fit(x, y)
    assert model.stopped_
    assert not model.partial_fit(x, y).stopped_


def test_rows_left_to_train_on_weigh_something() -> None:
    x, y = two_classes(20)
    model = MLPClassifier((3,), early_stopping=True, random_state=25, n_jobs=1, max_iter=2)
    with pytest.raises(ValueError, match="early_stopping does not hold out have weight 0"):
        model.fit(x, y, np.arange(20) == 3)


def test_balanced_classes_count_weights() -> None:
    settings: dict[str, Any] = {
        "solver": "lbfgs",
        "alpha": 0.1,
        "random_state": 0,
        "class_weight": "balanced",
    }
    count, rare = np.arange(len(DIGIT)) % 3, DIGIT == 3
    weighed = MLPClassifier((), **settings).fit(DIGITS, rare, count)
    repeated = MLPClassifier((), **settings).fit(np.repeat(DIGITS, count, axis=0), np.repeat(rare, count))
    np.testing.assert_allclose(weighed.predict_proba(DIGITS), repeated.predict_proba(DIGITS), atol=1e-6)


@pytest.mark.parametrize(("first", "then"), [("squared_error", "huber"), ("huber", "squared_error")])
def test_another_loss_has_the_whole_learning_rate(first: str, then: str) -> None:
    settings: dict[str, Any] = {"solver": "sgd", "momentum": 0, "delta": 1e6, "random_state": 0}
    changed, same = (MLPRegressor(loss, **settings).partial_fit(DIGITS, DIGIT) for loss in (first, then))
    changed.set_params(loss=then).partial_fit(DIGITS, DIGIT)
    same.partial_fit(DIGITS, DIGIT)
    np.testing.assert_allclose(changed.coefs_[0], same.coefs_[0], rtol=1e-4, atol=1e-6)


def test_a_warm_start_with_another_loss_has_a_best_of_its_own() -> None:
    model = MLPRegressor("quantile", (8,), warm_start=True, max_iter=30, random_state=0).fit(DIGITS, DIGIT)
    model.set_params(loss="squared_error").fit(DIGITS, 50 * DIGIT)
    assert model.n_iter_ == 30 and not model.stopped_


def test_early_stopping_gives_no_network_of_another_loss_back() -> None:
    model = MLPRegressor("squared_error", (8,), early_stopping=True, warm_start=True, n_iter_no_change=5)
    model.set_params(random_state=0, max_iter=60).fit(DIGITS, DIGIT)
    before = model.predict(DIGITS)
    for quantile in (0.1, 0.9):
        model.set_params(loss="quantile", quantile=quantile).fit(DIGITS, DIGIT)
        assert (model.predict(DIGITS) != before).any()
        before = model.predict(DIGITS)


def test_one_class_is_scored_as_by_score() -> None:
    sevens = np.full(40, 7)
    for seed in range(8):
        model = MLPClassifier((3,), max_iter=3, early_stopping=True, random_state=seed)
        model.fit(DIGITS[:40], sevens)
        assert model.validation_scores_ == [1, 1, 1] == [model.score(DIGITS[:40], sevens)] * 3


@pytest.mark.filterwarnings("ignore:overflow")
def test_predictions_beyond_numbers_score_nan() -> None:
    model = MLPRegressor("poisson", (3,), activation="identity", max_iter=2, random_state=0)
    held_out = {"X_val": np.r_[DIGITS, -DIGITS] * 1e6, "y_val": np.r_[DIGIT, DIGIT]}
    model.fit(DIGITS, DIGIT, **held_out)
    assert np.isnan(model.validation_scores_).all()
    model.set_params(early_stopping=True, n_iter_no_change=1, max_iter=5).fit(DIGITS, DIGIT, **held_out)
    assert model.n_iter_ == 5  # as in scikit-learn: it is not known to be no better


def test_an_interrupt_before_the_network_leaves_what_was_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    model, new = MLPClassifier(max_iter=3, random_state=0).fit(DIGITS, DIGIT), MLPClassifier()
    before = model.predict(DIGITS)
    monkeypatch.setattr("pdnn.sklearn.perceptron.build", interrupted)
    for each in (model, new):
        with pytest.raises(KeyboardInterrupt):
            each.fit(DIGITS, DIGIT > 4)
    np.testing.assert_array_equal(model.predict(DIGITS), before)
    with pytest.raises(NotFittedError):
        new.predict(DIGITS)


def test_no_classes_and_long_numbers() -> None:
    with pytest.raises(ValueError, match="classes: got none"):
        MLPClassifier().partial_fit(DIGITS, DIGIT, classes=[])
    MLPRegressor(max_iter=2, random_state=0).fit(DIGITS, DIGIT.astype(np.longdouble))
