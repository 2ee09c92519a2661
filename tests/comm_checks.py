"""What every communicator promises, as functions of one; run as a script, on all ranks of MPI."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pdnn
from pdnn.comm import Communicator, Request
from pdnn.comm.calls import Op

Array = NDArray[Any]

DTYPES = ("float32", "float64", "int32", "int64", "uint8")
SHAPES = ((0,), (), (1,), (7,), (3, 5), (0, 4), (50_021,))
OPS: dict[Op, Callable[..., Any]] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}


def brought(rank: int, shape: tuple[int, ...], dtype: str) -> Array:
    """What a rank brings to a call: small numbers, whose sums are exact in every type."""
    numbers = np.arange(np.prod(shape, dtype=int)) * 5 + rank * 3
    return (numbers % 31).astype(dtype).reshape(shape)


def equal(a: Array, b: Array) -> None:
    assert a.dtype == b.dtype
    np.testing.assert_array_equal(a, b)


def refused(kind: type[Exception] | tuple[type[Exception], ...], call: Callable[[], object]) -> str:
    """The message of the error that the call must raise."""
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind}")


def check_broadcast(comm: Communicator) -> None:
    for dtype in DTYPES:
        for shape in SHAPES:
            for root in range(comm.size):
                a = brought(comm.rank, shape, dtype)
                assert comm.broadcast(a, root) is a
                equal(a, brought(root, shape, dtype))


def check_reductions(comm: Communicator) -> None:
    root = comm.size - 1
    for dtype in DTYPES:
        for shape in SHAPES:
            everyone = np.stack([brought(rank, shape, dtype) for rank in range(comm.size)])
            for op, reduction in OPS.items():
                if op == "mean" and dtype[0] != "f":
                    continue
                wanted = np.asarray(reduction(everyone, axis=0)).astype(dtype)
                a, out = brought(comm.rank, shape, dtype), np.zeros(shape, dtype)
                assert comm.all_reduce(a, op, out) is out
                np.testing.assert_allclose(out, wanted, rtol=1e-6)
                equal(a, brought(comm.rank, shape, dtype))
                assert comm.all_reduce(a, op) is a
                equal(a, out)
                a = brought(comm.rank, shape, dtype)
                result = comm.reduce(a, root, op)
                equal(a, out if comm.rank == root else brought(comm.rank, shape, dtype))
                assert result is (a if comm.rank == root else None)


def check_all_ranks_get_the_same_bits(comm: Communicator) -> None:
    a = np.random.default_rng(comm.rank).standard_normal(1001)
    comm.all_reduce(a)
    for other in comm.all_gather(a):
        equal(other, a)


def check_reproducible_sums_are_made_by_the_tree_over_ranks(comm: Communicator) -> None:
    for dtype in ("float32", "float64"):
        for shape in ((), (2,), (3, 57)):
            arrays = [
                np.random.default_rng(rank).standard_normal(shape).astype(dtype) for rank in range(comm.size)
            ]
            sums = arrays
            while len(sums) > 1:
                sums = [np.asarray(sum(sums[i + 1 : i + 2], sums[i])) for i in range(0, len(sums), 2)]
            a, out = arrays[comm.rank].copy(), np.empty(shape, dtype)
            assert comm.all_reduce(a, "mean", out, reproducible=True) is out
            equal(out, np.asarray(sums[0] / np.dtype(dtype).type(comm.size)))
            assert comm.all_reduce(a, reproducible=True) is a
            equal(a, np.asarray(sums[0]))
    assert 'reproducible=True is for op "sum" or "mean"' in refused(
        ValueError, lambda: comm.all_reduce(np.ones(2), "max", reproducible=True)
    )


def check_gather(comm: Communicator) -> None:
    root = comm.size // 2
    for dtype in DTYPES:
        for columns in (0, 1, 3):
            shapes = [(1 + 2 * rank, columns) for rank in range(comm.size)]
            wanted = [brought(rank, shape, dtype) for rank, shape in enumerate(shapes)]
            everyone = comm.all_gather(wanted[comm.rank])
            for got, each in zip(everyone, wanted, strict=True):
                equal(got, each)
            at_root = comm.gather(wanted[comm.rank], root)
            assert (at_root is None) == (comm.rank != root)
            for got, each in zip(at_root or wanted, wanted, strict=True):
                equal(got, each)


def check_scatter(comm: Communicator) -> None:
    for root in range(comm.size):
        for dtype in DTYPES:
            for rows in (0, 1, 7, 50_021):
                whole = brought(root, (rows, 2), dtype)
                mine = comm.scatter(whole if comm.rank == root else None, root)
                equal(mine, np.array_split(whole, comm.size)[comm.rank])
            parts = [brought(rank, (rank, 2, 3), dtype) for rank in range(comm.size)]
            equal(comm.scatter(parts if comm.rank == root else None, root), parts[comm.rank])


def check_reduce_scatter(comm: Communicator) -> None:
    for dtype in DTYPES:
        for shape in ((0,), (1,), (7, 3), (50_021,)):
            whole = sum(brought(rank, shape, dtype) for rank in range(comm.size))
            mine = comm.reduce_scatter(brought(comm.rank, shape, dtype))
            equal(mine, np.array_split(np.asarray(whole, dtype), comm.size)[comm.rank])


def check_messages(comm: Communicator) -> None:
    after, before = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    for dtype in DTYPES:
        for shape in SHAPES:
            sends = [comm.start_send(brought(comm.rank + k, shape, dtype), after, tag=4) for k in range(3)]
            sends.append(comm.start_send(brought(comm.rank + 9, shape, dtype), after, tag=5))
            equal(comm.recv(before, tag=5), brought(before + 9, shape, dtype))
            out = np.empty(shape, dtype)
            assert comm.recv(before, 4, out) is out
            equal(out, brought(before, shape, dtype))
            second = comm.start_recv(before, 4, np.empty(shape, dtype))
            third = comm.start_recv(before, 4, np.empty(shape, dtype))
            equal(third.wait(), brought(before + 2, shape, dtype))
            equal(second.wait(), brought(before + 1, shape, dtype))
            for send in sends:
                send.wait()


def check_messages_to_oneself_do_not_wait(comm: Communicator) -> None:
    sent = brought(comm.rank, (200_000,), "float64")
    comm.send(sent, comm.rank)
    sent[:] = -1
    equal(comm.recv(comm.rank), brought(comm.rank, (200_000,), "float64"))


def check_unchecked_calls(comm: Communicator) -> None:
    a = brought(comm.rank, (6,), "int32")
    total = np.asarray(sum(brought(rank, (6,), "int32") for rank in range(comm.size)))
    equal(comm.all_reduce(a.copy(), check=False), total.astype("int32"))
    equal(comm.all_gather(a, check=False)[-1], brought(comm.size - 1, (6,), "int32"))
    equal(comm.scatter(np.arange(6) if comm.rank == 0 else None, check=False), _rows(np.arange(6), comm))
    send = comm.start_send(a, (comm.rank + 1) % comm.size, check=False)
    before = (comm.rank - 1) % comm.size
    equal(comm.recv(before, out=np.empty_like(a), check=False), brought(before, (6,), "int32"))
    send.wait()
    comm.barrier(check=False)


def check_requests_in_any_order(comm: Communicator) -> None:
    shape = (1000,)
    everyone = [brought(rank, shape, "float64") for rank in range(comm.size)]
    total = np.sum(everyone, axis=0)
    mine = everyone[comm.rank]
    requests: list[tuple[Any, Any]] = [
        (comm.start_all_reduce(mine, out=np.empty(shape)), total),
        (comm.start_all_reduce(mine.copy()), total),
        (comm.start_broadcast(mine.copy()), everyone[0]),
        (comm.start_reduce(mine.copy()), total if comm.rank == 0 else None),
        (comm.start_all_gather(mine), everyone),
        (comm.start_gather(mine), everyone if comm.rank == 0 else None),
        (comm.start_reduce_scatter(mine), _rows(total, comm)),
        (comm.start_scatter(np.tile(mine, comm.size), 0, np.empty(shape)), everyone[0]),
        (comm.start_barrier(), None),
    ]
    no_use = np.zeros((2, 3)).T if comm.rank else np.arange(2.0 * comm.size)  # the root's alone is read
    requests.append((comm.start_scatter(no_use, 0, np.empty(2)), np.arange(2.0) + 2 * comm.rank))
    for request, wanted in requests[:: 1 if comm.rank % 2 else -1]:
        got = request.wait()
        assert (got is None) == (wanted is None)
        if wanted is not None:
            np.testing.assert_array_equal(got, wanted)
        assert request.test()
    polled = comm.start_all_reduce(np.ones(3))
    while not polled.test():
        pass
    np.testing.assert_array_equal(polled.wait(), np.full(3, comm.size))


def check_requests_of_several_threads(comm: Communicator) -> None:
    total = sum(range(1, comm.size + 1))
    for check in (True, False):
        requests = [
            comm.start_all_reduce(np.full(40 + number % 3, comm.rank + 1.0), check=check)
            for number in range(200)
        ]
        found = [0] * 4  # requests that each thread saw done with other values

        def look(thread: int, requests: list[Request[Array]] = requests, found: list[int] = found) -> None:
            for number in range(thread, len(requests) + thread):
                request = requests[number % len(requests)]
                if number % 3:
                    while not request.test():
                        pass
                found[thread] += not (request.wait() == total).all()

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(look, range(4)))
        assert found == [0] * 4
        comm.barrier()


def check_calls_begin_while_threads_wait(comm: Communicator) -> None:
    """Also for calls that other ranks begin only then."""
    if comm.rank > 0:
        comm.recv(0, 9)
        for request in [comm.start_all_reduce(np.ones(3)) for _ in range(3)]:
            request.wait()
        return
    requests = [comm.start_all_reduce(np.ones(3)) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        waits = [threads.submit(request.wait) for request in requests[::-1]]
        last = comm.start_all_reduce(np.ones(3))
        for rank in range(1, comm.size):
            comm.send(np.zeros(1), rank, 9)
        for result in (*(wait.result() for wait in waits), last.wait()):
            np.testing.assert_array_equal(result, np.full(3, comm.size))


def check_split(comm: Communicator) -> None:
    color = comm.rank % 2
    part = comm.split(color, key=-comm.rank)
    members = [rank for rank in range(comm.size) if rank % 2 == color][::-1]
    assert (part.rank, part.size) == (members.index(comm.rank), len(members))
    got = part.all_gather(np.array([comm.rank]))
    np.testing.assert_array_equal(np.concatenate(got), members)
    again = part.split(0)
    assert (again.rank, again.size) == (part.rank, part.size)
    again.barrier()
    last = comm.rank == comm.size - 1
    wrong: list[tuple[type[Exception], Any, Any, str]] = [
        (ValueError, -1, 0, "color -1; pass an integer from 0"),
        (TypeError, 0.5, 0, "color 0.5; pass an integer from 0"),
        (ValueError, 0, 2**31, "key 2147483648; pass an integer from -2147483648"),
        (TypeError, 0, "a", "key 'a'; pass an integer"),
    ]
    for kind, odd, key, text in wrong:  # on one rank, which the others hear
        assert text in refused(kind, lambda c=odd, k=key: comm.split(c, k) if last else comm.split(0))
    comm.barrier()


def check_shared_memory(comm: Communicator) -> None:
    for shape in ((), 3, (comm.size, 1000), (0, 2)):
        memory = comm.share(shape, "float64")
        assert memory is not None
        assert memory.shape == (shape if isinstance(shape, tuple) else (shape,))
        assert not memory.any()
    memory = comm.share((comm.size, 1000), np.int32)
    assert memory is not None
    memory[comm.rank] = comm.rank + 1
    comm.barrier()
    np.testing.assert_array_equal(memory, np.repeat(np.arange(comm.size) + 1, 1000).reshape(comm.size, 1000))
    assert (comm.machine().rank, comm.machine().size) == (comm.rank, comm.size)
    integer: Any = np.int64(3)  # as shapes that were computed have
    for same in (integer, (integer,), [3]):
        memory = comm.share(same)
        assert memory is not None
        assert memory.shape == (3,)
    last = comm.rank == comm.size - 1
    wrong: list[tuple[type[Exception], Any, Any, str]] = [
        (TypeError, 3, "float16", "dtype float16"),
        (TypeError, 3, "spam", "dtype 'spam'"),
        (TypeError, 2.5, "float32", "shape 2.5"),
        (ValueError, (-1, 2), "float32", "shape (-1, 2)"),
        (ValueError, (1,) * 9, "float32", "a shape of 9 dimensions"),
        (ValueError, (1,) * 300, "float32", "a shape of 300 dimensions"),
        (TypeError, 3, np.dtype("float32").newbyteorder(), "dtype >f4"),
    ]
    for kind, odd, dtype, text in wrong:  # on one rank, which the others hear
        assert text in refused(kind, lambda s=odd, d=dtype: comm.share(s, d) if last else comm.share(3))
    for size in (10**17, 10**20):
        try:
            comm.share(size)
        except MemoryError:
            comm.barrier()  # all have heard
        else:
            raise AssertionError("so much memory")
    if comm.size > 1:
        text = refused(ValueError, lambda: comm.share(3 + comm.rank))
        assert "share((4,) float32)" in text
        assert "share((3,) float32)" in text


def check_mistakes_are_named_on_every_rank(comm: Communicator) -> None:
    last = comm.rank == comm.size - 1
    fine = np.zeros((3, 2), np.float32)

    def passed(a: Any, text: str) -> str:
        wrong = refused((TypeError, ValueError), lambda: comm.all_reduce(a if last else fine.copy()))
        assert text in wrong, wrong
        if comm.size == 1:
            assert wrong.startswith("all_reduce: got ")
        else:
            assert wrong.startswith(f"all_reduce: rank {comm.size - 1} passed ")
            assert "rank 0 a C-ordered (3, 2) array of float32" in wrong
        return wrong

    read_only = fine.copy()
    read_only.flags.writeable = False
    passed(np.asfortranarray(fine), "a Fortran-ordered (3, 2) array")
    passed(np.zeros((3, 4), np.float32)[:, ::2], "a strided (3, 2) array")
    passed(read_only, "a read-only (3, 2) array")
    passed(fine.astype(np.float16), "an array of float16")
    passed(np.ma.masked_equal(fine, 0), "an array with masked entries")
    passed([1.0], "an object of type list")
    passed(np.zeros((1,) * 9, np.float32), "an array of 9 dimensions")
    assert comm.all_reduce(np.ones((1,) * 8)).item() == comm.size
    refused(TypeError, lambda: comm.all_reduce([1.0], "mean", reproducible=True))  # type: ignore[arg-type]
    if comm.size > 1:
        check_ranks_that_differ(comm, last, fine)
    comm.barrier()


def check_ranks_that_differ(comm: Communicator, last: bool, a: Array) -> None:
    """Between several ranks only."""
    n = comm.size - 1

    def differ(one: Callable[[], object], others: Callable[[], object], *texts: str) -> None:
        wrong = refused(ValueError, one if last else others)
        assert all(text in wrong for text in texts), wrong

    longer = np.zeros((4, 2), np.float32)
    texts = f"rank {n} called all_reduce((4, 2) float32, op=sum)", "rank 0 all_reduce((3, 2) float32, op=sum)"
    differ(lambda: comm.all_reduce(longer), lambda: comm.all_reduce(a), *texts)
    request = comm.split(0).start_all_reduce(longer if last else a)
    for _ in range(2):  # a request that failed has no result later either
        differ(request.wait, request.wait, *texts)
        differ(request.test, request.test, *texts)
    differ(comm.barrier, lambda: comm.broadcast(a), f"rank {n} called barrier()", "rank 0 broadcast((3, 2)")
    differ(lambda: comm.broadcast(a, n), lambda: comm.broadcast(a), f"root={n}", "root=0")
    differ(lambda: comm.all_reduce(a, "max"), lambda: comm.all_reduce(a), "op=max", "op=sum")
    odd = lambda: comm.all_reduce(a, "max", reproducible=True)  # noqa: E731
    differ(odd, lambda: comm.all_reduce(a, reproducible=True), "op=max", "op=sum")
    long = "a" * 600
    differ(lambda: comm.all_reduce(a, long), lambda: comm.all_reduce(a), f"op={long[:40]})", "op=sum")  # type: ignore[arg-type]
    double = a.astype(np.float64)
    differ(lambda: comm.all_gather(double), lambda: comm.all_gather(a), "float64", "arguments must agree")
    parts = [a] * comm.size if comm.rank else [a] * (comm.size + 1)
    assert "rank 0 passed" in refused(ValueError, lambda: comm.scatter(parts))
    wide = np.zeros((comm.size, 3, 2))
    words = f"rank 0 passed a {wide.shape} float64 array for {comm.size} parts of (3, 2) float32"
    assert "a 0-dimensional array" in refused(ValueError, lambda: comm.scatter(np.zeros(())))
    group = comm.split(0)
    assert words in refused(ValueError, lambda: group.start_scatter(wide, 0, np.empty_like(a)).wait())
    mixed = [a] * (comm.size - 1) + [double]
    assert "rank 0 passed parts of several types" in refused(ValueError, lambda: comm.scatter(mixed))


def check_wrong_arguments(comm: Communicator) -> None:
    a = np.zeros(4, np.int64)
    assert "an array of int64 for a mean" in refused(TypeError, lambda: comm.all_reduce(a, "mean"))
    assert 'it is "sum", "mean"' in refused(ValueError, lambda: comm.all_reduce(a, "median"))  # type: ignore[arg-type]
    assert "op ['sum']; it is" in refused(ValueError, lambda: comm.all_reduce(a, ["sum"]))  # type: ignore[arg-type]
    assert "is not one of the" in refused(ValueError, lambda: comm.broadcast(a, comm.size))
    assert "no rows to share" in refused(ValueError, lambda: comm.reduce_scatter(np.zeros(())))
    wrong = refused(ValueError, lambda: comm.all_reduce(a, out=np.zeros(3, np.int64)))
    assert "a (3,) int64 out for a (4,) int64 array" in wrong
    odd: Any = 1.5
    for call in (
        lambda: comm.broadcast(a, odd),
        lambda: comm.reduce(a, odd),
        lambda: comm.gather(a, odd),
        lambda: comm.scatter(a, odd),
        lambda: comm.start_scatter(a, odd, a),
    ):
        assert "root 1.5; pass an integer" in refused(TypeError, call)
    assert "dest 1.5; pass an integer" in refused(TypeError, lambda: comm.send(a, odd))
    assert "tag 1.5; pass an integer" in refused(TypeError, lambda: comm.start_send(a, comm.rank, odd))
    assert "source 1.5; pass an integer" in refused(TypeError, lambda: comm.recv(odd))
    longer = np.zeros(5, np.int64)
    for reproducible in (False, True):
        wrong = refused(
            ValueError, lambda r=reproducible: comm.all_reduce(longer[:4], out=longer[1:], reproducible=r)
        )
        assert "an out that shares a part of a's memory" in wrong
    equal(comm.all_reduce(longer[:4], out=longer[:4]), longer[:4])
    assert "tag 32767" in refused(ValueError, lambda: comm.start_send(a, comm.rank, 32_767))
    comm.send(a, comm.rank)
    wrong = refused(ValueError, lambda: comm.recv(comm.rank, out=np.zeros(5)))
    assert f"rank {comm.rank} sent a (4,) array of int64" in wrong
    comm.send(a, comm.rank)
    equal(comm.recv(comm.rank), a)


def _rows(whole: Array, comm: Communicator) -> Array:
    return np.array_split(whole, comm.size)[comm.rank]


ALL = [
    check_broadcast,
    check_reductions,
    check_all_ranks_get_the_same_bits,
    check_reproducible_sums_are_made_by_the_tree_over_ranks,
    check_gather,
    check_scatter,
    check_reduce_scatter,
    check_messages,
    check_messages_to_oneself_do_not_wait,
    check_unchecked_calls,
    check_requests_in_any_order,
    check_requests_of_several_threads,
    check_calls_begin_while_threads_wait,
    check_split,
    check_shared_memory,
    check_mistakes_are_named_on_every_rank,
    check_wrong_arguments,
]


def check_large_arrays_travel_in_pieces() -> None:
    """Every check again on a communicator that counts to 1000 only, as MPI's counts to 2³¹ − 1."""
    from mpi4py import MPI

    from pdnn import _mpi

    comm = Communicator(_mpi.wrap(MPI.COMM_WORLD.handle, most=1000))
    for check in (check_broadcast, check_reductions, check_gather, check_scatter, check_reduce_scatter):
        check(comm)


if __name__ == "__main__":
    for check in ALL:
        check(pdnn.world())
    check_large_arrays_travel_in_pieces()
    print(f"rank {pdnn.world().rank} of {pdnn.world().size} is content", flush=True)
