#pragma once
/// GradientReducer: how replicas come from their own gradients to the same update.
#include "pdnn/engine/engine.hpp"
#include "pdnn/reduce/compression.hpp"
#include "pdnn/reduce/rank_sums.hpp"

namespace pdnn::reduce {

using data::CompressionStats;
using data::Phases;
using data::Source;
using data::Step;
using data::Stopwatch;
using engine::Engine;
using engine::Job;
using threads::Member;

/// Sums over the rows that a step counts, and whether all ranks end after it.
struct StepSums {
  nn::LossValue loss;
  Index rows = 0;
  bool stop = false;
  bool bad = false;   ///< a gradient is not finite, where this would not be seen in the loss or the parameters
  double weight = 0;  ///< of those rows in the loss; 0: there was no update
};

/// Writes a step's sums behind the gradients, and reads them back after an agreement, over all the batch's rows.
template <class T>
void write_tail(nn::Model<T>& model, const StepSums& sums);
template <class T>
StepSums read_tail(const T* tail, Index rows);

/// What an agreement works on.
template <class T>
struct Replica {
  const Job<T>& job;
  optim::Optimizer<T>& optimizer;
  Engine<T>& engine;
  data::PhaseTimer& timer;
  Index leaves = 0;  ///< into which the ranks' common batch is cut, for sums that no layout changes; 0: it is not
};

template <class T>
class GradientReducer {
 public:
  virtual ~GradientReducer() = default;
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  /// Around the steps of an epoch; also after one that failed.
  virtual void begin_epoch() {}
  virtual void end_epoch() {}
  /// One update of the parameters: this rank makes the gradient of its rows, and the ranks agree on their sum. With
  /// `keep` the gradient of the global batch is in the model afterwards. Returns the sums of all ranks.
  StepSums step(const Source<T>& source, const Step& own, nn::BatchSum* batch_sum, bool keep);
  /// Its two halves. Before the gradient is made: whom the backward pass has to tell.
  virtual nn::Hooks<T> begin_step(bool keep) = 0;
  /// After it: every rank's parameters have been updated by the sum of all gradients.
  virtual StepSums finish_step(const StepSums& own) = 0;
  /// Of a step whose rows do not count there is no update, and the gradient in the model afterwards is 0.
  virtual void step_without_weight() { std::ranges::fill(model().grads->span(), T{}); }
  /// The parameters, and what the optimizer remembers of them, that this rank copies and puts back for all that share
  /// them; and waits until all of these may write, or read.
  virtual Range own_elements() const { return {0, model().count()}; }
  virtual void meet() const {}
  /// What sums by a codec have sent since the last call, and what they remember from step to step.
  virtual CompressionStats take_stats() { return {}; }
  virtual std::vector<std::span<T>> memory() { return {}; }

 protected:
  explicit GradientReducer(const Replica<T>& replica)
      : replica_(replica), leaf_sums_(static_cast<std::size_t>(replica.leaves)) {}
  nn::Model<T>& model() const { return replica_.job.model; }
  /// Slices become final one after another, and may be updated before the rest is there.
  bool slice_by_slice() const { return replica_.engine.announces() && !replica_.optimizer.clip(); }

  Replica<T> replica_;
  std::vector<nn::LossValue> leaf_sums_;  // room for those of a step
};

/// Bytes of gradient in a bucket that travels by a codec. Not measured: what a codec loses depends on where a bucket
/// ends, and runs would differ.
inline constexpr Index kCodedBucketBytes = Index{1} << 18;

/// How replicas agree, as users choose it.
struct ReducerOptions {
  enum class Memory { measured, shared, messages } memory = Memory::measured;  ///< between ranks of one machine
  Index bucket_bytes = 0;                         ///< of messages; 0: measured, or by a codec kCodedBucketBytes
  std::shared_ptr<comm::Communicator> machine{};  ///< the ranks that may share memory; null: those of one machine
  std::optional<Compression> compression{};       ///< of messages; none: gradients travel as they are
};

/// The agreement for the ranks of `comm`; collective. ValueError if memory must be shared and cannot be.
template <class T>
std::unique_ptr<GradientReducer<T>> make_gradient_reducer(const Replica<T>& replica,
                                                          const std::shared_ptr<comm::Communicator>& comm,
                                                          const ReducerOptions& options);

}  // namespace pdnn::reduce
