#pragma once
/// make_strategy: a strategy from its configuration.
#include "pdnn/strategy/config.hpp"
#include "pdnn/strategy/strategy.hpp"

namespace pdnn::strategy {

/// What a strategy works on; it outlives the strategy.
template <class T>
struct Training {
  /// ValueError if the model does not take such samples, or the loss not its outputs with such targets.
  Training(std::shared_ptr<nn::Model<T>> model, std::shared_ptr<nn::Loss<T>> loss,
           std::shared_ptr<optim::Optimizer<T>> optimizer, std::shared_ptr<comm::Communicator> comm,
           const Shape& sample, Index target_width, Index batch_size);

  std::shared_ptr<nn::Model<T>> model;
  std::shared_ptr<nn::Loss<T>> loss;
  std::shared_ptr<optim::Optimizer<T>> optimizer;
  std::shared_ptr<comm::Communicator> comm;
  Shape sample;
  Index target_width;                             ///< values a row; 0: classes
  Index batch_size;                               ///< the largest, over all ranks
  std::shared_ptr<const nn::Network<T>> network;  ///< the model's, for these samples, with weights in panels
};

/// Collective: every rank passes the same configuration, but for the engine. ValueError if it does not fit the network
/// or the ranks.
template <class T>
std::unique_ptr<Strategy<T>> make_strategy(const StrategyConfig& config, const Training<T>& training);

}  // namespace pdnn::strategy
