"""What the ranks of a group do when one of them dies, at any of its calls; run as a script, on MPI."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

import pdnn
from pdnn.comm import Communicator, RankFailed, die


def talk(comm: Communicator, part: Communicator, shared: NDArray[Any]) -> None:
    """Calls of every kind, some of them under way at once; in the group and in parts of it."""
    size, rank = comm.size, comm.rank
    sums = [comm.start_all_reduce(np.full(1000, rank, np.float32)) for _ in range(2)]
    comm.send(np.array([rank]), (rank + 1) % size)
    comm.recv((rank - 1) % size)
    part.all_gather(np.ones(3))
    for request in sums:
        request.wait()
    large = np.full(50_000, 1.0)  # more than a message that MPI sends off by itself
    request = comm.start_send(large, (rank + 1) % size, check=False)
    comm.recv((rank - 1) % size, out=np.empty(50_000), check=False)
    request.wait()
    shared[rank] += 1
    comm.barrier()


def survive(rounds: int, dies: int, calls: int) -> int:
    """Rank `dies` dies at its so many-th call, or after the last one; how many ranks go on."""
    comm = pdnn.world()
    assert comm.survives
    heard: RankFailed | None = None
    part = comm.split(comm.rank % 2)
    shared = comm.share(comm.size)
    assert shared is not None
    if comm.rank == dies:
        die(after=calls)
    try:
        for _ in range(rounds):
            talk(comm, part, shared)
        if comm.rank == dies:
            die()
    except RankFailed as error:
        heard = error
    if heard is not None:
        assert heard.ranks == [dies], heard
        assert f"rank {dies} died" in str(heard), heard
    # a rank may have come to the end before it could hear of a death in the last calls
    if comm.agree(heard is None):
        return comm.size
    left = comm.shrink()
    assert left.size == comm.size - 1
    assert left.rank == comm.rank - (comm.rank > dies)
    assert left.agree(True)
    assert not left.agree(left.rank > 0)
    assert left.all_reduce(np.ones(3)).tolist() == [left.size] * 3
    part = left.split(0, -left.rank)
    assert part.rank == left.size - 1 - left.rank
    talk(left, part, np.zeros(left.size))
    return left.size


if __name__ == "__main__":
    rank = pdnn.world().rank
    print(f"rank {rank} ends among {survive(1000, 1, int(sys.argv[1]))}", flush=True)
