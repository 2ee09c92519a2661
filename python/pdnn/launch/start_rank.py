"""Where a rank begins: it takes its own cores and its own pipes for output, then becomes its program.

Run as a file by every rank, ``python -I -S start_rank.py THREADS PROGRAM …`` (0 threads: it is not bound),
hence the standard library only. mpiexec's own binding is not used: it ignores the affinity mask, and fails
where THREADS counts hardware threads.
"""

from __future__ import annotations

import os
import sys

Core = tuple[int, int, int]  # package, physical core, logical CPU


def share(cores: list[Core], index: int, size: int, threads: int) -> set[int]:
    """The CPUs of rank `index` of `size`: `threads` from a slice of neighbors, physical cores first."""
    ordered = sorted(cores)
    part = ordered[index * len(ordered) // size : (index + 1) * len(ordered) // size]
    seen: dict[tuple[int, int], int] = {}
    turn: dict[int, int] = {}  # 0: the first hardware thread of its core in this part, 1: the second
    for package, core, cpu in part:
        turn[cpu] = seen[package, core] = seen.get((package, core), -1) + 1
    return set(sorted(turn, key=lambda cpu: turn[cpu])[:threads])


def allowed_cores() -> list[Core]:
    """The CPUs in this process's affinity mask, with the place of each."""

    def place(cpu: int, what: str) -> int:
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/topology/{what}") as file:
                return int(file.read())
        except OSError:  # a container may hide it
            return cpu if what == "core_id" else 0

    return [
        (place(cpu, "physical_package_id"), place(cpu, "core_id"), cpu) for cpu in os.sched_getaffinity(0)
    ]


def number(*names: str) -> int:
    """The number in the first of these environment variables that is set: Open MPI's, MPICH's."""
    return next(int(os.environ[name]) for name in names if name in os.environ)


def main(threads: int, program: list[str]) -> None:
    """Becomes `program`."""
    if threads:
        index = number("OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
        size = number("OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS")
        if len(cores := allowed_cores()) >= size * threads:  # else mpiexec has bound this rank
            os.sched_setaffinity(0, share(cores, index, size, threads))
    folder = os.environ.pop("PDNN_RANK_OUTPUT", None)
    if folder:
        rank = number("OMPI_COMM_WORLD_RANK", "PMI_RANK")
        for descriptor, name in [(1, "stdout"), (2, "stderr")]:
            os.dup2(os.open(os.path.join(folder, f"{rank}.{name}"), os.O_WRONLY), descriptor)
    os.execv(program[0], program)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2:])
