#pragma once
/// Model: a network with its parameters and gradients, each one flat buffer.
#include <map>
#include <mutex>

#include "pdnn/nn/loss.hpp"
#include "pdnn/nn/workspace.hpp"

namespace pdnn::nn {

template <class T>
class Model {
 public:
  /// Behind the gradients lies room for a step's sums (loss, correct, stop), which ride along when ranks agree on them.
  static constexpr Index kTail = 3;

  /// Draws the initial parameters: a function of (seed, index of the layer, index of the element).
  Model(std::shared_ptr<const Network<T>> network, std::uint64_t seed);

  /// The network bound to a sample shape; the same one for the same shape. Throws ValueError if the shape does not fit.
  std::shared_ptr<const Network<T>> bound(const Shape& in) const;
  std::vector<Parameter> parameters() const { return network_->parameters(); }

  Index count() const { return params->size(); }
  /// The gradients and their tail.
  std::span<T> grads_and_tail() { return {grads->data(), static_cast<std::size_t>(grads->size())}; }

  // Shared, so that arrays which look into them may outlive the model.
  std::shared_ptr<Buffer<T>> params, grads;

 private:
  std::shared_ptr<const Network<T>> network_;
  mutable std::mutex mutex_;
  mutable std::vector<std::pair<Shape, std::shared_ptr<const Network<T>>>> bound_;
};

/// One forward pass, loss and backward pass over a batch, by every member of pass.team. Stores (or adds) the gradient
/// of scale × the sum of the rows' losses; returns the sums over the rows.
template <class T>
LossValue run_pass(const Network<T>& network, std::span<const T> params, Workspace<T>& workspace, const Loss<T>& loss,
                   const Pass& pass, Tensor<const T> x, const Target<T>& target, double scale, std::span<T> grads);

}  // namespace pdnn::nn
