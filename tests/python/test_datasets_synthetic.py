"""Promises of make_classification: scikit-learn's draw, in float32, cut where the exercise cuts it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from pdnn import datasets

SMALL = {"n_samples": 50, "n_features": 20, "n_informative": 6, "n_classes": 3, "n_clusters_per_class": 2}


def test_the_defaults_are_the_call_of_the_exercise(monkeypatch: pytest.MonkeyPatch) -> None:
    sklearn = pytest.importorskip("sklearn.datasets", reason="draws the data")
    called: list[dict[str, int]] = []

    def draw(**options: int) -> tuple[np.ndarray, np.ndarray]:
        called.append(options)
        return np.zeros((10_000, 2)), np.arange(10_000)

    monkeypatch.setattr(sklearn, "make_classification", draw)
    train, held_out = datasets.make_classification()
    assert called[0] == {
        "n_samples": 10_000,
        "n_features": 1024,
        "n_informative": 512,
        "n_classes": 32,
        "n_clusters_per_class": 10,
        "random_state": 0,
    }
    assert train.y.tolist() == list(range(1000)) and held_out.y.tolist() == list(range(1000, 10_000))


def test_the_rows_are_scikit_learns_in_float32() -> None:
    sklearn = pytest.importorskip("sklearn.datasets", reason="draws the data")
    train, test = datasets.make_classification(n_train=40, **SMALL)
    x, y = sklearn.make_classification(**SMALL, random_state=0)
    assert (len(train), len(test), train.x.dtype, train.y.dtype) == (40, 10, np.float32, np.int64)
    np.testing.assert_array_equal(np.concatenate([train.x, test.x]), x.astype(np.float32))
    np.testing.assert_array_equal(np.concatenate([train.y, test.y]), y)
    other = datasets.make_classification(True, n_train=40, **SMALL, random_state=2)
    assert not np.array_equal(train.x, other.x)
    assert len(datasets.make_classification(False, n_train=50, **SMALL)) == 0


def test_options_that_do_not_fit_are_refused() -> None:
    pytest.importorskip("sklearn", reason="draws the data")
    with pytest.raises(ValueError, match="n_train is 51, expected 0 to n_samples = 50"):
        datasets.make_classification(n_train=51, **SMALL)
    with pytest.raises(ValueError, match="n_classes"):
        datasets.make_classification(n_samples=50, n_train=40, n_features=5, n_informative=3, n_classes=9)


def test_without_scikit_learn_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        datasets.make_classification()
