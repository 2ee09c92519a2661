"""Promises of make_classification: scikit-learn's rows, in float32, cut where the exercise cuts them."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from pdnn import datasets

SMALL = {"n_samples": 50, "n_features": 20, "n_informative": 6, "n_classes": 3, "n_clusters_per_class": 2}
WIDE = {"n_samples": 60, "n_features": 40, "n_informative": 33, "n_classes": 4, "n_clusters_per_class": 3}
EXERCISE = {
    "n_samples": 10_000,
    "n_features": 1024,
    "n_informative": 512,
    "n_classes": 32,
    "n_clusters_per_class": 10,
}


def sizes(*values: int) -> dict[str, int]:
    return dict(zip(SMALL, values, strict=True))


@pytest.mark.parametrize(
    ("options", "y", "first", "last"),
    [
        (
            SMALL | {"random_state": 0},
            "10010211011022020221221110020122000211110102210012",
            (-0.9527581, 1.1859581, -0.7491813, -0.35847512, 0.69179827),
            (-0.9158423, -0.03959155, 2.0670884, 2.4521644, 2.239595),
        ),
        (
            WIDE | {"random_state": 5},
            "121313130020211122213211110020023303230323000230131210320132",
            (1.8871436, 1.6844201, 0.06264978, 0.3009763, -1.2936401),
            (5.7903414, 2.1853068, 2.4113493, -0.13813171, -1.05694),
        ),
    ],
    ids=["small", "wide"],
)
def test_rows_are_those_that_scikit_learn_drew(
    options: dict[str, int], y: str, first: tuple[float, ...], last: tuple[float, ...]
) -> None:
    whole = datasets.make_classification(True, n_train=options["n_samples"], **options)
    assert "".join(map(str, whole.y)) == y
    np.testing.assert_allclose(whole.x[0, :5], first, rtol=1e-6)
    np.testing.assert_allclose(whole.x[-1, -5:], last, rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    [
        SMALL,
        WIDE,
        sizes(50, 5, 2, 2, 2),  # a cluster at every corner
        sizes(1000, 12, 7, 127, 1),  # at nearly every corner
        sizes(333, 52, 15, 7, 5),  # at few corners
        sizes(7, 34, 32, 3, 3),  # clusters without a point, no noise
    ],
    ids=str,
)
def test_every_bit_is_scikit_learns(options: dict[str, int]) -> None:
    sklearn = pytest.importorskip("sklearn.datasets", reason="draws the same data")
    for seed in (0, 7):
        x, y = sklearn.make_classification(**options, random_state=seed)
        whole = datasets.make_classification(True, n_train=len(x), **options, random_state=seed)
        np.testing.assert_array_equal(whole.x, x.astype(np.float32))
        np.testing.assert_array_equal(whole.y, y)


@pytest.mark.long
def test_every_bit_of_the_exercises_data_is_scikit_learns() -> None:
    sklearn = pytest.importorskip("sklearn.datasets", reason="draws the same data")
    x, y = sklearn.make_classification(**EXERCISE, random_state=0)
    train, held_out = datasets.make_classification()
    assert (len(train), len(held_out), train.x.dtype, train.y.dtype) == (1000, 9000, np.float32, np.int64)
    np.testing.assert_array_equal(np.concatenate([train.x, held_out.x]), x.astype(np.float32))
    np.testing.assert_array_equal(np.concatenate([train.y, held_out.y]), y)
    assert round(float(train.x.std())) == 12


def test_the_defaults_are_the_call_of_the_exercise() -> None:
    parameters = inspect.signature(datasets.make_classification).parameters.values()
    expected = {"train": None, "n_train": 1000, **EXERCISE, "random_state": 0}
    assert {parameter.name: parameter.default for parameter in parameters} == expected


def test_a_part_may_be_empty() -> None:
    assert len(datasets.make_classification(False, n_train=50, **SMALL)) == 0


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"n_train": 51}, "n_train is 51, expected 0 to n_samples = 50"),
        ({"n_classes": 40}, r"n_classes x n_clusters_per_class is 80, expected at most .* = 64"),
        ({"n_clusters_per_class": 0}, "n_clusters_per_class = 0; expected an integer from 1"),
        ({"n_features": 7}, r"n_features is 7, expected n_informative \+ 2 = 8 or more"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(wrong: dict[str, int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        datasets.make_classification(**({"n_train": 40} | SMALL | wrong))
