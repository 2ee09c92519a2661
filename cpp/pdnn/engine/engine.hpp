#pragma once
/// Engine: how a gradient is made on one rank. Team: threads inside each layer (of one: serial). Pool: threads over
/// pieces.
#include "pdnn/data/metrics.hpp"
#include "pdnn/data/source.hpp"
#include "pdnn/optim/optimizer.hpp"
#include "pdnn/threads/thread_pool.hpp"

namespace pdnn::engine {

using data::Batch;
using data::CompressionStats;
using data::Source;
using threads::Member;

/// The rows of a source that this rank works on, the first of them at `first_row` of the global batch.
template <class T>
struct Rows {
  const Source<T>& source;
  std::span<const Index> indices;
  Index first_row;

  Rows part(Range range) const {
    const std::span<const Index> cut =
        indices.subspan(static_cast<std::size_t>(range.begin), static_cast<std::size_t>(range.size()));
    return {source, cut, first_row + range.begin};
  }
  Index count() const { return static_cast<Index>(indices.size()); }
};

/// What a gradient depends on beside rows and parameters. `scale` is given by whoever knows the global batch, so the
/// sums of members, pieces and ranks simply add up and nothing is divided by a number of workers.
template <class T>
struct Step {
  Rng key;
  double scale;
  nn::BatchSum* batch_sum = nullptr;
  nn::GradReady* final = nullptr;
  const nn::FusedUpdate<T>* updates = nullptr;
  std::span<const Index> next{};  // rows of the step after this one
};

/// What an engine works on: a model, its network bound to the samples' shape, and a loss. They outlive the engine.
template <class T>
struct Job {
  nn::Model<T>& model;
  const nn::Network<T>& network;
  const nn::Loss<T>& loss;
  Shape sample;
};

template <class T>
class Engine {
 public:
  virtual ~Engine() = default;
  /// Whether gradient() uses step.final and step.updates: slices become final one after another, hot in cache.
  virtual bool announces() const = 0;
  /// Stores this rank's gradient in model.grads, commits the state, and returns the sums over its rows.
  virtual nn::LossValue gradient(const Rows<T>& rows, const Step<T>& step) = 0;
  /// The threads, for what they do all at once between gradients.
  virtual threads::Team& team() = 0;
  /// What gradients have sent to other ranks since the last call.
  virtual CompressionStats take_stats() { return {}; }

  /// Parameters from the gradient, by all threads. An optimizer that clips wants the whole range.
  void update(optim::Optimizer<T>& optimizer, Range range);

 protected:
  explicit Engine(const Job<T>& job) : job_(job) {}

  Job<T> job_;
};

/// The optimizer applied inside the backward pass: by a layer itself as it makes a gradient, or to a slice as it
/// becomes final, while it is hot in cache.
template <class T>
class UpdateInBackward : public nn::GradReady, public nn::FusedUpdate<T> {
 public:
  UpdateInBackward(nn::Model<T>& model, optim::Optimizer<T>& optimizer) : model_(model), optimizer_(optimizer) {}
  void operator()(const Member& member, Range slice) override;
  std::optional<kernels::Update<T>> of(Range slice) const override;

 private:
  nn::Model<T>& model_;
  optim::Optimizer<T>& optimizer_;
};

template <class T>
class TeamEngine : public Engine<T> {
 public:
  TeamEngine(const Job<T>& job, int threads, Index capacity)
      : Engine<T>(job), team_(threads), workspace_(job.network, job.sample, capacity) {}
  bool announces() const override { return true; }
  nn::LossValue gradient(const Rows<T>& rows, const Step<T>& step) override;
  threads::Team& team() override { return team_; }

 private:
  using Engine<T>::job_;

  threads::Team team_;
  nn::Workspace<T> workspace_;
};

/// A fixed number of pieces, whichever worker takes them: their gradients join, and their statistics are committed, in
/// the order of the pieces, so neither the number of workers nor their timing changes a bit.
template <class T>
class PoolEngine : public Engine<T> {
 public:
  PoolEngine(const Job<T>& job, int workers, Index pieces, Index capacity);
  bool announces() const override { return false; }  // a gradient is final when all pieces are joined
  nn::LossValue gradient(const Rows<T>& rows, const Step<T>& step) override;
  threads::Team& team() override { return pool_.team(); }

 private:
  using Engine<T>::job_;

  struct Worker {
    nn::Workspace<T> workspace;
    Buffer<T> grads;
  };

  Index pieces_;
  threads::ThreadPool pool_;
  std::vector<Worker> workers_;
};

}  // namespace pdnn::engine
