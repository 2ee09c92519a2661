#pragma once
/// ThreadGroup: ranks that are threads of one process. The first error of one releases all the others.
#include <functional>
#include <memory>
#include <optional>

#include "pdnn/comm/communicator.hpp"

namespace pdnn::comm {

class ThreadGroup {
 public:
  explicit ThreadGroup(int size);
  /// The end of one rank, for the thread that will be it; once for each rank.
  std::shared_ptr<Communicator> communicator(int rank) const;
  /// Releases all ranks that wait, now or later, in this group or one split off it, with Aborted, which names the rank
  /// that failed.
  void abort(std::optional<int> rank = {}) const;

  struct State;

 private:
  std::shared_ptr<State> state_;
  int size_;
};

/// Runs f(communicator) on `ranks` threads and rethrows the first real error; a rank that has died is none. That a rank
/// waits for one that has returned is an error.
void run_ranks(int ranks, const std::function<void(Communicator&)>& f);

}  // namespace pdnn::comm
