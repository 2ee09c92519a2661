"""What scikit-learn shows of its perceptrons, by pdnn's: solvers, regularization, first weights.

    python examples/sklearn_mlp.py                       # a table a part
    python examples/sklearn_mlp.py --library sklearn     # the same by scikit-learn: one import differs
    python examples/sklearn_mlp.py --parts weights --out pictures

* learning: how far stochastic solvers, with and without momentum and schedules, get in some epochs.
* alpha: a small and a large L2 penalty on two half circles; accuracy on rows trained on and held out, and the
  size of the weights.
* weights: a network on handwritten digits (MNIST if PDNN_DATA is set, else those that are part of pdnn); the
  weights of its first units as pictures.
"""

from __future__ import annotations

import argparse
import importlib
import os
import warnings
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import pdnn
from pdnn.cli.values import can_draw
from pdnn.drawing import new_figure

SGD = {"solver": "sgd", "learning_rate_init": 0.2}
SOLVERS: dict[str, dict[str, Any]] = {
    "sgd": SGD | {"momentum": 0},
    "sgd, momentum": SGD | {"nesterovs_momentum": False},
    "sgd, Nesterov": SGD,
    "sgd, invscaling": SGD | {"momentum": 0, "learning_rate": "invscaling"},
    "sgd, invscaling, Nesterov": SGD | {"learning_rate": "invscaling"},
    "adam": {"solver": "adam", "learning_rate_init": 0.01},
}


def learning(MLPClassifier: Any, fast: bool, out: Path | None) -> None:
    """A row a solver: loss and training accuracy on four tables."""
    circles = datasets.make_circles(noise=0.2, factor=0.5, random_state=1)
    tables = {
        "iris": datasets.load_iris(return_X_y=True),
        "digits": datasets.load_digits(return_X_y=True),
        "circles": circles,
        "moons": datasets.make_moons(noise=0.3, random_state=0),
    }
    epochs = 5 if fast else 100
    figure = new_figure("sklearn_mlp", figsize=(10, 8))
    print(f"{'':26}" + "".join(f"{name:>18}" for name in tables) + f"   loss and accuracy, {epochs} epochs")
    axes = dict(zip(tables, figure.subplots(2, 2).flat, strict=True))
    for solver, settings in SOLVERS.items():
        words = f"{solver:26}"
        for name, (x, y) in tables.items():
            x = MinMaxScaler().fit_transform(x)
            model = MLPClassifier(**settings, random_state=0, max_iter=epochs).fit(x, y)
            words += f"{model.loss_:10.3f}{model.score(x, y):8.2f}"
            axes[name].plot(model.loss_curve_, label=solver)
            axes[name].set_title(name)
        print(words, flush=True)
    axes["iris"].legend()
    save(figure, out, "learning")


def alpha(MLPClassifier: Any, fast: bool, out: Path | None) -> None:
    """A row a penalty."""
    x, y = datasets.make_moons(400, noise=0.3, random_state=0)
    x, x_test, y, y_test = train_test_split(x, y, test_size=0.5, random_state=0)
    grid = np.stack(np.meshgrid(np.linspace(-2, 3, 100), np.linspace(-1.5, 2, 100)), axis=-1).reshape(-1, 2)
    penalties = [0.1, 10.0] if fast else [0.01, 0.1, 1.0, 10.0]
    figure = new_figure("sklearn_mlp", figsize=(3 * len(penalties), 3))
    print(f"{'alpha':>8}{'trained':>10}{'held out':>10}{'Σ w²':>10}")
    for axes, penalty in zip(figure.subplots(1, len(penalties)), penalties, strict=True):
        steps = 100 if fast else 2000
        network = MLPClassifier((100, 100), solver="lbfgs", alpha=penalty, max_iter=steps, random_state=1)
        model = make_pipeline(StandardScaler(), network).fit(x, y)
        size = sum(float((coef**2).sum()) for coef in network.coefs_)
        print(
            f"{penalty:8g}{model.score(x, y):10.3f}{model.score(x_test, y_test):10.3f}{size:10.1f}",
            flush=True,
        )
        chances = model.predict_proba(grid)[:, 1].reshape(100, 100)
        axes.imshow(chances, extent=(-2, 3, -1.5, 2), origin="lower", cmap="RdBu")
        axes.scatter(*x_test.T, c=y_test, cmap="RdBu", edgecolors="black", s=10)
        axes.set_title(f"alpha = {penalty:g}")
    save(figure, out, "alpha")


def weights(MLPClassifier: Any, fast: bool, out: Path | None) -> None:
    """Accuracies after each few epochs; pictures of what each of 16 units looks for."""
    found = "PDNN_DATA" in os.environ
    train, test = pdnn.datasets.mnist() if found else pdnn.datasets.mnist_mini()
    if fast:
        train, test = train[:1000], test[:500]
    (x, y), (x_test, y_test) = train.gather(), test.gather()
    model = MLPClassifier(
        (40,), solver="sgd", learning_rate_init=0.2, max_iter=8, random_state=1, verbose=True
    )
    began = perf_counter()
    model.fit(x, y)
    scores = f"{model.score(x, y):.4f} on rows trained on, {model.score(x_test, y_test):.4f} on others"
    print(f"{perf_counter() - began:.2f} s; accuracy {scores}")
    figure = new_figure("sklearn_mlp", figsize=(6, 6))
    first, bound = model.coefs_[0], np.abs(model.coefs_[0]).max()
    for axes, unit in zip(figure.subplots(4, 4).flat, first.T, strict=False):
        axes.matshow(unit.reshape(28, 28), cmap="gray", vmin=-bound / 2, vmax=bound / 2)
        axes.set_axis_off()
    save(figure, out, "weights")


def save(figure: Any, out: Path | None, name: str) -> None:
    """Writes a picture if there is a folder for it."""
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        figure.savefig(out / f"{name}.png")


PARTS = {"learning": learning, "alpha": alpha, "weights": weights}
LIBRARIES = {"pdnn": "pdnn.sklearn", "sklearn": "sklearn.neural_network"}


def main() -> None:
    """The program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", choices=LIBRARIES, default="pdnn", help="default: %(default)s")
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--fast", action="store_true", help="few epochs and rows")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="for pictures")
    options = parser.parse_args()
    if unknown := set(options.parts.split(",")) - set(PARTS):
        parser.error(f"unknown part {sorted(unknown)[0]!r}; expected some of {', '.join(PARTS)}")
    can_draw(parser)
    warnings.simplefilter("ignore", ConvergenceWarning)
    classifier = importlib.import_module(LIBRARIES[options.library]).MLPClassifier
    for part in options.parts.split(","):
        print(f"--- {part}")
        PARTS[part](classifier, options.fast, options.out)


if __name__ == "__main__":
    main()
