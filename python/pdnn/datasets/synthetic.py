"""Data sets that are drawn, not read: scikit-learn's classification problem, as workload W3 uses it."""

from __future__ import annotations

from typing import Any, overload

import numpy as np
import numpy.typing as npt

from pdnn.checks import integer
from pdnn.data import Dataset
from pdnn.datasets.parts import both

REDUNDANT = 2  # features that are weighted sums of the informative ones
FLIPPED = 0.01  # share of the labels that are drawn again
WORD = 30  # coordinates of a corner that are the bits of one number; those before it are drawn one by one


@overload
def make_classification(
    train: None = None,
    *,
    n_train: int = 1000,
    n_samples: int = 10_000,
    n_features: int = 1024,
    n_informative: int = 512,
    n_classes: int = 32,
    n_clusters_per_class: int = 10,
    random_state: int = 0,
) -> tuple[Dataset, Dataset]: ...
@overload
def make_classification(
    train: bool,
    *,
    n_train: int = 1000,
    n_samples: int = 10_000,
    n_features: int = 1024,
    n_informative: int = 512,
    n_classes: int = 32,
    n_clusters_per_class: int = 10,
    random_state: int = 0,
) -> Dataset: ...


def make_classification(
    train: bool | None = None,
    *,
    n_train: int = 1000,
    n_samples: int = 10_000,
    n_features: int = 1024,
    n_informative: int = 512,
    n_classes: int = 32,
    n_clusters_per_class: int = 10,
    random_state: int = 0,
) -> Dataset | tuple[Dataset, Dataset]:
    """Clusters of points around the corners of a hypercube, and the class of each.

    The rows are those of ``sklearn.datasets.make_classification`` for the same arguments, bit for bit. The
    defaults are the call of workload W3 (``Understanding data parallelism``).

    A cluster's points are normal, stretched by a random matrix, around a corner with coordinates of ±1; the
    clusters take turns in belonging to the classes. Of the other features two are random sums of the
    informative ones, the rest noise. Of the labels 1 % are drawn again; rows and features are shuffled.

    Parameters
    ----------
    train : bool, optional
        Only that part.
    n_train : int
        The training part is the first `n_train` rows, the test part the rest.
    n_samples : int
        Rows of both parts together.
    n_features, n_informative : int
        Features of a row, and how many of them place it in its cluster.
    n_classes, n_clusters_per_class : int
    random_state : int
        Seed of all that is drawn.

    Returns
    -------
    Dataset, or (train, test)
        x: float32, (n, n_features), of standard deviation 12 unless sizes say otherwise; y: int64, (n,).

    Raises
    ------
    TypeError
        If a number is no integer.
    ValueError
        If `n_train` does not lie between 0 and `n_samples`, a size is below 1, there are more clusters than
        corners, or fewer than `n_informative` + 2 features.
    """

    def size(name: str, value: int, least: int = 1) -> int:
        return integer("make_classification", name, value, least)

    n_train, n_samples = size("n_train", n_train, 0), size("n_samples", n_samples)
    n_features, n_informative = size("n_features", n_features), size("n_informative", n_informative)
    n_classes = size("n_classes", n_classes)
    n_clusters_per_class = size("n_clusters_per_class", n_clusters_per_class)
    if n_train > n_samples:
        raise ValueError(f"make_classification: n_train is {n_train}, expected 0 to n_samples = {n_samples}")
    clusters = n_classes * n_clusters_per_class
    if clusters > 2**n_informative:
        raise ValueError(
            f"make_classification: n_classes x n_clusters_per_class is {clusters}, expected at most "
            f"2**n_informative = {2**n_informative}"
        )
    if n_features < n_informative + REDUNDANT:
        raise ValueError(
            f"make_classification: n_features is {n_features}, expected n_informative + {REDUNDANT} = "
            f"{n_informative + REDUNDANT} or more"
        )
    # What follows makes scikit-learn's draws in scikit-learn's order, and its products on arrays that lie
    # as its own do: the last bit of a sum depends on that.
    draw = np.random.RandomState(size("random_state", random_state, 0))
    centers = 2.0 * _corners(draw, clusters, n_informative) - 1
    x, y = np.empty((n_samples, n_features)), np.empty(n_samples, np.int64)
    informative = x[:, :n_informative]
    informative[:] = draw.standard_normal(informative.shape)
    parts = zip(np.array_split(informative, clusters), np.array_split(y, clusters), centers, strict=True)
    for cluster, (points, labels, center) in enumerate(parts):
        labels[:] = cluster % n_classes
        points[:] = points.dot(_matrix(draw, n_informative, n_informative)) + center
    redundant, noise = np.split(x[:, n_informative:], [REDUNDANT], axis=1)
    redundant[:] = informative.dot(_matrix(draw, n_informative, REDUNDANT))
    noise[:] = draw.standard_normal(noise.shape)
    flipped = draw.uniform(size=n_samples) < FLIPPED
    y[flipped] = draw.randint(n_classes, size=np.count_nonzero(flipped))
    rows, columns = draw.permutation(n_samples), draw.permutation(n_features)
    whole = Dataset(x.astype(np.float32)[np.ix_(rows, columns)], y[rows])
    return both(
        "make_classification", train, lambda is_train: whole[:n_train] if is_train else whole[n_train:]
    )


def _matrix(draw: np.random.RandomState, rows: int, columns: int) -> npt.NDArray[np.float64]:
    """Uniform in [-1, 1)."""
    return 2 * draw.uniform(size=(rows, columns)) - 1


def _corners(draw: np.random.RandomState, count: int, dimensions: int) -> npt.NDArray[Any]:
    """So many different corners of the unit cube, (count, dimensions)."""
    if dimensions > WORD:
        first = draw.randint(2, size=(count, dimensions - WORD))
        return np.hstack([first, _corners(draw, count, WORD)])
    numbers = _different(draw, count, 2**dimensions)
    return numbers[:, None] >> np.arange(dimensions)[::-1] & 1  # bits, the highest first


def _different(draw: np.random.RandomState, count: int, end: int) -> npt.NDArray[np.int64]:
    """So many different numbers below `end`, by the method that scikit-learn takes for so many."""
    if count > 0.99 * end:  # nearly all: in order, but the last ones replace others at random
        numbers = np.arange(count)
        for number in range(count, end):
            place = draw.randint(number + 1)
            if place < count:
                numbers[place] = number
        return numbers
    if count > 0.01 * end:
        return draw.permutation(end)[:count]
    found: dict[int, None] = {}  # few: drawn one by one, and again where they were there before
    while len(found) < count:
        found[int(draw.randint(end))] = None
    return np.array(list(found))
