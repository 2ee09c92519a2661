"""MPI communicators, by the module built for the binary interface of the MPI library that mpi4py has loaded.

``pdnn._mpi.openmpi`` is for Open MPI, ``pdnn._mpi.mpich`` for MPICH, Intel MPI, MVAPICH and Cray MPICH. An
installation has one or both. Neither names a library: each takes MPI's symbols from those that are visible to
the whole process, so mpi4py's library is made visible first, whatever its file is called.
"""

import ctypes

from mpi4py import MPI

_library = ctypes.CDLL(MPI.__file__, ctypes.RTLD_GLOBAL)  # opened again, with the libraries that it needs

if hasattr(_library, "ompi_mpi_comm_world"):
    from pdnn._mpi.openmpi import end_with_exit_code, interface, record_end, wrap
else:
    from pdnn._mpi.mpich import end_with_exit_code, interface, record_end, wrap

__all__ = ["end_with_exit_code", "interface", "record_end", "wrap"]
