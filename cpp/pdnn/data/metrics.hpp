#pragma once
/// What is measured of training: the seconds of a step's phases, and what compression saves and loses.
#include <chrono>
#include <utility>

#include "pdnn/comm/communicator.hpp"

namespace pdnn::data {

/// Seconds that the phases of steps took on this rank. `messages` is what it waited, while it made its gradient, for
/// the ranks that hold the network or share a batch with it; `agreement` what it waited for the other replicas'
/// gradients, `hidden` how much longer that would have been, had they traveled while nothing else was done.
struct Phases {
  double broadcast = 0, scatter = 0, gradient = 0, messages = 0, agreement = 0, hidden = 0, update = 0;

  Phases& operator+=(const Phases& other) {
    broadcast += other.broadcast;
    scatter += other.scatter;
    gradient += other.gradient;
    messages += other.messages;
    agreement += other.agreement;
    hidden += other.hidden;
    update += other.update;
    return *this;
  }
};

/// Adds the time since the last lap to one phase after another.
class Stopwatch {
 public:
  void lap(double& phase) {
    const auto now = std::chrono::steady_clock::now();
    phase += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

/// Times the phases of steps on one thread. Phases nest: while one is timed within another, the outer one pauses.
class PhaseTimer {
 public:
  /// A phase lasts as long as this lives; then the one that it interrupted goes on.
  class [[nodiscard]] Scope {
   public:
    Scope(PhaseTimer& timer, double Phases::* phase) : timer_(timer), interrupted_(timer.change(phase)) {}
    ~Scope() { timer_.change(interrupted_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    PhaseTimer& timer_;
    double Phases::* interrupted_;
  };
  Scope time(double Phases::* phase) { return {*this, phase}; }

  /// Seconds of a phase so far.
  double seconds(double Phases::* phase) {
    change(current_);
    return phases_.*phase;
  }
  void add_hidden(double seconds) { phases_.hidden += seconds; }
  /// All phases since the last call.
  Phases take() { return std::exchange(phases_, {}); }

 private:
  using Clock = std::chrono::steady_clock;

  /// The time since the last change belongs to the phase that was on. Waits for messages in a gradient, or in an update
  /// for the norm of a gradient whose parts other ranks have, are a phase of their own.
  double Phases::* change(double Phases::* phase) {
    const Clock::time_point now = Clock::now();
    const double waited = comm::traffic_of_this_thread().seconds;
    if (current_) {
      phases_.*current_ += std::chrono::duration<double>(now - since_).count();
      if (current_ == &Phases::gradient || current_ == &Phases::update) {
        phases_.*current_ -= waited - waited_before_;
        phases_.messages += waited - waited_before_;
      }
    }
    since_ = now;
    waited_before_ = waited;
    return std::exchange(current_, phase);
  }

  Phases phases_;
  double Phases::* current_ = nullptr;
  Clock::time_point since_{};
  double waited_before_ = 0;
};

/// What a rank has sent of gradients and activations, what it cost and what it lost.
struct CompressionStats {
  Index sums = 0;                ///< over ranks, where something is added up
  Index bytes = 0;               ///< that left this rank, each as often as it is sent
  Index bytes_uncompressed = 0;  ///< of the values themselves; of a sum what an all-reduce sends at least: 2 (p − 1)/p
  double encode_seconds = 0, decode_seconds = 0;
  double lost = 0, given = 0;  ///< Σ (x − decoded)² and Σ x² of what was encoded and measured; 0 where nothing is

  CompressionStats& operator+=(const CompressionStats& other) {
    sums += other.sums;
    bytes += other.bytes;
    bytes_uncompressed += other.bytes_uncompressed;
    encode_seconds += other.encode_seconds;
    decode_seconds += other.decode_seconds;
    lost += other.lost;
    given += other.given;
    return *this;
  }
};

}  // namespace pdnn::data
