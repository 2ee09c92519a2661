#include "pdnn/comm/mpi_recording.hpp"

#include <array>
#include <cstdlib>

#include "pdnn/comm/mpi_call.hpp"
#include "pdnn/core/errors.hpp"

namespace pdnn::comm {

namespace {

/// What all communicators of this process share, from the first one on.
struct ProcessRecord {
  std::shared_ptr<Recorder> recorder;
  std::int64_t communicators = 0;
};

ProcessRecord& process_record() {
  static auto& record = *new ProcessRecord;
  return record;
}

void end_with(int code) {
  if (process_record().recorder->log().process.number != this_process().number) return;  // it was forked from the rank
  int finalized = 0;
  if (code != 0) {
    record_end(message("ended with exit code ", code));
  } else if (MPI_Finalized(&finalized) == MPI_SUCCESS && finalized) {
    end_recording();
  } else {
    record_end("has ended its program");  // its file is there until MPI_Finalize() has met the others
  }
}

}  // namespace

void start_recording(Communicator& comm) {
  ProcessRecord& record = process_record();
  const Process own = this_process();
  std::array<std::int64_t, 3> root{own.number, static_cast<std::int64_t>(own.started), ++record.communicators};
  comm.broadcast(std::span(root), 0);
  const auto started = static_cast<std::uint64_t>(root[1]);
  if (!record.recorder) {
    int rank = 0, size = 1;
    const MpiGroup world{.comm = MPI_COMM_WORLD, .rank = comm.rank()};
    check_mpi(MPI_Comm_rank(world.comm, &rank), Kind::broadcast, world);
    check_mpi(MPI_Comm_size(world.comm, &size), Kind::broadcast, world);
    remove_dead_logs();
    const auto job = std::make_shared<RecordedJob>(job_name({root[0], 0, started}));
    record.recorder = std::make_shared<Recorder>(job, rank, size);
#ifdef __GLIBC__
    on_exit([](int code, void*) { end_with(code); }, nullptr);
#else
    std::atexit([] { end_with(0); });
#endif
  }
  comm.record(record.recorder,
              mixed(mixed(static_cast<std::uint64_t>(root[0]), started), static_cast<std::uint64_t>(root[2])));
}

void record_end(const std::string& how) {
  if (process_record().recorder) process_record().recorder->ended(how);
}

std::vector<int> ranks_gone() {
  std::vector<int> gone;
  if (!process_record().recorder) return gone;
  const std::uint64_t here = process_record().recorder->log().machine;
  for (const auto& log : process_record().recorder->job().logs())
    if ((*log)->machine == here && !alive((*log)->process)) gone.push_back((*log)->rank);
  return gone;
}

void end_recording() {
  if (!process_record().recorder) return;
  const int own = process_record().recorder->log().rank;
  Logs over;
  for (auto& log : process_record().recorder->job().logs())
    if ((*log)->rank == own || !alive((*log)->process)) over.push_back(std::move(log));
  remove_files(over);
}

}  // namespace pdnn::comm
