#pragma once
/// Epochs: steps one after another over the rows of an epoch, and evaluation without steps.
#include <functional>

#include "pdnn/parallel/strategy.hpp"

namespace pdnn::parallel {

/// The order in which an epoch takes rows 0 … count − 1: a function of (seed, epoch) alone, the same on every rank.
std::vector<Index> epoch_order(std::uint64_t seed, std::uint64_t epoch, Index count);

/// `count` rows of 0 … rows − 1, each drawn independently of the others: a function of (seed, epoch) alone.
std::vector<Index> draw_rows(std::uint64_t seed, std::uint64_t epoch, Index count, Index rows);

/// The key of an epoch's augmentation.
Rng augmentation_key(std::uint64_t seed, std::uint64_t epoch);

struct Epoch {
  std::span<const Index> order;  ///< rows of the source
  Index batch_size;              ///< rows of one update, over all ranks; the last batch may be smaller
  std::uint64_t seed;
  std::int64_t first_step;     ///< steps made before this epoch
  Matrix<const double> rates;  ///< learning rates: a row a step, of one a group; no rows: as the optimizer has them
};

struct EpochSums {
  double loss = 0, correct = 0;
  Index rows = 0, steps = 0;
  double seconds = 0;
  Phases phases;
  bool stopped = false;
};

/// Called between steps, every few dozen milliseconds; true asks all ranks to stop after the next step. What it throws
/// ends the epoch between two steps.
using Poll = std::function<bool(const EpochSums&)>;

/// While it lives, a model's parameters and gradients and an optimizer's memory lie in panels, for a network that has
/// them so, and nobody else need know of it. The gradients from before are lost.
template <class T>
class InPanels {
 public:
  InPanels(const nn::Network<T>& network, nn::Model<T>& model, optim::Optimizer<T>& optimizer);
  ~InPanels();
  InPanels(const InPanels&) = delete;
  InPanels& operator=(const InPanels&) = delete;

 private:
  const nn::Network<T>& network_;
  nn::Model<T>& model_;
  optim::Optimizer<T>& optimizer_;
  Buffer<T> room_;
};

/// Whole steps until the order is used up or a rank stops.
template <class T>
EpochSums run_epoch(Strategy<T>& strategy, optim::Optimizer<T>& optimizer, comm::Communicator& comm,
                    const Source<T>& source, const Epoch& epoch, const Poll& poll);

/// Outputs and losses in evaluation mode, a chunk of rows at a time, by a team of threads; never communicates.
template <class T>
class Evaluator {
 public:
  Evaluator(const nn::Model<T>& model, std::shared_ptr<const nn::Network<T>> network, const Shape& sample, int threads);

  nn::LossValue loss(const nn::Loss<T>& loss, const Source<T>& source, std::span<const Index> rows);
  /// out: [rows, outputs]
  void predict(const Source<T>& source, std::span<const Index> rows, T* out);

 private:
  template <class Chunk>
  void each_chunk(const Source<T>& source, std::span<const Index> rows, Chunk&& chunk);

  static constexpr Index kChunk = 256;
  const nn::Model<T>& model_;
  std::shared_ptr<const nn::Network<T>> network_;
  threads::Team team_;
  nn::Workspace<T> workspace_;
};

}  // namespace pdnn::parallel
