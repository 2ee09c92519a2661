"""scikit-learn's own examples of its perceptrons: by scikit-learn and, only the import changed, by pdnn.

python benchmarks/examples.py FOLDER [--quick] [--blocks 5] [--examples training_curves,alpha,filters]
    [--json FILE]

FOLDER is `examples/neural_networks` of scikit-learn's sources, with plot_mlp_training_curves.py,
plot_mlp_alpha.py and plot_mnist_filters.py. Each run is a process of its own, which runs the whole file from
one random state; its seconds are those of all calls of `fit`. The sides take turns, and the median of their
runs counts. `score` is the mean of what the example's calls of it return. The images of the last one are read
from mnist/ in PDNN_DATA, instead of from OpenML.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median
from time import perf_counter
from typing import Any

import measure
from digits import mnist_folder
from workers import pinned

EXAMPLES = {
    "training_curves": "plot_mlp_training_curves.py",
    "alpha": "plot_mlp_alpha.py",
    "filters": "plot_mnist_filters.py",
}
"""By the name that `--examples` takes."""

MODULES = {"pdnn": "pdnn.sklearn", "scikit-learn": "sklearn.neural_network"}


def noting(method: Callable[..., Any], found: list[tuple[float, Any]]) -> Callable[..., Any]:
    """The method, which notes its seconds and what it returns; what others have left is collected before."""

    def call(*arguments: Any, **more: Any) -> Any:
        gc.collect()
        began = perf_counter()
        result = method(*arguments, **more)
        found.append((perf_counter() - began, result))
        return result

    return call


def digits(*_arguments: Any, **_more: Any) -> tuple[Any, Any]:
    """MNIST as OpenML has it."""
    import numpy as np

    from pdnn import datasets

    folder = mnist_folder()
    parts = [datasets.mnist(folder, train=train) for train in (True, False)]
    x = np.concatenate([np.asarray(part.x).reshape(len(part), -1) for part in parts])
    return x.astype(np.float64), np.concatenate([part.y for part in parts]).astype(str)


def run(path: Path, side: str) -> dict[str, float]:
    """Runs an example in this process: seconds of its calls of `fit`, how many, and its mean score."""
    import matplotlib
    import numpy as np
    import sklearn.datasets

    matplotlib.use("Agg")
    np.random.seed(0)  # which an example leaves to chance
    sklearn.datasets.fetch_openml = digits
    estimator = importlib.import_module(MODULES[side]).MLPClassifier
    fits: list[tuple[float, Any]] = []
    scores: list[tuple[float, Any]] = []
    estimator.fit, estimator.score = noting(estimator.fit, fits), noting(estimator.score, scores)
    source = path.read_text(encoding="utf-8").replace(MODULES["scikit-learn"], MODULES[side])
    with (
        open(os.devnull, "w", encoding="utf-8") as nowhere,
        contextlib.redirect_stdout(nowhere),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        exec(compile(source, path, "exec"), {"__name__": "__main__"})
    return {
        "seconds": sum(seconds for seconds, _ in fits),
        "fits": len(fits),
        "score": mean(score for _, score in scores),
    }


def compare(path: Path, cores: int, rounds: int) -> list[dict[str, Any]]:
    """Rows of the table."""
    runs: dict[str, list[dict[str, float]]] = {side: [] for side in MODULES}
    for _ in range(rounds):
        for side, found in runs.items():
            words = [sys.executable, __file__, "--run", str(path), side]
            with pinned(cores):
                found.append(json.loads(subprocess.run(words, check=True, stdout=subprocess.PIPE).stdout))
    times = {side: median(each["seconds"] for each in found) for side, found in runs.items()}
    return [
        found[-1]
        | {
            "side": side,
            "seconds": times[side],
            "ratio": times[side] / times["pdnn"],
            "runs": [each["seconds"] for each in found],
        }
        for side, found in runs.items()
    ]


def main(arguments: Sequence[str]) -> None:
    """The program; of one run of a side, with --run."""
    if arguments[:1] == ["--run"]:
        print(json.dumps(run(Path(arguments[1]), arguments[2])))
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="with the examples")
    parser.add_argument("--quick", action="store_true", help="1 core, each side once: rough figures")
    parser.add_argument("--blocks", type=measure.count, help="runs of each side (default 5; quick: 1)")
    measure.add_names(parser, "--examples", EXAMPLES)
    parser.add_argument("--json", type=measure.destination, metavar="FILE", help="write everything measured")
    options = parser.parse_args(arguments)
    paths = {name: options.folder / EXAMPLES[name] for name in options.examples}
    for path in paths.values():
        if not path.is_file():
            parser.error(f"no {path}: see --help for where scikit-learn has it")
    if "filters" in paths and not mnist_folder():
        parser.error("filters needs mnist/ in the folder that PDNN_DATA names; --examples leaves it out")
    report = measure.begin()
    for name, path in paths.items():
        for cores in [1] if options.quick or len(os.sched_getaffinity(0)) == 1 else [1, 2]:
            rows = compare(path, cores, options.blocks or (1 if options.quick else 5))
            report["results"].append({"example": name, "cores": cores, "sides": rows})
            print(f"\n{path.name}, {cores} core{'s'[: cores > 1]}")
            print(f"{'':14} {'fits':>5} {'seconds':>8} {'× pdnn':>7} {'score':>7}")
            for row in rows:
                numbers = f"{row['fits']:5} {row['seconds']:8.2f} {row['ratio']:7.2f} {row['score']:7.4f}"
                print(f"{row['side']:14} {numbers}", flush=True)
    measure.write(report, options.json)


if __name__ == "__main__":
    main(sys.argv[1:])
