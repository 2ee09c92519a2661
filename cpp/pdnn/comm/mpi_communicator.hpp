#pragma once
/// MPI as a Communicator. Of the core only files named mpi_* know MPI; they are in pdnn._mpi's modules and libpdnn_mpi.
#include <cstdint>
#include <memory>

#include "pdnn/comm/communicator.hpp"

namespace pdnn::comm {

/// The ranks of an MPI communicator, given as mpi4py's `comm.handle`; collective. MPI must be initialized. Calls of
/// more than `most` elements travel in pieces.
std::shared_ptr<Communicator> wrap_mpi(std::int64_t handle, Index most = Index{1} << 30);

/// From now on this process finalizes MPI when it exits with 0 (unless a rank has died), and ends the whole job when it
/// exits otherwise. False
/// where the system does not tell exit codes to handlers: then nothing is changed.
bool end_with_exit_code();

}  // namespace pdnn::comm
