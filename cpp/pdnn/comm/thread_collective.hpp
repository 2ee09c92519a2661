#pragma once
/// ThreadCollective: one collective call between threads. Each rank leaves a copy of what it gives and takes its result
/// when all have come, so that no rank ever touches the memory of another.
#include <atomic>
#include <string>
#include <vector>

#include "pdnn/comm/communicator.hpp"

namespace pdnn::comm {

class ThreadCollective {
 public:
  explicit ThreadCollective(int size) : contributions_(static_cast<std::size_t>(size)) {}

  /// Leaves the rank's part of the call. Never waits.
  void post(int rank, const Call& call);
  bool complete() const;
  /// "ranks 1, 3": those that have not come.
  std::string missing() const;
  /// Fills the rank's output, once complete. ValueError, the same on every rank, if the calls do not fit together.
  void deliver(int rank, const Call& call) const;
  /// Makes it ready for other calls; no rank may be in it.
  void clear();

 private:
  struct Contribution {
    std::atomic<bool> posted{false};
    Kind kind = Kind::barrier;
    Op op = Op::sum;
    DType dtype = DType::uint8;
    int root = 0;
    Index count = 0;  // elements in or out; they agree unless there are counts
    std::vector<Index> counts;
    std::vector<std::byte> bytes;

    bool agrees(const Contribution& other) const;
    std::string text() const;
  };

  void check() const;
  template <class T>
  void combine(Index begin, T* out, Index count) const;

  std::vector<Contribution> contributions_;
};

}  // namespace pdnn::comm
