"""Data sets that are drawn, not read: scikit-learn's classification problem, as workload W3 uses it."""

from __future__ import annotations

from importlib import import_module
from typing import Any, overload

import numpy as np

from pdnn.data import Dataset
from pdnn.datasets.parts import both


@overload
def make_classification(
    train: None = None, *, n_train: int = 1000, n_samples: int = 10_000, **options: Any
) -> tuple[Dataset, Dataset]: ...
@overload
def make_classification(
    train: bool, *, n_train: int = 1000, n_samples: int = 10_000, **options: Any
) -> Dataset: ...


def make_classification(
    train: bool | None = None, *, n_train: int = 1000, n_samples: int = 10_000, **options: Any
) -> Dataset | tuple[Dataset, Dataset]:
    """``sklearn.datasets.make_classification``: clusters of points around the corners of a hypercube.

    Parameters
    ----------
    train : bool, optional
        Only that part.
    n_train : int
        The training part is the first `n_train` rows, the test part the rest.
    n_samples : int
        Rows of both parts together.
    **options
        As scikit-learn takes them. Unless given: n_features=1024, n_informative=512, n_classes=32,
        n_clusters_per_class=10, random_state=0, the call of workload W3 (``Understanding data parallelism``).

    Returns
    -------
    Dataset, or (train, test)
        x: float32, (n, n_features), of standard deviation 12 unless options say otherwise; y: int64, (n,).

    Raises
    ------
    ImportError
        If scikit-learn is not installed.
    ValueError
        If `n_train` does not lie between 0 and `n_samples`, or scikit-learn refuses the options.
    """
    if not 0 <= n_train <= n_samples:
        raise ValueError(f"make_classification: n_train is {n_train}, expected 0 to n_samples = {n_samples}")
    try:
        draw = import_module("sklearn.datasets").make_classification
    except ImportError as error:
        raise ImportError("make_classification needs scikit-learn: pip install scikit-learn") from error
    defaults = {
        "n_features": 1024,
        "n_informative": 512,
        "n_classes": 32,
        "n_clusters_per_class": 10,
        "random_state": 0,
    }
    x, y = draw(n_samples=n_samples, **(defaults | options))
    whole = Dataset(x.astype(np.float32), y.astype(np.int64))
    return both(
        "make_classification", train, lambda is_train: whole[:n_train] if is_train else whole[n_train:]
    )
