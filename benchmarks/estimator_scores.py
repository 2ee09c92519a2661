"""The scores of pdnn's estimators beside scikit-learn's, on tables that scikit-learn ships or makes.

python benchmarks/estimator_scores.py [--seeds 5] [--tables digits,cancer,wine,diabetes,classes,numbers]

A seed says which quarter of the rows is held out, and is the `random_state` of both estimators. Columns: mean
accuracy or R² on the rows held out, the mean difference with its standard error, and the seconds of all fits.
pdnn's arithmetic is what `dtype="auto"` takes, scikit-learn's float64.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from time import perf_counter
from typing import Any

from sklearn import datasets, neural_network
from sklearn.compose import TransformedTargetRegressor
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import measure
import pdnn.sklearn


@dataclass(frozen=True)
class Task:
    """A table and the estimator for it."""

    load: Callable[[], tuple[Any, Any]]
    kind: str
    settings: dict[str, Any]


TASKS = {
    "digits": Task(lambda: datasets.load_digits(return_X_y=True), "MLPClassifier", {}),
    "cancer": Task(lambda: datasets.load_breast_cancer(return_X_y=True), "MLPClassifier", {}),
    "wine": Task(lambda: datasets.load_wine(return_X_y=True), "MLPClassifier", {}),
    "diabetes": Task(lambda: datasets.load_diabetes(return_X_y=True), "MLPRegressor", {"alpha": 1.0}),
    "classes": Task(
        lambda: datasets.make_classification(
            100_000, 20, n_informative=10, n_classes=4, n_clusters_per_class=4, random_state=0
        ),
        "MLPClassifier",
        {"max_iter": 20},
    ),
    "numbers": Task(
        lambda: datasets.make_friedman1(100_000, 20, noise=1.0, random_state=0),
        "MLPRegressor",
        {"max_iter": 20},
    ),
}
"""By the name that `--tables` takes; the last two have 100,000 rows."""


def score(library: Any, task: Task, rows: tuple[Any, Any], seed: int) -> tuple[float, float]:
    """On the rows held out; and the seconds of the fit."""
    x, x_test, y, y_test = train_test_split(*rows, random_state=seed)
    estimator = getattr(library, task.kind)(**task.settings, random_state=seed)
    model = make_pipeline(StandardScaler(), estimator)
    if task.kind == "MLPRegressor":
        model = TransformedTargetRegressor(model, transformer=StandardScaler())
    began = perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(x, y)
    return model.score(x_test, y_test), perf_counter() - began


def main(arguments: Sequence[str]) -> None:
    """Prints a line a table; writes all scores if asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=measure.count, default=5, help="fits of each; default: 5")
    measure.add_names(parser, "--tables", TASKS)
    parser.add_argument("--json", type=measure.destination, metavar="FILE", help="all scores")
    options = parser.parse_args(arguments)
    report = measure.begin()
    print(
        "| table | pdnn | scikit-learn | difference | pdnn, s | scikit-learn, s |\n|---|--:|--:|--:|--:|--:|"
    )
    for name in options.tables:
        task, rows = TASKS[name], TASKS[name].load()
        ours, theirs = zip(
            *(
                [score(library, task, rows, seed) for library in (pdnn.sklearn, neural_network)]
                for seed in range(options.seeds)
            ),
            strict=True,
        )
        report["results"].append({"table": name, "pdnn": ours, "scikit-learn": theirs})
        gains = [own - other for (own, _), (other, _) in zip(ours, theirs, strict=True)]
        error = stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else 0.0
        means = " | ".join(f"{fmean(value for value, _ in fits):.4f}" for fits in (ours, theirs))
        seconds = " | ".join(f"{sum(value for _, value in fits):.1f}" for fits in (ours, theirs))
        print(f"| {name} | {means} | {fmean(gains):+.4f} ± {error:.4f} | {seconds} |", flush=True)
    measure.write(report, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
