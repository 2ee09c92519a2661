#include "pdnn/comm/mpi_communicator.hpp"
#include "pdnn/core/errors.hpp"
#include "pdnn/mpi.hpp"

namespace pdnn {

Ranks mpi_ranks(MPI_Comm comm) {
  int initialized = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&initialized);
  if (initialized != 0) MPI_Query_thread(&level);
  require(level >= MPI_THREAD_SERIALIZED, "mpi_ranks: MPI is ",
          initialized != 0 ? "initialized for one thread" : "not initialized",
          "; call MPI_Init_thread with MPI_THREAD_SERIALIZED before");
  return Ranks(comm::wrap_mpi((std::int64_t)comm));  // NOLINT: a pointer in one MPI, an int in another
}

}  // namespace pdnn
