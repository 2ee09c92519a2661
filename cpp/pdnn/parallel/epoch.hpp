#pragma once
/// What surrounds the steps of an epoch: the order of its rows, the layout of parameters, evaluation.
#include "pdnn/parallel/strategy.hpp"

namespace pdnn::parallel {

/// The order in which an epoch takes rows 0 … count − 1: a function of (seed, epoch) alone, the same on every rank.
std::vector<Index> epoch_order(std::uint64_t seed, std::uint64_t epoch, Index count);

/// `count` rows of 0 … rows − 1, each drawn independently of the others: a function of (seed, epoch) alone.
std::vector<Index> draw_rows(std::uint64_t seed, std::uint64_t epoch, Index count, Index rows);

/// The key of an epoch's augmentation.
Rng augmentation_key(std::uint64_t seed, std::uint64_t epoch);

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
