#include "pdnn/threads/thread_pool.hpp"

#include "pdnn/core/errors.hpp"

namespace pdnn::threads {

void Turnstile::wait_for(Index number) {
  std::uint32_t turn = turn_.load(std::memory_order_acquire);
  while (turn != static_cast<std::uint32_t>(number)) {
    if ((turn & kAborted) != 0) throw Aborted("pool: another task failed");
    turn = wait_for_change(turn_, turn, patience_);
  }
}

void Turnstile::abort() {
  turn_.fetch_or(kAborted, std::memory_order_acq_rel);
  turn_.notify_all();
}

void Turnstile::reset() { turn_.store(0, std::memory_order_release); }

}  // namespace pdnn::threads
