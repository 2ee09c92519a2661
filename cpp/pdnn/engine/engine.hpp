#pragma once
/// Engine: how a gradient is made on one rank. Team: threads inside each layer (of one: serial). Pool: threads over
/// pieces.
#include <array>

#include "pdnn/data/metrics.hpp"
#include "pdnn/data/source.hpp"
#include "pdnn/data/step.hpp"
#include "pdnn/engine/leaf_gradients.hpp"
#include "pdnn/optim/optimizer.hpp"
#include "pdnn/threads/thread_pool.hpp"

namespace pdnn::engine {

using data::Batch;
using data::CompressionStats;
using data::Source;
using data::Step;
using data::Steps;
using threads::Member;

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
  /// Whether gradient() uses the hooks' grad_ready and fused_update: slices become final one after another, hot in
  /// cache.
  virtual bool announces() const = 0;
  /// Stores the gradient of the step's rows in model.grads, commits the buffers, and returns the sums over these rows.
  /// Of a step in leaves: the gradients of its run's nodes are in model.grads and hooks.more_nodes, and the sums of
  /// each of its leaves are in hooks.leaf_sums, from which whoever knows all leaves makes those of the batch.
  virtual nn::LossValue gradient(const Source<T>& source, const Step& step, const nn::Hooks<T>& hooks) = 0;
  /// Makes these steps, if it has a shorter way than gradient() and an update for each: a small network's step is
  /// shorter than what else comes between. Adds the sums of each to `sums`, in their order. False, and nothing is done,
  /// if it has none. Of a source and a loss that do not weigh rows.
  virtual bool steps(const Source<T>& /*source*/, const Steps& /*steps*/, optim::Optimizer<T>& /*optimizer*/,
                     nn::LossValue& /*sums*/) {
    return false;
  }
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
  nn::LossValue gradient(const Source<T>& source, const Step& step, const nn::Hooks<T>& hooks) override;
  bool steps(const Source<T>& source, const Steps& steps, optim::Optimizer<T>& optimizer, nn::LossValue& sums) override;
  threads::Team& team() override { return team_; }

 private:
  using Engine<T>::job_;

  threads::Team team_;
  nn::Workspace<T> workspace_;
  LeafNodes leaves_;  // of a step in leaves
};

/// The leaves of a step, or a fixed number of pieces of one without, whichever worker takes them: their gradients are
/// added up by the tree of core/leaves.hpp, and their statistics are committed in their order, so neither the number of
/// workers nor their timing changes a bit. A synchronized layer needs all leaves at once: then each worker takes a run
/// of them in one pass, and they meet in the layer.
template <class T>
class PoolEngine : public Engine<T> {
 public:
  /// `pieces`: of a step without leaves, or the most leaves of a run; `capacity`: rows of all of them.
  PoolEngine(const Job<T>& job, int workers, Index pieces, Index capacity);
  bool announces() const override { return false; }  // a gradient is final when all pieces are joined
  nn::LossValue gradient(const Source<T>& source, const Step& step, const nn::Hooks<T>& hooks) override;
  threads::Team& team() override { return pool_.team(); }

 private:
  using Engine<T>::job_;

  struct Worker {
    nn::Workspace<T> workspace;
    AlignedArray<T> grads, more_nodes;
    LeafNodes leaf;  // of a step in leaves: the one that it is at, or those of its run
  };
  /// Adds up over the workers, then over those who share the batch with them. All meet in it.
  struct WorkerSum : nn::BatchSum {
    WorkerSum(PoolEngine& owner, const Member& its_worker, nn::BatchSum* others)
        : engine(owner), worker(its_worker), outside(others) {}
    void sum(std::span<double> values) override;
    PoolEngine& engine;
    const Member& worker;
    nn::BatchSum* outside;
  };

  nn::LossValue leaf_by_leaf(const Source<T>& source, const Step& step, const nn::Hooks<T>& hooks);
  void run_by_run(const Source<T>& source, const Step& step, const nn::Hooks<T>& hooks);
  void cut_runs(const Step& step);
  void join_runs(const Member& member, const nn::Hooks<T>& hooks);

  Index pieces_;
  threads::ThreadPool pool_;
  std::vector<Worker> workers_;
  LeafGradients<T> waiting_;
  Range run_;                                      // of the leaves of the last step
  std::vector<Range> nodes_;                       // of that run
  std::vector<T*> made_;                           // run by run: the gradients of the workers' nodes
  std::vector<std::array<std::size_t, 2>> joins_;  // of which the second is added to the first, one after another
  std::vector<std::size_t> whole_;                 // and what is then those of the nodes of the run
  std::vector<std::span<double>> summed_;          // of each worker, while they meet in a layer
  std::vector<nn::LossValue> sums_;                // of the pieces of a step without leaves
};

}  // namespace pdnn::engine
