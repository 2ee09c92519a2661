"""Promises of make_classification: scikit-learn's draw, in float32, cut where the exercise cuts it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from pdnn import datasets


def test_the_defaults_are_the_call_of_the_exercise() -> None:
    sklearn = pytest.importorskip("sklearn.datasets", reason="draws the data")
    train, held_out = datasets.make_classification()
    x, y = sklearn.make_classification(
        n_samples=10_000,
        n_features=1024,
        n_informative=512,
        n_classes=32,
        n_clusters_per_class=10,
        random_state=0,
    )
    assert (len(train), len(held_out)) == (1000, 9000)
    assert train.x.dtype == np.float32 and train.y.dtype == np.int64
    np.testing.assert_array_equal(train.x, x[:1000].astype(np.float32))
    np.testing.assert_array_equal(held_out.x, x[1000:].astype(np.float32))
    np.testing.assert_array_equal(np.concatenate([train.y, held_out.y]), y)
    assert set(train.y.tolist()) == set(range(32))
    assert 11.9 < held_out.x.std() < 12.1


def test_options_are_scikit_learns() -> None:
    pytest.importorskip("sklearn", reason="draws the data")
    small = {"n_samples": 50, "n_features": 20, "n_informative": 6, "n_classes": 3, "n_clusters_per_class": 2}
    train, test = datasets.make_classification(n_train=40, **small, random_state=1)
    assert (len(train), len(test), train.sample_shape) == (40, 10, (20,))
    other = datasets.make_classification(True, n_train=40, **small, random_state=2)
    assert not np.array_equal(train.x, other.x)
    assert len(datasets.make_classification(False, n_train=50, **small)) == 0
    with pytest.raises(ValueError, match="n_train is 51, expected 0 to n_samples = 50"):
        datasets.make_classification(n_train=51, **small)
    with pytest.raises(ValueError, match="n_classes"):
        datasets.make_classification(n_samples=50, n_train=40, n_features=5, n_informative=3, n_classes=9)


def test_without_scikit_learn_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(ImportError, match="pip install scikit-learn"):
        datasets.make_classification()
