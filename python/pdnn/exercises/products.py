"""Matrix products by pdnn's kernels: of one process, and the two ways in which ranks can share one."""

from __future__ import annotations

import numpy as np

from pdnn.checks import integer, unmasked
from pdnn.comm import Communicator, world
from pdnn.comm.agree import HEADER_BYTES, Header, decode, describe, encode
from pdnn.comm.communicator import check_communicator
from pdnn.core import core_for
from pdnn.nn.module import Array


def matmul(a: Array, b: Array, threads: int = 1) -> Array:
    """The product a @ b by pdnn's kernels.

    Parameters
    ----------
    a, b : ndarray, shapes (m, k) and (k, n), both float32 or both float64, C-ordered
    threads : int
        Threads to share the product; they are started for this call.

    Returns
    -------
    ndarray, shape (m, n)

    Raises
    ------
    TypeError
        If one is no array, the dtypes differ or are neither, or `threads` is no integer.
    ValueError
        If the shapes do not fit, an array is not C-contiguous or has masked entries, or there are no threads.
    """
    threads = integer("matmul", "threads", threads, 1)
    for name, array in (("a", a), ("b", b)):
        if not isinstance(array, np.ndarray):
            raise TypeError(f"matmul: {name} is of type {type(array).__name__}; pass a NumPy array")
        unmasked("matmul", name, array)
    if a.dtype != b.dtype or a.dtype.name not in ("float32", "float64"):
        raise TypeError(f"matmul: got {a.dtype} and {b.dtype}, expected both float32 or both float64")
    product: Array = core_for(a.dtype.name).matmul(a, b, threads)
    return product


def matmul_by_rows(
    a: Array | None = None, b: Array | None = None, comm: Communicator | None = None, root: int = 0
) -> Array | None:
    """The product a @ b, each rank making some of its rows.

    The root broadcasts b and scatters the rows of a; every rank multiplies its rows by b; the root gathers
    the rows of the product. This is what the forward pass of data parallel training does, a being the samples
    and b the weights.

    Parameters
    ----------
    a, b : ndarray, shapes (m, k) and (k, n), both float32 or both float64, C-ordered
        At the root; ignored elsewhere. The number of ranks need not divide m: the first m % size ranks get a
        row more, and ranks beyond the m-th none.
    comm : Communicator, optional
        The ranks, all of which call it; `pdnn.world()` unless given.
    root : int
        The rank that has the matrices and gets the product.

    Returns
    -------
    ndarray, shape (m, n), or None
        At the root; None elsewhere. All of b goes to every rank; rows of a and of the product are sent
        once, from and to the root.

    Raises
    ------
    TypeError
        On all ranks, if one of the matrices is no array, or their dtypes differ or are neither.
        On this one, if comm is no Communicator.
    ValueError
        On all ranks, if their shapes do not fit, one is not C-contiguous, or the root is no rank.
    """
    comm = _world_unless(comm)
    _, k, n, dtype = _agree("matmul_by_rows", a, b, comm, root)
    whole = b if comm.rank == root and b is not None else np.empty((k, n), dtype)
    comm.broadcast(whole, root)
    rows = comm.scatter(a if comm.rank == root else None, root)  # (about m / size, k)
    gathered = comm.gather(matmul(rows, whole), root)
    return None if gathered is None else np.concatenate(gathered)


def matmul_by_reduction(
    a: Array | None = None, b: Array | None = None, comm: Communicator | None = None, root: int = 0
) -> Array:
    """The product a @ b as a sum of products, one made by each rank.

    The root scatters the columns of a and the rows of b; every rank multiplies its columns by its rows, which
    gives a matrix of the shape of the product; an all-reduce adds these up. This is what the backward pass of
    data parallel training does to the gradient of a weight, a being the samples transposed and b the gradient
    of the outputs.

    Parameters
    ----------
    a, b : ndarray, shapes (m, k) and (k, n), both float32 or both float64, C-ordered
        At the root; ignored elsewhere. The number of ranks need not divide k: the first k % size ranks get
        one more, and ranks beyond the k-th none.
    comm, root
        As for `matmul_by_rows`.

    Returns
    -------
    ndarray, shape (m, n)
        On every rank. Columns of a and rows of b are sent once, from the root; the all-reduce takes and
        gives the whole of the product. Sums are taken in another order than `matmul`'s.

    Raises
    ------
    TypeError, ValueError
        As for `matmul_by_rows`.
    """
    comm = _world_unless(comm)
    _agree("matmul_by_reduction", a, b, comm, root)
    parts = None
    if comm.rank == root and a is not None:
        parts = [np.ascontiguousarray(part) for part in np.array_split(a, comm.size, axis=1)]
    columns = comm.scatter(parts, root)  # (m, about k / size)
    rows = comm.scatter(b if comm.rank == root else None, root)  # (about k / size, n)
    return comm.all_reduce(matmul(columns, rows))


def _world_unless(comm: Communicator | None) -> Communicator:
    return world() if comm is None else comm


def _agree(
    call: str, a: Array | None, b: Array | None, comm: Communicator, root: int
) -> tuple[int, int, int, str]:
    """The sizes m, k, n of the root's product and its dtype, on all ranks; so is what is wrong with it."""
    check_communicator(call, comm)
    data = np.zeros(HEADER_BYTES, np.uint8)
    if comm.rank == root:
        data[:] = encode(_describe(call, a, b))
    comm.broadcast(data, root)
    header = decode(data)
    if header.problem:
        raise header.error(f"rank {root} passed {header.problem}")
    m, k, n = header.shape
    return m, k, n, header.dtype


def _describe(call: str, a: object, b: object) -> Header:
    """The message of the root: a type and the shape (m, k, n), or what is wrong with its matrices."""
    x, y = describe(call, a), describe(call, b)
    for name, told in (("a", x), ("b", y)):
        if told.problem:
            return told._replace(problem=f"{told.problem} as {name}")
    if x.dtype != y.dtype or x.dtype not in ("float32", "float64"):
        problem, advice = f"matrices of {x.dtype} and {y.dtype}", "pass both as float32 or both as float64"
        return Header(call, problem=problem, advice=advice, mistype=True)
    if len(x.shape) != 2 or len(y.shape) != 2 or x.shape[1] != y.shape[0]:
        problem = f"matrices of shapes {x.shape} and {y.shape}"
        return Header(call, problem=problem, advice="pass shapes (m, k) and (k, n)")
    return Header(call, x.dtype, (*x.shape, y.shape[1]))
