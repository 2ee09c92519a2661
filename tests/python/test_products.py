"""Products shared between ranks: equal to NumPy's for any sizes and ranks; mistakes reach every rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pdnn
from pdnn import nn
from pdnn.comm import SELF, Communicator, run_threads
from pdnn.exercises import matmul, matmul_by_reduction, matmul_by_rows

Array = np.ndarray[Any, np.dtype[Any]]


def on_ranks(ranks: int, job: Callable[[Communicator], Any]) -> list[Any]:
    return run_threads(lambda: job(pdnn.world()), ranks)


def at_root(comm: Communicator, root: int, *matrices: Any) -> tuple[Any, ...]:
    return matrices if comm.rank == root else tuple(None for _ in matrices)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_both_equal_the_direct_product(ranks: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    tolerance = 1e-4 if dtype == "float32" else 1e-12
    for m, k, n in [(1000, 37, 501), (5, 2, 3), (2, 5, 1), (1, 1, 1), (3, 0, 2), (0, 4, 2), (4, 3, 0)]:
        a, b = (rng.normal(size=shape).astype(dtype) for shape in ((m, k), (k, n)))
        root = m % ranks
        for rank, (by_rows, by_reduction) in enumerate(
            on_ranks(
                ranks,
                lambda comm, a=a, b=b, root=root: (
                    matmul_by_rows(*at_root(comm, root, a, b), comm, root),
                    matmul_by_reduction(*at_root(comm, root, a, b), comm, root),
                ),
            )
        ):
            assert (by_rows is None) == (rank != root)
            if by_rows is not None:
                np.testing.assert_array_equal(by_rows, matmul(a, b))  # a row does not depend on the others
                assert by_rows.dtype == dtype
            assert by_reduction.dtype == dtype and by_reduction.shape == (m, n)
            np.testing.assert_allclose(by_reduction, a @ b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_large_squares(ranks: int) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=(1024, 1024)).astype("float32") for _ in range(2))
    results = on_ranks(ranks, lambda comm: (matmul_by_rows(a, b), matmul_by_reduction(a, b, comm)))
    want = a.astype("float64") @ b
    for product in (results[0][0], *(by_reduction for _, by_reduction in results)):
        assert np.abs(product - want).max() <= 1e-5 * np.abs(want).max()
    for _, by_reduction in results:
        np.testing.assert_array_equal(by_reduction, results[0][1])


def test_one_process_is_a_world_of_one() -> None:
    a, b = np.ones((3, 4)), np.ones((4, 2))
    np.testing.assert_array_equal(matmul_by_rows(a, b), matmul(a, b))
    np.testing.assert_array_equal(matmul_by_reduction(a, b, SELF), matmul(a, b))
    with pytest.raises(ValueError, match="matmul: b has masked entries"):
        matmul(a, np.ma.masked_array(b, mask=b > 0))


@pytest.mark.parametrize("product", [matmul_by_rows, matmul_by_reduction])
def test_a_mistake_of_the_root_is_raised_on_every_rank(product: Callable[..., Any]) -> None:
    fine = np.zeros((3, 3))
    mistakes: list[tuple[type[Exception], str, Any, Any]] = [
        (
            ValueError,
            "a Fortran-ordered (2, 3) array as a; pass np.ascontiguousarray",
            np.zeros((3, 2)).T,
            fine,
        ),
        (ValueError, "a strided (3, 2) array as b", fine, np.zeros((3, 4))[:, ::2]),
        (TypeError, "matrices of float64 and float32; pass both as", fine, fine.astype("float32")),
        (TypeError, "matrices of int64 and int64", fine.astype("int64"), fine.astype("int64")),
        (TypeError, "an array of float16 as a", fine.astype("float16"), fine),
        (TypeError, "an object of type NoneType as b", fine, None),
        (
            ValueError,
            "matrices of shapes (3, 3) and (4, 3); pass shapes (m, k) and (k, n)",
            fine,
            np.ones((4, 3)),
        ),
        (ValueError, "matrices of shapes (3,) and (3, 3)", np.zeros(3), fine),
    ]

    def job(comm: Communicator) -> None:
        for kind, words, a, b in mistakes:
            with pytest.raises(kind) as caught:
                product(*at_root(comm, 1, a, b), comm, 1)
            assert str(caught.value).startswith(f"{product.__name__}: rank 1 passed {words}")
        with pytest.raises(ValueError, match="is not one of the"):
            product(fine, fine, comm, comm.size)
        with pytest.raises(ValueError, match=r"root=1.* root=0"):
            product(fine, fine, comm, int(comm.rank == 2))
        product(fine, fine, comm)  # and the ranks are still in step

    on_ranks(3, job)


def test_different_products_on_two_ranks_are_refused() -> None:
    def job(comm: Communicator) -> None:
        product = matmul_by_rows if comm.rank == 0 else matmul_by_reduction
        with pytest.raises(ValueError, match=r"rank 1 called scatter\(.*, rank 0 broadcast\("):
            product(np.ones((2, 2)), np.ones((2, 2)), comm)

    on_ranks(2, job)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_data_parallel_is_these_two_products(ranks: int) -> None:
    """Forward: all shards' outputs are the product by rows; backward: the summed gradient is by reduction."""
    rng = np.random.default_rng(2)
    x, dy = rng.normal(size=(17, 6)), rng.normal(size=(17, 4))
    layer = nn.Linear(6, 4, bias=False)
    weight = nn.Sequential(layer, dtype="float64", seed=3).flat_parameters.reshape(6, 4).copy()

    def job(comm: Communicator) -> tuple[Array, Array]:
        model = nn.Sequential(nn.Linear(6, 4, bias=False), dtype="float64", seed=3)
        (parameter,) = model.parameters()
        parameter.register_hook(lambda grad: comm.all_reduce(grad, op="sum"))
        mine = slice(17 * comm.rank // comm.size, 17 * (comm.rank + 1) // comm.size)
        y = model(x[mine])
        (y * dy[mine]).sum().backward()
        return y.numpy(), parameter.grad.copy()

    results = on_ranks(ranks, job)
    forward = on_ranks(ranks, lambda comm: matmul_by_rows(x, weight))[0]
    np.testing.assert_allclose(np.concatenate([y for y, _ in results]), forward, rtol=1e-14)
    backward = on_ranks(ranks, lambda comm: matmul_by_reduction(x.T.copy(), dy))
    for (_, grad), want in zip(results, backward, strict=True):
        np.testing.assert_allclose(grad, want, rtol=1e-13, atol=1e-14)
