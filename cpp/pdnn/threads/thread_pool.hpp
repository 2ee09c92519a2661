#pragma once
/// ThreadPool: numbered tasks taken by whichever worker is free, with a turnstile that puts their results in order.
#include <atomic>

#include "pdnn/threads/team.hpp"

namespace pdnn::threads {

/// Lets tasks through one at a time in the order of their numbers, in whatever order they finish.
class Turnstile {
 public:
  explicit Turnstile(Patience patience) : patience_(patience) {}

  /// Waits for the turn of task `number`, runs `action`, and lets the next one in. Throws Aborted after abort().
  template <class Action>
  void pass(Index number, Action&& action) {
    wait_for(number);
    action();
    turn_.add(1);
  }
  void abort();
  void reset();

 private:
  static constexpr std::uint32_t kAborted = 1u << 31;
  void wait_for(Index number);

  Patience patience_;
  Signal turn_;
};

/// A task's surroundings: its number, who runs it, and the turnstile.
struct Task {
  Index number;
  int worker;
  Turnstile& order;
};

class ThreadPool {
 public:
  explicit ThreadPool(int workers) : team_(workers), order_(Patience::for_team(workers)) {}
  int workers() const { return team_.size(); }
  /// The workers, for what they do all at once.
  Team& team() { return team_; }

  /// Calls action(Task) once for each number in 0 … count − 1; the caller works too. Rethrows the first real error.
  template <class Action>
  void run(Index count, Action&& action) {
    next_.store(0, std::memory_order_relaxed);
    order_.reset();
    team_.run([&](const Member& member) {
      try {
        for (Index number; (number = next_.fetch_add(1, std::memory_order_relaxed)) < count;)
          action(Task{number, member.index, order_});
      } catch (...) {
        order_.abort();
        throw;
      }
    });
  }

 private:
  Team team_;
  Turnstile order_;
  std::atomic<Index> next_{0};
};

}  // namespace pdnn::threads
