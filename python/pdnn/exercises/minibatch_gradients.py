"""Functions of the thread-pool exercise (workload W0): its network and gradients over the caller's arrays.

The network is h = sigmoid(x W1 + b1), s = softmax(h W2 + b2). Arrays are read where they are, without a copy.
Products are made by pdnn's kernels on the calling thread, without the GIL, so threads compute at the same
time. The exercise's own names are aliases.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from pdnn.core import core_for
from pdnn.exercises.batches import legacy_batches

if TYPE_CHECKING:
    from pdnn.nn.module import Array

    Arrays: TypeAlias = tuple[Array, Array, Array, Array, Array, Array]
    Gradients: TypeAlias = tuple[Array, Array, Array, Array]

ALPHA_1, ALPHA_2 = 1e-2, 1e-5


def convert_to_one_hot(y: npt.ArrayLike, n_classes: int) -> npt.NDArray[np.float64]:
    """Class numbers, shape (n,), as rows with a one in that place, shape (n, n_classes).

    Raises
    ------
    ValueError
        If they are no (n,), or one is below 0, or n_classes or more.
    """
    numbers = np.asarray(y).astype(np.int64)
    if numbers.ndim != 1:
        raise ValueError(f"convert_to_one_hot: y has shape {numbers.shape}, expected (n,); pass y.ravel()")
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < n_classes:
        raise ValueError(
            f"convert_to_one_hot: classes are {numbers.min()} … {numbers.max()}, expected 0 … {n_classes - 1}"
        )
    return np.eye(n_classes)[numbers]


def sigmoid(a: Array) -> Array:
    """1 / (1 + exp(-a)), which is (1 + tanh(a / 2)) / 2 and so never overflows."""
    y: Array = np.tanh(a / 2)
    y += 1
    y /= 2
    return y


def softmax(a: Array) -> Array:
    """exp(a) of each row, divided by its sum; the largest element is subtracted first."""
    y: Array = np.exp(a - a.max(axis=1, keepdims=True))
    y /= y.sum(axis=1, keepdims=True)
    return y


def cost(
    t: Array, s: Array, w1: Array, w2: Array, alpha_1: float = ALPHA_1, alpha_2: float = ALPHA_2
) -> float:
    """Cross-entropy of outputs `s` for targets `t`, mean over the rows, and ½ α₁ Σ W1² + ½ α₂ Σ W2².

    A probability of zero counts as the smallest positive number, so the cost is finite.

    Raises
    ------
    ValueError
        If targets and outputs differ in shape.
    """
    _one_hot("cost", t, s)
    log_s = np.log(np.maximum(s, np.finfo(s.dtype).tiny))
    return float(-np.vdot(t, log_s) / len(t) + alpha_1 / 2 * np.vdot(w1, w1) + alpha_2 / 2 * np.vdot(w2, w2))


def feedforward(x: Array, w1: Array, w2: Array, b1: Array, b2: Array) -> tuple[Array, Array]:
    """The network's outputs and hidden values.

    Parameters
    ----------
    x : ndarray, shape (m, inputs)
    w1, w2 : ndarray, shapes (inputs, hidden) and (hidden, outputs)
    b1, b2 : ndarray, shapes (1, hidden) and (1, outputs), or without the first axis

    Returns
    -------
    s, h : ndarray, shapes (m, outputs) and (m, hidden)

    Raises
    ------
    TypeError
        If an array of a product is neither float32 nor float64, or they differ.
    ValueError
        If shapes do not fit, or such an array is not C-contiguous.
    """
    for w, b in ((w1, b1), (w2, b2)):
        if b.shape not in ((w.shape[-1],), (1, w.shape[-1])):
            raise ValueError(
                f"feedforward: biases of shape {b.shape} to weights {w.shape}; expected (1, {w.shape[-1]})"
            )
    h = sigmoid(_product(x, w1) + b1)
    return softmax(_product(h, w2) + b2), h


def backpropagate(
    s: Array,
    h: Array,
    x: Array,
    t: Array,
    w1: Array,
    w2: Array,
    alpha_1: float = ALPHA_1,
    alpha_2: float = ALPHA_2,
) -> Gradients:
    """The gradients of `cost` from what `feedforward` returned.

    The exercise's function reads W1 and W2 from globals, which is wrong as soon as workers have weights of
    their own. Here they are arguments.

    Returns
    -------
    tuple of ndarray
        With respect to W1, W2, b1 and b2; those of b1 and b2 have shape (1, ·).

    Raises
    ------
    TypeError
        If the weights are no arrays.
    ValueError
        If targets and outputs differ in shape.
    """
    for name, w in (("w1", w1), ("w2", w2)):
        if not isinstance(w, np.ndarray):
            raise TypeError(
                f"backpropagate: {name} is of type {type(w).__name__}; pass W1 and W2 after t, which the "
                "exercise's function takes from globals"
            )
    _one_hot("backpropagate", t, s)
    dz2 = (s - t) / len(x)
    dz1 = _product(dz2, w2, "b")  # dz2 W2ᵀ
    dz1 *= h * (1 - h)
    dw1, dw2 = _product(x, dz1, "a"), _product(h, dz2, "a")  # xᵀ dz1, hᵀ dz2
    dw1 += alpha_1 * w1
    dw2 += alpha_2 * w2
    return dw1, dw2, dz1.sum(axis=0, keepdims=True), dz2.sum(axis=0, keepdims=True)


@overload
def compute_minibatch_gradients(arrays: Arrays, /) -> Gradients: ...
@overload
def compute_minibatch_gradients(
    w1: Array, w2: Array, b1: Array, b2: Array, x: Array, t: Array, /
) -> Gradients: ...
def compute_minibatch_gradients(*arrays: Any) -> Gradients:
    """The gradients of a minibatch, as a task for ``multiprocessing.pool.ThreadPool``.

    Parameters
    ----------
    w1, w2, b1, b2, x, t : ndarray, or one tuple of these
        Parameters, samples (m, inputs) and one-hot targets (m, outputs), as for `feedforward`. They are only
        read, so any number of threads may use the same ones.

    Returns
    -------
    tuple of ndarray
        The gradients of `cost` with respect to W1, W2, b1 and b2, new arrays in their shapes.

    Raises
    ------
    TypeError
        As `feedforward`; or if these are not six arrays.
    ValueError
        As `feedforward`; or if t has another shape than the outputs.

    Examples
    --------
    >>> with ThreadPool(5) as pool:
    ...     gradients = pool.map(compute_minibatch_gradients, [(W1, W2, b1, b2, x, t) for x, t in batches])
    """
    if len(arrays) == 1:
        (arrays,) = arrays
    if len(arrays) != 6 or not all(isinstance(array, np.ndarray) for array in arrays):
        kinds = ", ".join(type(array).__name__ for array in arrays)
        raise TypeError(
            f"compute_minibatch_gradients: got ({kinds}), expected six arrays (W1, W2, b1, b2, x, t)"
        )
    w1, w2, b1, b2, x, t = arrays
    s, h = feedforward(x, w1, w2, b1, b2)
    _one_hot("compute_minibatch_gradients", t, s)
    dw1, dw2, db1, db2 = backpropagate(s, h, x, t, w1, w2)
    return dw1, dw2, db1.reshape(b1.shape), db2.reshape(b2.shape)


def mini_batch(
    x_sample: Array, y_sample: Array, start_batch_size: int = 104
) -> tuple[list[Array], list[Array], int, int]:
    """Shuffled batches, as `legacy_batches` chooses them; the same ones in each call.

    Parameters
    ----------
    x_sample, y_sample : ndarray, shapes (n, inputs) and (n, outputs)
    start_batch_size : int
        The largest *number* of batches, in spite of its name.

    Returns
    -------
    x_batches, y_batches : list of ndarray
        Copies of the rows, 105 in each.
    num_batches, num_batches : int

    Raises
    ------
    ValueError
        If n rows do not make batches of 105, or x and y have different numbers of rows.
    """
    if len(x_sample) != len(y_sample):
        raise ValueError(f"mini_batch: x has {len(x_sample)} rows and y has {len(y_sample)}; pass as many")
    rows = legacy_batches(len(x_sample), count=start_batch_size)
    return [x_sample[some] for some in rows], [y_sample[some] for some in rows], len(rows), len(rows)


L = cost
backpropogate = backpropagate
computeMinibatchGradients = computeMinibatchGradientsTuple = compute_minibatch_gradients


def _one_hot(call: str, t: Array, s: Array) -> None:
    """Raises ValueError unless the targets have the shape of the outputs."""
    if t.shape != s.shape:
        raise ValueError(
            f"{call}: t has shape {t.shape}, expected {s.shape}; class numbers become rows by "
            "convert_to_one_hot(y, n_classes)"
        )


def _product(a: Array, b: Array, transposed: str = "") -> Array:
    """The product a @ b, aᵀ @ b or a @ bᵀ, on the calling thread, without the GIL."""
    if a.dtype != b.dtype or a.dtype.name not in ("float32", "float64"):
        raise TypeError(
            f"product of {a.dtype} {a.shape} and {b.dtype} {b.shape}: expected both float32 or both float64; "
            'convert samples once, before the training, with x.astype("float64")'
        )
    product: Array = core_for(a.dtype.name).matmul(a, b, 1, transposed)
    return product
