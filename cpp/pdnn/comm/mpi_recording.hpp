#pragma once
/// The record of a process that is a rank of MPI: in a file that the job's other processes find, as long as it runs.
#include "pdnn/comm/communicator.hpp"

namespace pdnn::comm {

/// From now on the calls of this rank in `comm`, and in groups split off it, are kept; collective.
void start_recording(Communicator& comm);

/// How this process ends: its record says so to ranks that wait for it.
void record_end(const std::string& how);

/// The ranks on this machine whose process is gone although it has not ended well.
std::vector<int> ranks_gone();

/// This process has ended well, and with it the job: removes its file, and those of processes that are gone.
void end_recording();

}  // namespace pdnn::comm
