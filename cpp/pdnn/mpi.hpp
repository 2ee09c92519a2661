#pragma once
/// Ranks that are MPI's, for a Trainer. In libpdnn_mpi, which is libpdnn and this; its users link MPI themselves.
#include <mpi.h>

#include "pdnn/pdnn.hpp"

namespace pdnn {

/// The ranks of a communicator, all of which make this call. MPI must be initialized, by MPI_Init_thread with
/// MPI_THREAD_SERIALIZED or more, and be finalized after the last use of them. std::invalid_argument if it is not
/// initialized so.
PDNN_API Ranks mpi_ranks(MPI_Comm comm = MPI_COMM_WORLD);

}  // namespace pdnn
