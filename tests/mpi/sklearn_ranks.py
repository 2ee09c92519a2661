"""What each rank of tests/mpi/test_sklearn.py runs: an estimator for scikit-learn, trained by all ranks."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

import pdnn
from pdnn.sklearn import MLPClassifier

SETTINGS = {
    "solver": "sgd",
    "learning_rate": "invscaling",
    "learning_rate_init": 0.1,
    "max_iter": 5,
    "early_stopping": True,
    "batch_norm": True,
    "dtype": "float64",
    "n_jobs": 1,
}


def refused(words: str, x: Any, y: Any, **others: Any) -> None:
    """Asserts that ranks that have other data than rank 0 refuse to train, all of them."""
    with pytest.raises(ValueError, match=f"rank 1 has {words}"):
        MLPClassifier(max_iter=1).fit(x, y, **others)


def train(random_state: int | None) -> MLPClassifier:
    x, y = load_digits(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return MLPClassifier(**SETTINGS, random_state=random_state).fit(x[:500] / 16, y[:500])


if __name__ == "__main__":
    comm = pdnn.world()
    model, by_chance = train(0), train(None)
    for each in (model, by_chance):
        mine = np.frombuffer(bytes.fromhex(each.model_.fingerprint()), np.uint8).copy()
        assert all((other == mine).all() for other in comm.all_gather(mine))
    if comm.size > 1:
        x, y = load_digits(return_X_y=True)
        x, y, me = x[:500], y[:500], comm.rank
        refused("training data with the digest", x[me::2], y[me::2])
        refused("training data with the digest", csr_array(x[me::2]), y[:250])
        refused("training data with the digest", x, y, sample_weight=np.ones(len(x)) + me)
        refused("validation data with the digest", x, y, X_val=x[me:300:2], y_val=y[:150])
        refused("classes", x, np.array([*"abcdefghij"] if me else [*"ABCDEFGHIJ"])[y])
    if comm.rank == 0:
        print(model.loss_, np.abs(model.model_.flat_parameters).sum())
