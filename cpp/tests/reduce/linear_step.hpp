#pragma once
/// The step of a network of linear layers on one rank, for which gradient reducers are made.
#include <memory>
#include <vector>

#include "pdnn/engine/engine.hpp"
#include "pdnn/nn/layers/linear.hpp"
#include "pdnn/nn/losses/cross_entropy.hpp"
#include "pdnn/optim/optimizer.hpp"
#include "pdnn/reduce/gradient_reducer.hpp"

namespace pdnn::tests {

template <class T>
std::shared_ptr<nn::Network<T>> linear(const std::vector<Index>& widths) {
  const nn::Init init{nn::Init::Kind::uniform, 0.5};
  std::vector<nn::LayerPtr<T>> layers;
  for (std::size_t i = 1; i < widths.size(); ++i)
    layers.push_back(std::make_shared<nn::Linear<T>>(widths[i - 1], widths[i], true, init, init));
  return std::make_shared<nn::Network<T>>(layers);
}

/// Its parts refer to each other: it stays where it is.
struct LinearStep {
  explicit LinearStep(const std::vector<Index>& widths)
      : model(linear<double>(widths), 3),
        network(model.bound({widths.front()})),
        job{model, *network, loss, {widths.front()}} {
    sgd.set_segments({{model.count(), 0.1, 0, false}});
  }
  LinearStep(const LinearStep&) = delete;
  LinearStep& operator=(const LinearStep&) = delete;
  reduce::Replica<double> in_leaves(Index leaves) { return {job, sgd, engine, timer, leaves}; }

  nn::Model<double> model;
  std::shared_ptr<const nn::Network<double>> network;
  nn::CrossEntropyLoss<double> loss{nn::Reduction::mean};
  optim::Optimizer<double> sgd{model.count(), kernels::Sgd{}};
  engine::Job<double> job;
  engine::TeamEngine<double> engine{job, 1, 4};
  data::PhaseTimer timer;
};

}  // namespace pdnn::tests
