#pragma once
/// The core's objects from their descriptions.
#include "pdnn/kernels/products.hpp"
#include "pdnn/library/json.hpp"
#include "pdnn/nn/loss.hpp"
#include "pdnn/nn/network.hpp"
#include "pdnn/optim/optimizer.hpp"

namespace pdnn::library {

/// The layers of an architecture, {"layers": […]}. ValueError, which names the layer and the option, if there is no
/// such one.
template <class T>
std::shared_ptr<nn::Network<T>> build_network(const Json& architecture, kernels::Precision precision);

/// The same description with what a model file keeps of it: initial values are for new models only.
Json kept(const Json& architecture);

template <class T>
std::shared_ptr<nn::Loss<T>> build_loss(const Json& loss);

struct OptimizerNumbers {
  kernels::Rule rule;
  double lr, weight_decay;
};
OptimizerNumbers read_optimizer(const Json& optimizer);

}  // namespace pdnn::library
