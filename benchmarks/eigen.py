"""Eigen as a peer: eigen.cpp, compiled when it is first needed, for this machine's processor.

pdnn does not use Eigen. Its headers come from ``pip install cmeel-eigen``; the compiler is ``$CXX``, else
``c++``. Compiling takes some ten seconds for each number type. The result is kept in build/eigen of the
repository, under a name that depends on the source, the compiler, Eigen and the processor. It uses one
thread, or as many as ``OMP_NUM_THREADS`` says.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SOURCE = Path(__file__).with_suffix(".cpp")
BUILD = SOURCE.parents[1] / "build" / "eigen"
FLAGS = ("-std=c++17", "-O2", "-march=native", "-fopenmp", "-DNDEBUG", "-shared", "-fPIC")
ELEMENTS = {"float32": "float", "float64": "double"}


class MissingError(RuntimeError):
    """This machine has no compiler or no headers of Eigen."""


def command() -> list[str]:
    """The compiler and its options, without the number type.

    Raises
    ------
    MissingError
        If there is no compiler, or cmeel-eigen is not installed.
    """
    compiler = shlex.split(os.environ.get("CXX", "c++"))  # perhaps with ccache before it
    if shutil.which(compiler[0]) is None:
        raise MissingError(f"Eigen: no C++ compiler {compiler[0]} on the PATH; set CXX")
    try:
        headers = distribution("cmeel-eigen").locate_file("cmeel.prefix/include/eigen3")
    except PackageNotFoundError:
        raise MissingError("Eigen: its headers are missing; pip install cmeel-eigen") from None
    return [*compiler, *FLAGS, "-isystem", str(headers)]


def is_here() -> bool:
    """Whether it can run on this machine; if not, what is missing is printed."""
    try:
        command()
    except MissingError as missing:
        print(f"{missing}. It is left out")
        return False
    return True


@cache
def library(dtype: str) -> ctypes.CDLL:
    """The functions of eigen.cpp, for float32 or float64; compiled if that has not been done here.

    Processes that need it at the same time wait for the first.

    Raises
    ------
    MissingError
        As `command`.
    RuntimeError
        If it does not compile; with the compiler's message.
    """
    words = [*command(), f"-DELEMENT={ELEMENTS[dtype]}", str(SOURCE)]
    file = BUILD / f"{dtype}-{fingerprint(words)}.so"
    BUILD.mkdir(parents=True, exist_ok=True)
    with open(BUILD / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            unfinished = file.with_suffix(".tmp")
            done = subprocess.run([*words, "-o", unfinished], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(f"{' '.join(words)} failed:\n{done.stderr[-2000:]}")
            unfinished.rename(file)
    loaded = ctypes.CDLL(str(file))
    size, place = ctypes.c_ssize_t, ctypes.c_void_p
    loaded.product.argtypes = [ctypes.c_char, size, size, size, place, place, place]
    loaded.product.restype = None
    loaded.train.argtypes = [
        size,
        place,
        ctypes.c_bool,
        place,
        place,
        size,
        size,
        place,
        place,
        ctypes.c_double,
    ]
    loaded.train.restype = ctypes.c_double
    loaded.set_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    return loaded


def fingerprint(words: list[str]) -> str:
    """Sixteen digits that another source, compiler, Eigen or processor changes."""
    version = subprocess.run([words[0], "--version"], capture_output=True, text=True, check=True).stdout
    processor = {line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")}
    text = repr((words, version, distribution("cmeel-eigen").version, SOURCE.read_text(), sorted(processor)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def product_into(out: Array, a: Array, b: Array, transposed: str = "") -> Callable[[], Array]:
    """A function that computes a b into `out` and returns it.

    Parameters
    ----------
    out : ndarray, shape (m, n)
    a, b : ndarray, shapes (m, k) and (k, n)
        C-ordered and of one type, as `out`.
    transposed : "a" or "b", optional
        That one is given as its transpose.

    Raises
    ------
    ValueError
        If the shapes do not fit, the types differ, or one is not C-ordered.
    """
    left, right = a.T if transposed == "a" else a, b.T if transposed == "b" else b
    fits = left.shape[1] == right.shape[0] and out.shape == (left.shape[0], right.shape[1])
    ordered = all(array.flags.c_contiguous for array in (a, b, out))
    if not (fits and ordered and a.dtype == b.dtype == out.dtype):
        shapes = " and ".join(f"{m.dtype} {m.shape}" for m in (a, b, out))
        raise ValueError(
            f"Eigen: {shapes}, expected C-ordered matrices of one type, (m, k), (k, n) and (m, n)"
        )
    product = library(out.dtype.name).product
    (m, k), n, which = left.shape, right.shape[1], (transposed or " ").encode()

    def run() -> Array:
        product(which, m, k, n, a.ctypes.data, b.ctypes.data, out.ctypes.data)
        return out

    return run


def matmul(a: Array, b: Array) -> Array:
    """The product a b; matrices that are not C-ordered are copied."""
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return product_into(np.empty((a.shape[0], b.shape[1]), a.dtype), a, b)()


def train(
    layers: Sequence[tuple[Array, Array | None]],
    activation: str,
    batch: int,
    x: Array,
    classes: Array,
    learning_rate: float,
) -> Callable[[], float]:
    """A function that makes a step for each batch and returns their mean loss, softmax cross-entropy.

    Parameters
    ----------
    layers : sequence of (w, b)
        w (inputs, outputs), and b (outputs,) in all of them or none; the function changes them.
    activation : "sigmoid" or "tanh"
        Between layers.
    x, classes : ndarray, shapes (rows, inputs) and (rows,) of int64
        Of which the first `batch` rows are the first batch; `batch` divides rows.
    """
    step = library(x.dtype.name).train
    sizes = np.array([x.shape[1], *(w.shape[1] for w, _ in layers)])
    weights = np.array([w.ctypes.data for w, _ in layers])
    biases = np.array([b.ctypes.data for _, b in layers if b is not None])

    def run() -> float:
        loss: float = step(
            len(layers),
            sizes.ctypes.data,
            activation == "tanh",
            weights.ctypes.data,
            biases.ctypes.data if len(biases) else None,
            len(x) // batch,
            batch,
            x.ctypes.data,
            classes.ctypes.data,
            learning_rate,
        )
        return loss

    return run
