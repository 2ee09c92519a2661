#pragma once
/// What is measured of training: the seconds of a step's phases, and what compression saves and loses.
#include <chrono>

#include "pdnn/comm/communicator.hpp"

namespace pdnn::data {

/// Seconds that the phases of steps took on this rank. `messages` is what it waited, while it made its gradient, for
/// the ranks that hold the network or share a batch with it; `agreement` what it waited for the other replicas'
/// gradients, `hidden` how much longer that would have been, had they travelled while nothing else was done.
struct Phases {
  double broadcast = 0, scatter = 0, gradient = 0, messages = 0, agreement = 0, hidden = 0, update = 0;
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

/// Tells the making of a gradient from the waits for messages in it.
class GradientWatch {
 public:
  /// Adds the time since it was made, or since the last lap.
  void lap(Phases& phases) {
    const double waited = comm::traffic_of_this_thread().seconds;
    watch_.lap(phases.gradient);
    phases.gradient -= waited - waited_before_;
    phases.messages += waited - waited_before_;
    waited_before_ = waited;
  }

 private:
  Stopwatch watch_;
  double waited_before_ = comm::traffic_of_this_thread().seconds;
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
