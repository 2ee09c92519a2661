#pragma once
/// MpiHandle and MpiNotices: a communicator of MPI with its end, and what ranks tell each other beside their calls.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "pdnn/comm/communicator.hpp"
#include "pdnn/comm/mpi_call.hpp"
#include "pdnn/comm/mpi_ulfm.hpp"
#include "pdnn/comm/waiting.hpp"
#include "pdnn/core/errors.hpp"
#include "pdnn/threads/mutex.hpp"

namespace pdnn::comm {

inline bool mpi_finalized() {
  int flag = 0;
  return MPI_Finalized(&flag) != MPI_SUCCESS || flag;
}

/// An MPI communicator, freed with the last that uses it.
struct MpiHandle {
  MpiHandle(MPI_Comm mpi_comm, bool is_owned) : comm(mpi_comm), owned(is_owned) {}
  MpiHandle(const MpiHandle&) = delete;
  MpiHandle& operator=(const MpiHandle&) = delete;
  ~MpiHandle() {
    if (owned && usable()) MPI_Comm_free(&comm);
  }

  /// Whether MPI may be called: it is not finalized, and this process is the one that made the communicator.
  bool usable() const { return !forked() && !mpi_finalized(); }
  void check_process() const {
    if (forked())
      throw CommunicationError(
          "communicator: this process was forked from a rank, and is none; pdnn.world() is this process alone");
  }

  MPI_Comm comm;
  bool owned;

 private:
  bool forked() const { return forks_ != threads::forks(); }

  int forks_ = threads::forks();
};

/// What the ranks of a group, and of all that were split off it, tell each other: messages in an MPI communicator of
/// their own.
class MpiNotices {
 public:
  MpiNotices(std::shared_ptr<MpiHandle> handle, std::shared_ptr<MpiNotices> original)
      : handle_(std::move(handle)), original_(std::move(original)) {}

  MPI_Comm comm() const { return handle_->comm; }
  void keep() { handle_->owned = false; }
  void hear(Notice notice, std::int64_t about) {
    std::int64_t& latest = latest_[static_cast<std::size_t>(notice)];
    latest = std::max(latest, about);
  }
  /// Takes what has come.
  std::int64_t heard(Notice notice) {
    for (int there = 1; there;) {
      MPI_Status status;
      const int code = MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm(), &there, &status);
      if (tells_of_death(code, {.comm = comm()})) lose();
      if (code != MPI_SUCCESS || !there) break;
      std::int64_t about = 0;
      MPI_Recv(&about, 1, MPI_INT64_T, status.MPI_SOURCE, status.MPI_TAG, comm(), MPI_STATUS_IGNORE);
      hear(static_cast<Notice>(status.MPI_TAG), about);
    }
    const std::int64_t own = latest_[static_cast<std::size_t>(notice)];
    return original_ ? std::max(own, original_->heard(notice)) : own;
  }

  /// A rank has died, or another rank says so: tells the others.
  void lose() {
    if (std::exchange(lost_, true)) return;
    keep();
    revoke({.comm = comm()});
    if (original_) original_->lose();
  }
  /// Whether that has come to be known.
  bool lost() const { return lost_ || (original_ && original_->lost()); }
  /// Who it is, in the outermost group; waits a little for MPI to know.
  std::vector<int> dead() {
    if (original_) return original_->dead();
    constexpr double kMost = 5;  // s
    Waiting waiting;
    std::vector<int> ranks;
    while ((ranks = dead_ranks({.comm = comm()})).empty() && waiting.seconds() < kMost) {
      int there = 0;
      MPI_Iprobe(MPI_ANY_SOURCE, 0, MPI_COMM_SELF, &there, MPI_STATUS_IGNORE);  // MPI makes progress
      waiting.pause();
    }
    return ranks;
  }

 private:
  std::shared_ptr<MpiHandle> handle_;
  std::shared_ptr<MpiNotices> original_;
  bool lost_ = false;
  std::array<std::int64_t, kNotices> latest_{-1, -1};
};

}  // namespace pdnn::comm
