"""An epoch of `pdnn.sklearn.MLPClassifier.fit` beside one of scikit-learn's, on the same rows.

python benchmarks/estimators.py [--quick] [--blocks 40] [--dtype float32]
    [--tables small,digits,wide,long,lbfgs,words,vocabulary,words-lbfgs]

A block is a whole `fit`, whose seconds count over its epochs, with what begins and ends it. Both sides get
the same array and the same `random_state`, so they begin with the same parameters and take the same batches;
their losses of the last epoch must agree to 1 %. scikit-learn computes in the type of the array (float64, as
its loaders return it, unless --dtype says otherwise), pdnn in float32, or float64 if told to (a side of its
own). How it is measured: measure.py.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any

import numpy as np

import measure
from examples import MODULES
from measure import Method
from workers import Runner, Side


@dataclass(frozen=True)
class Table:
    """Rows to classify, and the estimator for them.

    Attributes
    ----------
    name : str
    shape : tuple of int
        Rows, features, classes.
    epochs : int
        Of a block.
    settings : dict
        Of the estimator.
    dtype : str
        Of the array.
    words : int
        Elements of a row of a sparse table, whose first features are the most frequent; 0: it is dense.
    """

    name: str
    shape: tuple[int, int, int]
    epochs: int
    settings: dict[str, Any] = field(default_factory=dict)
    dtype: str = "float64"
    words: int = 0

    def rows(self) -> tuple[Any, Any]:
        """The array, dense or CSR, and the classes."""
        from scipy.sparse import csr_array
        from sklearn.datasets import make_classification

        count, features, classes = self.shape
        if not self.words:
            options = {"n_informative": min(features, 10), "n_redundant": 0, "n_classes": classes}
            x, y = make_classification(count, features, **options, random_state=0)
            return x.astype(self.dtype), y
        rng = np.random.default_rng(0)
        values, columns = rng.random(count * self.words), features ** rng.random(count * self.words)
        places = np.repeat(np.arange(count), self.words), columns.astype(int)
        x = csr_array((values, places), (count, features), dtype=self.dtype)
        return x, (x @ rng.standard_normal((features, classes))).argmax(axis=1)


TABLES = {
    "small": Table("150 rows of 4, 4-100-3", (150, 4, 3), 100),
    "digits": Table("1,797 rows of 64, 64-100-10", (1797, 64, 10), 10),
    "wide": Table("10,000 rows of 784, 784-256-10", (10_000, 784, 10), 1, {"hidden_layer_sizes": (256,)}),
    "long": Table("100,000 rows of 20, 20-100-2", (100_000, 20, 2), 1),
    "lbfgs": Table(
        "L-BFGS, 1,797 rows of 64, 64-100-100-10",
        (1797, 64, 10),
        20,
        {"hidden_layer_sizes": (100, 100), "solver": "lbfgs"},
    ),
    "words": Table("4,000 sparse rows of 10,000, 10,000-100-10", (4000, 10_000, 10), 3, words=100),
    "vocabulary": Table("4,000 sparse rows of 50,000, 50,000-100-10", (4000, 50_000, 10), 2, words=100),
    "words-lbfgs": Table(
        "L-BFGS, 4,000 sparse rows of 10,000, 10,000-100-10",
        (4000, 10_000, 10),
        3,
        {"solver": "lbfgs"},
        words=100,
    ),
}
"""By the name that `--tables` takes."""


def side(library: str, table: Table, dtype: str) -> Runner:
    """A `fit` of an estimator, with all cores of its process."""
    x, y = table.rows()
    settings = table.settings | {"max_iter": table.epochs, "random_state": 0, "n_iter_no_change": 1000}
    if library == "pdnn":
        settings |= {"dtype": dtype, "n_jobs": len(os.sched_getaffinity(0))}
    model = importlib.import_module(MODULES[library]).MLPClassifier(**settings)

    def run() -> tuple[float, float]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            began = perf_counter()
            model.fit(x, y)
            return (perf_counter() - began) / table.epochs, model.loss_

    return run


def compare(table: Table, cores: int, method: Method) -> dict[str, Any]:
    """Runs one comparison; milliseconds an epoch."""
    sides = [
        Side(name, side, (name.split(",")[0], table, dtype), cores, tolerance=1e-2)
        for name, dtype in [("pdnn", "auto"), ("pdnn, float64", "float64"), ("scikit-learn", "")]
    ]
    found = measure.compare(sides, method)
    measure.check_losses(sides, [result.check for result in found.results])
    trips = 1e9 * float(np.median(found.trips))
    report: dict[str, Any] = {"table": table.name, "cores": cores, "round_trip_nanoseconds": trips}
    report |= {"blocks": method.blocks, "kept": len(found.kept(sides[0])), "sides": []}
    if report["kept"]:
        first = found.seconds(0)
        for number, each in enumerate(sides):
            seconds, processor = found.seconds(number), found.processor(number) / table.epochs
            row = {"side": each.name, "milliseconds": 1e3 * seconds, "ratio": seconds / first}
            report["sides"].append(row | {"processor": 1e3 * processor})
    return report


def table_text(report: dict[str, Any]) -> str:
    """One comparison as text."""
    title = f"{report['table']}, {report['cores']} core{'s'[: report['cores'] > 1]}"
    head = f"{'':14} {'ms an epoch':>12} {'× pdnn':>7} {'processor':>10}"
    rows = [
        f"{row['side']:14} {row['milliseconds']:12.3f} {row['ratio']:7.2f} {row['processor']:10.3f}"
        for row in report["sides"]
    ]
    return measure.table(title, report, head, rows, cores=report["cores"])


def main(arguments: Sequence[str]) -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    measure.add_options(parser, quick="1 core, few blocks: rough figures")
    measure.add_names(parser, "--tables", TABLES)
    parser.add_argument(
        "--dtype",
        default="float64",
        choices=("float32", "float64"),
        help="of the array (default %(default)s)",
    )
    options = parser.parse_args(arguments)
    method, report = measure.method(options), measure.begin()
    for name in options.tables:
        base = TABLES[name]
        table = replace(base, name=f"{base.name}, {options.dtype}", dtype=options.dtype)
        for cores in [1] if options.quick or len(os.sched_getaffinity(0)) == 1 else [1, 2]:
            report["results"].append(compare(table, cores, method))
            print("\n" + table_text(report["results"][-1]), flush=True)
    measure.write(report, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
