#pragma once
/// Signal: a number that threads change and wait on, spinning for a bounded time, then yielding, then asleep.
#include <atomic>
#include <cstdint>

namespace pdnn::threads {

/// How long a wait burns its core before it gives it away. A meeting of spinning threads costs 0.2 µs, waking a sleeper
/// 50 µs.
struct Patience {
  int spins = 2000;   ///< looks with a pause between them, some tens of microseconds
  int yields = 5000;  ///< then looks with a yield between them; then the thread sleeps

  /// Spins if every one of `threads` can have a core of its own, otherwise yields at once.
  static Patience for_team(int threads);
};

/// An atomic number. It does what std::atomic's wait does, but for giving the core away before it sleeps: a program
/// that computes would have it for milliseconds.
class Signal {
 public:
  std::uint32_t load() const { return number_.load(std::memory_order_acquire); }
  /// Wakes nobody.
  void store(std::uint32_t number) { number_.store(number, std::memory_order_release); }
  /// Adds, and wakes all who wait; returns what it was.
  std::uint32_t add(std::uint32_t step) {
    const std::uint32_t was = number_.fetch_add(step);
    wake();
    return was;
  }
  /// Sets these bits, and wakes all who wait.
  void set(std::uint32_t bits) {
    number_.fetch_or(bits);
    wake();
  }
  /// Takes 1 away, and wakes all who wait if nothing is left.
  void count_down() {
    if (number_.fetch_sub(1) == 1) wake();
  }
  /// Waits until the number is not `seen`, patiently; returns the new one.
  std::uint32_t wait(std::uint32_t seen, Patience patience);

 private:
  void sleep(std::uint32_t seen);
  void wake() {
    if (sleepers_.load() != 0) wake_sleepers();
  }
  void wake_sleepers();

  // Each side writes its own number before it reads the other's, all in one order: who is to sleep sees the change, or
  // who changes it sees a sleeper.
  std::atomic<std::uint32_t> number_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

}  // namespace pdnn::threads
