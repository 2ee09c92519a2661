#pragma once
/// Waiting: how a rank waits for the others. It polls without a pause, then yields between polls, then sleeps.
#include <chrono>

namespace pdnn::comm {

/// PDNN_TIMEOUT in seconds (default 300); infinite for 0. ValueError if it is not a number.
double timeout_from_environment();
/// PDNN_STALL_WARNING in seconds (default 60), after which a wait is told; infinite for 0. ValueError if it is no
/// number.
double stall_warning_from_environment();

/// Has every long wait of this process call `hook` about 20 times a second; it may throw (Python's signals).
void set_interrupt_hook(void (*hook)());

/// For whatever lasts long: calls the hook, about 20 times a second however often it is asked to.
class Interrupts {
 public:
  using Clock = std::chrono::steady_clock;

  /// True if it was time to.
  bool look(Clock::time_point now = Clock::now());

 private:
  static constexpr std::chrono::milliseconds kEvery{50};

  Clock::time_point next_ = Clock::now() + kEvery;
};

class Waiting {
 public:
  /// Between two looks. A nap is at most a thousandth of the time waited so far, or 10 µs where another thread computes
  /// on this core (Linux makes 60 of them). True about 20 times a second, for what is not looked at every time.
  bool pause();
  /// Up to the last look at the clock, which short waits do without.
  double seconds() const { return std::chrono::duration<double>(now_ - start_).count(); }
  double until_now() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int kEagerLooks = 1000;

  int looks_ = 0;
  Clock::time_point start_ = Clock::now(), now_ = start_;
  Interrupts interrupts_;
};

}  // namespace pdnn::comm
