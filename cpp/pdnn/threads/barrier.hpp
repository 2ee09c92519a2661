#pragma once
/// Barrier: a meeting point of a fixed number of threads that spins for a bounded time, then yields, then sleeps, and
/// can be aborted.
#include <atomic>
#include <cstdint>

#include "pdnn/core/memory.hpp"
#include "pdnn/threads/signal.hpp"

namespace pdnn::threads {

class Barrier {
 public:
  explicit Barrier(int size, Patience patience = {}) : size_(size), patience_(patience) {}

  /// Returns when all `size` threads have called. Throws Aborted if abort() is called before or meanwhile.
  void wait();
  /// Releases every waiting thread, and those still to come, with Aborted.
  void abort();
  /// Makes an aborted barrier usable again; no member may be waiting.
  void reset();

 private:
  static constexpr std::uint32_t kAborted = 1;  // the lowest bit of the generation

  int size_;
  Patience patience_;
  alignas(kCacheLine) std::atomic<int> arrived_{0};
  alignas(kCacheLine) Signal generation_;
};

}  // namespace pdnn::threads
