#include "pdnn/threads/round_trip.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "pdnn/core/memory.hpp"
#include "pdnn/threads/cores.hpp"

namespace pdnn::threads {

double measure_round_trip() {
  using Clock = std::chrono::steady_clock;
  constexpr int kRuns = 50, kTrips = 20, kLast = -1;
  constexpr double kLongRun = 0.001;
  alignas(kCacheLine) std::atomic<int> ball{0};  // odd: on its way there; even: back
  std::thread other([&] {
    for (;;) {
      int seen;
      while ((seen = ball.load(std::memory_order_acquire)) % 2 == 0) {
      }
      if (seen == kLast) return;
      ball.store(seen + 1, std::memory_order_release);
    }
  });
  if (const CoreSet others = allowed_cores_but(current_core()); others.any()) restrict_to(other, others);
  int thrown = -1;
  const auto throw_ball = [&] {
    ball.store(thrown += 2, std::memory_order_release);
    while (ball.load(std::memory_order_acquire) == thrown) {
    }
  };
  throw_ball();  // the other thread runs
  double fastest = std::numeric_limits<double>::infinity();
  for (int run = 0; run < kRuns; ++run) {
    const auto start = Clock::now();
    for (int trip = 0; trip < kTrips; ++trip) throw_ball();
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    fastest = std::min(fastest, seconds / kTrips);
    if (seconds > kLongRun) break;
  }
  ball.store(kLast, std::memory_order_release);
  other.join();
  return fastest;
}

}  // namespace pdnn::threads
