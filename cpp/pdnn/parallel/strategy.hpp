#pragma once
/// Strategy: one training step over a global batch, of which this rank does its part.
#include <chrono>

#include "pdnn/comm/communicator.hpp"
#include "pdnn/parallel/engine.hpp"
#include "pdnn/parallel/rank_sums.hpp"

namespace pdnn::parallel {

/// Seconds that the phases of steps took on this rank.
struct Phases {
  double broadcast = 0, scatter = 0, gradient = 0, agreement = 0, update = 0;
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

/// The same on every rank: sums over the global batch, and whether a rank asked to stop.
struct StepSums {
  nn::LossValue loss;
  bool stop = false;
};

/// One step of an epoch.
struct Turn {
  std::span<const Index> batch;  ///< rows of the source behind its update
  std::span<const Index> next;   ///< rows of the step after it; empty: there is none
  Rng key;
  bool stop;  ///< asks all ranks to end after this step

  /// After the last step of an epoch the gradient is there to be looked at.
  bool last() const { return next.empty() || stop; }
};

template <class T>
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual StepSums step(const Source<T>& source, const Turn& turn) = 0;
  /// After the last step of an epoch: all ranks hold the same state again, which each may have learned from its own
  /// rows.
  virtual void end_epoch() = 0;

  Phases phases;
};

/// Every rank holds the whole network and makes the gradient of its share of the rows; one all-reduce of the flat
/// gradient (with the step's sums in its tail) adds the shares up, and every rank makes the same update. Alone there is
/// nothing to agree on, and updates are made inside the backward pass.
template <class T>
class Replicated : public Strategy<T> {
 public:
  Replicated(const Job<T>& job, optim::Optimizer<T>& optimizer, std::unique_ptr<Engine<T>> engine,
             std::shared_ptr<comm::Communicator> comm);
  StepSums step(const Source<T>& source, const Turn& turn) override;
  void end_epoch() override { average_state(job_.model, *comm_); }

 private:
  Job<T> job_;
  optim::Optimizer<T>& optimizer_;
  std::unique_ptr<Engine<T>> engine_;
  std::shared_ptr<comm::Communicator> comm_;
  RankSum batch_sum_;
  UpdateWhenFinal<T> update_;
};

/// Writes a step's sums behind the gradients, and reads them back after an agreement.
template <class T>
void write_tail(nn::Model<T>& model, const StepSums& sums);
template <class T>
StepSums read_tail(nn::Model<T>& model);

}  // namespace pdnn::parallel
