#include "pdnn/threads/thread_pool.hpp"

#include "pdnn/core/errors.hpp"

namespace pdnn::threads {

void Turnstile::wait_for(Index number) {
  std::uint32_t turn = turn_.load();
  while (turn != static_cast<std::uint32_t>(number)) {
    if ((turn & kAborted) != 0) throw Aborted("pool: another task failed");
    turn = turn_.wait(turn, patience_);
  }
}

void Turnstile::abort() { turn_.set(kAborted); }

void Turnstile::reset() { turn_.store(0); }

}  // namespace pdnn::threads
