"""Understanding data parallelism, its collectives: one matrix product shared between ranks, in two ways.

    mpiexec -n 2 python examples/matmul_collectives.py                # 1024 × 1024 × 1024, 1000 × 37 × 501
    mpiexec -n 3 python examples/matmul_collectives.py --size 8 5 3   # (8, 5) @ (5, 3)

*By rows*: rank 0 broadcasts B and scatters the rows of A; each rank multiplies; the rows of the product are
gathered. *By reduction*: rank 0 scatters the columns of A and the rows of B; each rank multiplies, and an
all-reduce adds the products up. Both are compared with the direct product on rank 0.

The two are what data parallel training is made of. With samples X, outputs Y = X W and the gradient dY of the
outputs, forward is the product by rows of X and W, and the gradient of the weights, Xᵀ dY, is the product by
reduction: its "columns of A" are the ranks' own samples, and its all-reduce is that of the gradients.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import pdnn
from pdnn import nn
from pdnn.comm import Communicator
from pdnn.exercises import matmul, matmul_by_reduction, matmul_by_rows

Array = npt.NDArray[Any]

SIZES = [(1024, 1024, 1024), (1000, 37, 501)]


def greet(comm: Communicator) -> str:
    """A rank's number, and the one that it is told by rank 0."""
    (told,) = comm.scatter(np.arange(comm.size) if comm.rank == 0 else None)
    return f"My rank is {comm.rank}, same as {told}"


def bytes_to_others(m: int, k: int, n: int, ranks: int, itemsize: int) -> dict[str, int]:
    """What has to arrive on ranks, all of them together, for rank 0 to have shared a product."""
    own_rows, own_depth = -(-m // ranks), -(-k // ranks)  # rank 0's, which do not travel
    rows = (ranks - 1) * k * n + (m - own_rows) * (k + n)
    reduction = (k - own_depth) * (m + n) + 2 * (ranks - 1) * m * n
    return {"by rows": itemsize * rows, "by reduction": itemsize * reduction}


def timed(
    comm: Communicator, product: Callable[[], Array | None], repeats: int
) -> tuple[Array | None, float]:
    """A product and the seconds of the fastest repeat, from when all ranks begin until all have ended."""
    best = float("inf")
    for _ in range(repeats):
        comm.barrier()
        began = time.perf_counter()
        result = product()
        comm.barrier()
        best = min(best, time.perf_counter() - began)
    return result, best


def compare(comm: Communicator, m: int, k: int, n: int, dtype: str, repeats: int = 3) -> list[str]:
    """Both products beside the direct one: lines to read, on rank 0.

    Raises
    ------
    ArithmeticError
        If one is wrong, on every rank.
    """
    rng = np.random.default_rng(0)
    a = b = None
    if comm.rank == 0:
        a, b = (rng.normal(size=shape).astype(dtype) for shape in ((m, k), (k, n)))
    ways = {
        "by rows": timed(comm, lambda: matmul_by_rows(a, b, comm), repeats),
        "by reduction": timed(comm, lambda: matmul_by_reduction(a, b, comm), repeats),
    }
    lines, off = [], np.zeros(1)
    if a is not None and b is not None:
        began = time.perf_counter()
        direct = matmul(a, b)
        milliseconds = 1e3 * (time.perf_counter() - began)
        lines = [f"({m}, {k}) @ ({k}, {n}) {dtype}: direct on one rank {milliseconds:.1f} ms"]
        traveling = bytes_to_others(m, k, n, comm.size, direct.itemsize)
        for name, (product, seconds) in ways.items():
            wrong = float(np.abs(product - direct).max(initial=0) / max(1, np.abs(direct).max(initial=0)))
            off[0] = max(off[0], wrong)
            sent = f"{traveling[name]:,} bytes to other ranks"
            lines.append(f"  {name:>12}: {1e3 * seconds:.1f} ms, {sent}, differs by {wrong:.1e}")
    comm.broadcast(off)
    if not off[0] <= k * np.finfo(dtype).eps:
        raise ArithmeticError(f"({m}, {k}) @ ({k}, {n}): a product is off by {off[0]:.1e}")
    return lines


def data_parallel_is_both(comm: Communicator) -> tuple[float, float]:
    """How far one layer's passes on ranks are from these products: (forward, backward), on every rank."""
    rng = np.random.default_rng(1)  # the same numbers on every rank
    x, dy = rng.normal(size=(50, 30)), rng.normal(size=(50, 20))
    layer = nn.Sequential(nn.Linear(30, 20, bias=False), dtype="float64", seed=0)
    (weight,) = layer.parameters()
    weight.register_hook(lambda grad: comm.all_reduce(grad, op="sum"))
    mine = np.array_split(np.arange(50), comm.size)[comm.rank]
    y = layer(x[mine])
    (y * dy[mine]).sum().backward()  # whose gradient with respect to y is dy

    by_rows = matmul_by_rows(x, weight.data, comm)  # on rank 0
    gathered = comm.gather(np.ascontiguousarray(y.data))
    forward = np.zeros(1)
    if by_rows is not None and gathered is not None:
        forward[0] = np.abs(np.concatenate(gathered) - by_rows).max()
    comm.broadcast(forward)
    by_reduction = matmul_by_reduction(np.ascontiguousarray(x.T), dy, comm)
    backward = comm.all_reduce(np.abs(weight.grad - by_reduction).max(keepdims=True), op="max")
    return float(forward[0]), float(backward.item())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--size",
        type=int,
        nargs=3,
        action="append",
        metavar=("M", "K", "N"),
        help="of A (M, K) and B (K, N); may be given several times (1024 1024 1024 and 1000 37 501)",
    )
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    args = parser.parse_args()
    if args.size and min(min(size) for size in args.size) < 0:
        parser.error("sizes are 0 or more")

    comm = pdnn.world()
    print(greet(comm), flush=True)
    for m, k, n in args.size or SIZES:
        lines = compare(comm, m, k, n, args.dtype)
        if lines:
            print("\n".join(lines), flush=True)
    forward, backward = data_parallel_is_both(comm)
    if comm.rank == 0:
        print(f"data parallel forward  - product by rows:      {forward:.1e}")
        print(f"data parallel backward - product by reduction: {backward:.1e}", flush=True)
    if max(forward, backward) > 1e-12:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
