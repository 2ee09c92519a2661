"""
MPI communicators.
"""
from __future__ import annotations
import pdnn._core
import typing
__all__: list[str] = ['end_with_exit_code', 'interface', 'record_end', 'wrap']
def end_with_exit_code() -> bool:
    """
    From now on this process finalizes MPI when it exits with 0, and ends the whole job when it exits otherwise.
    """
def interface() -> str:
    """
    What this module and the other one pass to one another, as a hash.
    """
def record_end(how: str) -> None:
    """
    How this process ends: its record says so to ranks that wait for it.
    """
def wrap(handle: typing.SupportsInt | typing.SupportsIndex, most: typing.SupportsInt | typing.SupportsIndex = 1073741824) -> pdnn._core.Communicator:
    """
    The ranks of mpi4py's `comm.handle`; collective. Calls of more than `most` elements travel in pieces.
    """
