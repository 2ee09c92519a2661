"""The same training step, written for pdnn and for each of its peers: a block is one pass over some batches.

Every side starts from the same parameters, takes the same batches in the same order, and returns the mean
loss of the block's rows, so that a comparison can tell that all did the same work. Peers get contiguous
batches of the right type. pdnn gets the data set and cuts the batches itself; `shuffled` has it gather them
row by row.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import eigen
import measure
from workers import Runner, installed_version

Array = npt.NDArray[Any]

LEARNING_RATE = 0.01

OLD_JAX = Path(__file__).parents[1] / "build" / "jax-0.4.31" / "bin" / "python"
"""The interpreter of an environment with the last JAX of the former CPU runtime, faster on small work."""

HERE: dict[str, Callable[[], object]] = {
    "numpy": partial(installed_version, "numpy"),
    "eigen": eigen.is_here,
    "jax": partial(installed_version, "jax"),
    "jax-0.4.31": OLD_JAX.exists,
    "torch": partial(installed_version, "torch"),
    "sklearn": partial(installed_version, "scikit-learn"),
}
"""Peers by the name that `--peers` takes, and whether each is installed; what Eigen lacks is printed."""


def add_peers(parser: ArgumentParser, default: str = "", known: Iterable[str] = HERE) -> None:
    """Adds ``--peers``: some of the known ones, or none; all of them by default."""
    known = list(known)
    what = "which ones, of those installed, or none"
    measure.add_names(parser, "--peers", [*known, "none"], default or ",".join(known), what)


def found(wanted: Collection[str]) -> list[str]:
    """Those of the wanted peers that can run here."""
    return [peer for peer in wanted if peer != "none" and HERE[peer]()]


@dataclass(frozen=True)
class Network:
    """A multilayer perceptron with softmax cross-entropy, and batches for it.

    Parameters
    ----------
    name : str
    sizes : tuple of int
    activation : "sigmoid" or "tanh"
    bias : bool
    batch : int
    dtype : "float32" or "float64"
    steps : int
        Batches in a block.
    """

    name: str
    sizes: tuple[int, ...]
    activation: str
    bias: bool
    batch: int
    dtype: str = "float32"
    steps: int = 20

    @property
    def flop(self) -> int:
        """Floating-point operations of a step's products: y, dw, and dx but for the first layer's."""
        products = [a * b for a, b in zip(self.sizes[:-1], self.sizes[1:], strict=True)]
        return 2 * self.batch * (2 * products[0] + 3 * sum(products[1:]))

    def data(self) -> tuple[Array, Array]:
        """Samples (steps · batch, inputs) and classes (steps · batch,), int64."""
        rng = np.random.default_rng(1)
        rows = self.steps * self.batch
        x = rng.standard_normal((rows, self.sizes[0]), dtype=np.float32).astype(self.dtype)
        return x, rng.integers(0, self.sizes[-1], rows)

    def parameters(self) -> list[tuple[Array, Array | None]]:
        """Each layer's w (inputs, outputs) and b (outputs,)."""
        rng = np.random.default_rng(2)
        layers: list[tuple[Array, Array | None]] = []
        for inputs, outputs in zip(self.sizes[:-1], self.sizes[1:], strict=True):
            w = rng.uniform(-1, 1, (inputs, outputs)) / np.sqrt(inputs)
            layers.append((w.astype(self.dtype), np.zeros(outputs, self.dtype) if self.bias else None))
        return layers

    def batches(self) -> list[tuple[Array, Array]]:
        """The data cut into batches: views."""
        x, y = self.data()
        cuts = range(self.batch, len(x), self.batch)
        return list(zip(np.split(x, cuts), np.split(y, cuts), strict=True))


class Stepped(Protocol):
    """What has so many steps to a block."""

    @property
    def steps(self) -> int: ...


