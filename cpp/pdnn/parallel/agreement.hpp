#pragma once
/// Agreement: how replicas come from their own gradients to the same update. Alone there is nothing to agree on.
#include <chrono>

#include "pdnn/parallel/compression.hpp"
#include "pdnn/parallel/engine.hpp"
#include "pdnn/parallel/rank_sums.hpp"

namespace pdnn::parallel {

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

/// Sums over the rows that a step counts, and whether all ranks end after it.
struct StepSums {
  nn::LossValue loss;
  Index rows = 0;
  bool stop = false;
};

/// Writes a step's sums behind the gradients, and reads them back after an agreement, over all the batch's rows.
template <class T>
void write_tail(nn::Model<T>& model, const StepSums& sums);
template <class T>
StepSums read_tail(nn::Model<T>& model, Index rows);

/// What an agreement works on.
template <class T>
struct Replica {
  const Job<T>& job;
  optim::Optimizer<T>& optimizer;
  Engine<T>& engine;
};

template <class T>
class Agreement {
 public:
  virtual ~Agreement() = default;
  Agreement(const Agreement&) = delete;
  Agreement& operator=(const Agreement&) = delete;

  /// Around the steps of an epoch; also after one that failed.
  virtual void begin_epoch() {}
  virtual void end_epoch() {}
  /// Before a gradient is made: says whom the backward pass has to tell. With `keep` the whole gradient of the global
  /// batch must be in the model after the step.
  virtual void begin_step(Step<T>& step, bool keep) = 0;
  /// After it: every rank's parameters have been updated by the sum of all gradients. Returns the sums of all ranks.
  virtual StepSums finish_step(const StepSums& own, Phases& phases) = 0;
  /// What sums by a codec have sent since the last call, and what they remember from step to step.
  virtual Books take_books() { return {}; }
  virtual std::vector<std::span<T>> memory() { return {}; }

 protected:
  explicit Agreement(const Replica<T>& replica) : replica_(replica) {}
  nn::Model<T>& model() const { return replica_.job.model; }
  /// Slices become final one after another, and may be updated before the rest is there.
  bool slice_by_slice() const { return replica_.engine.announces() && !replica_.optimizer.clip(); }

  Replica<T> replica_;
};

/// One replica: updates are made inside the backward pass.
template <class T>
class Alone : public Agreement<T> {
 public:
  explicit Alone(const Replica<T>& replica) : Agreement<T>(replica), update_(replica.job.model, replica.optimizer) {}
  void begin_step(Step<T>& step, bool keep) override;
  StepSums finish_step(const StepSums& own, Phases& phases) override;

 private:
  UpdateWhenFinal<T> update_;
};

/// Bytes of gradient in a bucket that travels by a codec. Not measured: what a codec loses depends on where a bucket
/// ends, and runs would differ.
inline constexpr Index kCodedBucketBytes = Index{1} << 18;

/// How replicas agree, as users choose it.
struct AgreementOptions {
  enum class Memory { measured, shared, messages } memory = Memory::measured;  ///< between ranks of one machine
  Index bucket_bytes = 0;                         ///< of messages; 0: measured, or by a codec kCodedBucketBytes
  std::shared_ptr<comm::Communicator> machine{};  ///< the ranks that may share memory; null: those of one machine
  std::optional<Compression> compression{};       ///< of messages; none: gradients travel as they are
};

/// The agreement for the ranks of `comm`; collective. ValueError if memory must be shared and cannot be.
template <class T>
std::unique_ptr<Agreement<T>> make_agreement(const Replica<T>& replica, const std::shared_ptr<comm::Communicator>& comm,
                                             const AgreementOptions& options);

}  // namespace pdnn::parallel
