#pragma once
/// Barrier: a meeting point of a fixed number of threads that spins for a bounded time, then yields, then sleeps, and
/// can be aborted.
#include <atomic>
#include <cstdint>

#include "pdnn/core/memory.hpp"

namespace pdnn::threads {

/// How long a wait burns its core before it gives it away. A meeting of spinning threads costs 0.2 µs, waking a sleeper
/// 50 µs.
struct Patience {
  int spins = 2000;   ///< looks with a pause between them, some tens of microseconds
  int yields = 5000;  ///< then looks with a yield between them; then the thread sleeps

  /// Spins if every one of `threads` can have a core of its own, otherwise yields at once.
  static Patience for_team(int threads);
};

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
  alignas(kCacheLine) std::atomic<std::uint32_t> generation_{0};
};

/// Waits until `value` differs from `seen`, patiently; returns the new value.
std::uint32_t wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t seen, Patience patience);

}  // namespace pdnn::threads