def timed(network: Stepped, block: Callable[[], float]) -> Runner:
    """A runner that takes the time of a block from outside."""

    def run() -> tuple[float, float]:
        start = perf_counter()
        loss = block()
        return (perf_counter() - start) / network.steps, loss

    return run


def floor(network: Any, cores: int) -> Runner:
    """What the step's products would take at the peak of fused multiply-adds that pdnn measures on a core."""
    from pdnn import _core

    core = _core.float32 if network.dtype == "float32" else _core.float64
    return lambda: (network.flop / (cores * core.measure_peak(0.01)), np.nan)


def make_trainer(network: Network, strategy: Any, comm: Any = None, dtype: str = "") -> tuple[Any, Any]:
    """A Trainer of pdnn's, and its data set in memory; `dtype`: the model's, if not the data's."""
    import pdnn

    dtype = dtype or network.dtype
    model = pdnn.models.mlp(network.sizes, network.activation, bias=network.bias, dtype=dtype, seed=0)
    values = [value for layer in network.parameters() for value in layer if value is not None]
    for parameter, value in zip(model.parameters(), values, strict=True):
        parameter.data = value
    optimizer = pdnn.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    trainer = pdnn.Trainer(model, pdnn.nn.CrossEntropyLoss(), optimizer, strategy=strategy, comm=comm)
    return trainer, pdnn.data.Dataset(*network.data())


def pdnn_trainer(
    network: Network,
    strategy: Any,
    shuffled: bool,
    evaluated: bool = False,
    comm: Any = None,
    dtype: str = "",
) -> Runner:
    """`Trainer.fit` on arrays in memory; its own seconds of the epoch, divided by the steps.

    `evaluated`: and the loss of all rows after the epoch, timed from outside.
    """
    trainer, data = make_trainer(network, strategy, comm, dtype)
    run = fitted(trainer, data, network.batch, shuffled)

    def run_and_evaluate() -> float:
        run()
        return float(trainer.evaluate(data)["loss"])

    return timed(network, run_and_evaluate) if evaluated else run


