#pragma once
/// MPI as a Communicator. The only part of the core that knows MPI; lives in its own Python module.
#include <cstdint>
#include <memory>

#include "pdnn/comm/communicator.hpp"

namespace pdnn::comm {

/// Whose binary interface this was compiled for: "Open MPI" or "MPICH" (Intel MPI and most others share that one).
const char* compiled_mpi();

/// Wraps an MPI communicator of a library that is initialised already, given as mpi4py's `comm.handle`; takes it over,
/// so hand it a Dup(). Calls of more than `most` elements travel in pieces.
std::shared_ptr<Communicator> wrap_mpi(std::int64_t handle, Index most = Index{1} << 30);

}  // namespace pdnn::comm
