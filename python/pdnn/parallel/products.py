"""Matrix products by pdnn's kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pdnn.nn.targets import core_for

if TYPE_CHECKING:
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
        If the dtypes differ or are neither.
    ValueError
        If the shapes do not fit or an array is not C-contiguous.
    """
    if a.dtype != b.dtype or a.dtype.name not in ("float32", "float64"):
        raise TypeError(f"matmul: got {a.dtype} and {b.dtype}, expected both float32 or both float64")
    product: Array = core_for(a.dtype.name).matmul(a, b, threads)
    return product
