"""This process's rank, among all ranks and among those of its machine."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from pdnn.comm import Communicator, world

#: Of each communicator that was met: the rank on its machine, and how many are there.
_places: WeakKeyDictionary[Communicator, tuple[int, int]] = WeakKeyDictionary()


def init() -> tuple[int, str]:
    """Starts MPI if this process is one of its ranks; collective; call it first.

    Returns
    -------
    rank : int
        The number of this rank, from 0.
    device : "cpu"
        What `partition_dataset` and the models take as ``device=``.

    Raises
    ------
    ImportError, CommunicationError
        If MPI cannot be used, see `pdnn.world`.
    """
    comm = world()
    if comm not in _places:
        machine = comm.machine()
        _places[comm] = machine.rank, machine.size
    return comm.rank, "cpu"


def rank() -> int:
    """The number of this rank, from 0."""
    return world().rank


def size() -> int:
    """How many ranks there are."""
    return world().size


def local_rank() -> int:
    """The number of this rank among those of its machine, from 0."""
    return _place()[0]


def local_size() -> int:
    """How many ranks this machine has."""
    return _place()[1]


def _place() -> tuple[int, int]:
    try:
        return _places[world()]
    except KeyError:
        raise ValueError("ddp: which ranks share a machine is not known yet; call ddp.init() first") from None
