#include "pdnn/threads/barrier.hpp"

#include <chrono>
#include <thread>

#include "pdnn/core/errors.hpp"
#include "pdnn/threads/cores.hpp"

namespace pdnn::threads {

namespace {

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Patience Patience::for_team(int threads) { return threads <= available_cores() ? Patience{} : Patience{0, 20}; }

std::uint32_t wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t seen, Patience patience) {
  for (int look = 0; look < patience.spins + patience.yields; ++look) {
    if (const std::uint32_t now = value.load(std::memory_order_acquire); now != seen) return now;
    if (look < patience.spins) {
      pause();
    } else if (!yield_core()) {
      if (patience.spins == 0) break;                              // other members are to have the core
      std::this_thread::sleep_for(std::chrono::microseconds(10));  // value.wait() would give the core away, too
    }
  }
  value.wait(seen, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

void Barrier::wait() {
  if (size_ == 1) return;
  std::uint32_t seen = generation_.load(std::memory_order_acquire);
  if ((seen & kAborted) == 0) {
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      seen = generation_.fetch_add(2, std::memory_order_acq_rel);
      generation_.notify_all();
    } else {
      seen = wait_for_change(generation_, seen, patience_);
    }
  }
  if ((seen & kAborted) != 0) throw Aborted("barrier: another member failed");
}

void Barrier::abort() {
  generation_.fetch_or(kAborted, std::memory_order_acq_rel);
  generation_.notify_all();
}

void Barrier::reset() {
  arrived_.store(0, std::memory_order_relaxed);
  generation_.store(0, std::memory_order_release);
}

}  // namespace pdnn::threads
