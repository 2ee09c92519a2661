#pragma once
/// InPanels: a model whose weights lie in panels while an epoch lasts.
#include "pdnn/nn/model.hpp"
#include "pdnn/optim/optimizer.hpp"

namespace pdnn::engine {

/// While it lives, a model's parameters and gradients and an optimizer's state lie in panels, for a network that has
/// them so, and nobody else need know of it. The gradients from before are lost.
template <class T>
class InPanels {
 public:
  InPanels(const nn::Network<T>& network, nn::Model<T>& model, optim::Optimizer<T>& optimizer);
  ~InPanels();
  InPanels(const InPanels&) = delete;
  InPanels& operator=(const InPanels&) = delete;

 private:
  void from_rows(std::span<T> values);
  void to_rows(std::span<T> values);

  const nn::Layout<T>& layout_;
  nn::Model<T>& model_;
  optim::Optimizer<T>& optimizer_;
  AlignedArray<T> room_;
};

}  // namespace pdnn::engine
