#include "pdnn/threads/signal.hpp"

#include <limits>
#include <thread>

#include "pdnn/threads/cores.hpp"

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

std::uint32_t Signal::wait(std::uint32_t seen, Patience patience) {
  for (int look = 0; look < patience.spins + patience.yields; ++look) {
    if (const std::uint32_t now = load(); now != seen) return now;
    if (look < patience.spins) {
      pause();
    } else if (!yield_core()) {
      if (patience.spins == 0) break;     // other members are to have the core
      std::this_thread::sleep_for(kNap);  // whom another core wakes may be put there
    }
  }
  std::uint32_t now = load();
  for (; now == seen; now = load()) sleep(seen);
  return now;
}

#ifdef __linux__

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

void Signal::sleep(std::uint32_t seen) {
  sleepers_.fetch_add(1);
  syscall(SYS_futex, &number_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);  // unless it has changed
  sleepers_.fetch_sub(1);
}

void Signal::wake_sleepers() {
  syscall(SYS_futex, &number_, FUTEX_WAKE_PRIVATE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

#else

void Signal::sleep(std::uint32_t seen) {
  sleepers_.fetch_add(1);
  number_.wait(seen);
  sleepers_.fetch_sub(1);
}

void Signal::wake_sleepers() { number_.notify_all(); }

#endif

}  // namespace pdnn::threads
