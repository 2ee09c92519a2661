#pragma once
/// SharedVector: one vector of parameters that workers read and write at the same time, without locks and without
/// data races.
#include <atomic>

#include "pdnn/comm/shared_memory.hpp"
#include "pdnn/core/memory.hpp"

namespace pdnn::strategy {

/// The vector lies in words of 64 bits, each loaded and stored whole by a relaxed atomic operation (on x86-64 a plain
/// move), in memory that the threads of a process or the ranks of a machine share. A load of a range while others
/// store to it returns some elements of before and some of after. Kernels do not compute on this memory, but on copies.
template <class T>
class SharedVector {
 public:
  /// Collective. Throws ValueError, on every rank, if they share no memory.
  SharedVector(comm::Communicator& comm, Index count);

  /// Copies elements [range.begin, range.end) out of or into the vector; begin is a multiple of kAlign.
  void load(Range range, T* own) const;
  void store(Range range, const T* own);
  static constexpr Index kAlign = sizeof(std::uint64_t) / sizeof(T);

  /// What workers tell each other in an epoch, each on a cache line of its own.
  struct Counters {
    alignas(kCacheLine) std::atomic<Index> batches{0};  ///< taken so far
    alignas(kCacheLine) std::atomic<Index> updates{0};  ///< begun so far
    alignas(kCacheLine) std::atomic<bool> stop{false};  ///< no worker begins another batch
  };
  Counters& counters() { return *counters_; }

 private:
  std::shared_ptr<comm::SharedMemory> memory_;
  Counters* counters_;
  std::uint64_t* words_;
};

}  // namespace pdnn::strategy