def fitted(
    trainer: Any, data: Any, batch: int, shuffled: bool = False
) -> Callable[[], tuple[float, float, dict[str, float]]]:
    """An epoch of `Trainer.fit`: its own seconds and those of its phases, divided by the steps."""
    steps = -(-len(data) // batch)

    def run() -> tuple[float, float, dict[str, float]]:
        history = trainer.fit(data, batch_size=batch, shuffle=shuffled, verbose=False)
        phases = {name: seconds / steps for name, seconds in history.phases[-1].items()}
        return history.history["seconds"][-1] / steps, history.history["loss"][-1], phases

    return run


def numpy_step(network: Network, evaluated: bool = False) -> Runner:
    """Products by BLAS, everything else in place: no step allocates an array as large as a layer.

    `evaluated`: and the loss of all rows after the pass.
    """
    layers, batches = network.parameters(), network.batches()
    rows = np.arange(network.batch)
    outputs = [np.empty((network.batch, width), network.dtype) for width in network.sizes[1:]]
    slopes = [np.empty_like(y) for y in outputs]
    deltas = [np.empty_like(y) for y in outputs]
    gradients = [np.empty_like(w) for w, _ in layers]

    def forward(x: Array) -> None:
        for number, ((w, b), y) in enumerate(zip(layers, outputs, strict=True)):
            np.matmul(x if number == 0 else outputs[number - 1], w, out=y)
            if b is not None:
                y += b
            if number + 1 == len(layers):
                return
            if network.activation == "tanh":
                np.tanh(y, out=y)
            else:
                np.negative(y, out=y)
                np.exp(y, out=y)
                y += 1
                np.reciprocal(y, out=y)

    def cross_entropy(classes: Array) -> float:
        """The mean loss of the batch; its gradient, times the learning rate, goes into the last delta."""
        y, dy = outputs[-1], deltas[-1]
        y -= y.max(axis=1, keepdims=True)
        np.exp(y, out=dy)
        sums = dy.sum(axis=1, keepdims=True)
        loss = float((np.log(sums[:, 0]) - y[rows, classes]).mean())
        dy /= sums
        dy[rows, classes] -= 1
        dy *= LEARNING_RATE / network.batch
        return loss

    def backward(x: Array) -> None:
        for number in reversed(range(len(layers))):
            (w, b), delta, dw = layers[number], deltas[number], gradients[number]
            if number > 0:
                y, below, slope = outputs[number - 1], deltas[number - 1], slopes[number - 1]
                np.matmul(delta, w.T, out=below)
                if network.activation == "tanh":
                    np.multiply(y, y, out=slope)
                    np.subtract(1, slope, out=slope)
                else:
                    np.subtract(1, y, out=slope)
                    slope *= y
                below *= slope
            np.matmul((x if number == 0 else outputs[number - 1]).T, delta, out=dw)
            w -= dw
            if b is not None:
                b -= delta.sum(axis=0)

    def block() -> float:
        loss = 0.0
        for x, classes in batches:
            forward(x)
            loss += cross_entropy(classes)
            backward(x)
        if not evaluated:
            return loss / network.steps
        loss = 0.0
        for x, classes in batches:
            forward(x)
            loss += cross_entropy(classes)
        return loss / network.steps

    return timed(network, block)


def eigen_steps(network: Network) -> Runner:
    """Eigen: the whole block is one call of compiled code, which allocates its arrays once."""
    data = network.data()
    block = eigen.train(network.parameters(), network.activation, network.batch, *data, LEARNING_RATE)
    return timed(network, block)


def sklearn_mlp(network: Network) -> Runner:
    """scikit-learn's MLPClassifier.partial_fit, a pass over the batches in order; always with biases."""
    from sklearn.neural_network import MLPClassifier

    classifier = MLPClassifier(
        network.sizes[1:-1],
        activation={"sigmoid": "logistic", "tanh": "tanh"}[network.activation],
        solver="sgd",
        alpha=0,
        batch_size=network.batch,
        learning_rate_init=LEARNING_RATE,
        momentum=0,
        shuffle=False,
    )
    x, y = network.data()
    classifier.partial_fit(x[: network.batch], y[: network.batch], classes=np.arange(network.sizes[-1]))
    for number, (w, _) in enumerate(network.parameters()):
        classifier.coefs_[number][...] = w
        classifier.intercepts_[number][...] = 0

    def block() -> float:
        classifier.partial_fit(x, y)
        return float(classifier.loss_)

    return timed(network, block)


def jax_scan(network: Network) -> Runner:
    """JAX: the whole block is one compiled loop."""
    import jax
    from jax import numpy as jnp

    jax.config.update("jax_enable_x64", network.dtype == "float64")
    activation = jnp.tanh if network.activation == "tanh" else jax.nn.sigmoid
    x, y = network.data()
    xs = jnp.asarray(x.reshape(network.steps, network.batch, -1))
    ys = jnp.asarray(y.reshape(network.steps, network.batch))

    def mean_loss(layers: Any, x: Any, y: Any) -> Any:
        for number, (w, b) in enumerate(layers):
            x = x @ w if b is None else x @ w + b
            x = activation(x) if number + 1 < len(layers) else x
        return -jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], axis=1).mean()

    def step(layers: Any, batch: Any) -> Any:
        loss, gradients = jax.value_and_grad(mean_loss)(layers, *batch)
        return jax.tree.map(lambda p, g: p - LEARNING_RATE * g, layers, gradients), loss

    epoch = jax.jit(lambda layers, xs, ys: jax.lax.scan(step, layers, (xs, ys)), donate_argnums=0)
    state = jax.tree.map(jnp.asarray, network.parameters())

    def block() -> float:
        nonlocal state
        state, losses = epoch(state, xs, ys)
        return float(losses.mean())

    return timed(network, block)
