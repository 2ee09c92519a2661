#pragma once
/// RankFailed and Died: what a dead rank's group throws, on the ranks that are left and, between threads, on itself.
#include <string>
#include <vector>

#include "pdnn/core/errors.hpp"

namespace pdnn::comm {

/// Another rank has died. pdnn.RankFailed in Python.
struct RankFailed : CommunicationError {
  /// `dead`: numbers in the group that all of a communicator's family were split off or duplicated from.
  explicit RankFailed(std::vector<int> dead) : CommunicationError(text(dead)), ranks(std::move(dead)) {}

  std::vector<int> ranks;

 private:
  static std::string text(const std::vector<int>& dead) {
    std::string numbers = dead.empty() ? "another rank" : dead.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < dead.size(); ++i) numbers += message(i == 0 ? "" : ", ", dead[i]);
    return "communicator: " + numbers + " died; the ranks that are left go on in the group that shrink() makes";
  }
};

/// Ends a thread that is a rank and has died. No error, so that nobody who handles errors handles it.
struct Died {};

}  // namespace pdnn::comm
